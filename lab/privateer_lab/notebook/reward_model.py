"""Models of rewards for doubly robust estimates (0, arms' means, ridge regression), and a test of propensities."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from privateer_core.spec.columns import is_missing
from privateer_lab.notebook.choice_log import ChoiceLog, Columns
from privateer_lab.notebook.policies import Array

_RIDGE_PENALTY: Final = 1.0
"""Ridge penalty on the diagonal: as if one more participant had the mean reward."""
_MAX_LEVELS: Final = 20
"""Largest number of indicator columns of a context column: its most frequent values."""
_MAX_PRODUCT_COLUMNS: Final = 8
"""Largest number of numeric columns for products of two columns as terms."""


@dataclass(frozen=True)
class Predictions:
    """Expected rewards of rows, each by a model fitted to other participants or clusters (cross-fitting)."""

    model: str  # the model's name, in words
    # of_policy, of_arm: shape (n,): the expected reward under the policy, and with the row's own arm
    of_policy: Array | float
    of_arm: Array | float

    def control_variate(self, weights: Array) -> Array | float:
        """Return the control variate of an estimate with weights, (n,): its bias is 0 whatever the model."""
        return self.of_policy - weights * self.of_arm


@dataclass(frozen=True)
class RewardModels:
    """Cross-fitted models of the rewards of a log."""

    log: ChoiceLog
    folds: int
    seed: int

    def select_best(self, shares: Array, error_of: Callable[[Predictions], float]) -> Predictions:
        """Return the predictions with the least error, for a policy with these arm shares, (n, arms).

        The error is that of an estimate on rows of participants whom the model has not seen.
        """
        return min(self._iter_predictions(shares), key=error_of)

    def _iter_predictions(self, shares: Array) -> Iterator[Predictions]:
        """Predict rewards by each model: none, means of the arms, and ridge regressions if there are columns."""
        yield Predictions("0, which is IPS", 0.0, 0.0)
        yield self._cross_fit("the arms' means", np.ones((len(self.log), 1)), shares)
        if self.log.columns:
            yield self._cross_fit("a ridge regression an arm", self._design_matrix, shares)

    @cached_property
    def _design_matrix(self) -> Array:
        return design_matrix(self.log.columns, len(self.log))

    def _cross_fit(self, model: str, terms: Array, shares: Array) -> Predictions:
        """Predict each fold's rewards by a model of each arm of the policy that is fitted to all other folds.

        A row's own reward does not enter its prediction, so an estimate that adds weighted residuals is unbiased
        whatever the model (Chernozhukov et al. 2018). A fold has all rows of a participant or cluster, or none.
        """
        log, n_units = self.log, int(self.log.units.max()) + 1
        folds = min(self.folds, n_units)
        fold = (np.random.default_rng(self.seed).permutation(n_units) % folds)[log.units]
        of_policy, of_arm = np.zeros(len(log)), np.zeros(len(log))
        for test_fold in range(folds):
            train, test = fold != test_fold, np.flatnonzero(fold == test_fold)
            mean = float(log.rewards[train].mean())
            for arm in np.flatnonzero(shares.any(axis=0)).tolist():
                rows = train & (log.arm_indices == arm)
                gram = terms[rows].T @ terms[rows] + _RIDGE_PENALTY * np.eye(terms.shape[1])
                expected = mean + terms[test] @ np.linalg.solve(gram, terms[rows].T @ (log.rewards[rows] - mean))
                of_policy[test] += shares[test, arm] * expected
                of_arm[test] += (log.arm_indices[test] == arm) * expected
        return Predictions(model, of_policy, of_arm)


def design_matrix(columns: Columns, n_rows: int) -> Array:
    """Return the design matrix of a regression on context columns, (n, terms).

    Terms are 1; standardized numeric columns, and their squares and products of two; and 0 or 1 for every frequent
    value of other columns. A missing number counts as the mean, and a term of its own indicates it.
    """
    smooth, flags = [], []
    for values in columns.values():
        if values.dtype.kind in "fiu":
            gaps = ~np.isfinite(values.astype(np.float64))
            smooth.append(_standardize(values.astype(np.float64), gaps))
            flags += [gaps.astype(np.float64)] if gaps.any() else []
        else:
            flags += _indicator_columns(values)
    products = [a * b for k, a in enumerate(smooth) for b in smooth[k:]] if len(smooth) <= _MAX_PRODUCT_COLUMNS else []
    return np.stack([np.ones(n_rows), *smooth, *products, *flags], axis=1)


def _standardize(values: Array, gaps: NDArray[np.bool_]) -> Array:
    observed = values[~gaps]
    scale = float(observed.std()) if len(observed) else 0.0
    return np.where(gaps, 0.0, (values - observed.mean()) / scale) if scale > 0 else np.zeros(len(values))


def _indicator_columns(values: NDArray[Any]) -> list[Array]:
    labels = np.array(["" if is_missing(level) else f"={level}" for level in values.tolist()])
    names, counts = np.unique(labels, return_counts=True)
    return [np.asarray(labels == name, np.float64) for name in names[np.argsort(-counts, kind="stable")][:_MAX_LEVELS]]


FALSE_ALARM_PROBABILITY: Final = 1e-3
"""The probability that the test rejects correct propensities."""
_BET_STAKES: Final = 0.5 ** np.arange(1, 11)
"""Stakes of the bets, as shares of the capital."""
_MIN_ROWS_PER_CELL: Final = 5
"""Least mean number of rows of an arm in a cell for propensities that depend on the cell."""
_PROPENSITY_TOLERANCE: Final = 1e-6


@dataclass(frozen=True)
class PropensityTest:
    """Test of the propensities of a log by betting.

    For every row, [arm] / p has a mean of 1 given all rows before it. A capital of 1, with stakes on values above or
    below 1, grows to 1 / alpha with a probability of at most alpha if propensities are correct (Ville 1939;
    Waudby-Smith and Ramdas 2024). So the test needs no normality, and the logged policy may have learned. Bets on
    values below need the largest 1 / p: that of the arm and cell, or of all rows if no row of the cell has the arm.
    """

    log: ChoiceLog

    def find_misfits(self, shares: Array) -> dict[int, str]:
        """Return sentences, by arm, for arms whose propensities do not fit their frequency in the log.

        Each arm is tested over all rows, and as the policy weights them, by its ``shares`` of the arms, (n, arms);
        `FALSE_ALARM_PROBABILITY` is for all tests.
        """
        sentences, limit = dict[int, str](), float(np.log(2 * len(self.log.arms) / FALSE_ALARM_PROBABILITY))
        for arm in np.unique(self.log.arm_indices).tolist():
            evidence, mean, group = *self._evidence_of_all_rows[arm], "everybody"
            if evidence < limit and shares[:, arm].min() < shares[:, arm].max():
                evidence, mean = self._bet_evidence(arm, shares[:, arm])
                group = "those whom the policy gives it"
            if evidence >= limit:
                sentences[arm] = (
                    f"the propensities of arm {self.log.arms[arm]!r} do not fit how often {group} got it: 1 / p has a "
                    f"mean of {mean:.2f} in the place of 1. Either propensities are wrong, or some people can never "
                    "get the arm"
                )
        return sentences

    @cached_property
    def _evidence_of_all_rows(self) -> dict[int, tuple[float, float]]:
        uniform_shares = np.ones(len(self.log))
        return {arm: self._bet_evidence(arm, uniform_shares) for arm in np.unique(self.log.arm_indices).tolist()}

    def _bet_evidence(self, arm: int, shares: Array) -> tuple[float, float]:
        """Return the log of the capital of bets on an arm, and the mean of [arm] / p, weighted by shares, (n,)."""
        log, is_arm = self.log, self.log.arm_indices == arm
        mean = float((shares * is_arm / log.propensities).mean() / shares.mean())
        cells, max_inverse_propensities = self._cells
        rows, multiplicities = np.arange(len(log)), np.ones(len(log))
        if not log.unit and shares.min() == shares.max():
            # Bets on all rows of a cell without the arm are equal.
            other_rows = np.flatnonzero(~is_arm)
            _, first, counts = np.unique(cells[other_rows], return_index=True, return_counts=True)
            rows = np.append(np.flatnonzero(is_arm), other_rows[first])
            multiplicities = np.append(np.ones(len(rows) - len(first)), counts)
        excess = shares[rows] * (is_arm[rows] / log.propensities[rows] - 1)
        max_losses = max_inverse_propensities[arm, cells[rows]] - 1
        losses = np.divide(-excess, max_losses, out=np.zeros(len(excess)), where=max_losses > 0) / shares.max()
        if log.unit:
            n_rows = np.bincount(log.units)
            excess, losses = (np.bincount(log.units, bets) / n_rows for bets in (excess, losses))
            multiplicities = np.ones(len(n_rows))
        capitals = [np.log1p(stake * bets) @ multiplicities for bets in (excess, losses) for stake in _BET_STAKES]
        return float(logsumexp(capitals)) - float(np.log(len(capitals))), mean

    @cached_property
    def _cells(self) -> tuple[NDArray[np.int64], Array]:
        """Return the cell of each row, (n,), and the largest 1 / p of each arm in each cell, (arms, cells).

        Cells are the values of the column that determines propensities, if there is such a column; else all rows.
        """
        log, n_arms = self.log, len(self.log.arms)
        columns = [np.unique(_texts(values), return_inverse=True)[1] for values in log.columns.values()]
        one_cell = np.zeros(len(log), np.int64)
        for cells in (one_cell, *sorted(columns, key=np.max)):
            groups = log.arm_indices * (int(cells.max()) + 1) + cells
            distinct, indices, counts = np.unique(groups, return_inverse=True, return_counts=True)
            means = np.bincount(indices, log.propensities) / counts
            is_same = np.abs(log.propensities - means[indices]) < _PROPENSITY_TOLERANCE * log.propensities
            if is_same.all() and _MIN_ROWS_PER_CELL * len(distinct) <= len(log):
                max_inverse_propensities = np.full((n_arms, int(cells.max()) + 1), 1 / log.propensities.min())
                max_inverse_propensities.ravel()[distinct] = 1 / means
                return cells, max_inverse_propensities
        return one_cell, np.full((n_arms, 1), 1 / log.propensities.min())


def _texts(values: NDArray[np.generic]) -> NDArray[np.generic]:
    return values if values.dtype.kind in "fiub" else values.astype(str)
