"""The parts of an answer and of a policy as titled rows, for screens, documents and notebooks: one function a type."""

from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from typing import Any, Final, NamedTuple

import msgspec

from privateer_core.answer import Answer
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.facts import Fact, Table
from privateer_core.answer.parts import (
    LOSS,
    BinMeans,
    Contradiction,
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
from privateer_core.answer.policy_view import BinShares, Coefficients, GroupShares, PlayCounts, Point, PolicyView
from privateer_core.answer.shapes import Shapes
from privateer_lab.answer_words import chosen_by, contradicted, people_in, selected
from privateer_lab.shape_rows import first_of, shape_rows, titled

Row = dict[str, Any]
_SHAPES: Final = 4
"""Features whose shape functions an answer shows; --json and pages have the others."""
_EVERYBODY: Final = "everybody"
_AT_BOUND: Final = "at the bound of what is possible"


class Titled(NamedTuple):
    """A table: its title, and a row for each of its entries, by column."""

    title: str
    rows: list[Row]


def tables_of(answer: Answer) -> list[Titled]:
    """Return the tables of an answer, in the order in which they are shown."""
    gain = rows_of(answer.gain) if answer.gain else []
    parts = [table for part in answer.parts for table in rows_of(part)]
    return [*_effects(answer.effects), *gain, *parts]


def tables_of_shapes(answer: Answer) -> list[Titled]:
    """Return the shape functions of the first features as a table; none where no shape functions were learned."""
    return [table for shapes in answer.all_of(Shapes) for table in rows_of(first_of(shapes, _SHAPES))]


def estimates_of(estimates: Sequence[Estimate]) -> list[Row]:
    """Return a row for each estimate."""
    rows = [
        {"name": one.name, **_interval(one), "people": one.people, "note": _AT_BOUND if one.at_bound else None}
        for one in estimates
    ]
    return said(rows)


def said(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return rows without the columns that have no value in any of them; what is empty elsewhere is None."""
    columns = dict.fromkeys(name for row in rows for name in row)
    kept = [name for name in columns if any(row.get(name) is not None for row in rows)]
    return [{name: row.get(name) for name in kept} for row in rows]


@singledispatch
def rows_of(part: Any) -> list[Titled]:
    """Return the tables that a part is."""
    raise TypeError(f"no table of {type(part).__name__}")


def _effects(effects: Sequence[Effect]) -> Iterator[Titled]:
    """Yield the effects of groups, and those among everybody."""
    in_groups = [one for one in effects if one.group is not None]
    average = [one for one in effects if one.group is None]
    if in_groups:
        yield Titled("effects against the control", _effect_rows(in_groups))
    if average:
        yield Titled("average effects" if in_groups else "effects against the control", _effect_rows(average))


def _effect_rows(effects: Sequence[Effect]) -> list[Row]:
    return said(
        [
            {
                "segment": one.group,
                "arm": one.option,
                "effect": one.value,
                "low": one.low,
                "high": one.high,
                "decided": one.is_decided,
                "p": one.p_value,
                "detectable": one.detectable,
                "contribution": one.contribution,
                "note": f"{one.reason} ({one.remark})" if one.remark else one.reason,
            }
            for one in effects
        ]
    )


@rows_of.register
def _(part: Gain) -> list[Titled]:
    compared = {"one arm for all": part.option, "gain": part.value, "low": part.low, "high": part.high}
    means = [
        {"of": f"{one.name} (at the bound of rewards)" if one.at_bound else one.name, **_interval(one)}
        for one in part.means
    ]
    tables = [Titled("mean rewards", means)] if means else []
    return [*tables, Titled("gain of choosing by context", said([compared | {"people": part.people}]))]


def _interval(one: Estimate) -> Row:
    return {"value": one.value, "low": one.low, "high": one.high}


@rows_of.register
def _(part: Recommendations) -> list[Titled]:
    rows = [
        {"segment": one.group, "arm": one.option, "decided": one.is_decided, "note": one.ground} for one in part.rules
    ]
    return [Titled("recommendations", rows)]


@rows_of.register
def _(part: GuardrailEffects) -> list[Titled]:
    named = [msgspec.structs.replace(one, group=one.group or _EVERYBODY) for one in part.effects]
    return [Titled(f"guardrail: {part.name}", _effect_rows(named))]


@rows_of.register
def _(part: Intervals) -> list[Titled]:
    return [Titled(part.title, [{"name": one.name, **_interval(one)} for one in part.estimates])]


@rows_of.register
def _(part: Losses) -> list[Titled]:
    return [Titled(LOSS, [{"name": one.name, "expected": one.expected, "at most": one.most} for one in part.losses])]


@rows_of.register
def _(part: Figures) -> list[Titled]:
    return [Titled(part.title, facts_of(part.facts))]


def facts_of(facts: Sequence[Fact]) -> list[Row]:
    """Return a row for each fact that is known."""
    return [{"fact": one.name, "value": one.value} for one in facts if one.value is not None]


@rows_of.register
def _(part: EffectsOverTime) -> list[Titled]:
    rows = [
        {"people": people, "segment": one.group, "arm": one.option, "effect": value, "low": low, "high": high}
        for look, people in enumerate(part.people)
        for one in part.effects
        for value, low, high in ((one.values[look], one.lows[look], one.highs[look]),)
    ]
    return [Titled("over time", said(rows))]


@rows_of.register
def _(part: BinMeans) -> list[Titled]:
    title = f"estimates by bin, with intervals of about {100 * part.confidence:g} %"
    bins = sorted(part.bins, key=lambda one: one.lower)
    rows = [{"people": people_in(one.where)} | {mean.name: estimated(mean) for mean in one.means} for one in bins]
    return [Titled(title, rows)]


def estimated(one: Estimate) -> str:
    """Write an estimate with its interval; one that came out beyond what is possible says that it is at the bound."""
    return f"{one.value:z.3f} ({one.low:z.3f} to {one.high:z.3f}{', at the bound' if one.at_bound else ''})"


@rows_of.register
def _(part: Point) -> list[Titled]:
    average = part.average or {}
    rows = [{"coordinate": name, "centre": at, "average": average.get(name)} for name, at in part.centre.items()]
    around = {"nearest of people's points": part.nearest, "farthest of people's points": part.farthest}
    facts = [{"fact": name, "value": value} for name, value in around.items() if value is not None]
    return [Titled("points", said(rows)), *([Titled("around the centre", facts)] if facts else [])]


@rows_of.register
def _(part: Contradiction) -> list[Titled]:
    return [Titled("rewards over time", [{"what rounds say": contradicted(part)}])]


@rows_of.register
def _(part: FeatureSelection) -> list[Titled]:
    rows = [{"feature": name, "gain": gain} for name, gain in (part.gains or {}).items()]
    return [Titled(selected(part), rows)]


@rows_of.register
def _(part: HalfLives) -> list[Titled]:
    probabilities = part.probabilities or (None,) * len(part.candidates)
    rows = [
        {"half-life in people": "nothing" if one is None else one, "probability": share, "used": one == part.used}
        for one, share in zip(part.candidates, probabilities, strict=True)
    ]
    return [Titled("what is forgotten", said(rows))]


@rows_of.register
def _(part: Shapes) -> list[Titled]:
    return [Titled(titled(part), shape_rows(part))] if part.functions else []


@rows_of.register
def _(part: Table) -> list[Titled]:
    return [Titled(part.title, said([dict(zip(part.names, row, strict=True)) for row in part.rows]))]


@rows_of.register
def _(part: BinShares) -> list[Titled]:
    bins = sorted(part.bins, key=lambda one: one.lower)
    rows = [{"people": people_in(one.where), "arms": chosen_by(one.arms)} for one in bins]
    return [Titled("the arms of each bin of people, and how often", rows)]


@rows_of.register
def _(part: GroupShares) -> list[Titled]:
    return [Titled("the share of each arm", [{"people": one.name, **one.arms} for one in part.groups])]


@rows_of.register
def _(part: Coefficients) -> list[Titled]:
    shared = [{"term": name, "coefficient": value} for name, value in part.shared.items()]
    own = dict.fromkeys(name for one in part.arms.values() for name in one)
    rows = [{"term": name} | {arm: one.get(name) for arm, one in part.arms.items()} for name in own]
    common = [Titled("terms of all arms alike", shared)] if shared else []
    return [*common, Titled(f"terms of each arm: {part.unit}; link {part.link}", rows)]


@rows_of.register
def _(part: PlayCounts) -> list[Titled]:
    draw = {"seed": str(part.draw.seed), "start": part.draw.start, "places": part.draw.places}
    facts = {"people asked": part.people, "active": list(part.active), **draw}
    plays = [{"action": name, "plays": times} for name, times in part.plays.items()]
    return [
        Titled("what is asked", [{"fact": name, "value": value} for name, value in facts.items()]),
        Titled("plays", plays),
    ]


@rows_of.register
def _(view: PolicyView) -> list[Titled]:
    facts = [Titled("facts", facts_of(view.facts))] if view.facts else []
    return [*rows_of(view.shows), *facts]
