"""Feature selection by rounds that ask about one feature at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from privateer_core.algorithms.partition import DEPTH_MAX, PartitionPolicy, PartitionSpec, bin_corners
from privateer_core.answer.parts import FeatureSelection
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.primitives.contributions import KeyedRelease
from privateer_core.privacy.cell_reports import required_participants
from privateer_core.spec.columns import Block
from privateer_server.algorithms.partition.bin_tree import Space
from privateer_server.algorithms.partition.gaussian_process import BinEvidence
from privateer_server.algorithms.partition.kernel import Kernel, PriorScale, usual_lengths
from privateer_server.algorithms.partition.observations import Observations, observe_bins
from privateer_server.algorithms.partition.round_estimates import Beliefs, CohortShares, add_round_estimates

_MAX_FEATURES: Final = 5  # experiments of so many features or fewer select none; so many are kept at most
_ASKED_SHARE: Final = 0.1
_REFERENCE_PEOPLE: Final = 80_000
_GROWTH_EXPONENT: Final = 0.363
"""A tenth of 80,000 people or fewer are asked; of more people a number that grows with this power: 2 % of a million."""
_MAX_SELECTION_SHARE: Final = 0.5
"""Where one round about each feature takes a larger share of the people than this, there is none."""
_MIN_LOG_GAIN: Final = 0.0
"""A feature is kept if its variation makes what was said more likely by more than this, in natural logarithms."""
_CLEAR_LOG_GAIN: Final = 3.0
"""Where no feature gains as much as this all are kept: what matters may do so only together with others."""
_MIN_SHARE: Final = 1e-18
_PRIOR_SHARE_DEVIATION: Final = 0.3
"""Standard deviation of a cell's share of people from what is expected, relative to it, before people are counted."""
_N_NUMBER_HALVINGS: Final = 2  # halvings of a number
_MAX_CODE_BITS: Final = 4  # bits of levels' codes that tell cells apart, at most: 16 cells


@dataclass(frozen=True)
class FeatureCells:
    """The cells of one feature: its levels, or quarters of its number and the missing value."""

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


def build_feature_cells(spec: PartitionSpec) -> tuple[FeatureCells, ...]:
    """Return the cells of every feature, in order."""
    space, feature_cells, first_block, first_column = Space(spec.blocks), [], 0, 0
    for name, feature in spec.features.items():
        levels, leaves = _build_tree(feature.blocks)
        axes = np.append(first_column + np.array(levels, np.int64), np.zeros(DEPTH_MAX - len(levels), np.int64))
        depths, paths = (np.array(numbers, np.int64) for numbers in zip(*leaves, strict=True))
        box = bin_corners(depths, paths, axes, spec.dimension)
        blocks = first_block + np.arange(len(feature.blocks))
        feature_cells.append(FeatureCells(name, blocks, axes, depths, paths, *box, space.expected_shares(*box)))
        first_block, first_column = first_block + len(feature.blocks), first_column + feature.columns
    return tuple(feature_cells)


@dataclass(frozen=True)
class Selection:
    """The state of a feature selection, by cell; the cells of all features are in one order."""

    # evidence, population: what reports say of values, and of people, by cell
    evidence: BinEvidence
    population: CohortShares
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
        """Return the selection with additional arms without evidence."""
        return replace(self, evidence=self.evidence.with_arms(added))

    def select_cohorts(self, rows: list[int]) -> "Selection":
        """Return the selection with the participants of the given cohorts."""
        return replace(self, population=self.population.select_cohorts(rows))


