"""The answer of a trial: effects with intervals, recommendations, and what they rest on."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Sureness
from privateer_core.answer.estimates import Effect, Estimate, Reason, reason_of
from privateer_core.answer.facts import Fact, Table
from privateer_core.answer.parts import (
    AnswerPart,
    EffectPath,
    EffectsOverTime,
    Figures,
    Gain,
    Ground,
    GuardrailEffects,
    Intervals,
    Recommendation,
    Recommendations,
)
from privateer_core.answer.shares import ShareSource
from privateer_core.policies.expected_rewards import ExpectedRewards, summed_by
from privateer_server.algorithms.trial.decisions import (
    DIGITS,
    UNKNOWN,
    TrialFindings,
    decisions,
    ground,
    ground_in,
    rounded,
    rounded_interval,
)
from privateer_server.algorithms.trial.expected_loss import expected_losses
from privateer_server.algorithms.trial.power.power_tables import QUESTION_COLUMNS, question_rows
from privateer_server.algorithms.trial.reasons import ReasonCode
from privateer_server.algorithms.trial.state import TrialState
from privateer_server.algorithms.trial.treatment_effects import (
    AverageEffects,
    SegmentEffects,
    average_effects,
    effects,
    stopped_effect,
)

Array = NDArray[np.float64]
_FALSE_ALARM: Final = 1e-3
"""Probability of a warning about shares of people, at a look, where they are as declared."""
_SURENESS: Final[dict[Ground, Sureness]] = {
    "decided against all other options": "decided",
    "decided against the control alone": "decided against the control",
    "decided on average alone": "decided on average",
}
_LOST: Final = "arms are not heard from as often as they are given"


def answer(
    state: TrialState, found: TrialFindings, spec: TrialSpec, warnings: tuple[str, ...], *, over: bool
) -> Answer:
    """Return what is known at the last look, after ``warnings``; effects in the rewards' own units."""
    parts: list[AnswerPart] = [_recommendations(found, spec), _facts(state, spec, over)]
    parts += [*_at_the_stop(state, spec), *_guardrails(state, spec)]
    parts += [*_questions(spec), *_shares(state, spec), _over_time(state, spec)]
    parts += expected_losses(state, found, spec)
    return Answer(
        "ended" if over else "learning",
        state.reported,
        state.evidence.looks,
        1 - spec.algorithm.level,
        spec.options[found.for_all] if over else None,
        ground(found) if over else None,
        ("its rule" if state.stopped else "its horizon") if over else None,
        tuple(_estimates(state, spec)),
        decisions(state, found, spec),
        _gain(state, found, spec),
        (*warnings, *((f"sample ratio: {_LOST}",) if state.ratio.alert else ()), *_contradicted(state, spec)),
        tuple(parts),
    )


def _estimates(state: TrialState, spec: TrialSpec) -> Iterator[Estimate]:
    by_segment = ((name, state.path[-1, k, a - 1]) for k, a, name in spec.effects())
    averages = ((name, state.average_path[-1, a - 1]) for a, name in spec.average_effects())
    for name, interval in (*by_segment, *averages):
        value, low, high = (spec.reward.span * interval).tolist()
        if math.isfinite(value):
            yield Estimate(name, value, min(low, value), max(high, value))


def _gain(state: TrialState, found: TrialFindings, spec: TrialSpec) -> Gain | None:
    """Return what the policy gains over one arm for all, by people who came after both were chosen.

    Nothing where it gives everybody the same, or where another policy was chosen then.
    """
    held, inhabited = state.held, found.inhabited
    given = found.given[inhabited]
    if held is None or len(set(given.tolist())) < 2 or (held.best[inhabited] != given).any():
        return None
    gain = held.gain()
    if gain is None:
        return None
    value, low, high = rounded_interval(spec.reward.span * np.array(gain))
    return Gain(spec.options[held.constant], value, low, high, int(held.evidence.people[-1]))


def _contradicted(state: TrialState, spec: TrialSpec) -> Iterator[str]:
    """Yield a warning if reports contradict the share of people that the spec declares of a segment."""
    declared, counted = spec.segment_shares, state.shares_of_people
    if spec.segments.shares is None or counted.source is not ShareSource.COUNTED:
        return
    off = np.abs(counted.estimate - declared)
    level = ndtri(1 - _FALSE_ALARM / (2 * len(off)))
    expected = declared * (1 - declared) / max(1, state.reported)
    surprising = off > level * np.sqrt(np.maximum(counted.variance, expected))
    k = int(np.argmax(np.where(surprising, off, -1.0)))
    if surprising[k]:
        share = f"{counted.estimate[k].clip(0, 1):.1%} of the people"
        yield f"segments.shares declares {declared[k]:.1%} for {spec.segment_names[k]}, and reports count {share}"


