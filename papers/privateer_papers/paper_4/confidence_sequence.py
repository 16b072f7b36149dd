"""A confidence sequence with error probability alpha at all looks together: a peer of our repeated intervals.

Its boundary is a line that the error crosses with that probability.
"""

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from privateer_core.arrays import Array
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign, pair_with_control

_MAX_NOISE_SHARE: Final = 0.25
"""Largest share of noise in the range of its transform, which bounds the rate."""
_HIT_COUNT_DEVIATIONS: Final = 3.0
"""Standard deviations added to noisy numbers of hits: the only bound that is not valid in finite samples."""


@dataclass(frozen=True)
class ConfidenceLimits:
    """Estimates and their limits, all of the same shape; limits are infinite without hits."""

    estimate: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class ConfidenceSequence:
    """Sums over epochs, shape (J, K) each, of the two arms of a contrast.

    With pi' the arms' shares among the two, u = 2 min pi' and S = 2 W - T, the process
    exp(rate signal - rate^2/2 total - rate remainder) is a supermartingale without an effect: Doob's inequality with
    one fixed rate, exact for values in [0, 1] and for Laplace noise.
    """

    design: TrialDesign
    rate: Array  # lambda = sqrt(2 ln(2/alpha)/V), with V the planned hits of the two arms; 0 before the first epoch
    # signal, hits: sums of u (S_a/(2 pi'_a) - S_0/(2 pi'_0)) and of u T
    signal: Array
    hits: Array
    # total, noise: sum of T, and the variance that releases added to it
    total: Array
    noise: Array
    remainder: Array  # what noise may add to the signal
    # people, kept: sums of n and n q
    people: float
    n_truthful: float

    @classmethod
    def begin(cls, design: TrialDesign) -> Self:
        """Return a sequence without epochs."""
        zero = np.zeros((len(design.segments), len(design.arms) - 1))
        return cls(design, zero, zero, zero, zero, zero, zero, 0.0, 0.0)

    def add(self, epoch: Epoch) -> "ConfidenceSequence":
        """Add an epoch."""
        rate = self.rate if self.people else _choose_rate(self.design, epoch)
        share = pair_with_control(epoch.shares)
        share = share / share.sum(axis=-1, keepdims=True)
        min_share = share.min(axis=-1)
        scores, hits = pair_with_control(2 * epoch.positive - epoch.hits), pair_with_control(epoch.hits).sum(axis=-1)
        weights = min_share[..., None] / share
        signal = (weights * scores * np.array([1.0, -1.0])).sum(axis=-1)
        # The logarithm over the squared rate rises with the rate: a part of less weight adds less than its square.
        remainder = epoch.parts.score_square_sum / 2 * noise_remainder(rate[..., None] * weights, epoch.noise)
        return replace(
            self,
            rate=rate,
            signal=self.signal + signal,
            hits=self.hits + 2 * min_share * hits,
            total=self.total + hits,
            noise=self.noise + 2 * epoch.parts.count * epoch.noise,
            remainder=self.remainder + remainder.sum(axis=-1) / rate,
            people=self.people + epoch.people,
            n_truthful=self.n_truthful + epoch.people * epoch.keep,
        )

    def difference(self, alpha: float) -> ConfidenceLimits:
        """Return the difference of the shares of positive hits, shape (J, K); unbounded limits without hits."""
        has_hits = self.hits > 0
        hits = np.where(has_hits, self.hits, 1.0)
        half_width = np.log(2 / alpha) / self.rate + self.rate / 2 * self._max_total + self.remainder
        half_width = np.where(has_hits, half_width / hits, np.inf)
        estimate = np.where(has_hits, self.signal / hits, 0.0)
        return ConfidenceLimits(estimate, estimate - half_width, estimate + half_width)

    def effect(self) -> ConfidenceLimits:
        """Return the effects, shape (J, K)."""
        difference = self.difference(self.design.alpha)
        if self.design.counted:
            return difference
        gain = self.people * self.design.hit / self.n_truthful / self.design.segments[:, None]
        return ConfidenceLimits(gain * difference.estimate, gain * difference.low, gain * difference.high)

    @property
    def _max_total(self) -> Array:
        return self.total + _HIT_COUNT_DEVIATIONS * np.sqrt(self.noise)


def _choose_rate(design: TrialDesign, epoch: Epoch) -> Array:
    """Return lambda, from public figures of the first epoch."""
    p = design.segments[:, None]
    hit_probability = epoch.keep * p + 2 * epoch.other if design.counted else np.full_like(p, design.hit)
    planned_hits = design.people * hit_probability * (design.arms[1:] + design.arms[0])
    rate = np.sqrt(2 * np.log(2 / design.alpha) / planned_hits)
    max_rate = np.arccosh(1 + _MAX_NOISE_SHARE / epoch.noise) if epoch.noise else np.inf
    return np.asarray(np.minimum(rate, max_rate))


def noise_remainder(rate: Array, noise: float) -> Array:
    """Return an upper bound of the log moment generating function of the noise of S at a rate, for both signs.

    1/(1 - L (cosh rate - 1)) is that of a discrete Laplace variable on integers, and bounds those of finer grids and
    of normal noise of the same variance L.
    """
    denominator = 1 - noise * (np.cosh(rate) - 1)
    return np.where(denominator > 0, -2 * np.log(np.where(denominator > 0, denominator, 1.0)), np.inf)
