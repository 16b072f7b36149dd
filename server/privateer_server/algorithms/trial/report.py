"""What a trial publishes: effects with intervals, recommendations, and what they rest on."""

import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.algorithms.trial.segments import EVERYBODY
from privateer_core.result import DECIDED, Cell, Effect, Ending, Estimate, Ground, Result, Table, reason_of
from privateer_server.algorithms.trial.decisions import TrialFindings, decisions, ground, ground_in, rounded
from privateer_server.algorithms.trial.state import TrialState
from privateer_server.algorithms.trial.treatment_effects import (
    AverageEffects,
    ReasonCode,
    SegmentEffects,
    average_effects,
    effects,
    stopped_effect,
)

_MORE: Final = {
    ReasonCode.SHARE: " (segments.shares declares it, or more people)",
    ReasonCode.SMALL: "; effects that matter will not be found",
}
_DIGITS: Final = 6
DECIDED_AGAINST_ALL: Final[Ground] = "decided against all other options"


def reported(state: TrialState, found: TrialFindings, spec: TrialSpec, *, over: bool) -> Result:
    """Return the result at the last look; effects in the rewards' own units."""
    estimates = [*_estimates(state.path[-1], spec.effects(), spec.reward.half_range)]
    averages = ((0, a, name) for a, name in spec.average_effects())
    estimates += _estimates(state.average_path[-1][None], averages, spec.reward.half_range)
    made = decisions(found, spec)
    tables = [
        _effects(state, found, made, spec),
        *_averages(found, made, spec),
        _recommendations(found, spec),
        _facts(state, spec, over),
    ]
    tables += [*_at_the_stop(state, spec), *_gain(state, spec), *_guardrails(state, spec)]
    tables += [*questions_table(spec), *shares_table(state, spec)]
    return Result(
        tuple(estimates),
        1 - spec.algorithm.level,
        spec.options[found.constant] if over else None,
        over,
        (*tables, _over_time(state, spec)),
        made,
        ground(found) if over else None,
        _ending(state) if over else None,
    )


def _ending(state: TrialState) -> Ending:
    return "its rule" if state.stopped else "its horizon"


def _estimates(intervals: Any, named: Iterable[tuple[int, int, str]], half_range: float) -> list[Estimate]:
    found = []
    for k, a, name in named:
        value, low, high = (2 * half_range * intervals[k, a - 1]).tolist()
        if math.isfinite(value):
            found.append(Estimate(name, value, min(low, value), max(high, value)))
    return found


def _effects(state: TrialState, found: TrialFindings, made: tuple[Effect, ...], spec: TrialSpec) -> Table:
    columns = ("segment", "arm", "effect", "low", "high", "decided", "p", "detectable", "contribution", "note")
    one, rows = found.effects, []
    assert one is not None
    segments, unit = spec.segment_names, 2 * spec.reward.half_range
    contributions = (found.average or one).contribution
    for (k, a, _), effect in zip(spec.effects(), made, strict=False):
        cell = (k, a - 1)
        detectable, share = rounded(unit * one.detectable[cell]), rounded(unit * contributions[cell])
        note = effect.reason + ("" if effect.is_decided else _MORE.get(ReasonCode(int(one.reason[cell])), ""))
        if effect.people is not None and effect.people < state.heard:
            note += f" (when {effect.people:,} people had reported; too few since to say more)"
        figures = (effect.value, effect.low, effect.high, effect.is_decided, _rounded_up(one.p_value[cell]))
        rows.append((segments[k], spec.options[a], *figures, detectable, share, note))
    return Table("effects against the control", columns, tuple(rows))


def _averages(found: TrialFindings, made: tuple[Effect, ...], spec: TrialSpec) -> list[Table]:
    one = found.average
    if one is None:
        return []
    unit, averages = 2 * spec.reward.half_range, made[-len(one.estimate) :]
    rows = tuple(
        (
            effect.option,
            *(effect.value, effect.low, effect.high, effect.is_decided),
            _rounded_up(one.p_value[a - 1]),
            rounded(unit * one.detectable[a - 1]),
            effect.reason,
        )
        for (a, _), effect in zip(spec.average_effects(), averages, strict=True)
    )
    return [Table("average effects", ("arm", "effect", "low", "high", "decided", "p", "detectable", "note"), rows)]


def _gain(state: TrialState, spec: TrialSpec) -> list[Table]:
    """Return what choosing by segment gains over one arm for all, by people who came after both were chosen."""
    found = state.held.gain() if state.held else None
    if found is None or state.held is None:
        return []
    unit = 2 * spec.reward.half_range
    figures = [rounded(unit * value) for value in found]
    columns = ("one arm for all", "gain", "low", "high", "people")
    people = int(state.held.evidence.people[-1])
    return [Table("gain of choosing by segment", columns, ((spec.options[state.held.constant], *figures, people),))]


def _guardrails(state: TrialState, spec: TrialSpec) -> list[Table]:
    """Return effects on guardrails, in shares of people who say yes."""
    tables, columns = [], ("segment", "arm", "effect", "low", "high", "decided", "note")
    everybody = state.everybody[1:] or (None,) * len(state.guardrails)
    for name, evidence, whole in zip(spec.algorithm.guardrails, state.guardrails, everybody, strict=True):
        one, rows = effects(evidence, state.asked), []
        for k, a, _ in spec.effects():
            rows.append((spec.segment_names[k], spec.options[a], *_guarded(one, (k, a - 1))))
        average = average_effects(evidence, whole)
        for a, _ in spec.average_effects():
            rows.append((EVERYBODY, spec.options[a], *_guarded(average, (a - 1,))))
        tables.append(Table(f"guardrail: {name}", columns, tuple(rows)))
    return tables


