"""Shares of arms for the next epoch, and the gain of choosing by segment over the best constant arm."""

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from scipy.special import ndtr

from privateer_core.arrays import Array, Ints
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import (
    HitValues,
    TrialEvidence,
    best_centres,
    estimate_from_people,
)
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums, rates

_STANDARD_POINTS: Final = np.linspace(-8.0, 8.0, 321)
"""Standard deviations around an arm's value at which the others are compared with it."""
_COARSE_POINTS: Final = np.linspace(-5.2, 5.2, 27)
CHOSEN_AFTER: Final = 0.4
"""Share of the planned people after whose look arms are chosen: data that chose an arm flatters it."""


def allocate_arms(evidence: TrialEvidence, rule: str, floor: float, n_trials: int = 1) -> Array:
    """Return shares of the arms in the next epoch, (J, K + 1), by an allocation rule with a minimum share of an arm.

    The evidence is about segments, or about all participants as one segment. It may be of several trials, one after the
    other; with many ``n_trials`` shares are computed less finely.
    """
    if rule == "fixed":
        return np.tile(evidence.design.arms, (len(evidence.design.segments), 1))
    return compute_matching_shares(evidence, floor, _STANDARD_POINTS if n_trials == 1 else _COARSE_POINTS)


def compute_matching_shares(evidence: TrialEvidence, min_share: float, points: Array = _STANDARD_POINTS) -> Array:
    """Return shares (J, K + 1) equal to the probabilities of being best, at least ``min_share`` each.

    They are as planned in a segment until all its arms are ready: a few early events would starve an arm.
    """
    values, variances = _arm_values(evidence.precise)
    is_ready = np.asarray(evidence.precise.can_steer.all(axis=1))[:, None]
    probabilities = best_probabilities(np.where(is_ready, values, 0.0), np.where(is_ready, variances, 1.0), points)
    return raise_to_floor(np.where(is_ready, probabilities, evidence.design.arms), min_share)


def raise_to_floor(shares: Array, min_share: float) -> Array:
    """Return shares raised to ``min_share`` and rescaled above it; two arms are clipped."""
    excess = np.maximum(shares - min_share, 0.0)
    available = max(0.0, 1 - shares.shape[1] * min_share)
    total = excess.sum(axis=1, keepdims=True)
    equal = np.full_like(shares, available / shares.shape[1])
    return min_share + np.where(total > 0, excess * available / np.where(total > 0, total, 1.0), equal)


def _arm_values(sums: Sums) -> tuple[Array, Array]:
    """Return values of the arms against the control, and variances by arm, (J, K + 1); infinite if unknown."""
    variances = sums.variances
    values = np.concatenate([np.zeros_like(sums.difference[:, :1]), sums.difference], axis=1)
    return values, np.concatenate([variances[..., 1].mean(axis=1, keepdims=True), variances[..., 0]], axis=1)


def best_probabilities(values: Array, variances: Array, points: Array = _STANDARD_POINTS) -> Array:
    """Return the probability that each arm is best, for independent normal values."""
    if values.shape[1] == 2:
        treatment_probability = ndtr((values[:, 1] - values[:, 0]) / np.sqrt(variances.sum(axis=1)))
        return np.stack([1 - treatment_probability, treatment_probability], axis=1)
    deviations = np.sqrt(variances)
    weights = np.exp(-np.square(points) / 2)
    shares = np.empty_like(values)
    for arm in range(values.shape[1]):
        arm_points = values[:, arm, None] + deviations[:, arm, None] * points
        probability_below = np.ones_like(arm_points)
        for rival in range(values.shape[1]):
            if rival != arm:
                probability_below *= ndtr((arm_points - values[:, rival, None]) / deviations[:, rival, None])
        shares[:, arm] = probability_below @ weights
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Holdout:
    """A policy and a constant arm, and the releases since both were chosen."""

    best: Ints  # shape (J,), int64: the policy's arm in each segment
    constant: int  # the arm that is best if everybody gets the same
    evidence: TrialEvidence  # of the epochs since

    @classmethod
    def begin(cls, design: TrialDesign, people: float, best: Ints, constant: int) -> Self:
        """Return a holdout without evidence, after ``people`` reports."""
        return cls(best, constant, TrialEvidence.begin(replace(design, people=max(1.0, design.people - people))))

    def add(self, epoch: Epoch) -> "Holdout":
        """Return the holdout with an epoch added."""
        return replace(self, evidence=self.evidence.add(epoch))

    def gain(self) -> tuple[float, float, float] | None:
        """Return the policy's mean reward less the constant arm's, with its interval; None before there is one.

        It is None, too, where the policy gives everybody that arm: 0 would be no finding.
        """
        differs = self.best != self.constant
        sums = self.evidence.common
        if not self.evidence.looks or not differs.any():
            return None
        values, arm_variances = _segment_values(sums)
        rows = np.flatnonzero(differs)
        differences = values[rows, self.best[rows]] - values[rows, self.constant]
        difference_variances = arm_variances[rows, self.best[rows]] + arm_variances[rows, self.constant]
        critical = self.evidence.critical
        if not (sums.pooled.is_ready.all() and np.isfinite(critical)):
            return None
        value, half_width = float(differences.sum()), critical * float(np.sqrt(difference_variances.sum()))
        return value, value - half_width, value + half_width


def _segment_values(sums: Sums) -> tuple[Array, Array]:
    """Return share of participants times mean reward by arm, up to a constant, and variances; (J, K + 1).

    A segment where an arm is not ready is told from numbers of people, as in `average`, at one centre for all arms.
    """
    rate, q, _, _ = rates(sums)
    factor, is_ready = (rate / q)[..., None], np.asarray(sums.is_ready.all(axis=1))[:, None, None]
    own_variances = np.where(is_ready, sums.own_variances, 0.0)
    means = HitValues.from_segments(sums)
    mean_centre = best_centres(sums, means).mean(axis=1, keepdims=True)
    centre = np.broadcast_to(mean_centre, means.mean.shape)
    small_values, small_variances = estimate_from_people(sums, HitValues.from_arms(sums), centre)
    values = np.where(is_ready, factor * sums.means, small_values)
    variances = np.where(is_ready, np.square(factor) * own_variances, small_variances)
    return _arrange_by_arm(values), _arrange_by_arm(variances)


def _arrange_by_arm(contrasts: Array) -> Array:
    """Return contrasts (J, K, 2) as arms (J, K + 1); the control's as with the first treatment."""
    return np.concatenate([contrasts[:, :1, 1], contrasts[..., 0]], axis=1)
