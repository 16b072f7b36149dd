"""Features of a spec made from columns: what each becomes, and why others are left out."""

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
from privateer_lab.drafting.toml_values import key_of, toml
from privateer_lab.tables import shortened
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.data_table import TableRows
from privateer_lab.tables.remarks import PEOPLE, code_remarks, far_codes
from privateer_lab.tables.rewards import INNER, inner_bounds, tidy

LEVELS: Final = 15
"""Most levels that are taken from data: with others they are 4 columns."""
TEXT_MAX: Final = 256
"""Most letters of a feature's name and of a level."""
_RARE: Final = 0.01
_FEW: Final = 10
"""A level of fewer people, or of a smaller share of them, is not named: somebody might be known by it.

Of tables of 20 times as many rows or fewer they are named, and a sentence says so.
"""
_QUARTERS: Final = (0.25, 0.5, 0.75)
_DRAWN: Final = 17
"""Cut points of numbers, for 16 parts with as many rows each."""
_CODES: Final = 8
_SKEWED: Final = 8.0
"""Numbers crowd if the inner 98 in 100 have so many times the range of the inner half."""
_MANY: Final = 1000
"""Rows from which whole numbers that are all different are taken for identifiers, whatever their order."""
_DENSE: Final = 1.2
_LONG: Final = 100_000
"""Whole numbers from here on that are all different and have as many digits are identifiers, of fewer rows, too."""
_DATES: Final = "its values are dates"
_IDENTIFIER: Final = re.compile(r"(^|[_\W])(id|uid|uuid|guid|key|hash|token|email|phone|ip|ssn)$", re.IGNORECASE)
_CAMEL: Final = re.compile(r"[a-z](Id|ID|Uuid|UUID)$")
_HOURS: Final = re.compile(r"^(hour|hr|hour_?of_?day)$", re.IGNORECASE)
_WEEKDAYS: Final = re.compile(r"^(weekday|dow|day_?of_?week)$", re.IGNORECASE)
_MONTHS: Final = re.compile(r"^(month|month_?of_?year)$", re.IGNORECASE)
"""Names of numbers that come round; only of these, as 0 to 23 may be anything."""
_DATE: Final = re.compile(r"^\d{4}-\d\d?-\d\d?\b|^\d\d?[./]\d\d?[./]\d\d(\d\d)?\b")


@dataclass
class FeatureDrafts:
    """Lines of ``[context.features]`` by feature, and what is said of them; ``full`` if a column had no room."""

    by_name: dict[str, str] = field(default_factory=dict)
    public: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    columns: int = 0
    full: bool = False

    @property
    def lines(self) -> list[str]:
        """The lines."""
        return list(self.by_name.values())

    @property
    def confirm(self) -> list[str]:
        """What somebody has to confirm."""
        return self.confirm_of(self.by_name)

    def confirm_of(self, names: Iterable[str]) -> list[str]:
        """Return what somebody has to confirm who keeps these features."""
        return [f"{shortened(name)}: {self.public[name]}" for name in names if name in self.public]

    def kept(self, names: Iterable[str], why: str) -> list[str]:
        """Return lines of which those of other features are comments."""
        kept = {*names}
        return [f"# {why}", *(line if name in kept else f"# {line}" for name, line in self.by_name.items())]

    def take(self, name: str, table: Mapping[str, Any], from_data: str | None) -> None:
        """Add a feature, if there is room for it; ``from_data`` says what of it becomes public."""
        remark = "  # from the data: confirm that it may be public" if from_data else ""
        line = f"{key_of(name)} = {toml(table)}{remark}"
        width = _columns_of(line)
        if len(self.by_name) == FEATURES_MAX or self.columns + width > COLUMNS_MAX:
            self.full = True
            self.leave_out(name, f"a spec has at most {FEATURES_MAX} features and {COLUMNS_MAX} columns")
            return
        self.by_name[name] = line
        self.columns += width
        if from_data:
            self.public[name] = from_data

    def leave_out(self, name: str, why: str) -> None:
        """Say why a column is no feature."""
        self.notes.append(f"{shortened(name)} is left out: {why}.")


def _columns_of(line: str) -> int:
    """Return the columns of a feature as its line of a spec has it."""
    features = parse_section(Context, {"features": tomllib.loads(line)}).features
    return sum(feature.columns for feature in features.values())


def features_of(
    profiles: Sequence[DataColumn],
    bounds: Mapping[str, tuple[float, float]],
    *,
    drawn: bool = False,
    is_asked: bool = False,
    rows: str = "every row",
) -> FeatureDrafts:
    """Make features of columns, in their order.

    bounds: those of numbers that are public already, by column.
    drawn: whether all other numbers have cut points from the data, with as many rows between one and the next.
    is_asked: whether somebody named these columns, so that dates are levels.
    rows: which rows these are, as others of the table may have other values.
    """
    found = FeatureDrafts()
    for profile in profiles:
        if profile.is_constant and profile.gaps < profile.rows:
            value = " that has a value" if profile.gaps else ""
            found.leave_out(profile.name, f"{rows}{value} has the same value")
            continue
        _add(found, profile, bounds.get(profile.name), drawn=drawn, is_asked=is_asked)
    return found


