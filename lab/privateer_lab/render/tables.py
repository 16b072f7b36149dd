"""Tables of the parts of results and policies, for terminals, documents and notebooks: a function for each type."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import singledispatch
from typing import Any, Final, NamedTuple

import msgspec

from privateer_core.answer import Answer
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.facts import Fact, Table
from privateer_core.answer.parts import (
    LOSS,
    BinMeans,
    DriftTest,
    EffectsOverTime,
    FeatureSelection,
    Figures,
    Gain,
    GuardrailEffects,
    HalfLives,
    Intervals,
    Losses,
    Recommendations,
)
from privateer_core.answer.policy_view import (
    BinShares,
    Coefficients,
    FeatureShape,
    GroupShares,
    PlayCounts,
    Point,
    PolicyView,
    ShapeCurve,
    Shapes,
)
from privateer_lab.render.figures import format_figure
from privateer_lab.render.words import describe_bin, describe_feature_selection, format_arm_shares, format_drift

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
            [format_figure(readable_cell(name, row.get(name))) for name in self.columns] for row in self.rows[:max_rows]
        ]


def readable_cell(name: str, value: Any) -> Any:
    """Return a cell's value for readers: empty if it is missing, and the smallest p-value as an upper bound."""
    return "" if value is None else f"below {_MIN_P_VALUE:.6f}" if name == "p" and value == _MIN_P_VALUE else value


def answer_tables(answer: Answer) -> list[TitledTable]:
    """Return the tables of a result: its effects, gain and parts, in display order."""
    gain = part_tables(answer.gain) if answer.gain else []
    parts = [table for part in answer.parts for table in part_tables(part)]
    return [*_effect_tables(answer.effects), *gain, *parts]


def shape_tables(answer: Answer) -> list[TitledTable]:
    """Return a table of the shape functions of the first features; empty if no shape functions were learned."""
    return [table for shapes in answer.all_of(Shapes) for table in part_tables(take_first(shapes, _MAX_SHAPES))]


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


@singledispatch
def part_tables(part: Any) -> list[TitledTable]:
    """Return the tables of a part of a result or policy."""
    raise TypeError(f"no table of {type(part).__name__}")


def _effect_tables(effects: Sequence[Effect]) -> Iterator[TitledTable]:
    """Yield a table of effects by group, and a table of average effects."""
    in_groups = [effect for effect in effects if effect.group is not None]
    averages = [effect for effect in effects if effect.group is None]
    if in_groups:
        yield TitledTable("effects against the control", _effect_rows(in_groups))
    if averages:
        yield TitledTable("average effects" if in_groups else "effects against the control", _effect_rows(averages))


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


@part_tables.register
def _(part: Gain) -> list[TitledTable]:
    compared = {"one arm for all": part.arm, "gain": part.value, "low": part.low, "high": part.high}
    means = [
        {"of": f"{mean.name}{' (at the bound of rewards)' if mean.at_bound else ''}", **_format_limits(mean)}
        for mean in part.means
    ]
    tables = [TitledTable("mean rewards", means)] if means else []
    return [*tables, TitledTable("gain of choosing by context", drop_empty([compared | {"people": part.people}]))]


def _format_limits(estimate: Estimate) -> Row:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


@part_tables.register
def _(part: Recommendations) -> list[TitledTable]:
    rows = [
        {"segment": rule.group, "arm": rule.arm, "decided": rule.is_decided, "note": rule.basis} for rule in part.rules
    ]
    return [TitledTable("recommendations", rows)]


@part_tables.register
def _(part: GuardrailEffects) -> list[TitledTable]:
    named = [msgspec.structs.replace(effect, group=effect.group or _EVERYBODY) for effect in part.effects]
    return [TitledTable(f"guardrail: {part.name}", _effect_rows(named))]


@part_tables.register
def _(part: Intervals) -> list[TitledTable]:
    return [
        TitledTable(part.title, [{"name": estimate.name, **_format_limits(estimate)} for estimate in part.estimates])
    ]


