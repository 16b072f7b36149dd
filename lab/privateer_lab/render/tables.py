"""Tables of the parts of results and policies, for terminals, documents and notebooks: a function for each type."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from privateer_core.answer import Answer, parts, policy_view
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.facts import Fact, Table
from privateer_lab.render import words

Row = dict[str, Any]
_MAX_SHAPES: Final = 4
"""Largest number of features with shape functions on a terminal; --json and pages have all."""
_EVERYBODY: Final = "everybody"
_AT_BOUND: Final = "at the bound of what is possible"
_MIN_P_VALUE: Final = 1e-6
"""The smallest p-value of a result; smaller p-values are rounded up to it."""


class TitledTable(NamedTuple):
    """A table with a title; each row is a mapping by column."""

    title: str
    rows: Sequence[Row]

    @property
    def columns(self) -> list[str]:
        """The names of the columns of all rows."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def cells(self, max_rows: int | None = None) -> list[list[str]]:
        """Return the cells of the first rows as texts, empty where a value is missing."""
        return [
            [words.format_figure(readable_cell(name, row.get(name))) for name in self.columns]
            for row in self.rows[:max_rows]
        ]


def readable_cell(name: str, value: Any) -> Any:
    """Return a cell's value for readers: empty if it is missing, and the smallest p-value as an upper bound."""
    return "" if value is None else f"below {_MIN_P_VALUE:.6f}" if name == "p" and value == _MIN_P_VALUE else value


def answer_tables(answer: Answer) -> list[TitledTable]:
    """Return the tables of a result: its effects by group, average effects, gain and parts, in display order."""
    in_groups = [effect for effect in answer.effects if effect.group is not None]
    averages = [effect for effect in answer.effects if effect.group is None]
    named = {"effects against the control": in_groups or averages, "average effects": averages if in_groups else []}
    effects = [TitledTable(title, _effect_rows(rows)) for title, rows in named.items() if rows]
    sections = [*([answer.gain] if answer.gain else []), *answer.parts]
    return [*effects, *(table for part in sections for table in part_tables(part))]


def shape_tables(answer: Answer) -> list[TitledTable]:
    """Return a table of the shape functions of the first features; empty if no shape functions were learned."""
    return [table for shapes in answer.all_of(policy_view.Shapes) for table in part_tables(_take_first(shapes))]


def estimate_rows(estimates: Sequence[Estimate]) -> list[Row]:
    """Return a row for each estimate."""
    rows = [
        {"name": mean.name, **_format_limits(mean), "people": mean.people, "note": _AT_BOUND if mean.at_bound else None}
        for mean in estimates
    ]
    return drop_empty(rows)


