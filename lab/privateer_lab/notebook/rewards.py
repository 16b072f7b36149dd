"""A model of rewards by context and arm, for doubly robust estimates: a ridge regression an arm, and no more."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.numbers import is_missing
from privateer_lab.notebook.columns import Array, Columns

_RIDGE: Final = 1.0
"""What is added to the diagonal: as if one more person had the mean reward."""
_LEVELS: Final = 20
"""Most values of a column that get a column of 0 and 1 each; rarer ones have none."""
_PRODUCTS: Final = 8
"""Most numeric columns whose products are terms."""


def design(columns: Columns, context: tuple[str, ...]) -> Array:
    """Return what a regression looks at, (n, terms).

    These are 1; numeric columns with mean 0 and variance 1, and their squares and products of two; and 0 or 1 for every
    frequent value of other columns. A gap counts as the mean, with a column of its own that says so.
    """
    rows = len(next(iter(columns.values())))
    smooth, flags = [], []
    for name in context:
        values = columns[name]
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


def cross_fitted(
    terms: Array, chosen: NDArray[np.int64], rewards: Array, arms: int, folds: int, rng: np.random.Generator
) -> Array:
    """Return the reward to expect of every arm, (n, arms): each row's by a model of the rows of other folds.

    So nobody's own reward is in what is expected of them, and an estimate that adds weighted residuals is unbiased
    whatever the model (Chernozhukov et al. 2018).
    """
    fold, found = rng.permutation(len(terms)) % folds, np.empty((len(terms), arms))
    for one in range(folds):
        known, asked = fold != one, fold == one
        mean = float(rewards[known].mean())
        for arm in range(arms):
            rows = known & (chosen == arm)
            found[asked, arm] = mean + terms[asked] @ _ridge(terms[rows], rewards[rows] - mean)
    return found


def _ridge(terms: Array, residuals: Array) -> Array:
    gram = terms.T @ terms + _RIDGE * np.eye(terms.shape[1])
    return np.asarray(np.linalg.solve(gram, terms.T @ residuals))
