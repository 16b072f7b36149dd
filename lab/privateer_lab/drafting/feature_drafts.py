"""Drafts of a spec's features from columns, with the reasons why columns are left out."""

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.spec.categories import OTHER
from privateer_core.spec.context import COLUMNS_MAX, FEATURES_MAX, Context
from privateer_core.spec.sections import parse_section
from privateer_lab.drafting.toml_values import format_key, to_toml
from privateer_lab.tables import shorten
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.data_table import TableRows
from privateer_lab.tables.rewards import (
    INNER_QUANTILES,
    PARTICIPANT_NAME,
    compute_inner_bounds,
    describe_codes,
    find_far_codes,
    round_off_errors,
)

CONFIRM_REMARK: Final = "  # from the data: confirm that it may be public"
"""The mark of a draft's lines that have values from the data."""
LEVELS: Final = 15
"""Most levels that are taken from data: with OTHER they are 4 columns."""
TEXT_MAX: Final = 256
"""Most characters of a feature's name and of a level."""
_MIN_LEVEL_SHARE: Final = 0.01
_MIN_ROWS: Final = 10
"""A level of fewer participants, or of a smaller share, is not named, since it might identify a participant.

Cut points have as many participants between them.

In tables of at most 20 times as many rows levels are named, and a sentence says so.
"""
_QUARTILES: Final = (0.25, 0.5, 0.75)
_MAX_BINS: Final = 64
"""Most bins of numbers between cut points, with as many rows each."""
_LEFT_OUT: Final = " is left out: "
_MAX_CODES: Final = 8
_SKEWED_RANGE_RATIO: Final = 8.0
"""Numbers are skewed if the inner 98 % have more than this multiple of the range of the inner half."""
_MIN_IDENTIFIER_ROWS: Final = 1000
"""Fewest rows with which distinct whole numbers are taken for identifiers, whatever their order."""
_DENSE_RANGE_RATIO: Final = 1.2
_MIN_LONG_IDENTIFIER: Final = 100_000
"""Distinct whole numbers from here on, all with as many digits, are identifiers in shorter tables, too."""
_ID_NAME: Final = re.compile(r"(^|[_\W])(id|uid|uuid|guid|key|hash|token|email|phone|ip|ssn)$", re.IGNORECASE)
_CAMEL_CASE_NAME: Final = re.compile(r"[a-z](Id|ID|Uuid|UUID)$")
_HOUR_NAME: Final = re.compile(r"^(hour|hr|hour_?of_?day)$", re.IGNORECASE)
_WEEKDAY_NAME: Final = re.compile(r"^(weekday|dow|day_?of_?week)$", re.IGNORECASE)
_MONTH_NAME: Final = re.compile(r"^(month|month_?of_?year)$", re.IGNORECASE)
"""Names of cyclic numbers; the name is required, since 0 to 23 may be anything."""
_DATE_TEXT: Final = re.compile(r"^\d{4}-\d\d?-\d\d?\b|^\d\d?[./]\d\d?[./]\d\d(\d\d)?\b")


@dataclass
class FeatureDrafts:
    """Lines of ``[context.features]`` by feature, with notes; ``is_full`` if a column exceeded a spec's limits."""

    by_name: dict[str, str] = field(default_factory=dict)
    public: dict[str, str] = field(default_factory=dict)
    identifying: list[str] = field(default_factory=list)  # features with levels of few rows
    notes: list[str] = field(default_factory=list)
    n_columns: int = 0
    is_full: bool = False

    @property
    def lines(self) -> list[str]:
        """The lines."""
        return list(self.by_name.values())

    @property
    def confirmations(self) -> list[str]:
        """Sentences about data that become public, to be confirmed."""
        return self.list_public(self.by_name)

    def list_public(self, names: Iterable[str]) -> list[str]:
        """Return the sentences to be confirmed if these features are kept."""
        return [f"{shorten(name)}: {self.public[name]}" for name in names if name in self.public]

    def format_lines(self, names: Iterable[str], reason: str) -> list[str]:
        """Return the lines of all features, with all but ``names`` commented out."""
        chosen = {*names}
        is_partial = 0 < len(chosen) < len(self.by_name)
        hint = ["# to ask for another, uncomment it: `privateer plan` says what both earn"] if is_partial else []
        return [f"# {reason}", *hint, *(line if name in chosen else f"# {line}" for name, line in self.by_name.items())]

    def add(self, name: str, table: Mapping[str, Any], from_data: str | None) -> None:
        """Add a feature unless the spec is full; ``from_data`` describes the data that become public."""
        remark = CONFIRM_REMARK if from_data else ""
        line = f"{format_key(name)} = {to_toml(table)}{remark}"
        features = parse_section(Context, {"features": tomllib.loads(line)}).features
        width = sum(feature.columns for feature in features.values())
        if len(self.by_name) == FEATURES_MAX or self.n_columns + width > COLUMNS_MAX:
            self.is_full = True
            self.leave_out(name, f"a spec has at most {FEATURES_MAX} features and {COLUMNS_MAX} columns")
            return
        self.by_name[name] = line
        self.n_columns += width
        if from_data:
            self.public[name] = from_data

    def leave_out(self, name: str, reason: str) -> None:
        """Note why a column is no feature."""
        self.notes.append(f"{shorten(name)}{_LEFT_OUT}{reason}.")