def drop_empty(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return rows without the columns that are empty in all rows; other missing cells are None."""
    columns = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in columns if any(row.get(name) is not None for row in rows)]
    return [{name: row.get(name) for name in names} for row in rows]


def part_tables(part: Any) -> list[TitledTable]:  # noqa: PLR0911 - a case a type
    """Return the tables of a part of a result or policy."""
    match part:
        case policy_view.PolicyView():
            return [*part_tables(part.shows), *([TitledTable("facts", fact_rows(part.facts))] if part.facts else [])]
        case parts.Gain():
            return _gain_tables(part)
        case policy_view.Point():
            return _point_tables(part)
        case policy_view.Coefficients():
            return _coefficient_tables(part)
        case policy_view.PlayCounts():
            draw = {"seed": str(part.draw.seed), "start": part.draw.start, "places": part.draw.places}
            figures = {"people asked": part.people, "active": list(part.active), **draw}
            facts = [{"fact": name, "value": value} for name, value in figures.items()]
            plays = [{"action": name, "plays": times} for name, times in part.plays.items()]
            return [TitledTable("what is asked", facts), TitledTable("plays", plays)]
        case policy_view.Shapes():
            return [TitledTable(_title_shapes(part), _shape_rows(part))] if part.functions else []
        case _:
            return [TitledTable(*_title_and_rows(part))]


def _title_and_rows(part: Any) -> tuple[str, list[Row]]:  # noqa: PLR0911, PLR0912 - a case a type
    """Return the title and the rows of a part that has one table."""
    match part:
        case parts.Recommendations():
            columns = ("segment", "group"), ("arm", "arm"), ("decided", "is_decided"), ("note", "basis")
            return "recommendations", [{name: getattr(rule, key) for name, key in columns} for rule in part.rules]
        case parts.GuardrailEffects():
            named = [msgspec.structs.replace(effect, group=effect.group or _EVERYBODY) for effect in part.effects]
            return f"guardrail: {part.name}", _effect_rows(named)
        case parts.Intervals():
            return part.title, [{"name": estimate.name, **_format_limits(estimate)} for estimate in part.estimates]
        case parts.Losses():
            losses = part.expected_losses
            return parts.LOSS, [{"name": loss.name, "expected": loss.expected, "at most": loss.most} for loss in losses]
        case parts.Figures():
            return part.title, fact_rows(part.facts)
        case parts.EffectsOverTime():
            return "over time", drop_empty(
                [
                    {"people": people, "segment": effect.group, "arm": effect.arm}
                    | {"effect": effect.values[look], "low": effect.lows[look], "high": effect.highs[look]}
                    for look, people in enumerate(part.people)
                    for effect in part.effects
                ]
            )
        case parts.BinMeans():
            title = f"estimates by bin, with intervals of about {100 * part.confidence:g} %"
            bins = sorted(part.bins, key=lambda bin_: bin_.lower)
            means = [{mean.name: _describe_estimate(mean) for mean in bin_.means} for bin_ in bins]
            return title, [
                {"people": words.describe_bin(bin_.where), **row} for bin_, row in zip(bins, means, strict=True)
            ]
        case parts.DriftTest():
            return "rewards over time", [{"what rounds say": words.format_drift(part)}]
        case parts.FeatureSelection():
            gains = part.gains or {}
            rows: list[Row] = [{"feature": name, "gain": gain} for name, gain in gains.items()]
            return words.describe_feature_selection(part), rows
        case parts.HalfLives():
            return "what is forgotten", _half_life_rows(part)
        case Table():
            return part.title, drop_empty([dict(zip(part.names, row, strict=True)) for row in part.rows])
        case policy_view.BinShares():
            boxes = sorted(part.bins, key=lambda bin_: bin_.lower)
            rows = [
                {"people": words.describe_bin(box.where), "arms": words.format_arm_shares(box.arms)} for box in boxes
            ]
            return "the arms of each bin of people, and how often", rows
        case policy_view.GroupShares():
            return "the share of each arm", [{"people": group.name, **group.arms} for group in part.groups]
        case _:
            raise TypeError(f"no table of {type(part).__name__}")


def fact_rows(facts: Sequence[Fact]) -> list[Row]:
    """Return a row for each fact that has a value."""
    return [{"fact": fact.name, "value": fact.value} for fact in facts if fact.value is not None]


def _effect_rows(effects: Sequence[Effect]) -> list[Row]:
    """Build a row for each effect, without columns that are all empty."""
    return drop_empty(
        [
            {
                "segment": effect.group,
                "arm": effect.arm,
                "effect": effect.value,
                "low": effect.low,
                "high": effect.high,
                "decided": effect.is_decided,
                "p": effect.p_value,
                "detectable": effect.detectable,
                "contribution": effect.contribution,
                "note": f"{effect.reason} ({effect.remark})" if effect.remark else effect.reason,
            }
            for effect in effects
        ]
    )


def _format_limits(estimate: Estimate) -> Row:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _describe_estimate(mean: Estimate) -> str:
    """Format an estimate with its interval, and whether it was clipped to the bound of possible values."""
    return f"{mean.value:z.3f} ({mean.low:z.3f} to {mean.high:z.3f}{', at the bound' if mean.at_bound else ''})"


def _gain_tables(part: parts.Gain) -> list[TitledTable]:
    row = {"one arm for all": part.arm, "gain": part.value, "low": part.low, "high": part.high, "people": part.people}
    means = [
        {"of": f"{mean.name}{' (at the bound of rewards)' if mean.at_bound else ''}", **_format_limits(mean)}
        for mean in part.means
    ]
    tables = [TitledTable("mean rewards", means)] if means else []
    return [*tables, TitledTable("gain of choosing by context", drop_empty([row]))]


def _point_tables(part: policy_view.Point) -> list[TitledTable]:
    average = part.average or {}
    rows = [{"coordinate": name, "centre": at, "average": average.get(name)} for name, at in part.centre.items()]
    distances = {"nearest of people's points": part.nearest, "farthest of people's points": part.farthest}
    facts = [{"fact": name, "value": value} for name, value in distances.items() if value is not None]
    return [TitledTable("points", drop_empty(rows)), *([TitledTable("around the centre", facts)] if facts else [])]


def _coefficient_tables(part: policy_view.Coefficients) -> list[TitledTable]:
    shared = [{"term": name, "coefficient": value} for name, value in part.shared.items()]
    names = dict.fromkeys(name for terms in part.arms.values() for name in terms)
    rows = [{"term": name} | {arm: terms.get(name) for arm, terms in part.arms.items()} for name in names]
    common = [TitledTable("terms of all arms alike", shared)] if shared else []
    return [*common, TitledTable(f"terms of each arm: {part.unit}; link {part.link}", rows)]


def _half_life_rows(part: parts.HalfLives) -> list[Row]:
    probabilities = part.probabilities or (None,) * len(part.candidates)
    pairs = zip(part.candidates, probabilities, strict=True)
    rows = [
        {"half-life in people": half_life or "nothing", "probability": share, "used": half_life == part.used}
        for half_life, share in pairs
    ]
    return drop_empty(rows)


_BARS: Final = "▁▂▃▄▅▆▇█"
_SHAPES_TITLE: Final = (
    "what each feature adds to the mean reward of each option, apart from the others; features that choose most come "
    "first"
)


def _take_first(part: policy_view.Shapes) -> policy_view.Shapes:
    """Return the shape functions of the first features, with a count of the omitted features."""
    n_omitted = max(0, len(part.functions) - _MAX_SHAPES)
    return policy_view.Shapes(part.functions[:_MAX_SHAPES], part.features_left + n_omitted, part.arms_left)


def _title_shapes(part: policy_view.Shapes) -> str:
    """Title a table of shape functions, with the numbers of omitted features and options."""
    counts = {"feature": part.features_left, "option": part.arms_left}
    omissions = [f"{count:,} {noun}{'s' * (count > 1)}" for noun, count in counts.items() if count]
    return f"{_SHAPES_TITLE}; not shown: {' and '.join(omissions)}" if omissions else _SHAPES_TITLE


def _shape_rows(part: policy_view.Shapes) -> list[Row]:
    """Return a row for each feature and option: the feature's gain, its shape as a sparkline, and its extremes."""
    rows: list[Row] = []
    for shape in part.functions:
        values = [value for curve in shape.curves for value in curve.values]
        omitted = f" ({shape.cells_left:,} more levels)" if shape.cells_left else ""
        rows += [
            {
                "feature": "" if index else f"{shape.feature}{omitted}",
                "expected gain alone": "" if index else f"{shape.gain:+z.3g}",
                "option": curve.arm,
                "shape": sparkline(curve.values, min(values), max(values)),
                "least": format_extreme(shape, curve, min),
                "most": format_extreme(shape, curve, max),
            }
            for index, curve in enumerate(shape.curves)
        ]
    return rows


def sparkline(values: Sequence[float], low: float, high: float) -> str:
    """Draw values as bars of eight heights between a low and a high value."""
    if high <= low:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(7, int(8 * (value - low) / (high - low)))] for value in values)


def format_extreme(
    shape: policy_view.FeatureShape, curve: policy_view.ShapeCurve, select: Callable[[Sequence[float]], float]
) -> str:
    """Format the minimum or the maximum of a curve with its interval and its cell."""
    value = select(curve.values)
    index = curve.values.index(value)
    return f"{value:+z.2g} ({curve.lows[index]:+z.2g} to {curve.highs[index]:+z.2g}) at {shape.cells[index]}"
