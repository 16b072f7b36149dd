"""Lower bounds of epsilon and delta that two samples prove against a claim, with a stated rate of false alarms."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import beta

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Event, Gaussian
from privateer_core.accounting.gaussian import gaussian_epsilon

Scores = NDArray[np.float64]
_CUTS: Final = 200
"""Thresholds among which the best is chosen, on the half of the samples that is not counted."""
_LABELS: Final = 64
"""With so few distinct scores single values are events, too."""
_SHARES: Final = (0.0, 0.25, 0.5, 1.0)
"""Epsilons, in shares of the claim, at which delta is compared with the claimed curve."""
_BOUNDS: Final = 4 * (len(_SHARES) + 2)
"""Clopper-Pearson bounds that one attack takes; they share its false-alarm rate."""


@dataclass(frozen=True)
class LowerBounds:
    """Lower bounds that an attack proves."""

    lower_bound: float  # epsilon that is proved at the claimed delta
    excess: float  # largest proved delta above the claimed curve; above 0 the claim is broken

    def stands(self, epsilon: float) -> bool:
        """Whether a claim of so much epsilon, and of the whole curve, is not refuted."""
        return self.excess <= 0 and self.lower_bound <= epsilon * (1 + 1e-9)


def attack(left: Scores, right: Scores, event: Event, epsilon: float, delta: float, alarm: float) -> LowerBounds:
    """Compare what two neighbours' scores prove with the curve of an event.

    left, right: scores of what the adversary sees of each neighbour; the larger the more it speaks for the left one.
    event: the claim.
    epsilon, delta: where the lower bound of epsilon is asked for.
    alarm: chance that a true claim is called broken.
    """
    curve, each = account(event), alarm / _BOUNDS
    halves = [np.array_split(sample, 2) for sample in (left, right)]
    chosen, counted = ([half[i] for half in halves] for i in (0, 1))
    lower, excess = 0.0, -1.0
    for sign in (1, -1):
        first, second = (np.sort(sign * half) for half in chosen[::sign])
        cuts = _cuts(first, second)
        hoped = _bounds(cuts, first, second, each)
        left_half, right_half = (np.sort(sign * half) for half in counted[::sign])
        held = _bounds(cuts, left_half, right_half, each)
        lower = max(lower, _at_best(_epsilons(hoped, delta), _epsilons(held, delta)))
        for share in _SHARES:
            at = share * epsilon
            excess = max(excess, _at_best(_deltas(hoped, at), _deltas(held, at)) - curve.delta(at))
    if isinstance(event, Gaussian):
        lower = max(lower, _proved_normal_epsilon(left, right, delta, each))
    return LowerBounds(lower, excess)


@dataclass(frozen=True)
class _Cuts:
    """Events: scores at least, or equal to, a value each."""

    values: Scores
    equal: NDArray[np.bool_]

    def counts(self, ordered: Scores) -> NDArray[np.int64]:
        """Return how many of the sorted scores are in each event."""
        below = np.searchsorted(ordered, self.values, side="left")
        above = np.searchsorted(ordered, self.values, side="right")
        return np.asarray(np.where(self.equal, above, len(ordered)) - below)


def _cuts(left: Scores, right: Scores) -> _Cuts:
    values = np.unique(np.concatenate([left, right]))
    labels = values if len(values) <= _LABELS else values[:0]
    if len(values) > _CUTS:
        values = np.unique(np.quantile(values, np.linspace(0, 1, _CUTS)))
    return _Cuts(np.concatenate([labels, values]), np.arange(len(labels) + len(values)) < len(labels))


_Bounds = tuple[Scores, Scores]
"""For each event, a lower bound of its probability on the left and an upper bound on the right."""


def _low(hits: NDArray[np.int64], trials: int, alarm: float) -> Scores:
    some = np.maximum(hits, 1)
    return np.where(hits > 0, beta.ppf(alarm, some, trials - some + 1), 0.0)


def _high(hits: NDArray[np.int64], trials: int, alarm: float) -> Scores:
    some = np.minimum(hits, trials - 1)
    return np.where(hits < trials, beta.isf(alarm, some + 1, trials - some), 1.0)


def _bounds(cuts: _Cuts, left: Scores, right: Scores, alarm: float) -> _Bounds:
    return _low(cuts.counts(left), len(left), alarm), _high(cuts.counts(right), len(right), alarm)


def _epsilons(bounds: _Bounds, delta: float) -> Scores:
    low, high = bounds
    return np.log(np.maximum(low - delta, np.finfo(float).tiny) / high)


def _deltas(bounds: _Bounds, epsilon: float) -> Scores:
    low, high = bounds
    return low - math.exp(epsilon) * high


def _at_best(hoped: Scores, held: Scores) -> float:
    """Return the bound that holds of the event for which the first half promised most."""
    return float(held[np.argmax(hoped)])


def _proved_normal_epsilon(left: Scores, right: Scores, delta: float, alarm: float) -> float:
    """Return a lower bound of normal noise's epsilon by the errors of one threshold (Gaussian trade-off function).

    The threshold is chosen on the first tenth, since a rough one does, and its errors are counted on the rest.
    """
    tenth = min(len(left), len(right)) // 10
    threshold = float(np.median(np.concatenate([left[:tenth], right[:tenth]])))
    left, right = left[tenth:], right[tenth:]
    missed = _high((left < threshold).sum(keepdims=True), len(left), alarm)
    false = _high((right >= threshold).sum(keepdims=True), len(right), alarm)
    ratio = float((ndtri(1 - false) - ndtri(missed))[0])
    return gaussian_epsilon(delta, 1 / ratio) if ratio > 1e-6 else 0.0
