"""A spec made from the columns of a data frame or a CSV file: a draft, whose bounds and levels become public.

`draft` is for notebooks: ``print(draft(frame).text)``. What it takes from the data somebody has to confirm, since
everybody may read a spec.
"""

import json
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms import ALGORITHMS, algorithm, read_spec
from privateer_core.errors import SpecError
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import OTHER
from privateer_core.spec.context import COLUMNS_MAX, FEATURES_MAX, Context
from privateer_core.spec.sections import parse_section
from privateer_core.spec.spec import Spec, example_promises
from privateer_lab.drafting.column_profiles import Profile, Value, profiles_in, profiles_of

LEVELS: Final = 15
"""Most levels that are taken from data: with others they are 4 columns."""
_RARE: Final = 0.01
_FEW: Final = 10
"""A level of fewer people, or of a smaller share of them, is not named: somebody might be known by it."""
_INNER: Final = (0.01, 0.99)
_CODES: Final = 8
_SKEWED: Final = 8.0
"""Numbers crowd if all are within so many times the range that holds the inner half."""


@dataclass(frozen=True)
class Draft:
    """A spec to be completed, and what has to be known about it.

    Attributes
    ----------
    text
        The spec, as TOML.
    confirm
        Sentences about what comes from the data and becomes public.
    notes
        Sentences about what else was decided, such as columns that were left out.
    """

    text: str
    confirm: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def spec(self) -> Spec:
        """The spec."""
        return read_spec(self.text)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        said = "".join(f"<li>{escape(one)}</li>" for one in (*self.confirm, *self.notes))
        return f"<pre>{escape(self.text)}</pre><ul>{said}</ul>"


@dataclass
class _Features:
    """Lines of ``[context.features]``, and what is said of them."""

    lines: list[str] = field(default_factory=list)
    confirm: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    columns: int = 0

    def take(self, name: str, table: Mapping[str, Any], from_data: str | None) -> None:
        if from_data:
            self.confirm.append(f"{name}: {from_data}")
        remark = "  # from the data: confirm that it may be public" if from_data else ""
        self.lines.append(f"{_key(name)} = {toml(table)}{remark}")

    def leave_out(self, name: str, why: str) -> None:
        self.notes.append(f"{name} is left out: {why}.")


def draft(
    table: Any,
    *,
    name: str = "my-experiment",
    arms: Sequence[str] = (),
    label: str | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    quantiles: bool = False,
    seen_from: Path | None = None,
    reward: str | None = None,
    arm: str | None = None,
    ignore: Sequence[str] = (),
) -> Draft:
    """Draft a spec from the types and values of a table's columns.

    Parameters
    ----------
    table
        A pandas or polars data frame, a pyarrow table, a mapping of names to values; or the path of a CSV or Parquet
        file.
    name
        The experiment's name.
    arms
        Names of the options; by default those of the label, or two to be renamed.
    label
        A column that says which class somebody belongs to: no feature, but simulated people's truth.
    bounds
        Bounds of numeric columns that are public already, by name.
    quantiles
        Give numbers that crowd in a part of their range cut points in place of bounds.
    seen_from
        The folder that the spec will be in, if it names the file; by default the working directory.
    reward, arm
        Columns of a log: what came of a choice, whose bounds become the reward's, and what was chosen.
    ignore
        More columns that are no features.

    Raises
    ------
    SpecError
        If there are no such columns, none that makes a feature, or a name that no spec may have.
    """
    path = str(table) if isinstance(table, str | Path) else None
    profiles = profiles_in(path) if path else profiles_of(table)
    known, outside = {profile.name: profile for profile in profiles}, {label, reward, arm, *ignore}
    for wanted in [*(bounds or {}), *(name for name in (label, reward, arm, *ignore) if name)]:
        if wanted not in known:
            raise SpecError("no column has this name", field=wanted, remedy="see the names of the columns")
    classes = _classes(known[label]) if label else []
    features = _features([one for one in profiles if one.name not in outside], dict(bounds or {}), quantiles)
    if arm and not arms:
        arms = _classes(known[arm])
        features.confirm.append(f"{arm}: the names of the {len(arms)} arms are from the data")
    if not arms and not classes:
        features.notes.append("No options are given: rename first and second in experiment.arms, or give --arms.")
    rows = max(profile.rows for profile in profiles)
    sections = [
        *_opening(name, list(arms) or classes or ["first", "second"], rows),
        "[context.features]",
        *features.lines,
        "",
        *(_reward(known[reward], features, (bounds or {}).get(reward)) if reward else ()),
        *_closing(),
        *(_population(os.path.relpath(path, seen_from), label, classes, list(arms)) if path and label else ()),
    ]
    made = Draft("\n".join(sections) + "\n", tuple(features.confirm), tuple(features.notes))
    read_spec(made.text)
    return made


