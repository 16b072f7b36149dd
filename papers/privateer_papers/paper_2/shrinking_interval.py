"""The host of paper 2's stochastic convex optimization, with private losses, for points of one dimension.

Agarwal, Foster, Hsu, Kakade and Rakhlin, *Stochastic convex optimization with bandit feedback* (2011), Algorithm 1: an
interval loses a quarter as soon as one of three points in it is known to be worse. Corollary 4 plugs in their Algorithm
2, the same in more dimensions, whose constants are too large for any horizon that can be run.
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from privateer_core.accounting.gaussian import classic_gaussian_standard_deviation

BEST: Final = 0.3
"""Losses are 0 or 1, with probability 1/4 + |x - best| / 2 of 1."""
_PLACES: Final = (0.25, 0.5, 0.75)


def expected(point: float) -> float:
    """Return the expected loss of a point in [0, 1]."""
    return 0.25 + abs(point - BEST) / 2


@dataclass(frozen=True)
class PrivateLoss:
    """A loss of 0 or 1 as it is reported."""

    epsilon: float  # local privacy of a report
    delta: float = 0.0  # Above 0: normal noise by the classic constant, as published. 0: one randomized bit.

    @property
    def proxy(self) -> float:
        """The variance proxy of an unbiased report: 1/4 + sigma^2 as published, c^2/4 of a bit."""
        if self.delta:
            return 0.25 + classic_gaussian_standard_deviation(self.epsilon, self.delta) ** 2
        return (1 / math.tanh(self.epsilon / 2)) ** 2 / 4

    def mean(self, point: float, people: int, rng: np.random.Generator) -> float:
        """Return the mean of so many people's unbiased reports on a point, drawn from its distribution."""
        if self.delta:
            noise = classic_gaussian_standard_deviation(self.epsilon, self.delta) / math.sqrt(people)
            return rng.binomial(people, expected(point)) / people + noise * rng.normal()
        gain = math.tanh(self.epsilon / 2)
        bits = rng.binomial(people, 0.5 + gain * (expected(point) - 0.5)) / people
        return float((bits - 0.5) / gain + 0.5)


class IntervalSearch(NamedTuple):
    """What people lost by the points that they were given, against the best one; and the interval that is left."""

    regret: float
    low: float
    high: float


def search(loss: PrivateLoss, people: int, seed: int) -> IntervalSearch:
    """Return what comes of a search by so many people."""
    rng, low, high, left, lost = np.random.default_rng([seed, 8]), 0.0, 1.0, people, 0.0
    each, width = 2 * loss.proxy * math.log(people), 1.0
    while left:
        width /= 2
        means = []
        points = [low + place * (high - low) for place in _PLACES]
        for point in points:
            asked = min(left, math.ceil(each / width**2))
            left, lost = left - asked, lost + asked * (expected(point) - expected(BEST))
            means.append(loss.mean(point, asked, rng) if asked else math.nan)
        first, middle, last = means
        # A mean is within the width of the truth; where three widths part two of them, the outer quarter is worse.
        if abs(first - last) >= 3 * width or max(first, last) - middle >= 3 * width:
            low, high = (points[0], high) if first > last else (low, points[2])
            width = 1.0
    return IntervalSearch(lost, low, high)
