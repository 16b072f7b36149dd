"""Rewards in columns: bounds, remarks about suspicious values, and outcomes of rows."""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_lab.tables import shorten
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.data_table import TableRows

Array = NDArray[np.float64]
PARTICIPANT_NAME: Final = re.compile(
    r"^(id|uid|uuid|guid)$|(^|[_\W])(user|person|people|patient|subject|participant|customer|visitor|client|member|respondent|household)"
    r"s?([_\W]?(id|nr|no|number|key|code))?$",
    re.IGNORECASE,
)
"""Names of columns that identify participants."""
_TIME: Final = re.compile(r"(^|[_\W])(fu|follow_?up|surv(ival)?_?)?(time|days|weeks|months|years|tte)$", re.IGNORECASE)
_STATUS: Final = re.compile(
    r"(^|[_\W])(fu)?(status|stat|event|censor(ed|ing)?|cens|death|dead|died|relapse|fail(ed|ure)?)$", re.I
)
_MAX_RANKS: Final = 7
_REPDIGIT: Final = re.compile(r"-?(9+|8{2,}|7{2,}|6{2,})")
_MAX_CODES: Final = 4
_MIN_CODE_ROWS: Final = 3
_MIN_PARTICIPANTS: Final = 20
"""Fewest distinct values of a column that may identify participants."""
_MIN_FILLED_SHARE: Final = 0.05
_MAX_COPIES_SHARE: Final = 0.1
_MIN_COMPARED_COLUMNS: Final = 3
"""Fewest columns with which equal rows are taken for copies."""


def find_far_codes(numbers: Array) -> list[float]:
    """Find repeated values far beyond all others, such as codes of gaps: 999 among numbers up to 8."""
    high = _find_codes_above(numbers)
    return high + [-code for code in _find_codes_above(-numbers[~np.isin(numbers, high)])]


def _find_codes_above(numbers: Array) -> list[float]:
    """Find codes above all other numbers: values far away, and frequent or of a repeated digit."""
    values, n_rows = np.unique(numbers, return_counts=True)
    if len(values) < 3:
        return []
    gaps = np.diff(values)
    n_codes = int(np.argmax(gaps[::-1])) + 1
    inner, codes, counts = values[:-n_codes], values[-n_codes:].tolist(), n_rows[-n_codes:].tolist()
    if n_codes > _MAX_CODES or len(inner) < 2 or gaps.max() <= inner[-1] - inner[0]:
        return []
    # A frequent value may be a code whatever its digits; beside only two other values it is a regular value.
    min_code_rows = math.inf if len(inner) < 3 else max(_MIN_CODE_ROWS, len(numbers) / 100)
    pairs = zip(codes, counts, strict=True)
    is_code = all(count >= min_code_rows or (count > 1 and _REPDIGIT.fullmatch(f"{code:g}")) for code, count in pairs)
    return codes if is_code else []


def describe_codes(column: DataColumn) -> list[str]:
    """Describe numbers that look like codes of gaps, with a remedy."""
    numbers, name = column.numbers, shorten(column.name)
    if numbers is None:
        return _describe_non_numbers(column)
    remarks = []
    if codes := find_far_codes(numbers):
        rest = numbers[~np.isin(numbers, codes)]
        listed = " and ".join(f"{code:g}" for code in codes)
        count = len(numbers) - len(rest)
        distance = min(abs(code - end) for code in codes for end in (rest.min(), rest.max()))
        options = " ".join(f"--missing {code:g}" for code in codes)
        remarks.append(
            f"{name}: {count:,} of {len(numbers):,} rows have {listed}, {distance:g} beyond all others: if that stands "
            f"for no value, give {options}."
        )
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) == 3 and values[0] == 0 and values[2] == 1 and counts[1] >= _MIN_FILLED_SHARE * len(numbers):
        remarks.append(
            f"{name}: all rows have 0 or 1 but {counts[1] / len(numbers):.0%}, which have one number between: if that "
            "is a mean filled in, leave these cells empty."
        )
    return remarks


def describe_outcome(rows: TableRows, reward: str) -> list[str]:
    """Describe outcomes for which a mean may be inadequate: censored times of events, and ranks."""
    column, name = rows.column(reward), shorten(reward)
    flags = [other for other in rows.columns.values() if _STATUS.search(other.name) and 2 <= len(other.counts) <= 3]
    if _TIME.search(reward) and flags:
        return [
            f"{name} is averaged as it is: if it is the time of an event that {shorten(flags[0].name)} says has "
            "happened or not, use a survival analysis, since times that are cut short are no times of events."
        ]
    values = np.unique(column.numbers) if column.numbers is not None else np.zeros(0)
    is_whole = np.array_equal(values, np.round(values))
    if is_whole and 3 <= len(values) <= _MAX_RANKS and np.ptp(values) <= _MAX_RANKS:
        listed = ", ".join(f"{value:g}" for value in values)
        return [
            f"{name} has the values {listed} alone, and is averaged: if they are codes of ranks and not counts, a mean "
            "takes each step for as large as any other; compare the share above a rank, by a column of yes and no."
        ]
    return []