def _features(profiles: list[Profile], bounds: dict[str, tuple[float, float]], quantiles: bool) -> _Features:
    found = _Features()
    for profile in profiles:
        before = len(found.lines), len(found.confirm)
        _add(found, profile, bounds.get(profile.name), quantiles)
        if len(found.lines) == before[0]:
            continue
        width = _columns_of(found.lines[-1])
        if len(found.lines) > FEATURES_MAX or found.columns + width > COLUMNS_MAX:
            del found.lines[before[0] :], found.confirm[before[1] :]
            found.leave_out(profile.name, f"a spec has at most {FEATURES_MAX} features and {COLUMNS_MAX} columns")
        else:
            found.columns += width
    if not found.lines:
        raise SpecError("no column makes a feature", field="table", remedy="give numbers, yes or no, or few levels")
    return found


def _columns_of(line: str) -> int:
    """Return the columns of a feature as its line of a spec has it."""
    features = parse_section(Context, {"features": tomllib.loads(line)}).features
    return sum(feature.columns for feature in features.values())


def _add(found: _Features, profile: Profile, bounds: tuple[float, float] | None, quantiles: bool) -> None:
    """Add a feature's line, or say why there is none."""
    name, gaps = profile.name, {"missing": True} if profile.gaps else {}
    if profile.gaps == profile.rows:
        found.leave_out(name, "it has no values")
    elif profile.is_constant:
        found.leave_out(name, "every row has the same value")
    elif bounds is not None:
        found.take(name, {"low": bounds[0], "high": bounds[1], **gaps}, None)
    elif profile.is_boolean:
        found.take(name, {"boolean": True, **gaps}, None)
    elif (numbers := profile.numbers) is not None:
        _add_numbers(found, profile, numbers, gaps, quantiles)
    else:
        _add_levels(found, profile, gaps)


def _add_numbers(
    found: _Features, profile: Profile, numbers: NDArray[np.float64], gaps: dict[str, Any], quantiles: bool
) -> None:
    numbers = numbers[np.isfinite(numbers)]
    quarters = np.quantile(numbers, (0.0, 0.25, 0.75, 1.0))
    if quantiles and quarters[3] - quarters[0] > _SKEWED * (quarters[2] - quarters[1]):
        cuts = _cuts(numbers)
        if cuts[0] < cuts[-1]:
            found.take(profile.name, {"quantiles": cuts, **gaps}, f"the cut points {toml(cuts)} are from the data")
            return
    low, high = _bounds(numbers)
    said = f"low = {toml(low)} and high = {toml(high)} hold about 98 in 100 rows, rounded outward"
    found.take(profile.name, {"low": low, "high": high, **gaps}, said)
    if profile.counts is not None and len(profile.counts) <= _CODES and _whole(numbers):
        count = len(profile.counts)
        found.notes.append(f"{profile.name} has {count} whole numbers: if they are codes, list them as levels instead.")


def _whole(numbers: NDArray[np.float64]) -> bool:
    return bool((numbers == np.round(numbers)).all())


def _bounds(numbers: NDArray[np.float64]) -> tuple[float, float]:
    """Return bounds of two digits around the inner rows, which nobody's own number can be read from."""
    low, high = np.quantile(numbers, _INNER)
    if low == high:
        low, high = float(numbers.min()), float(numbers.max())
    unit = 10.0 ** math.floor(math.log10(high - low)) / 2
    return _tidy(math.floor(low / unit) * unit), _tidy(math.ceil(high / unit) * unit)


def _cuts(numbers: NDArray[np.float64]) -> list[float]:
    """Return eleven cut points of two digits."""
    return [_rounded(cut) for cut in np.quantile(numbers, np.linspace(*_INNER, 11))]


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")


def _tidy(value: float) -> float:
    """Remove what multiplying leaves in the last digits."""
    return float(f"{value:.12g}")


def _add_levels(found: _Features, profile: Profile, gaps: dict[str, Any]) -> None:
    levels, others = _frequent(profile)
    if not levels:
        found.leave_out(profile.name, "it has too many different values, as names and dates do")
        return
    said = f"the names of its {len(levels)} levels are from the data"
    if others:
        said += f"; {others:,} rows of rarer ones count as '{OTHER}'"
    found.take(profile.name, {"levels": levels, **gaps}, said)