def fold_notes(notes: Iterable[str]) -> list[str]:
    """Join the notes that leave out columns for the same reason."""
    groups = dict[str, list[str]]()
    for note in notes:
        name, mark, reason = note.partition(_LEFT_OUT)
        groups.setdefault(reason if mark else note, []).append(name)
    return [
        note if note == names[0] else f"{', '.join(names)} {'are' if len(names) > 1 else 'is'} left out: {note}"
        for note, names in groups.items()
    ]


def draft_features(
    profiles: Sequence[DataColumn],
    bounds: Mapping[str, tuple[float, float]],
    *,
    quantiles: bool = False,
    is_requested: bool = False,
    rows: str = "every row",
) -> FeatureDrafts:
    """Draft features from columns, in their order, with public bounds or, with ``quantiles``, cut points from the data.

    Dates are levels if the user requested these columns. ``rows`` labels these rows, if others of the table differ.
    """
    drafts = FeatureDrafts()
    for profile in profiles:
        if profile.is_constant and profile.gaps < profile.rows:
            value = " that has a value" if profile.gaps else ""
            drafts.leave_out(profile.name, f"{rows}{value} has the same value")
            continue
        _draft_feature(drafts, profile, bounds.get(profile.name), quantiles=quantiles, is_requested=is_requested)
    return drafts


def _draft_feature(
    drafts: FeatureDrafts,
    column: DataColumn,
    bounds: tuple[float, float] | None,
    *,
    quantiles: bool,
    is_requested: bool,
) -> None:
    """Add the feature of a column, or note why it has none."""
    name, gaps = column.name, {"missing": True} if column.gaps else {}
    if not _is_level(name):
        drafts.leave_out(name, f"its name has more than {TEXT_MAX} letters, or some that control a screen; rename it")
    elif column.gaps == column.rows:
        drafts.leave_out(name, "it has no values")
    elif bounds is not None:
        if column.numbers is None:
            detail, field = "has values that are not numbers", f"--bounds {shorten(name)}"
            raise SpecError(detail, field=field, remedy="give no bounds of it")
        drafts.add(name, {"low": bounds[0], "high": bounds[1], **gaps}, None)
    elif reason := explain_identifier(column):
        drafts.leave_out(name, reason)
    elif not is_requested and _is_dates(column):
        drafts.leave_out(name, "its values are dates: make a number of them, such as the days since then")
    elif column.is_boolean:
        drafts.add(name, {"boolean": True, **gaps}, None)
    elif (numbers := column.numbers) is not None:
        _add_numbers(drafts, column, numbers, gaps, quantiles=quantiles)
    else:
        _add_levels(drafts, column, gaps, is_requested=is_requested)
    if column.gaps and not column.is_constant:
        infinite = f", {column.infinite:,} of which are infinite numbers" if column.infinite else ""
        drafts.notes.append(f"{shorten(name)}: {column.gaps:,} of {column.rows:,} rows have no value{infinite}.")
    drafts.notes += describe_codes(column) if bounds is None else []