def _describe_non_numbers(column: DataColumn) -> list[str]:
    """Describe the only text of a column that is otherwise numeric."""
    words = [text for text in column.counts if np.isnan(column.quantities[column.values.index(text)])]
    name, n_numbers = shorten(column.name), len(column.counts) - len(words)
    if not words:
        return [f"{name}: its numbers begin with zeros, and count as codes."] if column.counts else []
    rows = sum(column.counts[word] for word in words)
    if n_numbers < 5 or len(words) > 1 or rows > (column.rows - column.gaps) / 2:
        return []
    return [
        f"{name}: all values but {shorten(words[0])!r} ({rows:,} rows) are numbers: if it stands for no value, give "
        f"--missing {shorten(words[0])!r}."
    ]


def _find_participant_columns(rows: TableRows, roles: Collection[str]) -> list[DataColumn]:
    """Find columns that may identify participants, with repeated values."""
    columns = [column for name, column in rows.columns.items() if name not in roles and PARTICIPANT_NAME.search(name)]
    return [column for column in columns if _MIN_PARTICIPANTS <= len(column.counts) < column.rows - column.gaps]


def warn_of_repeated_participants(rows: TableRows, roles: Collection[str], arm: str) -> list[str]:
    """Warn of columns that may identify participants, with values that repeat within an arm."""
    warnings, arms = [], rows.column(arm)
    for column in _find_participant_columns(rows, roles):
        is_known = (column.codes >= 0) & (arms.codes >= 0)
        pairs = column.codes[is_known] * len(arms.values) + arms.codes[is_known]
        if len(np.unique(pairs)) < len(pairs):
            name = shorten(column.name)
            warnings.append(
                f"{name} repeats within arms: if it says whose row it is, intervals are too narrow and effects may "
                f"be found where there are none; give --person {name}"
            )
    return warnings


def describe_table(rows: TableRows, roles: Collection[str], person: str | None) -> list[str]:
    """Describe copied rows, and rows that are probably no participants, by roles and the column of participants."""
    if person:
        return []
    remarks = []
    for column in _find_participant_columns(rows, roles):
        name = shorten(column.name)
        remarks.append(
            f"Rows count as people, and {name} has {len(column.counts):,} values in {column.rows:,} rows: if it says "
            f"whose row it is, give --person {name}."
        )
    if not remarks and (n := _count_copies(rows.columns)):
        remarks.append(f"{n:,} rows are exact copies of others: if they are the same people, leave the copies out.")
    return remarks


def _count_copies(columns: Mapping[str, DataColumn]) -> int:
    """Count rows that are copies of others, if they are rare or regular, and not due to chance."""
    if len(columns) < _MIN_COMPARED_COLUMNS:
        return 0
    weights = np.random.default_rng(0).integers(1, 2**63, len(columns), dtype=np.uint64)
    hashes = np.zeros(next(iter(columns.values())).rows, np.uint64)
    for weight, column in zip(weights, columns.values(), strict=True):
        hashes += weight * (column.codes + 1).astype(np.uint64)
    _, counts = np.unique(hashes, return_counts=True)
    copies = len(hashes) - len(counts)
    is_regular = len(counts) >= _MIN_PARTICIPANTS and 1 < counts.min() == counts.max()
    return copies if is_regular or copies <= _MAX_COPIES_SHARE * len(hashes) else 0


INNER_QUANTILES: Final = (0.01, 0.99)
HIGHER_REMARK: Final = "A higher reward counts as better; lower_is_better turns it."
LOWER_REMARK: Final = "A lower {reward} counts as better"
LOWER_FIGURE_REMARK: Final = f"{LOWER_REMARK}: {{figure}} of 1 means that {{reward}} is lower by 1."
_UNIT_BOUNDS: Final = (0.0, 1.0)


class RewardBounds(NamedTuple):
    """The bounds of rewards."""

    # low, high: rewards are clipped to them
    low: float
    high: float
    words: str  # their origin
    is_from_data: bool  # whether they depend on the rows

    def describe_clipping(self, rewards: Array, name: str) -> str:
        """Describe the bounds' origin, and how many rewards are clipped."""
        n_beyond, share = int(((rewards < self.low) | (rewards > self.high)).sum()), self.compute_clipped_share(rewards)
        clipped = f"{n_beyond:,} of {len(rewards):,} rows are clipped to these bounds, {share:.1%} of all {name}"
        counts = clipped if n_beyond else "no row is clipped"
        return f"{name} is a number, and counts from {self.low:g} to {self.high:g} ({self.words}): {counts}."

    def compute_clipped_share(self, rewards: Array) -> float:
        """Return the part of the rewards' absolute sum that is beyond the bounds."""
        beyond = np.abs(rewards - np.clip(rewards, self.low, self.high)).sum()
        return float(beyond / np.abs(rewards).sum()) if beyond else 0.0


