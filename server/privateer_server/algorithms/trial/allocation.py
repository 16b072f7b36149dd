"""Shares of arms for the next epoch, and what choosing by segment gains over the best constant arm."""

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from privateer_server.algorithms.trial.evidence.averages import HitValues, by_people, centres
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums, rates
from privateer_server.algorithms.trial.group_sequential import critical_values

Array = NDArray[np.float64]

CLEAR: Final = 3.0
"""Standard deviations by which an arm must be worse to be dropped."""
_ERROR: Final = 0.05
"""Probability of dropping a best arm anywhere, where elimination is proved."""
_POINTS: Final = np.linspace(-8.0, 8.0, 321)
"""Standard deviations around an arm's value at which the others are compared with it."""
_FEW_POINTS: Final = np.linspace(-5.2, 5.2, 27)
CHOSEN_AFTER: Final = 0.4
"""Share of the planned people after whose look arms are chosen: data that chose an arm flatters it."""


def allocated(
    evidence: TrialEvidence, dropped: NDArray[np.bool_], rule: str, floor: float, trials: int = 1
) -> tuple[NDArray[np.bool_], Array]:
    """Arms dropped so far and shares of the arms in the next epoch, (J, K + 1) each.

    evidence: about segments, or about everybody as one segment; of several trials, one after the other.
    dropped (J, K + 1): arms dropped before.
    rule, floor: the spec's allocation, and the least share of an arm.
    trials: how many trials the evidence is of. Where there are many, shares are computed less finely.
    """
    if rule == "fixed":
        return dropped, np.tile(evidence.design.arms, (len(evidence.design.segments), 1))
    if rule == "matching":
        return dropped, matching(evidence, floor, _POINTS if trials == 1 else _FEW_POINTS)
    out = eliminated(evidence, dropped, rule == "proved", trials)
    return out, elimination(evidence, out, floor)


def matching(evidence: TrialEvidence, least: float, points: Array = _POINTS) -> Array:
    """Shares (J, K + 1) that are the probabilities of being best, at least ``least`` each.

    They are as planned in a segment until all its arms are ready: a few early events would starve an arm.
    """
    values, variances = _arms(evidence.precise)
    ready = np.asarray(evidence.precise.can_steer.all(axis=1))[:, None]
    best = best_probabilities(np.where(ready, values, 0.0), np.where(ready, variances, 1.0), points)
    return floored(np.where(ready, best, evidence.design.arms), least)


def eliminated(evidence: TrialEvidence, dropped: NDArray[np.bool_], proved: bool, trials: int = 1) -> NDArray[np.bool_]:
    """Arms dropped so far, (J, K + 1), with those now clearly worse than the best of their segment.

    Clearly is three standard deviations; ``proved``: the boundary of a test that keeps every segment's best arm with
    probability .95 over all looks of each trial (by the normal approximation).
    """
    sums = evidence.stable if proved else evidence.precise
    values, variances = _arms(sums)
    behind = np.where(dropped, -np.inf, values).max(axis=1, keepdims=True) - values
    leaders = np.where(dropped, -np.inf, values).argmax(axis=1)
    spread = variances + np.take_along_axis(variances, leaders[:, None], axis=1)
    clear = behind > _threshold(evidence, proved, trials) * np.sqrt(spread)
    enough: NDArray[np.bool_] = np.asarray(sums.can_steer)
    ready = np.concatenate([np.atleast_2d(enough.any(axis=1)).T, enough], axis=1)
    return np.asarray(dropped | (clear & ready & np.take_along_axis(ready, leaders[:, None], axis=1)))


def elimination(evidence: TrialEvidence, dropped: NDArray[np.bool_], least: float) -> Array:
    """Return equal shares of the arms left, ``least`` or more each; where one is left, all to the best estimate."""
    values, _ = _arms(evidence.precise)
    left = ~dropped
    best = np.arange(values.shape[1]) == values.argmax(axis=1)[:, None]
    playing = np.where(left.sum(axis=1, keepdims=True) > 1, left, best).astype(np.float64)
    return floored(playing / playing.sum(axis=1, keepdims=True), least)


def floored(shares: Array, least: float) -> Array:
    """Shares raised to ``least``, at the cost of what the others have above it; with two arms they are clipped."""
    above = np.maximum(shares - least, 0.0)
    rest = max(0.0, 1 - shares.shape[1] * least)
    total = above.sum(axis=1, keepdims=True)
    equal = np.full_like(shares, rest / shares.shape[1])
    return least + np.where(total > 0, above * rest / np.where(total > 0, total, 1.0), equal)