def explain_identifier(profile: DataColumn) -> str | None:
    """Return why a column seems to be an identifier of rows or participants; None if it does not."""
    numbers, distinct = profile.numbers, len(profile.counts)
    remedy = f"; if it is a number like others, give its bounds: --bounds {shorten(profile.name)}=LOW:HIGH"
    if numbers is not None and distinct == len(numbers) > _MIN_ROWS and _are_whole(numbers):
        steps = np.diff(numbers)
        if (steps == 1).all() or (len(numbers) >= 10 * _MIN_ROWS and ((steps > 0).all() or (steps < 0).all())):
            return f"its values count the rows{remedy}"
        is_long = numbers.min() >= _MIN_LONG_IDENTIFIER and len(f"{numbers.min():.0f}") == len(f"{numbers.max():.0f}")
        is_dense = np.ptp(numbers) < _DENSE_RANGE_RATIO * len(numbers)
        if len(numbers) >= _MIN_IDENTIFIER_ROWS or (len(numbers) >= 10 * _MIN_ROWS and (is_dense or is_long)):
            return f"every row has a whole number of its own, as identifiers do{remedy}"
    is_varied = distinct > max(LEVELS, profile.rows / (2 * _MIN_ROWS))
    if is_varied and any(pattern.search(profile.name) for pattern in (_ID_NAME, _CAMEL_CASE_NAME, PARTICIPANT_NAME)):
        return "its name and its many values say that it identifies people" + (remedy if numbers is not None else "")
    return None


def _add_numbers(
    drafts: FeatureDrafts, profile: DataColumn, numbers: NDArray[np.float64], gaps: dict[str, Any], *, quantiles: bool
) -> None:
    """Draft a numeric column as a feature that is cyclic, or has cut points or bounds; note possible codes."""
    numbers = numbers[~np.isin(numbers, find_far_codes(numbers))]
    if len(profile.counts) <= _MAX_CODES and _are_whole(numbers):
        note = f"has {len(profile.counts)} whole numbers: if they are codes, list them as levels instead."
        drafts.notes.append(f"{shorten(profile.name)} {note}")
    if (period := _find_period(profile.name, numbers)) is not None:
        drafts.add(profile.name, {"low": period[0], "high": period[1], "cyclic": True, **gaps}, None)
        return
    reason, cuts = "", _compute_quantiles(numbers) if quantiles else []
    first, lower, upper, last = np.quantile(numbers, (INNER_QUANTILES[0], 0.25, 0.75, INNER_QUANTILES[1]))
    if len(cuts) < 2 and last - first > _SKEWED_RANGE_RATIO * (upper - lower):
        reason = "its numbers crowd, so that "
        cuts = [rounded(cut) for cut in np.quantile(numbers, np.linspace(*INNER_QUANTILES, 11))]
    if len(cuts) > 1 and cuts[0] < cuts[-1]:
        confirmation = f"{reason}it has cut points, which are from the data: {to_toml(cuts)}"
        drafts.add(profile.name, {"quantiles": cuts, **gaps}, confirmation)
        return
    low, high = compute_inner_bounds(numbers)
    confirmation = f"low = {to_toml(low)} and high = {to_toml(high)} hold about 98 in 100 rows, rounded outward"
    drafts.add(profile.name, {"low": low, "high": high, **gaps}, confirmation)


def _find_period(name: str, numbers: NDArray[np.float64]) -> tuple[int, int] | None:
    """Return the first value and the period's end of hours, whole weekdays or months; None for other numbers."""
    low, high = float(numbers.min()), float(numbers.max())
    # Hours up to 12 may be of a 12-hour clock.
    if _HOUR_NAME.match(name) and low >= 0 and 12 < high <= 24:
        return 0, 24
    if _WEEKDAY_NAME.match(name) and _are_whole(numbers) and low >= 0 and high <= 7 and (low > 0 or high < 7):
        # From 1 to 6 either numbering is right: a circle may begin anywhere.
        return (0, 7) if low == 0 else (1, 8)
    if _MONTH_NAME.match(name) and _are_whole(numbers) and low >= 0 and high <= 12 and (low > 0 or high < 12):
        return (0, 12) if low == 0 else (1, 13)
    return None


def _are_whole(numbers: NDArray[np.float64]) -> bool:
    return bool((numbers == np.round(numbers)).all())