@part_tables.register
def _(part: Losses) -> list[TitledTable]:
    rows = [{"name": loss.name, "expected": loss.expected, "at most": loss.most} for loss in part.expected_losses]
    return [TitledTable(LOSS, rows)]


@part_tables.register
def _(part: Figures) -> list[TitledTable]:
    return [TitledTable(part.title, fact_rows(part.facts))]


def fact_rows(facts: Sequence[Fact]) -> list[Row]:
    """Return a row for each fact that has a value."""
    return [{"fact": fact.name, "value": fact.value} for fact in facts if fact.value is not None]


@part_tables.register
def _(part: EffectsOverTime) -> list[TitledTable]:
    rows = [
        {"people": people, "segment": effect.group, "arm": effect.arm, "effect": value, "low": low, "high": high}
        for look, people in enumerate(part.people)
        for effect in part.effects
        for value, low, high in ((effect.values[look], effect.lows[look], effect.highs[look]),)
    ]
    return [TitledTable("over time", drop_empty(rows))]


@part_tables.register
def _(part: BinMeans) -> list[TitledTable]:
    title = f"estimates by bin, with intervals of about {100 * part.confidence:g} %"
    bins = sorted(part.bins, key=lambda bin_: bin_.lower)
    rows = [
        {"people": describe_bin(bin_.where)} | {mean.name: estimate_text(mean) for mean in bin_.means} for bin_ in bins
    ]
    return [TitledTable(title, rows)]


def estimate_text(mean: Estimate) -> str:
    """Format an estimate with its interval, and whether it was clipped to the bound of possible values."""
    return f"{mean.value:z.3f} ({mean.low:z.3f} to {mean.high:z.3f}{', at the bound' if mean.at_bound else ''})"


@part_tables.register
def _(part: Point) -> list[TitledTable]:
    average = part.average or {}
    rows = [{"coordinate": name, "centre": at, "average": average.get(name)} for name, at in part.centre.items()]
    around = {"nearest of people's points": part.nearest, "farthest of people's points": part.farthest}
    facts = [{"fact": name, "value": value} for name, value in around.items() if value is not None]
    return [TitledTable("points", drop_empty(rows)), *([TitledTable("around the centre", facts)] if facts else [])]


@part_tables.register
def _(part: DriftTest) -> list[TitledTable]:
    return [TitledTable("rewards over time", [{"what rounds say": format_drift(part)}])]


@part_tables.register
def _(part: FeatureSelection) -> list[TitledTable]:
    rows = [{"feature": name, "gain": gain} for name, gain in (part.gains or {}).items()]
    return [TitledTable(describe_feature_selection(part), rows)]


@part_tables.register
def _(part: HalfLives) -> list[TitledTable]:
    probabilities = part.probabilities or (None,) * len(part.candidates)
    rows = [
        {
            "half-life in people": "nothing" if half_life is None else half_life,
            "probability": share,
            "used": half_life == part.used,
        }
        for half_life, share in zip(part.candidates, probabilities, strict=True)
    ]
    return [TitledTable("what is forgotten", drop_empty(rows))]


@part_tables.register
def _(part: Shapes) -> list[TitledTable]:
    return [TitledTable(shapes_title(part), shape_rows(part))] if part.functions else []


@part_tables.register
def _(part: Table) -> list[TitledTable]:
    return [TitledTable(part.title, drop_empty([dict(zip(part.names, row, strict=True)) for row in part.rows]))]


@part_tables.register
def _(part: BinShares) -> list[TitledTable]:
    bins = sorted(part.bins, key=lambda bin_: bin_.lower)
    rows = [{"people": describe_bin(bin_.where), "arms": format_arm_shares(bin_.arms)} for bin_ in bins]
    return [TitledTable("the arms of each bin of people, and how often", rows)]


