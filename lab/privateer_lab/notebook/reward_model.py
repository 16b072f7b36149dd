"""Models of rewards for doubly robust estimates: none, arms' means or a ridge regression, whichever errs least."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.columns import is_missing
from privateer_lab.notebook.choice_log import ChoiceLog, Columns
from privateer_lab.notebook.policies import Array

_RIDGE: Final = 1.0
"""What is added to the diagonal: as if one more person had the mean reward."""
_LEVELS: Final = 20
"""Most values of a column that get a column of 0 and 1 each; rarer ones have none."""
_PRODUCTS: Final = 8
"""Most numeric columns whose products are terms."""


@dataclass(frozen=True)
class Predictions:
    """The rewards that a model expects, each row's by a model of the rows of other people or clusters.

    Attributes
    ----------
    model
        What the model is, in words.
    of_policy, of_arm
        Shape (n,): expected with an arm of the policy, and with the row's own arm.
    """

    model: str
    of_policy: Array | float
    of_arm: Array | float

    def rest(self, weights: Array) -> Array | float:
        """Return what is added to weights, (n,), times rewards: its mean is 0 whatever the model."""
        return self.of_policy - weights * self.of_arm


@dataclass(frozen=True)
class RewardModels:
    """The models of a log."""

    log: ChoiceLog
    folds: int
    seed: int

    def best(self, shares: Array, error_of: Callable[[Predictions], float]) -> Predictions:
        """Return the predictions, for a policy with these shares, (n, arms), of which an estimate has the least error.

        The error is that of rows whose people the model has not seen, as the estimate weights them.
        """
        return min(self._predictions(shares), key=error_of)

    def _predictions(self, shares: Array) -> Iterator[Predictions]:
        yield Predictions("0, which is IPS", 0.0, 0.0)
        yield self._cross_fitted("the arms' means", np.ones((len(self.log), 1)), shares)
        if self.log.columns:
            yield self._cross_fitted("a ridge regression an arm", self._terms, shares)

    @cached_property
    def _terms(self) -> Array:
        return design(self.log.columns, len(self.log))

    def _cross_fitted(self, model: str, terms: Array, shares: Array) -> Predictions:
        """Fit a model of each arm of the policy for the rows of each fold to all others.

        So nobody's own reward is in what is expected of them, and an estimate that adds weighted residuals is unbiased
        whatever the model (Chernozhukov et al. 2018). Folds have all rows of a person or cluster, or none.
        """
        log, n_units = self.log, int(self.log.units.max()) + 1
        folds = min(self.folds, n_units)
        fold = (np.random.default_rng(self.seed).permutation(n_units) % folds)[log.units]
        of_policy, of_arm = np.zeros(len(log)), np.zeros(len(log))
        for part in range(folds):
            train, test = fold != part, np.flatnonzero(fold == part)
            mean = float(log.rewards[train].mean())
            for arm in np.flatnonzero(shares.any(axis=0)).tolist():
                rows = train & (log.chosen == arm)
                expected = mean + terms[test] @ _ridge(terms[rows], log.rewards[rows] - mean)
                of_policy[test] += shares[test, arm] * expected
                of_arm[test] += (log.chosen[test] == arm) * expected
        return Predictions(model, of_policy, of_arm)


def _ridge(terms: Array, residuals: Array) -> Array:
    gram = terms.T @ terms + _RIDGE * np.eye(terms.shape[1])
    return np.asarray(np.linalg.solve(gram, terms.T @ residuals))


def design(columns: Columns, rows: int) -> Array:
    """Return what a regression looks at, (n, terms).

    These are 1; numeric columns with mean 0 and variance 1, and their squares and products of two; and 0 or 1 for every
    frequent value of other columns. A gap counts as the mean, with a column of its own that says so.
    """
    smooth, flags = [], []
    for values in columns.values():
        if values.dtype.kind in "fiu":
            gaps = ~np.isfinite(values.astype(np.float64))
            smooth.append(_standard(values.astype(np.float64), gaps))
            flags += [gaps.astype(np.float64)] if gaps.any() else []
        else:
            flags += _indicators(values)
    products = [a * b for k, a in enumerate(smooth) for b in smooth[k:]] if len(smooth) <= _PRODUCTS else []
    return np.stack([np.ones(rows), *smooth, *products, *flags], axis=1)


def _standard(values: Array, gaps: NDArray[np.bool_]) -> Array:
    known = values[~gaps]
    spread = float(known.std()) if len(known) else 0.0
    return np.where(gaps, 0.0, (values - known.mean()) / spread) if spread > 0 else np.zeros(len(values))


def _indicators(values: NDArray[Any]) -> list[Array]:
    named = np.array(["" if is_missing(one) else f"={one}" for one in values.tolist()])
    found, counts = np.unique(named, return_counts=True)
    return [np.asarray(named == one, np.float64) for one in found[np.argsort(-counts, kind="stable")][:_LEVELS]]