def no_feature(found: FeatureDrafts) -> SpecError:
    """Make the error of a table of which no column makes a feature."""
    why = f" ({found.notes[0].rstrip('.')})" if found.notes else ""
    remedy = "give numbers, yes or no, or few levels"
    return SpecError(f"no column makes a feature{why}", field="table", remedy=remedy)


def _add(
    found: FeatureDrafts, profile: DataColumn, bounds: tuple[float, float] | None, *, drawn: bool, is_asked: bool
) -> None:
    """Add a feature, or say why there is none."""
    name, gaps = profile.name, {"missing": True} if profile.gaps else {}
    if len(name) > TEXT_MAX or not name.isprintable():
        found.leave_out(name, f"its name has more than {TEXT_MAX} letters, or some that control a screen; rename it")
    elif profile.gaps == profile.rows:
        found.leave_out(name, "it has no values")
    elif bounds is not None:
        if profile.numbers is None:
            what, field = "has values that are not numbers", f"--bounds {shortened(name)}"
            raise SpecError(what, field=field, remedy="give no bounds of it")
        found.take(name, {"low": bounds[0], "high": bounds[1], **gaps}, None)
    elif why := identifies(profile):
        found.leave_out(name, why)
    elif not is_asked and _is_dates(profile):
        found.leave_out(name, f"{_DATES}: make a number of them, such as the days since then")
    elif profile.is_boolean:
        found.take(name, {"boolean": True, **gaps}, None)
    elif (numbers := profile.numbers) is not None:
        _add_numbers(found, profile, numbers, gaps, drawn=drawn)
    else:
        _add_levels(found, profile, gaps, is_asked=is_asked)
    if profile.gaps and not profile.is_constant:
        infinite = f", {profile.infinite:,} of which are infinite numbers" if profile.infinite else ""
        found.notes.append(f"{shortened(name)}: {profile.gaps:,} of {profile.rows:,} rows have no value{infinite}.")
    found.notes += code_remarks(profile) if bounds is None else []


def identifies(profile: DataColumn) -> str | None:
    """Say why a column tells rows or people from each other, and nothing else; None if it does not seem so."""
    numbers, distinct = profile.numbers, len(profile.counts)
    unless = f"; if it is a number like others, give its bounds: --bounds {shortened(profile.name)}=LOW:HIGH"
    if numbers is not None and distinct == len(numbers) > _FEW and _whole(numbers):
        steps = np.diff(numbers)
        if (steps == 1).all() or (len(numbers) >= 10 * _FEW and ((steps > 0).all() or (steps < 0).all())):
            return f"its values count the rows{unless}"
        is_long = numbers.min() >= _LONG and len(f"{numbers.min():.0f}") == len(f"{numbers.max():.0f}")
        is_dense = np.ptp(numbers) < _DENSE * len(numbers)
        if len(numbers) >= _MANY or (len(numbers) >= 10 * _FEW and (is_dense or is_long)):
            return f"every row has a whole number of its own, as identifiers do{unless}"
    many = distinct > max(LEVELS, profile.rows / (2 * _FEW))
    if many and any(pattern.search(profile.name) for pattern in (_IDENTIFIER, _CAMEL, PEOPLE)):
        return "its name and its many values say that it identifies people" + (unless if numbers is not None else "")
    return None


def _add_numbers(
    found: FeatureDrafts, profile: DataColumn, numbers: NDArray[np.float64], gaps: dict[str, Any], *, drawn: bool
) -> None:
    numbers = numbers[~np.isin(numbers, far_codes(numbers))]
    if len(profile.counts) <= _CODES and _whole(numbers):
        note = f"has {len(profile.counts)} whole numbers: if they are codes, list them as levels instead."
        found.notes.append(f"{shortened(profile.name)} {note}")
    if (turn := _turn(profile.name, numbers)) is not None:
        found.take(profile.name, {"low": turn[0], "high": turn[1], "cyclic": True, **gaps}, None)
        return
    if drawn and len(cuts := _drawn(numbers)) > 1:
        said = f"it has cut points, which are from the data: {toml(cuts)}"
        found.take(profile.name, {"quantiles": cuts, **gaps}, said)
        return
    quarters = np.quantile(numbers, (INNER[0], 0.25, 0.75, INNER[1]))
    if quarters[3] - quarters[0] > _SKEWED * (quarters[2] - quarters[1]):
        cuts = _cuts(numbers)
        if cuts[0] < cuts[-1]:
            said = f"its numbers crowd, so that it has cut points, which are from the data: {toml(cuts)}"
            found.take(profile.name, {"quantiles": cuts, **gaps}, said)
            return
    low, high = inner_bounds(numbers)
    said = f"low = {toml(low)} and high = {toml(high)} hold about 98 in 100 rows, rounded outward"
    found.take(profile.name, {"low": low, "high": high, **gaps}, said)