@part_tables.register
def _(part: GroupShares) -> list[TitledTable]:
    return [TitledTable("the share of each arm", [{"people": group.name, **group.arms} for group in part.groups])]


@part_tables.register
def _(part: Coefficients) -> list[TitledTable]:
    shared = [{"term": name, "coefficient": value} for name, value in part.shared.items()]
    names = dict.fromkeys(name for terms in part.arms.values() for name in terms)
    rows = [{"term": name} | {arm: terms.get(name) for arm, terms in part.arms.items()} for name in names]
    common = [TitledTable("terms of all arms alike", shared)] if shared else []
    return [*common, TitledTable(f"terms of each arm: {part.unit}; link {part.link}", rows)]


@part_tables.register
def _(part: PlayCounts) -> list[TitledTable]:
    draw = {"seed": str(part.draw.seed), "start": part.draw.start, "places": part.draw.places}
    figures = {"people asked": part.people, "active": list(part.active), **draw}
    facts = [{"fact": name, "value": value} for name, value in figures.items()]
    plays = [{"action": name, "plays": times} for name, times in part.plays.items()]
    return [TitledTable("what is asked", facts), TitledTable("plays", plays)]


@part_tables.register
def _(view: PolicyView) -> list[TitledTable]:
    facts = [TitledTable("facts", fact_rows(view.facts))] if view.facts else []
    return [*part_tables(view.shows), *facts]


_BARS: Final = "▁▂▃▄▅▆▇█"
_SHAPES_TITLE: Final = (
    "what each feature adds to the mean reward of each option, apart from the others; features that choose most come "
    "first"
)


def take_first(part: Shapes, max_features: int) -> Shapes:
    """Return the shape functions of the first features, with a count of the omitted features."""
    n_omitted = max(0, len(part.functions) - max_features)
    return Shapes(part.functions[:max_features], part.features_left + n_omitted, part.arms_left)


def shapes_title(part: Shapes) -> str:
    """Return the title of a table of shape functions, with the numbers of omitted features and options."""
    omissions = [_format_count(part.features_left, "feature"), _format_count(part.arms_left, "option")]
    omitted = " and ".join(text for text in omissions if text)
    return f"{_SHAPES_TITLE}; not shown: {omitted}" if omitted else _SHAPES_TITLE


def _format_count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' if n > 1 else ''}" if n else ""


def shape_rows(part: Shapes) -> list[dict[str, Any]]:
    """Return a row for each feature and option: the feature's gain, its shape, and its extremes."""
    return [_shape_row(shape, curve, index) for shape in part.functions for index, curve in enumerate(shape.curves)]


def _shape_row(shape: FeatureShape, curve: ShapeCurve, index: int) -> dict[str, Any]:
    """Build an option's row of what a feature adds, with a sparkline."""
    values = [value for other in shape.curves for value in other.values]
    omitted = f" ({shape.cells_left:,} more levels)" if shape.cells_left else ""
    return {
        "feature": "" if index else f"{shape.feature}{omitted}",
        "expected gain alone": "" if index else f"{shape.gain:+z.3g}",
        "option": curve.arm,
        "shape": sparkline(curve.values, min(values), max(values)),
        "least": format_extreme(shape, curve, min),
        "most": format_extreme(shape, curve, max),
    }


def sparkline(values: Sequence[float], low: float, high: float) -> str:
    """Draw values as bars of eight heights between a low and a high value."""
    if high <= low:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(7, int(8 * (value - low) / (high - low)))] for value in values)


def format_extreme(shape: FeatureShape, curve: ShapeCurve, select: Callable[[Sequence[float]], float]) -> str:
    """Format the minimum or the maximum of a curve with its interval and its cell."""
    value = select(curve.values)
    index = curve.values.index(value)
    return f"{value:+z.2g} ({curve.lows[index]:+z.2g} to {curve.highs[index]:+z.2g}) at {shape.cells[index]}"
