"""Columns that leak the outcome: a column that nearly determines it was measured after the choice."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from privateer_lab.tables.data_column import DataColumn

Array = NDArray[np.float64]
_MIN_LEAK_R2: Final = 0.98
"""Smallest share of the variance of outcomes, or of their ranks, that a leaking column explains."""
_MIN_SUM_R2: Final = 0.9999
_MIN_SUMMAND_R2: Final = 0.001
"""Smallest share of the variance that a summand explains and no other column does."""
_MAX_ROWS: Final = 5000
_MIN_ROWS: Final = 30
_MIN_ROWS_PER_LEVEL: Final = 10
"""Fewest rows for each level: with fewer rows a column explains everything by chance."""


def find_leaks(columns: Sequence[DataColumn], rewards: Array) -> set[str]:
    """Return the names of columns that determine rewards (n,) almost exactly: alone, or as summands together."""
    if len(rewards) < _MIN_ROWS:
        return set()
    names = {column.name for column in columns if _explained_variance(column, rewards) > _MIN_LEAK_R2}
    others = [column for column in columns if column.name not in names and not column.gaps and not column.is_constant]
    return names | _find_summands([column for column in others if column.numbers is not None], rewards)


def _explained_variance(column: DataColumn, rewards: Array) -> float:
    """Return the share of the variance of rewards, or of their ranks, that a column explains."""
    is_known = column.codes >= 0
    if is_known.sum() < _MIN_ROWS or is_known.sum() < len(rewards) / 2:
        return 0.0
    codes, known_rewards = column.codes[is_known], rewards[is_known]
    variance = float(known_rewards.var())
    shares = [0.0]
    if variance and len(column.counts) * _MIN_ROWS_PER_LEVEL <= len(known_rewards):
        counts = np.maximum(np.bincount(codes, minlength=len(column.values)), 1)
        means = np.bincount(codes, known_rewards, minlength=len(column.values)) / counts
        shares.append(float(means[codes].var()) / variance)
    numbers = column.numbers
    if variance and numbers is not None and not column.is_constant:
        shares.append(float(np.corrcoef(rankdata(numbers), rankdata(known_rewards))[0, 1]) ** 2)
        if np.unique(known_rewards).size == 2:
            shares.append(_best_split_r2(numbers, known_rewards))
    return max(shares)


def _best_split_r2(numbers: Array, rewards: Array) -> float:
    """Return the largest share of the variance of binary rewards that a threshold of a number explains."""
    order = np.argsort(numbers, kind="stable")
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    below = np.cumsum(rewards[order] - rewards.mean())[ends - 1]
    between = below**2 * (1 / ends + 1 / (len(numbers) - ends)) / len(numbers)
    return float(between.max(initial=0.0) / rewards.var())


def _find_summands(columns: Sequence[DataColumn], rewards: Array) -> set[str]:
    """Return the names of columns with a weighted sum equal to the reward."""
    rows = np.linspace(0, len(rewards) - 1, min(len(rewards), _MAX_ROWS)).astype(int)
    values = [column.quantities[column.codes[rows]] for column in columns]
    if not values or len(rows) < 3 * len(values) or not np.ptp(rewards[rows]):
        return set()
    table = np.stack(values, axis=1)
    table = (table - table.mean(axis=0)) / np.maximum(table.std(axis=0), 1e-12)
    full_r2 = _least_squares_r2(table, rewards[rows])
    if full_r2 < _MIN_SUM_R2:
        return set()
    r2_without = [_least_squares_r2(np.delete(table, index, axis=1), rewards[rows]) for index in range(len(columns))]
    return {column.name for column, r2 in zip(columns, r2_without, strict=True) if full_r2 - r2 > _MIN_SUMMAND_R2}


def _least_squares_r2(table: Array, rewards: Array) -> float:
    """Return the share of the variance that least squares explain."""
    centred = rewards - rewards.mean()
    if not table.shape[1]:
        return 0.0
    residuals = centred - table @ np.linalg.lstsq(table, centred, rcond=None)[0]
    return 1 - float(np.square(residuals).sum() / np.square(centred).sum())
