"""What a trial publishes: effects with intervals, recommendations, and what they rest on."""

import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import numpy as np

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer import Answer, Ending
from privateer_core.answer.estimates import Effect, Estimate, reason_of
from privateer_core.answer.estimates import Reason as Why
from privateer_core.answer.parts import (
    EffectPath,
    EffectsOverTime,
    Figures,
    Gain,
    GuardrailEffects,
    Intervals,
    Rule,
    Rules,
)
from privateer_core.answer.tables import Fact
from privateer_server.algorithms.trial.decisions import decisions, ground, ground_in, rounded
from privateer_server.algorithms.trial.effects import AverageEffects, Effects, Reason, average_effects, effects
from privateer_server.algorithms.trial.findings import Findings
from privateer_server.algorithms.trial.questions import questions_table, shares_of_people
from privateer_server.algorithms.trial.stagewise import stopped_effect
from privateer_server.algorithms.trial.state import TrialState

_MORE: Final = {
    Reason.SHARE: "segments.shares declares it, or more people",
    Reason.SMALL: "effects that matter will not be found",
}
_UNEVEN: Final = "arms are not heard from as often as they are given"
_DIGITS: Final = 6


def answered(state: TrialState, found: Findings, spec: TrialSpec, *, over: bool) -> Answer:
    """Return the answer at the last look, with effects in the rewards' own units; before the first it says nothing."""
    ending: Ending = "its rule" if state.stopped else "its horizon"
    told = Answer(
        status="ended" if over else "learning",
        people=state.heard,
        rounds=state.evidence.looks,
        confidence=1 - spec.algorithm.level,
        ended=ending if over else None,
    )
    if not state.evidence.looks:
        return told
    averages = ((0, a, name) for a, name in spec.average_effects())
    unit = 2 * spec.reward.half_range
    return msgspec.structs.replace(
        told,
        recommended=spec.options[found.constant] if over else None,
        ground=ground(found) if over else None,
        estimates=(
            *_estimates(state.path[-1], spec.effects(), unit),
            *_estimates(state.average_path[-1][None], averages, unit),
        ),
        effects=_effects(state, found, spec),
        gain=_gain(state, spec),
        warnings=(f"sample ratio: {_UNEVEN}",) if state.ratio.alert else (),
        parts=(
            _rules(found, spec),
            _facts(state, spec, over),
            *_at_the_stop(state, spec),
            *_guardrails(state, spec),
            *questions_table(spec),
            *shares_of_people(state, spec),
            _over_time(state, spec),
        ),
    )


def _estimates(intervals: Any, named: Iterable[tuple[int, int, str]], unit: float) -> list[Estimate]:
    found = []
    for k, a, name in named:
        value, low, high = (unit * intervals[k, a - 1]).tolist()
        if math.isfinite(value):
            found.append(Estimate(name, value, min(low, value), max(high, value)))
    return found


def _effects(state: TrialState, found: Findings, spec: TrialSpec) -> tuple[Effect, ...]:
    """Return every effect by segment, then the averages, with what their tests say beside the decision."""
    made, one, average, unit = decisions(found, spec), found.effects, found.average, 2 * spec.reward.half_range
    assert one is not None
    contributions, told = (average or one).contribution, []
    for (k, a, _), effect in zip(spec.effects(), made, strict=False):
        cell = (k, a - 1)
        told.append(
            msgspec.structs.replace(
                effect,
                p_value=_rounded_up(one.p_value[cell]),
                detectable=rounded(unit * one.detectable[cell]),
                contribution=rounded(unit * contributions[cell]),
                remark=_remark(effect, Reason(int(one.reason[cell])), state.heard),
            )
        )
    for (a, _), effect in zip(spec.average_effects(), made[len(told) :], strict=True):
        assert average is not None
        p_value, least = _rounded_up(average.p_value[a - 1]), rounded(unit * average.detectable[a - 1])
        told.append(msgspec.structs.replace(effect, p_value=p_value, detectable=least))
    return tuple(told)


def _remark(effect: Effect, reason: Reason, heard: int) -> str:
    """Return what to add to the reason of an effect."""
    parts = [] if effect.is_decided else [_MORE.get(reason, "")]
    if effect.people is not None and effect.people < heard:
        parts.append(f"when {effect.people:,} people had reported; too few since to say more")
    return "; ".join(filter(None, parts))


