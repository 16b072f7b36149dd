"""Surrogate runs: Bayesian learning of a table of cells from reports with the noise of a spec's promise."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.privacy.cell_reports import CellReports
from privateer_lab.planning.feature_sets.outcomes import Array, Ints, PotentialOutcomes

_N_DRAWS: Final = 8
_DRAW_DEVIATION_SHARE: Final = 0.5
"""Standard deviation of a policy's draws, as a share of the posterior's."""
_N_SCALE_STEPS: Final = 3
"""Number of expectation-maximization steps of scales in a round."""
_INITIAL_SCALE: Final = 0.1
_MIN_SCALE: Final = 1e-4
_MIN_VARIANCE: Final = 1e-12


@dataclass(frozen=True)
class CellDesign:
    """The table of participants by their cells of features."""

    rows: Ints  # shape (n,): the row of every participant
    design: Array  # shape (rows, cells): 1 where a row has a cell; the first cell is shared by all
    kernels: tuple[Array, ...]  # of the shared cell, and of every feature

    @classmethod
    def from_features(cls, outcomes: PotentialOutcomes, names: Sequence[str]) -> "CellDesign":
        """Return the table of a list of features."""
        cells = [outcomes.cells[name] for name in names]
        rows, first = np.zeros(len(outcomes.gains), np.int64), np.zeros(1, np.int64)
        for feature in cells:
            _, first, rows = np.unique(rows * feature.n_cells + feature.codes, return_index=True, return_inverse=True)
        blocks = [np.ones((len(first), 1)), *(np.eye(feature.n_cells)[feature.codes[first]] for feature in cells)]
        return cls(rows, np.concatenate(blocks, axis=1), (np.ones((1, 1)), *(feature.kernel for feature in cells)))

    @property
    def blocks(self) -> list[slice]:
        """The slices of the shared cell and of each feature's cells."""
        starts = np.cumsum([0, *map(len, self.kernels)]).tolist()
        return list(map(slice, starts, starts[1:]))


