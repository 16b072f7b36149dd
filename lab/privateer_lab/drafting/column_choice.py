"""Selection of the columns that become features: no copies, and the most relevant columns of a wide table."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_lab.tables import shorten
from privateer_lab.tables.data_column import DataColumn

_MAX_CELLS: Final = 12
_MIN_ROWS_FOR_DEPENDENCE: Final = 20
"""Fewest rows with which a column can be said to determine the arm."""
_PROPENSITY_NAME: Final = re.compile(r"propensit|p_?score|(action|arm|choice|log(ging|ged)?)_?prob", re.IGNORECASE)
"""Column names of logged propensities."""


def drop_redundant_columns(
    columns: Sequence[DataColumn], arm: DataColumn | None, clusters: DataColumn | None = None
) -> tuple[list[DataColumn], list[str]]:
    """Drop columns that repeat an earlier column or determine the arm; return the others, with notes.

    The cluster column counts as the earliest, and a column that only identifies the cluster does not determine the arm.

    A column is a copy if it partitions the rows in the same way, whatever its values are called: ``NL`` and
    ``Netherlands``. It determines the arm if each of its values, or ranges of numbers, has a single arm.
    """
    selected, notes = list[DataColumn](), list[str]()
    cluster_columns = [clusters] if clusters else []
    for column in columns:
        if arm is not None and _is_propensity(column):
            reason = f"it says with which probability a row has its option of {shorten(arm.name)}"
        elif arm is not None and (_is_copy(column, arm) or _determines_arm(column, arm, clusters)):
            reason = f"it says which option a row has, as {shorten(arm.name)} does, and no device knows that in time"
        elif earlier := next((other for other in (*cluster_columns, *selected) if _is_copy(column, other)), None):
            reason = f"it says what {shorten(earlier.name)} says"
        else:
            selected.append(column)
            continue
        notes.append(f"{shorten(column.name)} is left out: {reason}.")
    return selected, notes


def _is_copy(column: DataColumn, other: DataColumn) -> bool:
    """Whether two columns partition the rows alike; where most values are unique, the values must be equal, too."""
    if column.is_constant or len(column.counts) != len(other.counts):
        return False
    if not np.array_equal(_number_by_first_occurrence(column.codes), _number_by_first_occurrence(other.codes)):
        return False
    return 2 * len(column.counts) <= column.rows or [*column.counts] == [*other.counts]


def _determines_arm(candidate: DataColumn, arm: DataColumn, clusters: DataColumn | None) -> bool:
    """Whether each value of a column has one arm, a cluster counting once; sorted numbers, if most are unique."""
    rows_with_both = np.flatnonzero((candidate.codes >= 0) & (arm.codes >= 0))
    if clusters is not None:
        rows = np.stack([column.codes[rows_with_both] for column in (candidate, arm, clusters)], axis=1)
        rows_with_both = rows_with_both[np.unique(rows, axis=0, return_index=True)[1]]
    codes, arms = candidate.codes[rows_with_both], arm.codes[rows_with_both]
    if candidate.is_constant or len(rows_with_both) < _MIN_ROWS_FOR_DEPENDENCE or len(np.unique(arms)) < 2:
        return False
    n_pairs = np.unique(np.stack([codes, arms]), axis=1).shape[1]
    if 2 * len(candidate.counts) <= len(codes):
        return bool(n_pairs == len(candidate.counts))
    if candidate.numbers is None or n_pairs > len(candidate.counts):
        return False
    in_order = arms[np.argsort(candidate.quantities[codes], kind="stable")]
    return int(np.count_nonzero(np.diff(in_order))) < len(np.unique(arms))


def _is_propensity(column: DataColumn) -> bool:
    is_named = column.numbers is not None and _PROPENSITY_NAME.search(column.name) is not None
    return is_named and bool(((column.quantities > 0) & (column.quantities <= 1)).all())


def find_propensities(columns: Iterable[DataColumn]) -> NDArray[np.float64] | None:
    """Return each row's probability of its arm, (n,), from a propensity column without gaps; None without one."""
    match = next((column for column in columns if _is_propensity(column) and not column.gaps), None)
    return None if match is None else np.asarray(match.quantities[match.codes])


def _number_by_first_occurrence(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Renumber the codes of rows, (n,), by first occurrence; rows without a value share a code."""
    _, first_rows, group = np.unique(codes, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first_rows))[group])


def sort_by_relevance(columns: Sequence[DataColumn], arm: DataColumn, rewards: NDArray[np.float64]) -> list[DataColumn]:
    """Sort columns by the strength of their interaction with the arm on the rewards, strongest first."""
    return sorted(columns, key=lambda column: -_standardized_interaction(_assign_cells(column), arm.codes, rewards))


def _assign_cells(column: DataColumn) -> NDArray[np.int64]:
    """Return each row's cell: a frequent value or a bin of the numbers; missing values have a cell of their own."""
    if column.numbers is not None and len(column.counts) > _MAX_CELLS:
        numbers = np.append(column.quantities, np.nan)[column.codes]
        cuts = np.unique(np.nanquantile(numbers, np.linspace(0, 1, _MAX_CELLS + 1)[1:-1]))
        return np.where(np.isnan(numbers), 0, np.searchsorted(cuts, numbers, side="right") + 1)
    frequent = {value: cell for cell, (value, _) in enumerate(column.counts.most_common(_MAX_CELLS))}
    cell_by_code = np.array([*(frequent.get(value, _MAX_CELLS) for value in column.values), -1])
    return np.asarray(cell_by_code[column.codes] + 1)


def _standardized_interaction(cells: NDArray[np.int64], arms: NDArray[np.int64], rewards: NDArray[np.float64]) -> float:
    """Return the standardized sum of squares of interactions: mean 0 and standard deviation 1 for noise."""
    shape = (int(cells.max()) + 1, int(arms.max()) + 1)
    counts, sums = np.zeros(shape), np.zeros(shape)
    np.add.at(counts, (cells, arms), 1.0)
    np.add.at(sums, (cells, arms), rewards - rewards.mean())
    by_cell = sums.sum(axis=1, keepdims=True) / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    by_arm = (sums - counts * by_cell).sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
    residual_sums = sums - counts * (by_cell + by_arm)
    statistic = float((residual_sums**2 / np.maximum(counts, 1)).sum() / max(float(rewards.var()), 1e-12))
    degrees_of_freedom = max(1, ((counts.sum(axis=1) > 0).sum() - 1) * (shape[1] - 1))
    return float((statistic - degrees_of_freedom) / np.sqrt(2 * degrees_of_freedom))
