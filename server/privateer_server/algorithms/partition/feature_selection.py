"""Feature selection by rounds about one feature at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import DEPTH_MAX, PartitionPolicy, PartitionSpec, corners
from privateer_core.answer.parts import FeatureSelection
from privateer_core.primitives.contributions import KeyedRelease
from privateer_core.privacy.cell_reports import people_for
from privateer_core.spec.columns import Block
from privateer_server.algorithms.partition.bin_tree import Space
from privateer_server.algorithms.partition.gaussian_process import BinEvidence
from privateer_server.algorithms.partition.kernel import Kernel, PriorScale, usual_lengths
from privateer_server.algorithms.partition.posterior.observations import Observations, observed
from privateer_server.algorithms.partition.round_estimates import Beliefs, Population, estimated

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_FEW: Final = 5
"""Experiments of so many features or fewer select none; so many are kept at most."""
_SHARE: Final = 0.1
_USUAL_PEOPLE: Final = 80_000
_GROWTH: Final = 0.363
"""A tenth of 80,000 people or fewer are asked; of more people a number that grows with this power: 2 % of a million."""
_MOST: Final = 0.5
"""Where one round about each feature takes a larger share of the people than this, there is none."""
_GAIN: Final = 0.0
"""A feature is kept if its variation makes what was said more likely by more than this, in natural logarithms."""
_CLEAR: Final = 3.0
"""Where no feature gains as much as this all are kept: what matters may do so only together with others."""
_NOBODY: Final = 1e-18
_EVEN: Final = 0.3
"""Standard deviation of a cell's share of people from what is expected, relative to it, before people are counted."""
_QUARTERS: Final = 2
"""Halvings of a number."""
_BITS: Final = 4
"""Bits of levels' codes that tell cells apart, at most: 16 cells."""


@dataclass(frozen=True)
class FeatureCells:
    """The cells of one feature: its levels, or quarters of its number, and those without a number."""

    name: str  # the feature's
    blocks: Ints  # shape (blocks of the feature,): their places in the spec's
    # axes, depths, paths: the tree, as a policy has it; shapes (`DEPTH_MAX`,) and (cells,)
    axes: Ints
    depths: Ints
    paths: Ints
    # lower, upper: shape (cells, columns): corners
    lower: Array
    upper: Array
    expected: Array  # shape (cells,): share of people in each if nothing is known of people

    def __len__(self) -> int:
        return len(self.depths)


def cells_of(spec: PartitionSpec) -> tuple[FeatureCells, ...]:
    """Return the cells of every feature, in order."""
    space, found, place, column = Space(spec.blocks), [], 0, 0
    for name, feature in spec.features.items():
        levels, leaves = _tree(feature.blocks)
        axes = np.append(column + np.array(levels, np.int64), np.zeros(DEPTH_MAX - len(levels), np.int64))
        depths, paths = (np.array(part, np.int64) for part in zip(*leaves, strict=True))
        box = corners(depths, paths, axes, spec.dimension)
        blocks = place + np.arange(len(feature.blocks))
        found.append(FeatureCells(name, blocks, axes, depths, paths, *box, space.expected(*box)))
        place, column = place + len(feature.blocks), column + feature.columns
    return tuple(found)


@dataclass(frozen=True)
class Selection:
    """The state of a feature selection, by cell; the cells of all features are in one order."""

    # evidence, population: what reports say of values, and of people, by cell
    evidence: BinEvidence
    population: Population
    asked: Ints  # shape (features,): people who were asked about each feature
    open: bool  # whether more people are asked
    gains: Array  # shape (features,): how much more likely the feature's variation makes what was observed, a logarithm
    kept: Bools  # shape (features,): features that matter, as far as is known; all while it is open
    ended: int  # the experiment's own people who had reported at the end

    @property
    def feature(self) -> int:
        """The feature that the next round asks about."""
        return int(np.argmin(self.asked))

    def with_arms(self, added: int) -> "Selection":
        """Return it with so many more arms at the end, of which nothing is known."""
        return replace(self, evidence=self.evidence.with_arms(added))

    def of_cohorts(self, rows: list[int]) -> "Selection":
        """Return it with the people of those cohorts."""
        return replace(self, population=self.population.of_cohorts(rows))


