"""What a person loses on average who gets what a trial recommends: expected, and at most."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtrit

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer.parts import Loss, Losses
from privateer_server.algorithms.trial.decisions import TrialFindings, rounded
from privateer_server.algorithms.trial.group_sequential import critical_values
from privateer_server.algorithms.trial.state import TrialState

Array = NDArray[np.float64]


def expected_losses(state: TrialState, found: TrialFindings, spec: TrialSpec) -> Iterator[Losses]:
    """Yield the loss of each segment's recommendation, even if nothing is decided.

    The loss is the mean reward of the best arm less that of the recommended one, so it is 0 if that is the best. Given
    the estimates, an arm is ahead of the recommended one by a normal variable: by their difference, with the noise of
    both, as if nothing had been known before. What it is ahead by, where it is, is added up over arms, which is no less
    than what the best of them is ahead by. The upper end is what another arm is ahead by at most while the interval of
    their difference holds; of two treatments that follows from both intervals and from how far errors of the control,
    which they share, make these alike (Zou and Donner 2008). With `strict` intervals it is their ends' difference.

    Notes
    -----
    Nothing is spent: it is computed from intervals that are published.
    """
    ends, deviations = found.called.intervals, _deviations(state, found, spec)
    shared = None if spec.algorithm.intervals == "strict" else _shared(state)
    wider = _wider(state)
    several = spec.segment_count > 1
    losses = []
    for k in np.flatnonzero(found.inhabited).tolist():
        given, unit = int(found.given[k]), spec.reward.span
        name = f"{spec.options[given]}: {spec.segment_names[k]}" if several else spec.options[given]
        if not np.isfinite(ends[k]).all():
            losses.append(Loss(name, None, unit))
            continue
        expected, most = loss_of(given, ends[k], deviations[k], None if shared is None else shared[k], wider[k])
        value, high = (rounded(unit * one, unit * most) or 0.0 for one in (expected, most))
        losses.append(Loss(name, value, high))
    yield Losses(tuple(losses))


def loss_of(
    best: int, intervals: Array, deviations: Array, shared: Array | None, wider: Array | None = None
) -> tuple[float, float]:
    """Return the loss of an arm that is expected at most, and the largest that intervals leave open.

    While intervals hold the loss is no larger than they leave open, and so is its mean.

    intervals: effects against arm 0 with the ends of their intervals, shape (K, 3).
    deviations: their standard deviations, shape (K,).
    shared (K,): the part of their variances that is the control's, by which they correlate; None: nothing is known.
    wider (K,): by how much intervals of two treatments are wider where few people tell variances; None: by none.
    """
    value, low, high = np.vstack([np.zeros(3), intervals]).T
    others, root = np.arange(len(value)) != best, np.zeros(len(value))
    if shared is not None:
        root[1:] = np.sqrt(shared)
    deviation, alike = np.append(0.0, deviations), root * root[best]
    deviation = np.sqrt(_apart(deviation, deviation[best], alike))[others]
    ahead = (value - value[best])[others]
    score = ahead / np.where(deviation > 0, deviation, 1.0)
    normal = ahead * ndtr(score) + deviation * np.exp(-np.square(score) / 2) / np.sqrt(2 * np.pi)
    expected = np.where(deviation > 0, normal, np.maximum(ahead, 0.0))
    ends = high - low[best]
    if shared is not None:
        times = np.ones(len(value))
        if wider is not None and best:
            times[1:] = np.maximum(wider, wider[best - 1])
        ends = value - value[best] + times * np.sqrt(_apart(high - value, value[best] - low[best], alike))
    most = float(ends[others].max().clip(0, 1))
    return min(float(expected.sum()), most), most


def _apart(one: Array, other: Array, alike: Array) -> Array:
    """Return the squared deviation of a difference of two estimates that correlate."""
    return np.asarray(np.maximum(np.square(one) + np.square(other) - 2 * alike * one * other, 0.0))


def _shared(state: TrialState) -> Array:
    """Return the part of effects' variances that is their control's, (J, K)."""
    parts = state.evidence.stable.own_variances
    total = parts.sum(axis=-1)
    known = np.isfinite(total) & (total > 0)
    return np.where(known, np.where(known, parts[..., 1], 0.0) / np.where(known, total, 1.0), 0.0)


def _wider(state: TrialState) -> Array:
    """Return Student's quantile over the normal one, (J, K), with no more degrees of freedom than a treatment has."""
    level = 1 - state.evidence.design.alpha / 2
    freedom = np.maximum(state.evidence.stable.people_of_arms[..., 0] - 1, 1.0)
    return np.asarray(stdtrit(freedom, level) / ndtri(level))


def _deviations(state: TrialState, found: TrialFindings, spec: TrialSpec) -> Array:
    """Return standard deviations of effects, (J, K), from intervals that may be of earlier looks.

    A strict interval is wider than a normal one, so that its deviation is taken too large.
    """
    alpha, intervals = state.evidence.design.alpha, found.called.intervals
    critical = np.full(len(state.ratio.people), ndtri(1 - alpha / 2))
    if spec.algorithm.intervals != "strict":
        critical = critical_values(state.evidence.times, alpha)
    look = np.searchsorted(state.ratio.people.astype(np.int64), found.called.people)
    return np.asarray((intervals[..., 2] - intervals[..., 1]) / 2 / critical[look])
