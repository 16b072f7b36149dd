"""Columns that give the outcome away: what is nearly a function of it is known only after the choice, or is it."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from privateer_lab.tables.data_column import DataColumn

Array = NDArray[np.float64]
_NEARLY: Final = 0.98
"""Share of the variance of outcomes, or of their ranks, from which one column tells them."""
_EXACTLY: Final = 0.9999
_LOST: Final = 0.001
"""Share of the variance that a summand tells and no other column does."""
_ROWS: Final = 5000
_LEAST: Final = 30
_LEVELS: Final = 10
"""Rows for each level, at least: of fewer a column tells everything by chance."""


def columns_that_tell(columns: Sequence[DataColumn], rewards: Array) -> set[str]:
    """Return names of columns that tell rewards (n,) nearly without error: alone, or as summands together."""
    if len(rewards) < _LEAST:
        return set()
    found = {column.name for column in columns if _share_told(column, rewards) > _NEARLY}
    numeric = [one for one in columns if one.name not in found and one.numbers is not None and not one.gaps]
    return found | _summands([one for one in numeric if not one.is_constant], rewards)


def _share_told(column: DataColumn, rewards: Array) -> float:
    """Return the share of the variance of rewards, or of ranks, that a column alone tells."""
    is_known = column.places >= 0
    if is_known.sum() < _LEAST or is_known.sum() < len(rewards) / 2:
        return 0.0
    places, known = column.places[is_known], rewards[is_known]
    variance = float(known.var())
    shares = [0.0]
    if variance and len(column.counts) * _LEVELS <= len(known):
        counts = np.maximum(np.bincount(places, minlength=len(column.values)), 1)
        means = np.bincount(places, known, minlength=len(column.values)) / counts
        shares.append(float(means[places].var()) / variance)
    numbers = column.numbers
    if variance and numbers is not None and not column.is_constant:
        shares.append(float(np.corrcoef(rankdata(numbers), rankdata(known))[0, 1]) ** 2)
        if np.unique(known).size == 2:
            shares.append(_best_cut(numbers, known))
    return max(shares)


def _best_cut(numbers: Array, rewards: Array) -> float:
    """Return the largest share of the variance of two outcomes that is told by whether a number is above a cut."""
    order = np.argsort(numbers, kind="stable")
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    below = np.cumsum(rewards[order] - rewards.mean())[ends - 1]
    between = below**2 * (1 / ends + 1 / (len(numbers) - ends)) / len(numbers)
    return float(between.max(initial=0.0) / rewards.var())


def _summands(columns: Sequence[DataColumn], rewards: Array) -> set[str]:
    """Return names of columns of which a weighted sum is the reward."""
    rows = np.linspace(0, len(rewards) - 1, min(len(rewards), _ROWS)).astype(int)
    values = [one.quantities[one.places[rows]] for one in columns]
    if not values or len(rows) < 3 * len(values) or not np.ptp(rewards[rows]):
        return set()
    table = np.stack(values, axis=1)
    table = (table - table.mean(axis=0)) / np.maximum(table.std(axis=0), 1e-12)
    whole = _fit(table, rewards[rows])
    if whole < _EXACTLY:
        return set()
    without = [_fit(np.delete(table, place, axis=1), rewards[rows]) for place in range(len(columns))]
    return {one.name for one, share in zip(columns, without, strict=True) if whole - share > _LOST}


def _fit(table: Array, rewards: Array) -> float:
    """Return the share of the variance that least squares tell."""
    centred = rewards - rewards.mean()
    if not table.shape[1]:
        return 0.0
    residuals = centred - table @ np.linalg.lstsq(table, centred, rcond=None)[0]
    return 1 - float(np.square(residuals).sum() / np.square(centred).sum())