def expected(state: TrialState, found: TrialFindings, spec: TrialSpec) -> ExpectedRewards | None:
    """Return the effects of every arm by segment: the control's are 0. None where everybody is one segment."""
    if spec.segment_count == 1:
        return None
    size, critical = spec.segment_count, state.evidence.critical
    standing = spec.reward.span * found.called.intervals
    effects, known = standing[..., 0], np.isfinite(standing).all(axis=-1)
    radii = (standing[..., 2] - standing[..., 1]) / 2
    control = np.zeros((size, 1))
    means = np.concatenate([control, np.where(known, effects, 0.0)], axis=1)
    deviations = np.concatenate([control, np.where(known, radii / critical, np.inf)], axis=1)
    segmentation = spec.segmentation

    def at(contexts: Array) -> tuple[Array, Array]:
        rows = segmentation.locate(contexts)
        return means[rows], deviations[rows]

    def deviation(contexts: Array, weights: Array) -> float:
        summed = summed_by(segmentation.locate(contexts), weights, size)
        return float((np.abs(summed) * np.where(summed, deviations, 0.0)).sum())

    lower, upper = segmentation.corners(spec.dimension)
    decided = tuple(_SURENESS.get(ground_in(found, k), "not known") for k in range(size))
    shares = replace(state.shares_of_people, names=spec.segment_names)
    return ExpectedRewards(lower, upper, shares, at, deviation, differences=True, decided=decided)


def _recommendations(found: TrialFindings, spec: TrialSpec) -> Recommendations:
    rows = [
        Recommendation(spec.segment_names[k], spec.options[found.given[k]], ground_in(found, k))
        for k in np.flatnonzero(found.inhabited).tolist()
    ]
    return Recommendations(tuple(rows))


def _facts(state: TrialState, spec: TrialSpec, over: bool) -> Figures:
    section, privacy = spec.algorithm, spec.privacy
    method = f"{section.intervals} intervals of {100 * (1 - section.level):g}% confidence"
    facts = (
        Fact("people", state.reported, "count"),
        Fact("people planned", spec.experiment.horizon, "count"),
        Fact("looks", state.evidence.looks, "count"),
        Fact("looks planned", len(spec.looks), "count"),
        Fact("ended by", (state.stopped or "its horizon") if over else None),
        Fact("method", f"{method}, decided by {section.correction}"),
        Fact("allocation", section.allocation),
        Fact("least share of an arm", rounded(spec.floor), "share"),
        Fact("sample ratio", _LOST if state.ratio.alert else "as planned"),
        Fact("largest z of the sample ratio", rounded(float(np.abs(state.ratio.scores[-1]).max())), "number"),
        Fact("shares of people are", str(state.shares_of_people.source)),
        Fact("trust model", privacy.model),
        Fact("epsilon", privacy.epsilon, "number"),
        Fact("delta", privacy.delta, "probability"),
        Fact("reports of a person", 1, "count"),
        *_at_bounds(state, spec),
    )
    return Figures("what it rests on", (*facts, *_adjusted(state, spec)))


def _adjusted(state: TrialState, spec: TrialSpec) -> Iterator[Fact]:
    """Yield what rewards are adjusted by, and the slopes that were learned, in the units of reward and number."""
    told = spec.reward
    if told.adjust:
        yield Fact("rewards are adjusted by", ", ".join(told.adjust))
    for name, one in zip(spec.learned, state.learned, strict=False):
        slope = told.span * one.slope / told.adjust[name].span
        said = Fact(f"slope of {name}, learned", rounded(slope), "number")
        yield said if one.slope else Fact(f"slope of {name}, learned", "none: noise hides how much it varies")