class FeatureSelector:
    """The rule that selects features by the log likelihood ratio of their variation."""

    def __init__(self, spec: PartitionSpec) -> None:
        self.cells, self._spec, self._space = build_feature_cells(spec), spec, Space(spec.blocks)
        people = spec.experiment.horizon
        rounds = len(self.cells) * spec.first_batch("") <= _MAX_SELECTION_SHARE * people
        # An experiment that cannot learn one feature gains nothing from knowing which one to take.
        self.selects = len(self.cells) > _MAX_FEATURES and rounds and required_participants(spec, 1) <= people

    def start(self) -> Selection | None:
        """Return a selection without reports; None if features or participants are few."""
        if not self.selects:
            return None
        expected = np.maximum(np.concatenate([cells.expected for cells in self.cells]), _MIN_SHARE)
        shares, n_features = np.tile(expected, (len(self._spec.cohorts), 1)), len(self.cells)
        return Selection(
            evidence=BinEvidence.empty(len(expected), self._spec.arm_count),
            population=CohortShares(shares, (_PRIOR_SHARE_DEVIATION * shares) ** -2),
            asked=np.zeros(n_features, np.int64),
            open=True,
            gains=np.zeros(n_features),
            kept=np.ones(n_features, np.bool_),
            ended=0,
        )

    def blocks(self, selection: Selection | None) -> Ints:
        """Return the indices of the blocks of selected features."""
        blocks = [cells.blocks for index, cells in enumerate(self.cells) if selection is None or selection.kept[index]]
        return np.concatenate(blocks)

    def rows(self, feature: int) -> slice:
        """Return the slice of a feature's cells among those of all."""
        start = sum(map(len, self.cells[:feature]))
        return slice(start, start + len(self.cells[feature]))

    def add_round(
        self, selection: Selection, policy: PartitionPolicy, release: KeyedRelease, beliefs: Beliefs
    ) -> Selection:
        """Return the selection after a round about one feature, given the prior beliefs on values in its cells."""
        feature = selection.feature
        estimates = (selection.population, selection.evidence)
        population, evidence = add_round_estimates(*estimates, self._spec, policy, release, self.rows(feature), beliefs)
        n_asked = selection.asked + release.reports * (np.arange(len(self.cells)) == feature)
        return replace(selection, population=population, evidence=evidence, asked=n_asked)

    def end_if_enough_asked(
        self, selection: Selection, spread_index: int, prior: PriorScale, n_own_reports: int
    ) -> Selection:
        """End the selection if enough were asked: keep features of the largest gain, or all if no gain is clear."""
        people = self._spec.experiment.horizon + sum(source.participants for source in self._spec.sources)
        if selection.asked.min() == 0 or selection.asked.sum() < min_participants_asked(people):
            return selection
        evidence = selection.evidence.standardized(prior)
        gains = np.array(
            [self._log_likelihood_gain(evidence, feature, spread_index) for feature in range(len(self.cells))]
        )
        is_kept = np.full(len(self.cells), gains.max() < _CLEAR_LOG_GAIN)
        best = np.argsort(-gains, kind="stable")[:_MAX_FEATURES]
        is_kept[best[gains[best] > _MIN_LOG_GAIN]] = True
        return replace(selection, open=False, gains=gains, kept=is_kept, ended=n_own_reports)

    def _log_likelihood_gain(self, evidence: BinEvidence, feature: int, spread_index: int) -> float:
        """Return the log likelihood ratio between models with and without variation over a feature."""
        feature_space, columns = self._space.select_blocks(self.cells[feature].blocks)
        is_feature_cell = np.zeros(len(evidence.precision), np.bool_)
        is_feature_cell[self.rows(feature)] = True
        varying = self._separate_cells(evidence, columns, is_feature_cell)
        constant = self._separate_cells(evidence, columns, np.zeros_like(is_feature_cell))
        kernel = Kernel(usual_lengths(feature_space.parts), spread_index, feature_space)
        return varying.log_density(varying.fit_kernel(kernel)) - constant.log_density(kernel)

    def build_observations(
        self, selection: Selection, columns: Ints, prior: PriorScale, n_own_reports: int, half_life: float
    ) -> Observations:
        """Return the observations of cells, in the space of the columns of selected features.

        They are of the process that values are in terms of ``prior``. From the end of the selection on they fade with
        the half-life, as evidence of bins does; ``n_own_reports`` are those of own participants.
        """
        n_reports = 0 if selection.open else n_own_reports - selection.ended
        retention = 0.5 ** (max(0, n_reports) / half_life)
        is_kept_cell = np.repeat(selection.kept, [len(cells) for cells in self.cells])
        return self._separate_cells(selection.evidence.standardized(prior).scaled_by(retention), columns, is_kept_cell)

    def _separate_cells(self, evidence: BinEvidence, columns: Ints, is_separate: Bools) -> Observations:
        """Return the observations of the cells ``is_separate``, and of all other cells together as the whole space."""
        lower = np.concatenate([cells.lower for cells in self.cells])[:, columns]
        upper = np.concatenate([cells.upper for cells in self.cells])[:, columns]
        precision, moment = evidence.precision, evidence.moment
        separate = observe_bins(lower[is_separate], upper[is_separate], precision[is_separate], moment[is_separate])
        if is_separate.all():
            return separate
        pooled = precision[~is_separate].sum(axis=0, keepdims=True), moment[~is_separate].sum(axis=0, keepdims=True)
        others = observe_bins(np.zeros((1, len(columns))), np.ones((1, len(columns))), *pooled)
        return separate.with_others(others)

    def build_result(self, selection: Selection) -> FeatureSelection:
        """Return the selected features and the log likelihood gain of each, or only counts while it is open."""
        n_asked, features = int(selection.asked.sum()), len(self.cells)
        if selection.open:
            return FeatureSelection(n_asked, features)
        kept_names = tuple(cells.name for cells, is_kept in zip(self.cells, selection.kept, strict=True) if is_kept)
        gains = {cells.name: round(float(gain), 2) for cells, gain in zip(self.cells, selection.gains, strict=True)}
        return FeatureSelection(n_asked, features, kept_names, gains)


def min_participants_asked(n_participants: int) -> float:
    """Return the minimum number of participants who are asked about one feature at a time."""
    return (
        _ASKED_SHARE * n_participants * float(min(1.0, (_REFERENCE_PEOPLE / n_participants) ** (1 - _GROWTH_EXPONENT)))
    )


def _build_tree(blocks: tuple[Block, ...]) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the feature's column that each level halves, and depth and path of each leaf, in order."""
    first = blocks[0]
    if first.codes:
        deepest = min(_MAX_CODE_BITS, first.columns)
        return list(range(deepest)), list(_iterate_leaves(first, deepest))
    halvings = min(_N_NUMBER_HALVINGS, first.halvings)
    quarters = range(1 << halvings)
    if len(blocks) == 1:
        return [0] * halvings, [(halvings, quarter) for quarter in quarters]
    # Those with a number first, in the lower half of the flag's column.
    return [1] + [0] * halvings, [*((halvings + 1, quarter) for quarter in quarters), (1, 1)]


def _iterate_leaves(block: Block, max_depth: int) -> Iterator[tuple[int, int]]:
    """Yield depth and path of the largest halves that hold one level, or have the maximum depth."""
    codes, pending = np.array(block.codes), [(0, 0)]
    while pending:
        depth, path = pending.pop()
        if depth < max_depth and (codes >> (block.columns - depth) == path).sum() > 1:
            pending += [(depth + 1, 2 * path + 1), (depth + 1, 2 * path)]
        else:
            yield depth, path