class SurrogateRuns:
    """Runs that learn on half of a table's participants and are evaluated on the other; axes: halves, repeats."""

    def __init__(
        self, outcomes: PotentialOutcomes, names: Sequence[str], reports: CellReports | None, repeats: int
    ) -> None:
        """Prepare runs on the table's features; ``reports`` is their precision, None: the half's noiseless data."""
        self._table = table = CellDesign.from_features(outcomes, names)
        self._outcomes, self._reports, self._rng = outcomes, reports, np.random.default_rng(0)
        design, gains = table.design, outcomes.gains
        self._row_counts = outcomes.sums(table.rows, np.ones((len(gains), 1))).swapaxes(1, 2)  # (2, 1, rows)
        self._counts = np.maximum(self._row_counts @ design, 1e-9)[..., None]  # (2, 1, cells, 1)
        self._sums = outcomes.sums(table.rows, gains)  # (2, rows, arms)
        squares = outcomes.sums(table.rows, gains**2)
        first, second = ((design.T @ sums)[:, None] / self._counts for sums in (self._sums, squares))
        self._means = first  # (2, 1, cells, arms)
        # Few participants may have equal gains: one more has the variance of all.
        variance = (self._counts * np.maximum(second - first**2, 0) + gains.var(axis=0)) / (self._counts + 1)
        self._errors = np.where(self._counts < 1, np.inf, variance / self._counts)
        # The mean of a cell averages the terms of all cells that its participants have.
        self._within = ((design.T * self._row_counts) @ design)[:, None] / self._counts  # (2, 1, cells, cells)
        self._inverse = [np.linalg.inv(kernel) for kernel in table.kernels]
        self._scales = np.full((2, repeats, len(table.kernels)), _INITIAL_SCALE**2)
        self._noise = self._rng.standard_normal((2, repeats, *first.shape[2:]))

    def evaluate(self) -> tuple[Array, Array]:
        """Return each participant's held-out gain, (n,), and the mean gain of each repeat."""
        policy, gains, halves = self._learn_policy(), self._outcomes.gains, self._outcomes.halves
        by_person = (policy.mean(axis=1)[1 - halves, self._table.rows] * gains).sum(axis=1)
        return by_person, np.einsum("hrij,hij->r", policy, self._sums[::-1]) / len(gains)

    def _learn_policy(self) -> Array:
        """Return the share of each arm in each row over all rounds, (2, repeats, rows, arms)."""
        if self._reports is None:
            return self._sample_arm_shares(np.full(self._noise.shape, np.inf))
        reports, arms = self._reports, self._means.shape[3]
        shares = np.full((*self._noise.shape[:2], len(self._table.design), arms), 1 / arms)
        total, precisions = np.zeros(shares.shape), np.zeros(self._noise.shape)
        keys = self._counts[..., 0] / self._row_counts.sum(axis=2, keepdims=True)
        for batches in reports.batches_by_policy:
            total += sum(batches) * shares
            by_cell = (self._table.design.T * self._row_counts[:, :, None]) @ shares / self._counts
            precisions += reports.precisions(batches, keys, by_cell, self._invited_shares(reports))
            shares = self._sample_arm_shares(precisions)
        return np.asarray(total / total.sum(axis=3, keepdims=True))

    def _invited_shares(self, reports: CellReports) -> Array:
        """Return the share of participants who report on each cell's feature."""
        features, cells = len(self._table.kernels) - 1, self._means.shape[2]
        if reports.by_feature:
            return np.full(cells, 1 / (1 + features))
        return np.where(np.arange(cells) > 0, 1.0, float(not features))

    def _sample_arm_shares(self, precise: Array) -> Array:
        """Return shares of arms by row, from posterior draws after reports of this precision."""
        with np.errstate(divide="ignore"):
            variance = np.where(precise > 0, 1 / precise, np.inf)
        # A half's own error is noise already.
        is_known = np.isfinite(variance) & np.isfinite(self._errors)
        added = np.maximum(0.0, np.subtract(variance, self._errors, out=np.zeros_like(precise), where=is_known))
        observed = self._means + np.sqrt(added) * self._noise
        inverse_variance = np.where(is_known, 1 / np.maximum(np.maximum(variance, self._errors), _MIN_VARIANCE), 0.0)
        means, roots = self._posterior(observed.swapaxes(2, 3)[..., None], inverse_variance.swapaxes(2, 3))
        draws = means + _DRAW_DEVIATION_SHARE * roots @ self._rng.standard_normal((*means.shape[:-1], _N_DRAWS))
        row_values = self._table.design @ draws  # (2, repeats, arms, rows, draws)
        return np.asarray((row_values == row_values.max(axis=2, keepdims=True)).mean(axis=4).swapaxes(2, 3))

    def _posterior(self, observed: Array, precision: Array) -> tuple[Array, Array]:
        """Return posterior means of every arm's terms, (..., arms, cells, 1), and Cholesky factors of covariances."""
        within = self._within[:, :, None]
        weighted = within.swapaxes(3, 4) * precision[..., None, :]
        information, score = weighted @ within, weighted @ observed
        for step in range(1 + _N_SCALE_STEPS):
            covariance = np.asarray(np.linalg.inv(information + self._prior_precision()))
            means = covariance @ score
            if step < _N_SCALE_STEPS:
                self._update_scales(means, covariance)
        return means, np.asarray(np.linalg.cholesky(covariance))

    def _prior_precision(self) -> Array:
        """Build the prior's precision of all cells, a block for each feature."""
        cells = self._means.shape[2]
        prior = np.zeros((*self._scales.shape[:2], 1, cells, cells))
        for index, (block, inverse) in enumerate(zip(self._table.blocks, self._inverse, strict=True)):
            prior[..., block, block] = inverse / self._scales[..., index, None, None, None]
        return prior

    def _update_scales(self, means: Array, covariance: Array) -> None:
        """Update the prior scales by a maximization step."""
        for index, (block, inverse) in enumerate(zip(self._table.blocks, self._inverse, strict=True)):
            block_means = means[..., block, :]
            second_moments = covariance[..., block, block] + block_means * block_means.swapaxes(3, 4)
            scale = (second_moments * inverse).sum(axis=(3, 4)).mean(axis=2) / len(inverse)
            self._scales[..., index] = np.maximum(scale, _MIN_SCALE**2)