def _frequent(profile: Profile) -> tuple[list[str], int]:
    """Return the frequent levels, the most frequent first, and how many rows have others."""
    counts, known = profile.counts, profile.rows - profile.gaps
    if counts is None:
        return [], known
    least = max(_FEW if known > 20 * _FEW else 1, _RARE * known)
    frequent = [value for value, count in counts.most_common(LEVELS) if count >= least]
    covered = sum(counts[value] for value in frequent)
    # What is different in most rows is no level of anything.
    return ([_text(value) for value in frequent] if covered >= known / 2 else []), known - covered


def _text(value: Value) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _classes(profile: Profile) -> list[str]:
    classes = sorted(_text(value) for value in profile.counts or ())
    if not 2 <= len(classes) <= 16:
        raise SpecError("must have 2 to 16 different values", field=profile.name, remedy="choose another column")
    return classes


def _opening(name: str, arms: list[str], rows: int) -> list[str]:
    size = max(1, min(1000, rows))
    return [
        "[experiment]",
        f"name = {toml(name)}",
        f"arms = {toml(arms)}",
        f"horizon = {max(rows, size)}  # people whose reports count",
        f"round_size = {size}",
        "",
    ]


def _reward(profile: Profile, found: _Features, bounds: tuple[float, float] | None) -> list[str]:
    """Return the section of a log's rewards: none if they are 0 and 1, as a spec's are by default.

    Of numbers it says where their bounds come from, and how much they vary between them.
    """
    numbers = profile.numbers
    if profile.is_boolean and not profile.gaps:
        return []
    if numbers is None or profile.gaps or not np.isfinite(numbers).all():
        raise SpecError("must be numbers, one a row", field=profile.name, remedy="name the column of rewards")
    if bounds is None and set(np.unique(numbers).tolist()) <= {0.0, 1.0}:
        return []
    within = bounds is None and numbers.min() >= 0 and numbers.max() <= 1
    low, high = (0.0, 1.0) if within else bounds or _bounds(numbers)
    given = "as given" if bounds else "those that a spec has" if within else "about 98 in 100 rewards are between them"
    inside = np.clip(numbers, low, high)
    told = {"base_rate": _rounded(float(inside.mean())), "deviation": _rounded(float(inside.std()))}
    usual = {"base_rate": low < told["base_rate"] < high, "deviation": 0 < told["deviation"] <= (high - low) / 2}
    lines = [f"{name} = {toml(one)}  # after clipping, from the data" for name, one in told.items() if usual[name]]
    names = ", ".join(([] if bounds or within else ["low", "high"]) + [name for name in told if usual[name]])
    if names:
        found.confirm.append(f"{profile.name}: {names} of [reward] are from the data; its bounds: {given}")
    clipped = float(((numbers < low) | (numbers > high)).mean())
    found.notes.append(f"{profile.name} is a number: {clipped:.1%} of the rows are clipped to the bounds ({given}).")
    remark = "  # from the data: confirm that it may be public" if names else ""
    return ["[reward]" + remark, 'kind = "numeric"', f"low = {toml(low)}", f"high = {toml(high)}", *lines, ""]


def _closing() -> list[str]:
    """Return the sections that no data decide: the first promise, and algorithm of means by features."""
    promise = next(example_promises())
    promise |= {"epsilon": 1.0} if "epsilon" in promise else {}
    kinds = {one: algorithm(one).spec for one in ALGORITHMS}
    fitting = next(
        one
        for one, spec in kinds.items()
        if issubclass(spec, ArmsSpec) and spec.question is KeyedMeans and spec.model_fields["context"].is_required()
    )
    return [
        "[privacy]  # what you promise to each person: `privateer plan` shows what it costs",
        *(f"{key} = {toml(value)}" for key, value in promise.items()),
        "",
        "[algorithm]",
        f"name = {toml(fitting)}",
    ]


def _population(path: str, label: str, classes: list[str], arms: list[str]) -> list[str]:
    lines = ["", "[population]  # simulated people: the rows, whose class is the right arm", 'name = "csv"']
    lines += [f"path = {toml(path)}", f"label = {toml(label)}", 'ignore = ["*"]']
    return lines + ([f"classes = {toml(classes)}"] if arms and arms != classes else [])


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if plain else toml(name)


def toml(value: Any) -> str:
    """Write a value as TOML; JSON's strings, lists, numbers and booleans are TOML's."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value).replace("\x7f", "\\u007f")
