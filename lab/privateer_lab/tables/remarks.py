"""What looks wrong in a table: codes among numbers, means instead of gaps, copies, rows that are no people."""

import math
import re
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_lab.tables import shortened
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.data_table import TableRows

Array = NDArray[np.float64]
PEOPLE: Final = re.compile(
    r"^(id|uid|uuid|guid)$|(^|[_\W])(user|person|people|patient|subject|participant|customer|visitor|client|member|respondent|household)"
    r"s?([_\W]?(id|nr|no|number|key|code))?$",
    re.IGNORECASE,
)
"""Names of columns that say whose row it is."""
_TIME: Final = re.compile(r"(^|[_\W])(fu|follow_?up|surv(ival)?_?)?(time|days|weeks|months|years|tte)$", re.IGNORECASE)
_STATUS: Final = re.compile(
    r"(^|[_\W])(fu)?(status|stat|event|censor(ed|ing)?|cens|death|dead|died|relapse|fail(ed|ure)?)$", re.I
)
_RANKS_MAX: Final = 7
_REPDIGIT: Final = re.compile(r"-?(9+|8{2,}|7{2,}|6{2,})")
_CODES_MAX: Final = 4
_REPEATED: Final = 3
_MANY: Final = 20
"""People from whom on a column of them is asked for."""
_FILLED: Final = 0.05
_COPIES: Final = 0.1
_WIDE: Final = 3
"""Columns from which on equal rows are rather copies than chance."""


def far_codes(numbers: Array) -> list[float]:
    """Return values far beyond all others that many rows have, as codes of gaps are: 999 among numbers up to 8."""
    high = _above(numbers)
    return high + [-code for code in _above(-numbers[~np.isin(numbers, high)])]


def _above(numbers: Array) -> list[float]:
    """Return the codes above all other numbers."""
    values, times = np.unique(numbers, return_counts=True)
    if len(values) < 3:
        return []
    gaps = np.diff(values)
    n_codes = int(np.argmax(gaps[::-1])) + 1
    inner, codes, counts = values[:-n_codes], values[-n_codes:].tolist(), times[-n_codes:].tolist()
    if n_codes > _CODES_MAX or len(inner) < 2 or gaps.max() <= inner[-1] - inner[0]:
        return []
    # A value of many rows may be a code whatever its digits; of two other values, it is a third.
    usual = math.inf if len(inner) < 3 else max(_REPEATED, len(numbers) / 100)
    pairs = zip(codes, counts, strict=True)
    is_code = all(count >= usual or (count > 1 and _REPDIGIT.fullmatch(f"{code:g}")) for code, count in pairs)
    return codes if is_code else []


def code_remarks(column: DataColumn) -> list[str]:
    """Say which numbers look like codes of gaps, and what to do."""
    numbers, name = column.numbers, shortened(column.name)
    if numbers is None:
        return _almost_numbers(column)
    remarks = []
    if codes := far_codes(numbers):
        rest = numbers[~np.isin(numbers, codes)]
        listed = " and ".join(f"{code:g}" for code in codes)
        count = len(numbers) - len(rest)
        distance = min(abs(code - end) for code in codes for end in (rest.min(), rest.max()))
        options = " ".join(f"--missing {code:g}" for code in codes)
        remarks.append(
            f"{name}: {count:,} of {len(numbers):,} rows have {listed}, {distance:g} beyond all others: if that stands "
            f"for no value, give {options}."
        )
    values, times = np.unique(numbers, return_counts=True)
    if len(values) == 3 and values[0] == 0 and values[2] == 1 and times[1] >= _FILLED * len(numbers):
        remarks.append(
            f"{name}: all rows have 0 or 1 but {times[1] / len(numbers):.0%}, which have one number between: if that "
            "is a mean filled in, leave these cells empty."
        )
    return remarks