def compute_reward_bounds(rewards: Array, public_bounds: tuple[float, float] | None) -> RewardBounds:
    """Return bounds of rewards, (n,): public ones, 0 and 1 if they contain all rewards, or inner quantiles."""
    if public_bounds is not None:
        return RewardBounds(*public_bounds, "as given", False)
    if rewards.min() >= 0 and rewards.max() <= 1:
        return RewardBounds(*_UNIT_BOUNDS, "those that a spec has", False)
    return RewardBounds(*compute_inner_bounds(_drop_codes(rewards)), "about 98 in 100 rewards are between them", True)


def compute_outer_bounds(rewards: Array, public_bounds: tuple[float, float] | None) -> RewardBounds:
    """Return bounds of rewards, (n,), for their mean: public ones, 0 and 1, or the rows' minimum and maximum."""
    if public_bounds is not None or (rewards.min() >= 0 and rewards.max() <= 1):
        return compute_reward_bounds(rewards, public_bounds)
    rewards = _drop_codes(rewards)
    return RewardBounds(float(rewards.min()), float(rewards.max()), "the least and the largest of the rows", True)


def _drop_codes(rewards: Array) -> Array:
    codes = find_far_codes(rewards)
    return rewards[~np.isin(rewards, codes)] if codes else rewards


def compute_inner_bounds(numbers: Array) -> tuple[float, float]:
    """Return the inner quantiles, rounded outward so that they reveal no row's number."""
    low, high = np.quantile(numbers, INNER_QUANTILES)
    if low == high:
        low, high = float(numbers.min()), float(numbers.max())
    if low == high:
        return float(low) - 1, float(high) + 1
    unit = 10.0 ** math.floor(math.log10(high - low)) / 2
    return round_off_errors(math.floor(low / unit) * unit), round_off_errors(math.ceil(high / unit) * unit)


def round_off_errors(value: float) -> float:
    """Remove rounding errors in the last digits."""
    return float(f"{value:.12g}")


def is_yes_or_no(rewards: Array) -> bool:
    """Whether all rewards are 0 or 1."""
    return not np.setdiff1d(rewards, _UNIT_BOUNDS).size


def reverse_rewards(rewards: Array, bounds: RewardBounds, *, is_binary: bool) -> tuple[Array, RewardBounds]:
    """Reverse rewards of which less is better, with their bounds: no instead of yes, or the negative."""
    if is_binary and (bounds.low, bounds.high) == _UNIT_BOUNDS:
        return 1 - rewards, bounds
    return -rewards, bounds._replace(low=-bounds.high, high=-bounds.low)


def parse_bounds(text: str) -> tuple[str | None, tuple[float, float]]:
    """Parse ``column=low:high``, or ``low:high`` of the reward; refuse other text."""
    name, _, ends = text.rpartition("=")
    low, _, high = ends.partition(":")
    try:
        bounds = float(low), float(high)
    except ValueError:
        bounds = (math.nan, math.nan)
    if not bounds[0] < bounds[1] or text.startswith("="):
        remedy = "write column=low:high, low below high, as in hours=0:80; or low:high of the reward"
        raise SpecError("cannot read it", field="--bounds", remedy=remedy)
    return name or None, bounds


@dataclass(frozen=True)
class RowOutcomes:
    """Outcomes of rows, or derived values such as means of clusters."""

    values: Array  # shape (n,)
    # the bounds of outcomes; for derived values those of the original outcomes
    bounds: RewardBounds
    is_numeric: bool  # else 1 and 0
    is_derived: bool = False  # whether values are derived from outcomes, so that they may be beyond the bounds

    @property
    def is_yes_or_no(self) -> bool:
        """Whether outcomes are yes or no."""
        return not self.is_numeric and self.ends == _UNIT_BOUNDS

    @property
    def ends(self) -> tuple[float, float]:
        """The minimum and the maximum."""
        if self.is_derived:
            low, high = float(self.values.min()), float(self.values.max())
            return low, high if high > low else low + 1.0  # rewards have a range, whether they vary or not
        return self.bounds.low, self.bounds.high

    @property
    def clipped_values(self) -> Array:
        """The values within the bounds, (n,)."""
        return self.values if self.is_derived else np.clip(self.values, self.bounds.low, self.bounds.high)

    def with_values(self, values: Array) -> Self:
        """Return outcomes with derived values, such as means of clusters, (m,)."""
        return type(self)(values, self.bounds, True, True)

    def reverse(self) -> Self:
        """Reverse outcomes of which less is better."""
        values, bounds = reverse_rewards(self.values, self.bounds, is_binary=not self.is_numeric)
        return type(self)(values, bounds, self.is_numeric, self.is_derived)