def _gain(state: TrialState, spec: TrialSpec) -> Gain | None:
    """Return what choosing by segment gains over one arm for all, by people who came after both were chosen."""
    found = state.held.gain() if state.held else None
    if found is None or state.held is None:
        return None
    unit, people = 2 * spec.reward.half_range, int(state.held.evidence.people[-1])
    value, low, high = (rounded(unit * one) for one in found)
    return Gain(spec.options[state.held.constant], value, low, high, people)


def _guardrails(state: TrialState, spec: TrialSpec) -> list[GuardrailEffects]:
    """Return effects on guardrails, in shares of people who say yes."""
    told, everybody = [], state.everybody[1:] or (None,) * len(state.guardrails)
    for name, evidence, whole in zip(spec.algorithm.guardrails, state.guardrails, everybody, strict=True):
        one, average = effects(evidence, state.asked), average_effects(evidence, whole)
        rows = [
            *(_guarded(spec.options[a], _group(spec, k), one, (k, a - 1)) for k, a, _ in spec.effects()),
            *(_guarded(spec.options[a], None, average, (a - 1,)) for a, _ in spec.average_effects()),
        ]
        told.append(GuardrailEffects(name, tuple(rows)))
    return told


def _guarded(option: str, group: str | None, found: Effects | AverageEffects, cell: tuple[int, ...]) -> Effect:
    value, low, high = (float(part[cell]) for part in (found.estimate, found.low, found.high))
    tested = bool(found.decided[cell])
    if math.isfinite(value):
        return Effect(option, group, rounded(value), rounded(low), rounded(high), reason_of(low, high, decided=tested))
    reason: Why = "decided at an earlier look" if tested else "too few people beside the noise"
    return Effect(option, group, None, None, None, reason)


def _group(spec: TrialSpec, segment: int) -> str | None:
    return spec.segment_names[segment] if spec.segment_count > 1 else None


def _at_the_stop(state: TrialState, spec: TrialSpec) -> list[Intervals]:
    """Return the one effect whose decision ended the trial, without the bias of stopping; nothing of several."""
    if state.stopped not in ("decided", "best") or state.evidence.scores[0].size > 1 or state.line is not None:
        return []
    one, unit = stopped_effect(state.evidence), 2 * spec.reward.half_range
    value, low, high = (round(float(unit * part), _DIGITS) for part in (one.estimate, one.low, one.high))
    return [Intervals("at the stop, without its bias", "difference", (Estimate(spec.options[1], value, low, high),))]


def _rules(found: Findings, spec: TrialSpec) -> Rules:
    return Rules(
        tuple(
            Rule(name, spec.options[int(found.best[k])], ground_in(found, k))
            for k, name in enumerate(spec.segment_names)
        )
    )


def _facts(state: TrialState, spec: TrialSpec, over: bool) -> Figures:
    section, privacy = spec.algorithm, spec.privacy
    method = (
        f"{section.intervals} intervals of {100 * (1 - section.level):g}% confidence, decided by {section.correction}"
    )
    facts = (
        Fact("people", state.heard, "count"),
        Fact("people planned", spec.experiment.horizon, "count"),
        Fact("looks", state.evidence.looks, "count"),
        Fact("looks planned", len(spec.looks), "count"),
        Fact("ended by", (state.stopped or "its horizon") if over else None),
        Fact("method", method),
        Fact("allocation", section.allocation),
        Fact("least share of an arm", rounded(spec.floor), "share"),
        Fact("sample ratio", _UNEVEN if state.ratio.alert else "as planned"),
        Fact("largest z of the sample ratio", rounded(float(np.abs(state.ratio.scores[-1]).max())), "number"),
        Fact("trust model", privacy.model),
        Fact("epsilon", privacy.epsilon, "number"),
        Fact("delta", privacy.delta, "probability"),
        Fact("reports of a person", 1, "count"),
    )
    return Figures("what it rests on", facts)


def _over_time(state: TrialState, spec: TrialSpec) -> EffectsOverTime:
    unit, paths = 2 * spec.reward.half_range, []
    for k, a, _ in spec.effects():
        figures = [[rounded(value) for value in (unit * cells[k, a - 1]).tolist()] for cells in state.path]
        values, lows, highs = (tuple(column) for column in zip(*figures, strict=True))
        paths.append(EffectPath(spec.options[a], _group(spec, k), values, lows, highs))
    return EffectsOverTime(tuple(int(one) for one in state.ratio.people), tuple(paths))


def _rounded_up(p_value: float) -> float | None:
    """Round a p-value so that it stays valid: it is never 0."""
    return math.ceil(float(p_value) * 10**_DIGITS) / 10**_DIGITS if math.isfinite(p_value) else None