def _at_bounds(state: TrialState, spec: TrialSpec) -> Iterator[Fact]:
    """Yield how many rewards that are numbers can be at their bounds, clipped or not, where a curator's sums tell.

    Of a mean f and a variance v no more than v / (v + (1 - f)^2) are 1, and v / (v + f^2) are 0 (Cantelli 1928).
    """
    sums = state.evidence.stable.together
    if sums.values is None or not (spec.privacy.trust.curated and sums.ready.all()):
        return
    mean, variance = sums.middle, sums.spread_of_hits
    for bound, away in ((spec.reward.low, mean), (spec.reward.high, 1 - mean)):
        most = float((variance / (variance + np.square(away))).max())
        yield Fact(f"rewards of {bound:g}, at most", rounded(most), "share")


def _at_the_stop(state: TrialState, spec: TrialSpec) -> Iterator[Intervals]:
    """Yield the one effect whose decision ended the trial, without the bias of stopping; nothing of several."""
    if state.stopped not in ("decided", "best") or state.evidence.scores[0].size > 1 or state.line is not None:
        return
    one, unit = stopped_effect(state.evidence), spec.reward.span
    value, low, high = rounded_interval(unit * np.array([one.estimate, one.low, one.high]))
    if value is not None and low is not None and high is not None:
        estimate = Estimate(spec.options[1], value, low, high)
        yield Intervals("at the stop, without its bias", "difference", (estimate,))


def _guardrails(state: TrialState, spec: TrialSpec) -> Iterator[GuardrailEffects]:
    """Yield effects on guardrails, in shares of people who say yes."""
    everybody = state.everybody[1:] or (None,) * len(state.guardrails)
    for name, evidence, whole in zip(spec.algorithm.guardrails, state.guardrails, everybody, strict=True):
        one, average = effects(evidence, state.asked), average_effects(evidence, whole)
        cells = _cells(spec, evidence.stable.somebody)
        by_segment = (_guarded(one, (k, a - 1), spec.options[a], group) for k, a, group in cells)
        averages = (_guarded(average, (a - 1,), spec.options[a], None) for a, _ in spec.average_effects())
        yield GuardrailEffects(name, (*by_segment, *averages))


def _guarded(found: SegmentEffects | AverageEffects, cell: tuple[int, ...], option: str, group: str | None) -> Effect:
    """Return an effect on a guardrail."""
    value, low, high = (float(part[cell]) for part in (found.estimate, found.low, found.high))
    tested = bool(found.decided[cell])
    unsaid = UNKNOWN.get(ReasonCode(int(found.reason[cell])), Reason.NOT_LOOKED_AT)
    reason = Reason.EARLIER if tested else unsaid
    if math.isfinite(value):
        reason = reason_of(low, high, decided=tested)
    return Effect(option, group, *rounded_interval(np.array([value, low, high])), reason)


def _questions(spec: TrialSpec) -> Iterator[Table]:
    if spec.questions:
        yield Table.of("what coins ask", QUESTION_COLUMNS, question_rows(spec))


def _shares(state: TrialState, spec: TrialSpec) -> Iterator[Intervals]:
    """Yield the segments' shares of the people with intervals, if they were asked; nothing between looks."""
    asked, critical = state.asked, state.evidence.critical
    if asked is None or not np.isfinite(critical):
        return
    radius = critical * np.sqrt(asked.variance)
    ends = np.stack([asked.estimate, asked.estimate - radius, asked.estimate + radius], axis=1).clip(0, 1)
    beyond = ((asked.estimate < 0) | (asked.estimate > 1)).tolist()
    rows = zip(spec.segment_names, ends.round(DIGITS).tolist(), beyond, strict=True)
    found = (Estimate(name, value, low, high, at_bound) for name, (value, low, high), at_bound in rows)
    yield Intervals("shares of people", "share", tuple(found))


def _over_time(state: TrialState, spec: TrialSpec) -> EffectsOverTime:
    found = []
    for k, a, group in _cells(spec, state.evidence.stable.somebody):
        path = spec.reward.span * state.path[:, k, a - 1]
        values, lows, highs = zip(*map(rounded_interval, path), strict=True)
        found.append(EffectPath(spec.options[a], group, values, lows, highs))
    return EffectsOverTime(tuple(int(people) for people in state.ratio.people), tuple(found))


def _cells(spec: TrialSpec, inhabited: NDArray[np.bool_]) -> Iterator[tuple[int, int, str | None]]:
    """Yield segment, arm and the segment's name of every effect where anybody is; no name if all are one segment."""
    for k, a, _ in spec.effects():
        if inhabited[k]:
            yield k, a, spec.segment_names[k] if spec.segment_count > 1 else None
