"""A trial's effects by segment and treatment: intervals, decisions, and where there is nothing to say, why."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.boundaries import critical_values, information, p_values
from privateer_server.algorithms.trial.combined import combined, combined_scores
from privateer_server.algorithms.trial.evidence import Evidence, rates, scaled_variance
from privateer_server.algorithms.trial.fieller import fieller
from privateer_server.algorithms.trial.multiplicity import benjamini_hochberg, holm
from privateer_server.algorithms.trial.power import POWER, drift_of
from privateer_server.algorithms.trial.shares import Shares, counted_shares

Array = NDArray[np.float64]
Correction = Literal["holm", "bh"]

CORRECTIONS: Final = {"holm": holm, "bh": benjamini_hochberg}


class Reason(IntEnum):
    """Why nothing is said of an effect."""

    NONE = 0
    FEW = 1
    """One of the arms has too few successes, failures or people beside the noise: no interval."""
    SHARE = 2
    """The segment's share of people is not told from 0, so the effect's scale is unknown: the contribution is known."""
    SMALL = 3
    """Not decided, and the trial will not find effects as small as the owner asks for."""
    LOOK = 4
    """The look added too few people to be one, or lies beyond the plan: wait, or read the look before."""


@dataclass(frozen=True)
class Effects:
    """What is known after the last look, shape (J, K) each; intervals hold at every look at once, at `Design.alpha`.

    Attributes
    ----------
    estimate, low, high
        Mean reward under the treatment less that under the control. nan without an interval.
    joint_low, joint_high
        Intervals that all hold at once, with the boundary of alpha/(J K).
    contribution, contribution_low, contribution_high
        The effect times the segment's share of people: what it adds to the average.
    p_value, adjusted, decided
        Sequential p-value, the same corrected for all effects, and whether that is at most alpha.
    detectable
        Effect that is found with probability .8 by the end of plan; infinite where the share is unknown.
    reason
        A `Reason` each, int64.
    """

    estimate: Array
    low: Array
    high: Array
    joint_low: Array
    joint_high: Array
    contribution: Array
    contribution_low: Array
    contribution_high: Array
    p_value: Array
    adjusted: Array
    decided: NDArray[np.bool_]
    detectable: Array
    reason: NDArray[np.int64]


@dataclass(frozen=True)
class AverageEffects:
    """Average effects of K treatments, shape (K,) each, named as in `Effects`.

    ``contribution`` (J, K) is what each segment adds, however few people it has; nan where nothing is said.
    """

    estimate: Array
    low: Array
    high: Array
    p_value: Array
    adjusted: Array
    decided: NDArray[np.bool_]
    detectable: Array
    contribution: Array


@dataclass(frozen=True)
class _Scale:
    """What turns a difference of positive hits into an effect: top/bottom, as `fieller` takes them, (J, K) each.

    ``deviation`` is that of the top, a contribution, with what the number of a segment's hits varies.
    """

    top: Array
    variance: Array
    bottom: Array
    uncertainty: Array
    known: NDArray[np.bool_]
    deviation: Array


def effects(
    evidence: Evidence,
    asked: Shares | None = None,
    smallest: float | None = None,
    correction: Correction = "holm",
) -> Effects:
    """Effects after the last look.

    Parameters
    ----------
    asked
        Segments' shares, where hits do not tell them: declared or asked.
    smallest
        The effect that the owner wants to find.
    correction
        ``holm``: alpha bounds the probability of any wrong decision; ``bh``: the expected share of wrong ones.
    """
    design, sums = evidence.design, evidence.stable
    times = information(evidence.people, design.people)
    critical = float(critical_values(times, design.alpha)[-1])
    scale = _scale(evidence, asked, critical)
    open_ = sums.ready & np.isfinite(critical)
    low, high = _interval(scale, critical, open_)
    joint = critical_values(times, design.alpha / scale.top.size)[-1]
    joint_low, joint_high = _interval(scale, float(joint), open_)
    half = np.where(open_, critical * scale.deviation if np.isfinite(critical) else 0.0, np.nan)
    p_value = p_values(times, evidence.scores)[-1]
    adjusted = CORRECTIONS[correction](p_value)
    decided = adjusted <= design.alpha
    detectable = _detectable(scale, times, design.alpha)
    return Effects(
        np.where(open_ & scale.known, scale.top / np.where(scale.known, scale.bottom, 1.0), np.nan),
        low,
        high,
        joint_low,
        joint_high,
        np.where(open_, scale.top, np.nan),
        scale.top - half,
        scale.top + half,
        p_value,
        adjusted,
        decided,
        detectable,
        _reasons(sums.ready, scale.known, np.isfinite(critical), decided, detectable, smallest),
    )


def average_effects(evidence: Evidence, everybody: Evidence | None = None) -> AverageEffects:
    """Average effects after the last look, a family of their own, corrected by Holm.

    Parameters
    ----------
    everybody
        What people tell who are asked about everybody, where some are.
    """
    design, found = evidence.design, combined(evidence, everybody)
    times = information(evidence.people, design.people)
    critical = critical_values(times, design.alpha)[-1]
    deviation = np.sqrt(found.variance)
    open_ = found.ready & np.isfinite(critical)
    half = np.where(open_, critical * np.where(open_, deviation, 0.0) if np.isfinite(critical) else 0.0, np.nan)
    p_value = p_values(times, combined_scores(evidence, everybody))[-1]
    adjusted = holm(p_value)
    detectable = _to_come(times, design.alpha) * deviation
    estimate = np.where(open_, found.estimate, np.nan)
    return AverageEffects(
        estimate,
        estimate - half,
        estimate + half,
        p_value,
        adjusted,
        adjusted <= design.alpha,
        detectable,
        np.where(open_, found.contributions, np.nan),
    )


def _scale(evidence: Evidence, asked: Shares | None, critical: float) -> _Scale:
    sums, design = evidence.stable, evidence.design
    rate, q, o, _ = rates(sums)
    top, variance = rate / q * sums.difference, scaled_variance(sums, rate / q)
    counts = np.zeros_like(top)
    if design.counted:
        shares = counted_shares(sums)
        bottom, counts = (rate - 2 * o) / q, np.square(sums.difference) * shares.variance[:, None]
        # The share's error moves the top as well; what remains of it beside the bottom's is the share of others' hits.
        uncertainty = shares.variance[:, None] * np.square(2 * o / np.maximum(rate, 1e-12))
    else:
        shares = asked or Shares(design.segments, np.zeros(len(design.segments)))
        bottom = np.broadcast_to(shares.estimate[:, None], top.shape)
        uncertainty = np.broadcast_to(shares.variance[:, None], top.shape)
    least = critical if np.isfinite(critical) else 0.0
    known = shares.estimate > least * np.sqrt(shares.variance)
    known_too = np.broadcast_to(known[:, None], top.shape)
    return _Scale(top, variance, bottom, uncertainty, known_too, np.sqrt(variance + counts))


def _interval(scale: _Scale, critical: float, open_: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Ends, nan where there is no interval; unbounded where the share is not told from 0."""
    if not np.isfinite(critical):
        nothing = np.full(scale.top.shape, np.nan)
        return nothing, nothing
    low, high = fieller(scale.top, scale.variance, scale.bottom, scale.uncertainty, critical)
    low, high = np.where(scale.known, low, -np.inf), np.where(scale.known, high, np.inf)
    return np.where(open_, low, np.nan), np.where(open_, high, np.nan)


def _detectable(scale: _Scale, times: tuple[float, ...], alpha: float) -> Array:
    deviation = np.sqrt(scale.variance) / np.where(scale.known, scale.bottom, 1.0)
    return np.where(scale.known, _to_come(times, alpha) * deviation, np.inf)


def _to_come(times: tuple[float, ...], alpha: float) -> float:
    """Detectable effect at the end of plan, in standard deviations of now, if nobody looks in between."""
    ahead = times if times[-1] >= 1 else (*times, 1.0)
    return drift_of(ahead, alpha, POWER) * float(np.sqrt(times[-1]))


def _reasons(
    ready: NDArray[np.bool_],
    known: NDArray[np.bool_],
    look: bool,
    decided: NDArray[np.bool_],
    detectable: Array,
    smallest: float | None,
) -> NDArray[np.int64]:
    small = ~decided & (detectable > (np.inf if smallest is None else smallest))
    conditions = [~ready, ~known, np.full(ready.shape, not look), small]
    return np.select(conditions, [Reason.FEW, Reason.SHARE, Reason.LOOK, Reason.SMALL], Reason.NONE).astype(np.int64)
