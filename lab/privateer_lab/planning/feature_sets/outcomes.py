"""What every option would bring every person, in the cells in which algorithms tell people apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.features import Feature
from privateer_lab.environments import Environment

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_PARTS: Final = 8
"""Equal parts of a number's place: both tables of cells and halvings are made of them."""
_REACH: Final = 0.2
"""How far along a number's place what options do is alike."""
_PEOPLE: Final = 6_000
_APART: Final = 0.02
"""Share of the variance of a cell that its neighbours say nothing of."""


@dataclass(frozen=True)
class FeatureCodes:
    """The cells of one feature."""

    codes: Ints  # shape (n,): each person's cell
    kernel: Array  # shape (cells, cells): how alike options do in two of them; 1 on the diagonal

    @classmethod
    def of(cls, feature: Feature, numbers: Array) -> "FeatureCodes":
        """Return the cells of people with these numbers, as `Feature.read` returns them, (n,)."""
        columns, block = feature.encode(numbers), feature.blocks[0]
        if block.codes:
            powers = 1 << np.arange(block.columns - 1, -1, -1)
            known, codes = np.unique(columns[:, : block.columns].astype(np.int64) @ powers, return_inverse=True)
            return cls(codes.astype(np.int64), np.eye(len(known)))
        cells = np.clip((columns[:, 0] * _PARTS).astype(np.int64), 0, _PARTS - 1)
        gone = columns[:, 1] > 1 / 2 if len(feature.blocks) > 1 else np.zeros(len(columns), np.bool_)
        known, codes = np.unique(np.where(gone, _PARTS, cells), return_inverse=True)
        apart = np.abs(known[:, None] - known) / _PARTS
        apart = np.minimum(apart, 1 - apart) if block.cyclic else apart
        alike = (1 - _APART) * np.exp(-0.5 * (apart / _REACH) ** 2)
        is_gap = known == _PARTS
        alike[is_gap | is_gap[:, None]] = 0.0
        np.fill_diagonal(alike, 1.0)
        return cls(codes.astype(np.int64), alike)

    @property
    def count(self) -> int:
        """How many cells there are."""
        return len(self.kernel)


@dataclass(frozen=True)
class PotentialOutcomes:
    """What every option would bring every person, as far as a log or simulated people tell."""

    features: Mapping[str, Feature]  # those of a spec, by name
    contexts: Array  # shape (n, features), as `Feature.read` returns numbers
    rewards: Array  # shape (n, arms), scaled to [0, 1]: expected ones, or estimates without bias
    expected: Array  # shape (n,): what is expected of options on average, without what they bring by chance
    # mean, variance: of rewards that people get, scaled alike
    mean: float
    variance: float

    @cached_property
    def gains(self) -> Array:
        """What each option brings beyond what is expected of all, (n, arms)."""
        return np.asarray(self.rewards - self.expected[:, None])

    @cached_property
    def cells(self) -> dict[str, FeatureCodes]:
        """The cells of every feature."""
        pairs = zip(self.features.items(), self.contexts.T, strict=False)
        return {name: FeatureCodes.of(feature, numbers) for (name, feature), numbers in pairs}

    @cached_property
    def halves(self) -> tuple[Ints, Ints]:
        """Two halves of the people, by their places: one says what options do, the other what a policy earns."""
        order = np.random.default_rng(0).permutation(len(self.rewards))
        return order[::2], order[1::2]

    def of(self, options: Sequence[int]) -> "PotentialOutcomes":
        """Return those of some options, by their places."""
        return replace(self, rewards=self.rewards[:, list(options)])

    def told(self, name: str) -> float:
        """Return what a feature tells without noise, beyond the gain of one option for all."""
        return self.best_of(self.cells[name].codes) - self.best_of(np.zeros(len(self.gains), np.int64))

    def best_of(self, rows: Ints) -> float:
        """Return the gain of each row's best option without noise, each half choosing for the other."""
        found = 0.0
        for ours, theirs in (self.halves, self.halves[::-1]):
            sums = np.stack([np.bincount(rows[theirs], one[theirs], rows.max() + 1) for one in self.gains.T], axis=1)
            found += float(np.take_along_axis(self.gains[ours], sums.argmax(axis=1)[rows[ours]][:, None], axis=1).sum())
        return found / len(self.gains)


def expected_outcomes(spec: ArmsSpec, people: Environment) -> PotentialOutcomes:
    """Return what simulated people may expect of every option."""
    rng, reward = np.random.default_rng(0), spec.reward
    contexts = people.contexts(0, min(_PEOPLE, spec.experiment.horizon), rng)
    means = np.clip((people.means(contexts) - reward.low) / reward.span, 0.0, 1.0)[:, list(spec.playable)]
    expected, mean = means.mean(axis=1), float(means.mean())
    spread = mean * (1 - mean) if reward.kind == "binary" else float(means.var())
    return PotentialOutcomes(spec.features, contexts[:, : len(spec.features)], means, expected, mean, spread)