def _threshold(evidence: TrialEvidence, proved: bool, trials: int) -> float:
    if not proved:
        return CLEAR
    segments, arms = len(evidence.design.segments) / trials, len(evidence.design.arms)
    return float(critical_values(evidence.times, _ERROR / (segments * arms * (arms - 1) / 2))[-1])


def _arms(sums: Sums) -> tuple[Array, Array]:
    """Values of the arms against the control, and variances that differ by arm, (J, K + 1); infinite if unknown."""
    parts = sums.variances
    values = np.concatenate([np.zeros_like(sums.difference[:, :1]), sums.difference], axis=1)
    return values, np.concatenate([parts[..., 1].mean(axis=1, keepdims=True), parts[..., 0]], axis=1)


def best_probabilities(values: Array, variances: Array, points: Array = _POINTS) -> Array:
    """Return the probability of each arm to be best, of independent normal values: with two arms Phi(z)."""
    if values.shape[1] == 2:
        treated = ndtr((values[:, 1] - values[:, 0]) / np.sqrt(variances.sum(axis=1)))
        return np.stack([1 - treated, treated], axis=1)
    deviations = np.sqrt(variances)
    weights = np.exp(-np.square(points) / 2)
    shares = np.empty_like(values)
    for arm in range(values.shape[1]):
        around = values[:, arm, None] + deviations[:, arm, None] * points
        below = np.ones_like(around)
        for other in range(values.shape[1]):
            if other != arm:
                below *= ndtr((around - values[:, other, None]) / deviations[:, other, None])
        shares[:, arm] = below @ weights
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Holdout:
    """A policy and a constant arm, and the releases since both were chosen: every arm has a share in all of them."""

    best: NDArray[np.int64]  # shape (J,), int64: the policy's arm in each segment
    constant: int  # the arm that is best if everybody gets the same
    evidence: TrialEvidence  # of the epochs since

    @classmethod
    def begin(cls, design: TrialDesign, people: float, best: NDArray[np.int64], constant: int) -> Self:
        """Hold a policy against a constant arm, when so many people have reported."""
        return cls(best, constant, TrialEvidence.begin(replace(design, people=max(1.0, design.people - people))))

    def add(self, epoch: Epoch) -> "Holdout":
        """Add an epoch."""
        return replace(self, evidence=self.evidence.add(epoch))

    def gain(self) -> tuple[float, float, float] | None:
        """Return the policy's mean reward less the constant arm's, with its interval.

        None before there is one, and where the policy gives everybody that arm: 0 would be no finding.
        """
        differs = self.best != self.constant
        sums = self.evidence.common
        if not self.evidence.looks or not differs.any():
            return None
        values, variances = _values(sums)
        rows = np.flatnonzero(differs)
        apart = values[rows, self.best[rows]] - values[rows, self.constant]
        spread = variances[rows, self.best[rows]] + variances[rows, self.constant]
        critical = self.evidence.critical
        if not (sums.together.ready.all() and np.isfinite(critical)):
            return None
        value, half = float(apart.sum()), critical * float(np.sqrt(spread.sum()))
        return value, value - half, value + half


def _values(sums: Sums) -> tuple[Array, Array]:
    """Return share of people times mean reward by arm, up to a number of the segment, and variances; (J, K + 1).

    A segment where an arm is not ready is told from numbers of people, as in `average`, at one centre for all arms.
    """
    rate, q, _, _ = rates(sums)
    factor, ready = (rate / q)[..., None], np.asarray(sums.ready.all(axis=1))[:, None, None]
    known = np.where(ready, sums.own_variances, 0.0)
    means = HitValues.shrunk(sums)
    one_centre = centres(sums, means).mean(axis=1, keepdims=True)
    centre = np.broadcast_to(one_centre, means.mean.shape)
    few, few_variances = by_people(sums, HitValues.of_arms(sums), centre)
    values = np.where(ready, factor * sums.means, few)
    variances = np.where(ready, np.square(factor) * known, few_variances)
    return _by_arm(values), _by_arm(variances)


def _by_arm(contrasts: Array) -> Array:
    """Contrasts (J, K, 2) as arms (J, K + 1); the control's as with the first treatment."""
    return np.concatenate([contrasts[:, :1, 1], contrasts[..., 0]], axis=1)