def outcome_remarks(rows: TableRows, reward: str) -> list[str]:
    """Say where a mean may not be what an outcome is about: times of events, of which some are to come, and ranks."""
    column, name = rows.column(reward), shortened(reward)
    flags = [other for other in rows.columns.values() if _STATUS.search(other.name) and 2 <= len(other.counts) <= 3]
    if _TIME.search(reward) and flags:
        return [
            f"{name} is averaged as it is: if it is the time of an event that {shortened(flags[0].name)} says has "
            "happened or not, use a survival analysis, since times that are cut short are no times of events."
        ]
    values = np.unique(column.numbers) if column.numbers is not None else np.zeros(0)
    is_rank = (
        3 <= len(values) <= _RANKS_MAX and np.array_equal(values, np.round(values)) and np.ptp(values) <= _RANKS_MAX
    )
    if is_rank:
        listed = ", ".join(f"{value:g}" for value in values)
        return [
            f"{name} has the values {listed} alone, and is averaged: if they are codes of ranks and not counts, a mean "
            "takes each step for as large as any other; compare the share above a rank, by a column of yes and no."
        ]
    return []


def _almost_numbers(column: DataColumn) -> list[str]:
    """Say which text keeps a column from being one of numbers."""
    words = [text for text in column.counts if np.isnan(column.quantities[column.values.index(text)])]
    name, n_numbers = shortened(column.name), len(column.counts) - len(words)
    if not words:
        return [f"{name}: its numbers begin with zeros, and count as codes."] if column.counts else []
    rows = sum(column.counts[word] for word in words)
    if n_numbers < 5 or len(words) > 1 or rows > (column.rows - column.gaps) / 2:
        return []
    return [
        f"{name}: all values but {shortened(words[0])!r} ({rows:,} rows) are numbers: if it stands for no value, give "
        f"--missing {shortened(words[0])!r}."
    ]


def _people_columns(rows: TableRows, roles: Collection[str]) -> list[DataColumn]:
    """Return columns that may say whose row it is, in which some people have several rows."""
    columns = [column for name, column in rows.columns.items() if name not in roles and PEOPLE.search(name)]
    return [column for column in columns if _MANY <= len(column.counts) < column.rows - column.gaps]


def people_warnings(rows: TableRows, roles: Collection[str], arm: str) -> list[str]:
    """Warn of columns that may say whose row it is, and have a value in several rows of an arm."""
    warnings, arms = [], rows.column(arm)
    for column in _people_columns(rows, roles):
        is_known = (column.places >= 0) & (arms.places >= 0)
        pairs = column.places[is_known] * len(arms.values) + arms.places[is_known]
        if len(np.unique(pairs)) < len(pairs):
            name = shortened(column.name)
            warnings.append(
                f"{name} repeats within arms: if it says whose row it is, intervals are too narrow and effects may "
                f"be found where there are none; give --person {name}"
            )
    return warnings


def table_remarks(rows: TableRows, roles: Collection[str], person: str | None) -> list[str]:
    """Say that rows are copies of others, or no people.

    roles: columns of options, rewards and segments.
    person: the column of people, if it is named.
    """
    if person:
        return []
    remarks = []
    for column in _people_columns(rows, roles):
        what = shortened(column.name)
        remarks.append(
            f"Rows count as people, and {what} has {len(column.counts):,} values in {column.rows:,} rows: if it says "
            f"whose row it is, give --person {what}."
        )
    if (copies := _copies(rows.columns)) and not remarks:
        remarks.append(
            f"{copies:,} rows are exact copies of others: if they are the same people, leave the copies out."
        )
    return remarks


def _copies(columns: Mapping[str, DataColumn]) -> int:
    """Return how many rows are copies of others, where that is rare or regular, and no chance."""
    if len(columns) < _WIDE:
        return 0
    weights = np.random.default_rng(0).integers(1, 2**63, len(columns), dtype=np.uint64)
    hashes = np.zeros(next(iter(columns.values())).rows, np.uint64)
    for weight, column in zip(weights, columns.values(), strict=True):
        hashes += weight * (column.places + 1).astype(np.uint64)
    _, times = np.unique(hashes, return_counts=True)
    copies = len(hashes) - len(times)
    is_regular = len(times) >= _MANY and 1 < times.min() == times.max()
    return copies if is_regular or copies <= _COPIES * len(hashes) else 0
