"""Potential outcomes of every participant under every arm, and the cells of features by which algorithms learn."""

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
_N_BINS: Final = 8
"""Number of equal bins of a scaled number, as in tables of cells and in halvings."""
_LENGTH_SCALE: Final = 0.2
"""Length scale, along a scaled number, of the similarity of arms' effects."""
_MAX_PARTICIPANTS: Final = 6_000
_NUGGET: Final = 0.02
"""Share of the variance of a cell that is independent of its neighbours."""


@dataclass(frozen=True)
class FeatureCodes:
    """The cells of one feature."""

    codes: Ints  # shape (n,): each participant's cell
    kernel: Array  # shape (cells, cells): prior correlation of arms' effects in two cells

    @classmethod
    def from_feature(cls, feature: Feature, numbers: Array) -> "FeatureCodes":
        """Return the cells of a feature's numbers, as returned by `Feature.read`, (n,)."""
        columns, block = feature.encode(numbers), feature.blocks[0]
        if block.codes:
            powers = 1 << np.arange(block.columns - 1, -1, -1)
            distinct, codes = np.unique(columns[:, : block.columns].astype(np.int64) @ powers, return_inverse=True)
            return cls(codes.astype(np.int64), np.eye(len(distinct)))
        cells = np.clip((columns[:, 0] * _N_BINS).astype(np.int64), 0, _N_BINS - 1)
        is_missing = columns[:, 1] > 1 / 2 if len(feature.blocks) > 1 else np.zeros(len(columns), np.bool_)
        distinct, codes = np.unique(np.where(is_missing, _N_BINS, cells), return_inverse=True)
        distances = np.abs(distinct[:, None] - distinct) / _N_BINS
        # On a circle the chord: with the length of the arc the squared exponential is no covariance.
        distances = np.sin(np.pi * distances) / np.pi if block.cyclic else distances
        kernel = (1 - _NUGGET) * np.exp(-0.5 * (distances / _LENGTH_SCALE) ** 2)
        is_gap = distinct == _N_BINS
        kernel[is_gap | is_gap[:, None]] = 0.0
        np.fill_diagonal(kernel, 1.0)
        return cls(codes.astype(np.int64), kernel)

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return len(self.kernel)


def encode_cells(features: Mapping[str, Feature], contexts: Array) -> dict[str, FeatureCodes]:
    """Return the cells of every feature, for contexts (n, features or more)."""
    pairs = zip(features.items(), contexts.T, strict=False)
    return {name: FeatureCodes.from_feature(feature, numbers) for (name, feature), numbers in pairs}


@dataclass(frozen=True)
class PotentialOutcomes:
    """Potential outcomes: each participant's reward under every arm, estimated or simulated."""

    cells: Mapping[str, FeatureCodes]  # of every feature, by name
    rewards: Array  # shape (n, arms), scaled to [0, 1]: expected ones, or estimates without bias
    expected: Array  # shape (n,): expected reward, averaged over arms
    # mean, variance: of observed rewards, scaled alike
    mean: float
    variance: float

    @cached_property
    def gains(self) -> Array:
        """Each arm's reward above the expected average over arms, (n, arms)."""
        return np.asfortranarray(self.rewards - self.expected[:, None])

    @cached_property
    def halves(self) -> Ints:
        """The half of each participant, 0 or 1, (n,): policies learned on either half are evaluated on the other."""
        return np.random.default_rng(0).permutation(len(self.rewards)) % 2

    def select_options(self, options: Sequence[int]) -> "PotentialOutcomes":
        """Return the outcomes of a subset of arms, by index."""
        return replace(self, rewards=self.rewards[:, list(options)])

    def sums(self, rows: Ints, values: Array) -> Array:
        """Return sums of values (n, arms) by half and row, (2, rows, arms)."""
        half_rows, count = 2 * rows + self.halves, int(rows.max()) + 1
        sums = [np.bincount(half_rows, column, 2 * count).reshape(count, 2) for column in values.T]
        return np.asarray(np.stack(sums, axis=2).swapaxes(0, 1), dtype=np.float64)

    def explained_gain(self, name: str) -> float:
        """Return the gain of choosing by a feature, without noise, above that of a single arm."""
        sums = self.sums(self.cells[name].codes, self.gains)
        return (sum_best_gains(sums) - sum_best_gains(sums.sum(axis=1, keepdims=True))) / len(self.gains)


def sum_best_gains(sums: Array) -> float:
    """Return the total gain of each row's best arm without noise, cross-fitted over the halves of `sums`."""
    return float(np.take_along_axis(sums, sums[::-1].argmax(axis=2)[..., None], axis=2).sum())


def estimate_outcomes(spec: ArmsSpec, environment: Environment) -> PotentialOutcomes:
    """Return the potential outcomes of simulated participants."""
    rng, reward = np.random.default_rng(0), spec.reward
    contexts = environment.contexts(0, min(_MAX_PARTICIPANTS, spec.experiment.horizon), rng)
    means = np.clip((environment.means(contexts) - reward.low) / reward.span, 0.0, 1.0)[:, list(spec.playable)]
    expected, mean = means.mean(axis=1), float(means.mean())
    variance = mean * (1 - mean) if reward.kind == "binary" else float(means.var())
    return PotentialOutcomes(encode_cells(spec.features, contexts), means, expected, mean, variance)