def _compute_quantiles(numbers: NDArray[np.float64]) -> list[float]:
    """Return quantiles, rounded to the digits that keep them distinct; empty if there are too few rows for two."""
    first, last = INNER_QUANTILES
    n_bins = min(_MAX_BINS, int((last - first) * len(numbers)) // _MIN_ROWS)
    # A frequent number is repeated, so that its rows are a bin of their own.
    cuts, counts = np.unique(np.quantile(numbers, np.linspace(first, last, n_bins + 1)), return_counts=True)
    if len(cuts) < 2:
        return []
    gaps = np.diff(cuts)
    nearest = np.minimum(np.append(gaps, np.inf), np.insert(gaps, 0, np.inf)).tolist()
    # Each cut is rounded to within a quarter of the nearest gap.
    units = [10.0 ** math.floor(math.log10(gap / 2)) for gap in nearest]
    rounded_cuts = [round_off_errors(round(cut / unit) * unit) for cut, unit in zip(cuts.tolist(), units, strict=True)]
    return [cut for cut, count in zip(rounded_cuts, counts.tolist(), strict=True) for _ in range(count)]


def rounded(value: float) -> float:
    """Return a number rounded to two digits."""
    return float(f"{value:.2g}")


def _add_levels(drafts: FeatureDrafts, profile: DataColumn, gaps: dict[str, Any], *, is_requested: bool) -> None:
    """Draft a column of texts as a feature with its frequent levels, or leave it out if it has none."""
    levels, n_rare = _find_frequent_levels(profile)
    if not levels:
        drafts.leave_out(profile.name, _suggest_levels(profile))
        return
    remark = f"the names of its {len(levels)} levels are from the data"
    if n := sum(profile.counts[value] < _MIN_ROWS for value in levels):
        have = "has" if n == 1 else "have"
        remark += f"; {n} of them {have} fewer than {_MIN_ROWS} rows: somebody may be known by that"
        drafts.identifying.append(profile.name)
    if n_rare:
        remark += f"; {n_rare:,} rows of rarer ones count as '{OTHER}'"
    elif is_requested and OTHER not in levels and (len(levels) + len(gaps)).bit_count() == 1 < len(levels) + len(gaps):
        last, name = shorten(levels[-1]), shorten(profile.name)
        drafts.notes.append(
            f"{name}: no row has another level, and one that is not listed counts as {last!r}: the segment is called "
            f"{name}={last} or {OTHER}."
        )
    drafts.add(profile.name, {"levels": levels, **gaps}, remark)


def _suggest_levels(profile: DataColumn) -> str:
    """Suggest a replacement for a column of many texts."""
    problem = "it has too many different values"
    if any(" " in text for text, _ in profile.counts.most_common(100)):
        return f"{problem}, which are texts: make a column of a few topics, or a number such as their length"
    return f"{problem}, as names and dates do; make a column of fewer kinds, or a number of it"


def _is_dates(profile: DataColumn) -> bool:
    """Whether most values are dates."""
    texts = [text for text, _ in profile.counts.most_common(100)]
    return sum(bool(_DATE_TEXT.match(text)) for text in texts) > len(texts) / 2


def _find_frequent_levels(profile: DataColumn) -> tuple[list[str], int]:
    """Return the frequent levels, the most frequent first, and the number of rows with other levels."""
    counts, n_observed = profile.counts, profile.rows - profile.gaps
    min_rows = max(_MIN_ROWS if n_observed > 20 * _MIN_ROWS else 1, _MIN_LEVEL_SHARE * n_observed)
    frequent = [value for value, count in counts.most_common(LEVELS) if count >= min_rows and _is_level(value)]
    n_covered = sum(counts[value] for value in frequent)
    # Values that are unique in most rows are no levels.
    return (frequent if n_covered >= n_observed / 2 else []), n_observed - n_covered


def _is_level(text: str) -> bool:
    """Whether a text is a valid level, or name of a feature."""
    return len(text) <= TEXT_MAX and text.isprintable()


def format_segments(rows: TableRows, names: Sequence[str], confirm: list[str]) -> list[str]:
    """Format the section of segments, with the quartiles of numbers as cuts; empty without segments."""
    if not names:
        return []
    lines = []
    for name in names:
        column = rows.column(name)
        if column.numbers is None or column.is_boolean:
            continue
        cuts = sorted({rounded(cut) for cut in np.quantile(column.numbers, _QUARTILES).tolist()})
        lines.append(f"{format_key(name)} = {to_toml(cuts)}{CONFIRM_REMARK}")
        confirm.append(f"{shorten(name)}: the cuts {to_toml(cuts)} of its segments are from the data")
    return ["[segments]", f"features = {to_toml(list(names))}", *(["", "[segments.cuts]", *lines] if lines else []), ""]
