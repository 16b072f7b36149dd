"""The result as faces read it that do not know a typed answer: its parts as tables of words."""

from typing import Any, cast

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.algorithms.trial.segments import EVERYBODY
from privateer_core.answer import Answer
from privateer_core.answer.estimates import Effect
from privateer_core.answer.parts import EffectsOverTime, Figures, GuardrailEffects, Intervals, Rules
from privateer_core.answer.tables import Table as TypedTable
from privateer_core.result import Cell, Ending, Estimate, Ground, Reason, Result, Table
from privateer_core.result import Effect as OldEffect


def reported(answer: Answer) -> Result:
    """Return an answer as a result."""
    return Result(
        tuple(Estimate(one.name, one.value, one.low, one.high) for one in answer.estimates),
        answer.confidence,
        answer.recommended,
        answer.is_over,
        tuple(_tables(answer)),
        tuple(
            OldEffect(one.option, one.group, one.value, one.low, one.high, cast(Reason, one.reason), one.people)
            for one in answer.effects
        ),
        cast(Ground, answer.ground),
        cast(Ending, answer.ended),
    )


def _tables(answer: Answer) -> list[Table]:
    several = any(one.group for one in answer.effects)
    by_segment = [one for one in answer.effects if one.group or not several]
    averages = [one for one in answer.effects if several and not one.group]
    columns = ("segment", "arm", "effect", "low", "high", "decided", "p", "detectable", "contribution", "note")
    rows = tuple((one.group or EVERYBODY, *_cells(one), one.contribution, _note(one)) for one in by_segment)
    tables = [Table("effects against the control", columns, rows)]
    if averages:
        names = ("arm", "effect", "low", "high", "decided", "p", "detectable", "note")
        tables.append(Table("average effects", names, tuple((*_cells(one), one.reason) for one in averages)))
    tables += [_recommendations(answer), _facts(answer)]
    intervals = {one.title: one for one in answer.all_of(Intervals)}
    if stop := intervals.get("at the stop, without its bias"):
        tables.append(_intervals(stop, ("arm", "effect")))
    if answer.gain:
        row = (answer.gain.option, answer.gain.value, answer.gain.low, answer.gain.high, answer.gain.people)
        tables.append(
            Table("gain of choosing by segment", ("one arm for all", "gain", "low", "high", "people"), (row,))
        )
    tables += [_guardrail(one) for one in answer.all_of(GuardrailEffects)]
    tables += [Table(one.title, one.names, one.rows) for one in answer.all_of(TypedTable)]
    if shares := intervals.get("shares of people"):
        tables.append(_intervals(shares, ("segment", "share")))
    return [*tables, _over_time(answer)]


def _cells(one: Effect) -> tuple[Cell, ...]:
    return one.option, one.value, one.low, one.high, one.is_decided, one.p_value, one.detectable


def _note(one: Effect) -> str:
    return f"{one.reason} ({one.remark})" if one.remark else one.reason


def _recommendations(answer: Answer) -> Table:
    rules = answer.all_of(Rules)[0].rules
    rows = tuple((one.group, one.option, one.is_decided, one.ground) for one in rules)
    return Table("recommendations", ("segment", "arm", "decided", "note"), rows)


def _facts(answer: Answer) -> Table:
    rows = tuple((one.name, one.value) for one in answer.all_of(Figures)[0].facts)
    return Table("what it rests on", ("fact", "value"), rows)


def _intervals(part: Intervals, names: tuple[str, str]) -> Table:
    rows = tuple((one.name, one.value, one.low, one.high) for one in part.estimates)
    return Table(part.title, (*names, "low", "high"), rows)


def _guardrail(part: GuardrailEffects) -> Table:
    columns = ("segment", "arm", "effect", "low", "high", "decided", "note")
    rows = tuple((one.group or EVERYBODY, *_cells(one)[:5], one.reason) for one in part.effects)
    return Table(f"guardrail: {part.name}", columns, rows)


def _over_time(answer: Answer) -> Table:
    part = answer.all_of(EffectsOverTime)[0]
    rows = tuple(
        (people, one.group or EVERYBODY, one.option, one.values[look], one.lows[look], one.highs[look])
        for look, people in enumerate(part.people)
        for one in part.effects
    )
    return Table("over time", ("people", "segment", "arm", "effect", "low", "high"), rows)


def described(answer: Answer, spec: TrialSpec, stopped: str) -> dict[str, Any]:
    """Describe an answer as JSON, for people."""
    rows: list[dict[str, Any]] = [{"name": name, "decided": False} for _, _, name in spec.effects()]
    paths = answer.first_of(EffectsOverTime)
    if paths:
        for row, path, one in zip(rows, paths.effects, answer.effects, strict=False):
            row |= {"effect": path.values[-1], "low": path.lows[-1], "high": path.highs[-1]}
            row |= {"decided": one.is_decided, "reason": one.reason}
    return {"looks": answer.rounds, "people": answer.people, "stopped": stopped, "effects": rows}
