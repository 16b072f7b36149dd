"""Which columns of a table become features: no copies of others, and of a wide table those that tell most."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_lab.tables import shortened
from privateer_lab.tables.data_column import DataColumn

_CELLS: Final = 12
_FEWEST: Final = 20
"""Rows from which on it is no chance that each value of a column has one option."""
_PROPENSITY: Final = re.compile(r"propensit|p_?score|(action|arm|choice|log(ging|ged)?)_?prob", re.IGNORECASE)
"""Names of the probabilities with which a log's options were drawn."""


def without_copies(
    profiles: Sequence[DataColumn], arm: DataColumn | None, clusters: DataColumn | None = None
) -> tuple[list[DataColumn], list[str]]:
    """Return the columns but those that say what an earlier one says, or which option a row has, and why they are not.

    A column of ``clusters`` is earlier than all. What only says which cluster a row is in decides no option.

    A column is a copy if it parts rows as the other does, whatever it calls the parts: ``NL`` and ``Netherlands``. It
    decides the option if each of its values, or of its ranges of numbers, has one.
    """
    kept, notes = list[DataColumn](), list[str]()
    earlier_ones = [clusters] if clusters else []
    for one in profiles:
        if arm is not None and _is_propensity(one):
            what = f"it says with which probability a row has its option of {shortened(arm.name)}"
        elif arm is not None and (_same(one, arm) or _decides(one, arm, clusters)):
            what = f"it says which option a row has, as {shortened(arm.name)} does, and no device knows that in time"
        elif earlier := next((other for other in (*earlier_ones, *kept) if _same(one, other)), None):
            what = f"it says what {shortened(earlier.name)} says"
        else:
            kept.append(one)
            continue
        notes.append(f"{shortened(one.name)} is left out: {what}.")
    return kept, notes


def _same(one: DataColumn, other: DataColumn) -> bool:
    """Whether two columns part rows alike. Where most rows are apart they do so by chance: values must be the same."""
    if one.is_constant or len(one.counts) != len(other.counts):
        return False
    if not np.array_equal(_parted(one.places), _parted(other.places)):
        return False
    return 2 * len(one.counts) <= one.rows or [*one.counts] == [*other.counts]


def _decides(one: DataColumn, arm: DataColumn, clusters: DataColumn | None) -> bool:
    """Whether each value of a column has one option. Where most rows are apart, numbers must part options in order.

    Rows of a cluster that are alike are one.
    """
    known = np.flatnonzero((one.places >= 0) & (arm.places >= 0))
    if clusters is not None:
        rows = np.stack([column.places[known] for column in (one, arm, clusters)], axis=1)
        known = known[np.unique(rows, axis=0, return_index=True)[1]]
    places, arms = one.places[known], arm.places[known]
    if one.is_constant or len(known) < _FEWEST or len(np.unique(arms)) < 2:
        return False
    pairs = np.unique(np.stack([places, arms]), axis=1).shape[1]
    if 2 * len(one.counts) <= len(places):
        return bool(pairs == len(one.counts))
    if one.numbers is None or pairs > len(one.counts):
        return False
    in_order = arms[np.argsort(one.quantities[places], kind="stable")]
    return int(np.count_nonzero(np.diff(in_order))) < len(np.unique(arms))


def _is_propensity(one: DataColumn) -> bool:
    is_named = one.numbers is not None and _PROPENSITY.search(one.name) is not None
    return is_named and bool(((one.quantities > 0) & (one.quantities <= 1)).all())


def propensities_of(profiles: Iterable[DataColumn]) -> NDArray[np.float64] | None:
    """Return with which probability each row has its option, (n,), where a column without gaps says so."""
    found = next((one for one in profiles if _is_propensity(one) and not one.gaps), None)
    return None if found is None else np.asarray(found.quantities[found.places])


def _parted(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of rows (n,) with parts numbered as they first occur; rows without a value are one."""
    _, first, part = np.unique(places, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[part])


def most_relevant_first(
    profiles: Sequence[DataColumn], arm: DataColumn, rewards: NDArray[np.float64]
) -> list[DataColumn]:
    """Return columns by how much the differences between options differ between their values.

    profiles, arm: columns of the same rows.
    rewards: shape (n,).
    """
    return sorted(profiles, key=lambda one: -_evidence(_cells(one), arm.places, rewards))


def _cells(profile: DataColumn) -> NDArray[np.int64]:
    """Return a cell for each row: a frequent value, or a part of the numbers; what is missing is a cell of its own."""
    if profile.numbers is not None and len(profile.counts) > _CELLS:
        return parts_of_numbers(np.append(profile.quantities, np.nan)[profile.places], _CELLS) + 1
    frequent = {value: place for place, (value, _) in enumerate(profile.counts.most_common(_CELLS))}
    each = np.array([*(frequent.get(value, _CELLS) for value in profile.values), -1])
    return np.asarray(each[profile.places] + 1)


def parts_of_numbers(values: NDArray[np.float64], parts: int) -> NDArray[np.int64]:
    """Return the part of each number, of which all have about as many, (n,); -1 where there is none."""
    cuts = np.unique(np.nanquantile(values, np.linspace(0, 1, parts + 1)[1:-1]))
    return np.where(np.isnan(values), -1, np.searchsorted(cuts, values, side="right"))


def _evidence(cells: NDArray[np.int64], arms: NDArray[np.int64], rewards: NDArray[np.float64]) -> float:
    """Return by how many of its deviations a sum of squares of interactions is above that of noise."""
    shape = (int(cells.max()) + 1, int(arms.max()) + 1)
    counts, sums = np.zeros(shape), np.zeros(shape)
    np.add.at(counts, (cells, arms), 1.0)
    np.add.at(sums, (cells, arms), rewards - rewards.mean())
    by_cell = sums.sum(axis=1, keepdims=True) / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    by_arm = (sums - counts * by_cell).sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
    left = sums - counts * (by_cell + by_arm)
    found = float((left**2 / np.maximum(counts, 1)).sum() / max(float(rewards.var()), 1e-12))
    freedom = max(1, ((counts.sum(axis=1) > 0).sum() - 1) * (shape[1] - 1))
    return float((found - freedom) / np.sqrt(2 * freedom))
