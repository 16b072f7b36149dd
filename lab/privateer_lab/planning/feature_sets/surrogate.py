"""Surrogates of runs: what is learned of a table of cells from reports with the noise of a spec's promise."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.privacy.cell_reports import CellReports
from privateer_lab.planning.feature_sets.outcomes import Array, Ints, PotentialOutcomes

_DRAWS: Final = 8
_WIDTH: Final = 0.5
"""Draws of a policy have this share of the deviation that is left."""
_STEPS: Final = 3
"""Steps of expectation and maximization a round, by which scales follow what was observed."""
_SCALE: Final = 0.1
_LEAST: Final = 1e-4
_NOBODY: Final = 1e-12


@dataclass(frozen=True)
class CellDesign:
    """People by their cells of some features, one half of whom says what options do."""

    rows: Ints  # shape (n,): the row of every person
    design: Array  # shape (rows, cells): 1 where a row has a cell; the first is everybody's
    kernels: tuple[Array, ...]  # of every feature, after one of everybody

    @classmethod
    def of(cls, outcomes: PotentialOutcomes, names: Sequence[str]) -> "CellDesign":
        """Return the table of some features."""
        cells = [outcomes.cells[name] for name in names]
        rows, first = np.zeros(len(outcomes.gains), np.int64), np.zeros(1, np.int64)
        for one in cells:
            _, first, rows = np.unique(rows * one.count + one.codes, return_index=True, return_inverse=True)
        parts = [np.ones((len(first), 1)), *(np.eye(one.count)[one.codes[first]] for one in cells)]
        return cls(rows, np.concatenate(parts, axis=1), (np.ones((1, 1)), *(one.kernel for one in cells)))

    @cached_property
    def starts(self) -> Ints:
        """Where the cells of everybody and of each feature begin."""
        return np.cumsum([0, *map(len, self.kernels)])


class SurrogateRun:
    """A run on a table, whose people are one half of all; what options do is what the other half says.

    table, gains, half: the table; what options bring, (n, arms); and the places of the half that says what they do.
    reports: what reports tell.
    seed: of noise and draws.
    """

    def __init__(self, table: CellDesign, gains: Array, half: Ints, reports: CellReports, seed: int) -> None:
        self._table, self._reports, self._rng = table, reports, np.random.default_rng(seed)
        design, rows = table.design, table.rows[half]
        self._people = np.bincount(rows, minlength=len(design)).astype(np.float64)
        self._counts = np.maximum(self._people @ design, 1e-9)
        sums, squares = (_by_row(rows, some[half], len(design)) for some in (gains, gains**2))
        self._means = (design.T @ sums) / self._counts[:, None]
        self._errors = (
            np.maximum(design.T @ squares / self._counts[:, None] - self._means**2, 0) / self._counts[:, None]
        )
        self._errors[self._counts < 1] = np.inf
        # What is true of a cell is the sum of what is true of everybody's cells in it.
        self._within = (design.T * self._people) @ design / self._counts[:, None]
        self._inverse = [np.linalg.inv(kernel) for kernel in table.kernels]
        self._scales = np.full(len(table.kernels), _SCALE**2)
        self._noise = self._rng.standard_normal(self._means.shape)

    @property
    def _asked(self) -> Array:
        """Share of people who are asked about each cell's feature."""
        features = len(self._table.kernels) - 1
        if self._reports.by_feature:
            return np.full(len(self._counts), 1 / (1 + features))
        return np.where(np.arange(len(self._counts)) > 0, 1.0, float(not features))

    def policy(self) -> Array:
        """Return the share of people in each row who got each arm, over all rounds, (rows, arms)."""
        arms = self._means.shape[1]
        shares, total = np.full((len(self._people), arms), 1 / arms), np.zeros((len(self._people), arms))
        told = np.zeros(self._means.shape)
        for batches in self._reports.policies:
            total += sum(batches) * shares
            by_cell = (self._table.design.T * self._people) @ shares / self._counts[:, None]
            told += self._reports.precisions(batches, self._counts / self._people.sum(), by_cell, self._asked)
            shares = self._chosen(told)
        return np.asarray(total / total.sum(axis=1, keepdims=True))

    def _chosen(self, told: Array) -> Array:
        """Return shares of arms by row, from draws of what is known after such reports."""
        with np.errstate(divide="ignore"):
            variance = np.where(told > 0, 1 / told, np.inf)
        # A half's own error is noise already.
        is_known = np.isfinite(variance) & np.isfinite(self._errors)
        more = np.maximum(0.0, np.subtract(variance, self._errors, out=np.zeros_like(told), where=is_known))
        observed = self._means + np.sqrt(more) * self._noise
        precision = np.where(is_known, 1 / np.maximum(np.maximum(variance, self._errors), _NOBODY), 0.0)
        means, roots = self._posterior(observed, precision)
        arms, cells = means.shape
        draws = means + _WIDTH * np.einsum("kij,dkj->dki", roots, self._rng.standard_normal((_DRAWS, arms, cells)))
        best = (self._table.design @ draws.reshape(-1, cells).T).reshape(-1, _DRAWS, arms).argmax(axis=2)
        return np.stack([(best == arm).mean(axis=1) for arm in range(arms)], axis=1)

    def _posterior(self, observed: Array, precision: Array) -> tuple[Array, Array]:
        """Return means (arms, cells) of every arm's terms and roots of their covariances, (arms, cells, cells)."""
        weighed = self._within.T[None] * precision.T[:, None, :]
        told, score = weighed @ self._within, np.einsum("kij,jk->ki", weighed, observed)
        for _ in range(_STEPS):
            self._rescale(*_solved(told + self._prior(), score))
        means, covariance = _solved(told + self._prior(), score)
        return means, np.asarray(np.linalg.cholesky(covariance))

    def _prior(self) -> Array:
        starts, found = self._table.starts, np.zeros((len(self._counts), len(self._counts)))
        for place, inverse in enumerate(self._inverse):
            own = slice(starts[place], starts[place + 1])
            found[own, own] = inverse / self._scales[place]
        return found

    def _rescale(self, means: Array, covariance: Array) -> None:
        """Move scales to where what was observed is likelier."""
        starts = self._table.starts
        for place, inverse in enumerate(self._inverse):
            own = slice(starts[place], starts[place + 1])
            seconds = covariance[:, own, own] + means[:, own, None] * means[:, None, own]
            scale = float((seconds * inverse).sum()) / (len(means) * len(inverse))
            self._scales[place] = max(scale, _LEAST**2)


def _solved(precision: Array, score: Array) -> tuple[Array, Array]:
    """Return means (arms, cells) and covariances (arms, cells, cells)."""
    covariance = np.asarray(np.linalg.inv(precision), np.float64)
    return np.asarray(np.einsum("kij,kj->ki", covariance, score)), covariance


def _by_row(rows: Ints, values: Array, count: int) -> NDArray[np.float64]:
    return np.stack([np.bincount(rows, one, count) for one in values.T], axis=1)


def earned(outcomes: PotentialOutcomes, names: Sequence[str], reports: CellReports, seed: int) -> Array:
    """Return what every person gets from a policy that was learned from the other half with these features, (n,)."""
    table, found = CellDesign.of(outcomes, names), np.empty(len(outcomes.gains))
    for place, half in enumerate(outcomes.halves):
        policy, others = (
            SurrogateRun(table, outcomes.gains, half, reports, 2 * seed + place).policy(),
            outcomes.halves[1 - place],
        )
        found[others] = (policy[table.rows[others]] * outcomes.gains[others]).sum(axis=1)
    return found
