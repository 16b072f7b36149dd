"""Mean rewards of groups of people, and their differences, from a release of sums by key, with honest intervals.

A report has one of the keys of `privateer_core.policies.gain_policy`. Write x for its value above a centre c that is
fixed for all keys, debiased, and [k] for whether its key is k. The public coins give each group a share s. Then c plus
the mean of x [k] / s is the mean reward of everybody under what group k gets, and of a difference c drops out. Whoever
gets the same from policy and single option counts half in the mean of each, and nothing in their difference: their
outcomes tell nothing about it. All figures are sums of weights w_k times the mean of x [k] over independent reports.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.policies.gain_policy import ANY, BY_CONTEXT, EITHER, KEYS, SINGLE
from privateer_core.primitives.contributions import CellHits

Array = NDArray[np.float64]
CONFIDENCE: Final = 0.95
"""The probability with which each interval holds, about."""
_WIDTH: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_MIDDLE: Final = 0.5


@dataclass(frozen=True)
class MeasuredMean:
    """A mean or a difference of means, on the scale of rewards in [0, 1], and its standard deviation."""

    value: float
    deviation: float

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the interval of 95 %."""
        return self.value - _WIDTH * self.deviation, self.value + _WIDTH * self.deviation


class GroupMeans:
    """Estimates from one release.

    release: sums by key.
    shares: probability of the groups that follow the policy, get the single option, and get any, (3,).
    named: whether every key has symbols of its own; else reports are hits of several keys, with random signs.
    """

    def __init__(self, release: CellHits, shares: Array, *, named: bool) -> None:
        self._release, self._shares = release, shares
        self._centre = self._pooled() if named else _MIDDLE

    def _pooled(self) -> float:
        """Return the mean of all values, within its bounds: any centre is right, and this one leaves little noise."""
        release, other = self._release, self._release.other
        # The sum of all keys, less what is said at random.
        values = float(release.positive.sum()) - KEYS * other * release.reports
        people = float(release.hits.sum()) - 2 * KEYS * other * release.reports
        return min(1.0, max(0.0, values / people)) if people > 0 else _MIDDLE

    @property
    def people(self) -> int:
        """How many people reported."""
        return self._release.reports

    @property
    def by_context(self) -> MeasuredMean:
        """The mean reward of everybody under the policy."""
        return self._mean(BY_CONTEXT)

    @property
    def single(self) -> MeasuredMean:
        """The mean reward of everybody under the single option."""
        return self._mean(SINGLE)

    @property
    def any(self) -> MeasuredMean:
        """The mean reward of everybody under any option."""
        return self._mean(ANY)

    @property
    def over_single(self) -> MeasuredMean:
        """How much more the policy earns than the single option."""
        return self._of(self._weights(BY_CONTEXT) - self._weights(SINGLE))

    @property
    def over_any(self) -> MeasuredMean:
        """How much more the policy earns than any option by coins."""
        return self._of(self._weights(BY_CONTEXT) - self._weights(ANY))

    def _weights(self, key: int) -> Array:
        """Return the weight of each key, (keys,), in the mean of what a group gets."""
        policy, single, some = self._shares
        weights = np.zeros(KEYS)
        weights[key] = 1 / {BY_CONTEXT: policy, SINGLE: single, ANY: some}[key]
        if key != ANY:
            weights[EITHER] = 1 / (policy + single)
        return weights

    def _mean(self, key: int) -> MeasuredMean:
        found = self._of(self._weights(key))
        return MeasuredMean(self._centre + found.value, found.deviation)

    def _of(self, weights: Array) -> MeasuredMean:
        """Return the sum of ``weights`` (keys,) times the means of values above the centre at each key."""
        release, centre, people = self._release, self._centre, self._release.reports
        positive, hits = release.positive[:, 0], release.hits[:, 0]
        squares = positive if release.squares is None else release.squares[:, 0]
        # Each level of a value is said at random as often as any other, so that half of these are above the middle.
        chance = 2 * release.other * people * (_MIDDLE - centre)
        means = (positive - centre * hits - chance) / (release.gain * people)
        second = (squares - 2 * centre * positive + centre**2 * hits) / (release.gain**2 * people)
        value = float(weights @ means)
        sampling = max(0.0, float(np.square(weights) @ second) - value**2) / people
        added = release.noise * float(release.parts.noise_about(np.array(centre))) / (release.gain * people) ** 2
        return MeasuredMean(value, float(np.sqrt(sampling + float(np.square(weights).sum()) * added)))
