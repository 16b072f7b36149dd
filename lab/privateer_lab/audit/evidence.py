"""What two samples prove against a claim: lower bounds of epsilon and delta with a stated chance of a false alarm."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import beta

from privateer.privacy.accountant import Curve, account
from privateer.privacy.events import Event, Gaussian
from privateer.privacy.gaussian import gaussian_epsilon

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
class Evidence:
    """What an attack proves.

    Attributes
    ----------
    lower_bound
        Epsilon that is proved at the claimed delta.
    excess
        Largest proved delta above the claimed curve; above 0 the claim is broken.
    """

    lower_bound: float
    excess: float


def attack(left: Scores, right: Scores, event: Event, epsilon: float, delta: float, alarm: float) -> Evidence:
    """Compare what two neighbours' scores prove with the curve of an event.

    Parameters
    ----------
    left, right
        Scores of what the adversary sees of each neighbour; the larger the more it speaks for the left one.
    event
        The claim.
    epsilon, delta
        Where the lower bound of epsilon is asked for.
    alarm
        Chance that a true claim is called broken.
    """
    curve, each = account(event), alarm / _BOUNDS
    halves = [np.array_split(sample, 2) for sample in (left, right)]
    chosen, counted = ([half[i] for half in halves] for i in (0, 1))
    lower, excess = 0.0, -1.0
    for sign in (1, -1):
        first, second = (np.sort(sign * half) for half in chosen[::sign])
        left_half, right_half = (np.sort(sign * half) for half in counted[::sign])
        test = (left_half, right_half)
        lower = max(lower, _proved_epsilon(first, second, test, delta, each))
        for share in _SHARES:
            excess = max(excess, _proved_excess(first, second, test, share * epsilon, curve, each))
    if isinstance(event, Gaussian):
        lower = max(lower, _proved_normal_epsilon(left, right, delta, each))
    return Evidence(lower, excess)


@dataclass(frozen=True)
class _Cut:
    """An event: scores at least, or equal to, a value."""

    value: float
    equal: bool

    def count(self, ordered: Scores) -> int:
        """How many of the sorted scores are in the event."""
        below = int(np.searchsorted(ordered, self.value, side="left"))
        above = int(np.searchsorted(ordered, self.value, side="right")) if self.equal else len(ordered)
        return above - below


def _cuts(left: Scores, right: Scores) -> list[_Cut]:
    values = np.unique(np.concatenate([left, right]))
    labels = [_Cut(float(v), True) for v in values] if len(values) <= _LABELS else []
    if len(values) > _CUTS:
        values = np.unique(np.quantile(values, np.linspace(0, 1, _CUTS)))
    return labels + [_Cut(float(v), False) for v in values]


def _low(hits: int, trials: int, alarm: float) -> float:
    return float(beta.ppf(alarm, hits, trials - hits + 1)) if hits else 0.0


def _high(hits: int, trials: int, alarm: float) -> float:
    return float(beta.isf(alarm, hits + 1, trials - hits)) if hits < trials else 1.0


def _bounds(cut: _Cut, left: Scores, right: Scores, alarm: float) -> tuple[float, float]:
    return _low(cut.count(left), len(left), alarm), _high(cut.count(right), len(right), alarm)


def _proved_epsilon(first: Scores, second: Scores, test: tuple[Scores, Scores], delta: float, alarm: float) -> float:
    def proved(bounds: tuple[float, float]) -> float:
        low, high = bounds
        return math.log((low - delta) / high) if low > delta else 0.0

    best = max(_cuts(first, second), key=lambda cut: proved(_bounds(cut, first, second, alarm)))
    return max(0.0, proved(_bounds(best, *test, alarm)))


def _proved_excess(
    first: Scores, second: Scores, test: tuple[Scores, Scores], epsilon: float, curve: Curve, alarm: float
) -> float:
    def proved(bounds: tuple[float, float]) -> float:
        return bounds[0] - math.exp(epsilon) * bounds[1]

    best = max(_cuts(first, second), key=lambda cut: proved(_bounds(cut, first, second, alarm)))
    return proved(_bounds(best, *test, alarm)) - curve.delta(epsilon)


def _proved_normal_epsilon(left: Scores, right: Scores, delta: float, alarm: float) -> float:
    """Epsilon of normal noise by the errors of one threshold (the trade-off function of Gaussian privacy).

    The threshold is chosen on the first tenth, since a rough one does, and its errors are counted on the rest.
    """
    tenth = min(len(left), len(right)) // 10
    threshold = float(np.median(np.concatenate([left[:tenth], right[:tenth]])))
    left, right = left[tenth:], right[tenth:]
    missed = _high(int((left < threshold).sum()), len(left), alarm)
    false = _high(int((right >= threshold).sum()), len(right), alarm)
    ratio = float(ndtri(1 - false) - ndtri(missed))
    return gaussian_epsilon(delta, 1 / ratio) if ratio > 1e-6 else 0.0