class FeatureSelector:
    """The rule by which features are kept: how much more likely each one's variation makes what was observed.

    cells: those of every feature.
    """

    def __init__(self, spec: PartitionSpec) -> None:
        self.cells, self._spec, self._space = cells_of(spec), spec, Space(spec.blocks)
        people = spec.experiment.horizon
        rounds = len(self.cells) * spec.first_batch("") <= _MOST * people
        # An experiment that cannot learn one feature gains nothing from knowing which one to take.
        self.selects = len(self.cells) > _FEW and rounds and people_for(spec, 1) <= people

    def start(self) -> Selection | None:
        """Return a selection for which nobody was asked yet; None where features are few, or people."""
        if not self.selects:
            return None
        expected = np.maximum(np.concatenate([one.expected for one in self.cells]), _NOBODY)
        shares, features = np.tile(expected, (len(self._spec.cohorts), 1)), len(self.cells)
        return Selection(
            evidence=BinEvidence.nothing(len(expected), self._spec.arm_count),
            population=Population(shares, (_EVEN * shares) ** -2),
            asked=np.zeros(features, np.int64),
            open=True,
            gains=np.zeros(features),
            kept=np.ones(features, np.bool_),
            ended=0,
        )

    def blocks(self, selection: Selection | None) -> Ints:
        """Places of the blocks of features that are kept."""
        kept = [one.blocks for place, one in enumerate(self.cells) if selection is None or selection.kept[place]]
        return np.concatenate(kept)

    def rows(self, feature: int) -> slice:
        """Return the places of a feature's cells among those of all."""
        start = sum(map(len, self.cells[:feature]))
        return slice(start, start + len(self.cells[feature]))

    def learned(
        self, selection: Selection, policy: PartitionPolicy, release: KeyedRelease, before: Beliefs
    ) -> Selection:
        """Add a round about one feature; ``before`` is what was thought of the values in its cells."""
        feature = selection.feature
        known = (selection.population, selection.evidence)
        population, evidence = estimated(*known, self._spec, policy, release, self.rows(feature), before)
        asked = selection.asked + release.reports * (np.arange(len(self.cells)) == feature)
        return replace(selection, population=population, evidence=evidence, asked=asked)

    def decided(self, selection: Selection, spread: int, prior: PriorScale, own: int) -> Selection:
        """Return the selection, at its end if enough people were asked: the features that gain most are kept.

        spread: place of the spread in use.
        prior: where values are expected, and how far apart.
        own: the experiment's own people who have reported.
        """
        people = self._spec.experiment.horizon + sum(source.people for source in self._spec.sources)
        if selection.asked.min() == 0 or selection.asked.sum() < people_asked(people):
            return selection
        known = selection.evidence.standardized(prior)
        gains = np.array([self._gain(known, feature, spread) for feature in range(len(self.cells))])
        kept = np.full(len(self.cells), gains.max() < _CLEAR)
        best = np.argsort(-gains, kind="stable")[:_FEW]
        kept[best[gains[best] > _GAIN]] = True
        return replace(selection, open=False, gains=gains, kept=kept, ended=own)

    def _gain(self, evidence: BinEvidence, feature: int, spread: int) -> float:
        """Return how much likelier what was observed is if one feature alone varies, than if no feature matters."""
        alone, columns = self._space.only(self.cells[feature].blocks)
        apart = np.zeros(len(evidence.precision), np.bool_)
        apart[self.rows(feature)] = True
        varied = self._observations(evidence, columns, apart)
        even = self._observations(evidence, columns, np.zeros_like(apart))
        usual = Kernel(usual_lengths(alone.parts), spread, alone)
        return varied.likelihood(varied.fitted(usual)) - even.likelihood(usual)

    def observations(
        self, selection: Selection, columns: Ints, prior: PriorScale, own: int, half_life: float
    ) -> Observations:
        """Return what was observed of cells, in the space of the columns of features that are kept.

        It is about the process that values are in terms of ``prior``. From the end of the selection on it fades, with
        such a half-life, as evidence of bins does; ``own`` are the experiment's own people who have reported.
        """
        people = 0 if selection.open else own - selection.ended
        left = 0.5 ** (max(0, people) / half_life)
        apart = np.repeat(selection.kept, [len(one) for one in self.cells])
        return self._observations(selection.evidence.standardized(prior).scaled(left), columns, apart)

    def _observations(self, evidence: BinEvidence, columns: Ints, apart: Bools) -> Observations:
        """Return what was observed of cells ``apart``, and of all others together: they are the whole space."""
        lower, upper = (
            np.concatenate([getattr(one, side) for one in self.cells])[:, columns] for side in ("lower", "upper")
        )
        precision, moment = evidence.precision, evidence.moment
        own = observed(lower[apart], upper[apart], precision[apart], moment[apart])
        if apart.all():
            return own
        rest = (precision[~apart].sum(axis=0, keepdims=True), moment[~apart].sum(axis=0, keepdims=True))
        whole = observed(np.zeros((1, len(columns))), np.ones((1, len(columns))), *rest)
        return own.with_others(whole)

    def found(self, selection: Selection) -> FeatureSelection:
        """Return which features were found to matter, and what each of them gains."""
        asked, features = int(selection.asked.sum()), len(self.cells)
        if selection.open:
            return FeatureSelection(asked, features)
        kept = tuple(one.name for one, keeps in zip(self.cells, selection.kept, strict=True) if keeps)
        gains = {one.name: round(float(gain), 2) for one, gain in zip(self.cells, selection.gains, strict=True)}
        return FeatureSelection(asked, features, kept, gains)


def people_asked(people: int) -> float:
    """Return how many of so many people are asked about one feature at a time, at the least."""
    return _SHARE * people * float(min(1.0, (_USUAL_PEOPLE / people) ** (1 - _GROWTH)))


def _tree(blocks: tuple[Block, ...]) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the feature's column that each level halves, and depth and path of each leaf, in order."""
    first = blocks[0]
    if first.codes:
        deepest = min(_BITS, first.columns)
        return list(range(deepest)), list(_leaves(first, deepest))
    halvings = min(_QUARTERS, first.halvings)
    parts = range(1 << halvings)
    if len(blocks) == 1:
        return [0] * halvings, [(halvings, part) for part in parts]
    # Those with a number first, in the lower half of the flag's column.
    return [1] + [0] * halvings, [*((halvings + 1, part) for part in parts), (1, 1)]


def _leaves(block: Block, deepest: int) -> Iterator[tuple[int, int]]:
    """Yield depth and path of the largest halves that hold one level, or are as deep as may be."""
    codes, waiting = np.array(block.codes), [(0, 0)]
    while waiting:
        depth, path = waiting.pop()
        if depth < deepest and (codes >> (block.columns - depth) == path).sum() > 1:
            waiting += [(depth + 1, 2 * path + 1), (depth + 1, 2 * path)]
        else:
            yield depth, path