def _guarded(found: SegmentEffects | AverageEffects, cell: tuple[int, ...]) -> tuple[Cell, ...]:
    """Return the figures of an effect on a guardrail, whether it is decided, and why."""
    value, low, high = (float(part[cell]) for part in (found.estimate, found.low, found.high))
    tested = bool(found.decided[cell])
    if math.isfinite(value):
        why: str = reason_of(low, high, decided=tested)
        decided = why in DECIDED
    else:
        why, decided = "decided at an earlier look" if tested else "too few people beside the noise", tested
    return rounded(value), rounded(low), rounded(high), decided, why


def _at_the_stop(state: TrialState, spec: TrialSpec) -> list[Table]:
    """Return the one effect whose decision ended the trial, without the bias of stopping; nothing of several."""
    if state.stopped not in ("decided", "best") or state.evidence.scores[0].size > 1 or state.line is not None:
        return []
    one, unit = stopped_effect(state.evidence), 2 * spec.reward.half_range
    figures = [rounded(unit * part) for part in (one.estimate, one.low, one.high)]
    columns = ("arm", "effect", "low", "high")
    return [Table("at the stop, without its bias", columns, ((spec.options[1], *figures),))]


def _recommendations(found: TrialFindings, spec: TrialSpec) -> Table:
    rows = tuple(
        (name, spec.options[int(found.best[k])], why == DECIDED_AGAINST_ALL, why)
        for k, name in enumerate(spec.segment_names)
        for why in (ground_in(found, k),)
    )
    return Table("recommendations", ("segment", "arm", "decided", "note"), rows)


def _facts(state: TrialState, spec: TrialSpec, over: bool) -> Table:
    section, privacy = spec.algorithm, spec.privacy
    confidence = f"{100 * (1 - section.level):g}%"
    rows: list[tuple[Cell, ...]] = [
        ("people", state.heard),
        ("people planned", spec.experiment.horizon),
        ("looks", state.evidence.looks),
        ("looks planned", len(spec.looks)),
        ("ended by", (state.stopped or "its horizon") if over else None),
        (
            "method",
            f"{section.intervals} intervals of {confidence} confidence, decided by {section.correction}",
        ),
        ("allocation", section.allocation),
        ("least share of an arm", rounded(spec.floor)),
        ("sample ratio", "arms are not heard from as often as they are given" if state.ratio.alert else "as planned"),
        ("largest z of the sample ratio", rounded(float(np.abs(state.ratio.scores[-1]).max()))),
        ("trust model", privacy.model),
        ("epsilon", privacy.epsilon),
        ("delta", privacy.delta),
        ("reports of a person", 1),
    ]
    return Table("what it rests on", ("fact", "value"), tuple(rows))


def _over_time(state: TrialState, spec: TrialSpec) -> Table:
    unit, rows, segments, named = 2 * spec.reward.half_range, [], spec.segment_names, list(spec.effects())
    for people, cells in zip(state.ratio.people.tolist(), state.path, strict=True):
        for k, a, _ in named:
            figures = [rounded(value) for value in (unit * cells[k, a - 1]).tolist()]
            rows.append((int(people), segments[k], spec.options[a], *figures))
    return Table("over time", ("people", "segment", "arm", "effect", "low", "high"), tuple(rows))


def described(state: TrialState, found: TrialFindings, spec: TrialSpec) -> dict[str, Any]:
    """Describe a state as JSON, for people."""
    rows: list[dict[str, Any]] = [{"name": name, "decided": False} for _, _, name in spec.effects()]
    if found.effects:
        made, intervals = decisions(found, spec), found.intervals
        for row, (k, a, _), effect in zip(rows, spec.effects(), made, strict=False):
            value, low, high = (rounded(one) for one in intervals[k, a - 1].tolist())
            row |= {"effect": value, "low": low, "high": high, "decided": effect.is_decided, "reason": effect.reason}
    return {"looks": state.evidence.looks, "people": state.heard, "stopped": state.stopped, "effects": rows}


def _rounded_up(p_value: float) -> float | None:
    """Round a p-value so that it stays valid: it is never 0."""
    return math.ceil(float(p_value) * 10**_DIGITS) / 10**_DIGITS if math.isfinite(p_value) else None


def questions_table(spec: TrialSpec) -> list[Table]:
    """Return which question coins ask with which share of the people; nothing if everybody answers all."""
    facts = ("the reward", *spec.algorithm.guardrails)
    rows = tuple(
        (
            "being in the segment" if one.fact is None else facts[one.fact],
            EVERYBODY if one.everybody else "a segment",
            round(one.share, _DIGITS),
        )
        for one in spec.questions
    )
    return [Table("what coins ask", ("question", "about", "share of people"), rows)] if rows else []


def shares_table(state: TrialState, spec: TrialSpec) -> list[Table]:
    """Return the segments' shares of the people with intervals, if they were asked; nothing between looks."""
    asked, critical = state.asked, state.evidence.critical
    if asked is None or not np.isfinite(critical):
        return []
    half = critical * np.sqrt(asked.variance)
    ends = np.stack([asked.estimate, asked.estimate - half, asked.estimate + half], axis=1).clip(0, 1).round(_DIGITS)
    rows = tuple((name, *row) for name, row in zip(spec.segment_names, ends.tolist(), strict=True))
    return [Table("shares of people", ("segment", "share", "low", "high"), rows)]