def _turn(name: str, numbers: NDArray[np.float64]) -> tuple[int, int] | None:
    """Return where hours of the day, whole weekdays or months begin and come round; None of other numbers."""
    low, high = float(numbers.min()), float(numbers.max())
    # Up to 12 the clock may have two halves.
    if _HOURS.match(name) and low >= 0 and 12 < high <= 24:
        return 0, 24
    if _WEEKDAYS.match(name) and _whole(numbers) and low >= 0 and high <= 7 and (low > 0 or high < 7):
        # From 1 to 6 either numbering is right: a circle may begin anywhere.
        return (0, 7) if low == 0 else (1, 8)
    if _MONTHS.match(name) and _whole(numbers) and low >= 0 and high <= 12 and (low > 0 or high < 12):
        return (0, 12) if low == 0 else (1, 13)
    return None


def _whole(numbers: NDArray[np.float64]) -> bool:
    return bool((numbers == np.round(numbers)).all())


def _cuts(numbers: NDArray[np.float64]) -> list[float]:
    """Return eleven cut points of two digits."""
    return [rounded(cut) for cut in np.quantile(numbers, np.linspace(*INNER, 11))]


def _drawn(numbers: NDArray[np.float64]) -> list[float]:
    """Return cut points with as many rows between one and the next, of the digits they need; maybe none."""
    # A number that many rows have comes several times, so that they are a part of their own.
    cuts, times = np.unique(np.quantile(numbers, np.linspace(*INNER, _DRAWN)), return_counts=True)
    if len(cuts) < 2:
        return []
    gaps = np.diff(cuts)
    nearest = np.minimum(np.append(gaps, np.inf), np.insert(gaps, 0, np.inf)).tolist()
    found = [_to_unit(cut, gap) for cut, gap in zip(cuts.tolist(), nearest, strict=True)]
    return [cut for cut, count in zip(found, times.tolist(), strict=True) for _ in range(count)]


def _to_unit(value: float, gap: float) -> float:
    """Return a number of so many digits that it is off by a quarter of a gap at most."""
    unit = 10.0 ** math.floor(math.log10(gap / 2))
    return tidy(round(value / unit) * unit)


def rounded(value: float) -> float:
    """Return a number of two digits."""
    return float(f"{value:.2g}")


def _add_levels(found: FeatureDrafts, profile: DataColumn, gaps: dict[str, Any], *, is_asked: bool) -> None:
    levels, others = _frequent(profile)
    if not levels:
        found.leave_out(profile.name, _hint(profile))
        return
    said = f"the names of its {len(levels)} levels are from the data"
    if few := sum(profile.counts[value] < _FEW for value in levels):
        said += f"; {few} of them {'has' if few == 1 else 'have'} fewer than {_FEW} rows: somebody may be known by that"
    if others:
        said += f"; {others:,} rows of rarer ones count as '{OTHER}'"
    elif is_asked and OTHER not in levels and (len(levels) + len(gaps)).bit_count() == 1 < len(levels) + len(gaps):
        last, name = shortened(levels[-1]), shortened(profile.name)
        found.notes.append(
            f"{name}: no row has another level, and one that is not listed counts as {last!r}: the segment is called "
            f"{name}={last} or {OTHER}."
        )
    found.take(profile.name, {"levels": levels, **gaps}, said)


def _hint(profile: DataColumn) -> str:
    """Say what a column of many texts could become."""
    many = "it has too many different values"
    if any(" " in text for text, _ in profile.counts.most_common(100)):
        return f"{many}, which are texts: make a column of a few topics, or a number such as their length"
    return f"{many}, as names and dates do; make a column of fewer kinds, or a number of it"


def _is_dates(profile: DataColumn) -> bool:
    """Whether most values are dates."""
    texts = [text for text, _ in profile.counts.most_common(100)]
    return sum(bool(_DATE.match(text)) for text in texts) > len(texts) / 2


def _frequent(profile: DataColumn) -> tuple[list[str], int]:
    """Return the frequent levels, the most frequent first, and how many rows have others."""
    counts, known = profile.counts, profile.rows - profile.gaps
    least = max(_FEW if known > 20 * _FEW else 1, _RARE * known)
    frequent = [value for value, count in counts.most_common(LEVELS) if count >= least and _is_level(value)]
    covered = sum(counts[value] for value in frequent)
    # What is different in most rows is no level of anything.
    return (frequent if covered >= known / 2 else []), known - covered


def _is_level(text: str) -> bool:
    """Whether a spec takes a text as a level."""
    return len(text) <= TEXT_MAX and text.isprintable()


def segment_lines(rows: TableRows, segments: Sequence[str], confirm: list[str]) -> list[str]:
    """Return the section of segments, with the quarters of numbers as cuts; nothing without any."""
    if not segments:
        return []
    lines = []
    for name in segments:
        column = rows.column(name)
        if column.numbers is None or column.is_boolean:
            continue
        cuts = sorted({rounded(one) for one in np.quantile(column.numbers, _QUARTERS).tolist()})
        lines.append(f"{key_of(name)} = {toml(cuts)}  # from the data: confirm that it may be public")
        confirm.append(f"{shortened(name)}: the cuts {toml(cuts)} of its segments are from the data")
    return ["[segments]", f"by = {toml(list(segments))}", *(["", "[segments.cuts]", *lines] if lines else []), ""]
