"""The strict interval: a confidence sequence that errs with probability alpha, whenever anybody looks.

Its boundary is a line that the error crosses with that probability.
"""

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign, pairs
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums

Array = NDArray[np.float64]

_NOISE_MAX: Final = 0.25
"""The rate is held so low that noise adds no more than a quarter of what its transform allows."""
_COUNTS: Final = 3.0
"""Standard deviations added to noisy numbers of hits: the one thing that is not finite-sample."""


@dataclass(frozen=True)
class ConfidenceLimits:
    """Estimates and their limits, of one shape; infinite where nothing is known."""

    estimate: Array
    low: Array
    high: Array

    def times(self, gain: Array) -> "ConfidenceLimits":
        """Return the interval in other units."""
        return ConfidenceLimits(gain * self.estimate, gain * self.low, gain * self.high)


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
    # people, kept, others, seen: sums of n, n q, n o, and shape (J,): of the segment's hits of all arms
    people: float
    kept: float
    others: float
    seen: Array
    p_value: Array  # the least alpha at which 0 was left out so far

    @classmethod
    def begin(cls, design: TrialDesign) -> Self:
        """Return a sequence that has seen nothing."""
        zero, seen = np.zeros((len(design.segments), len(design.arms) - 1)), np.zeros(len(design.segments))
        return cls(design, zero, zero, zero, zero, zero, zero, 0.0, 0.0, 0.0, seen, zero + 1)

    def add(self, epoch: Epoch) -> "ConfidenceSequence":
        """Add an epoch."""
        rate = self.rate if self.people else _rate(self.design, epoch)
        share = pairs(epoch.shares)
        share = share / share.sum(axis=-1, keepdims=True)
        least = share.min(axis=-1)
        scores, hits = pairs(2 * epoch.positive - epoch.hits), pairs(epoch.hits).sum(axis=-1)
        weights = least[..., None] / share
        signal = (weights * scores * np.array([1.0, -1.0])).sum(axis=-1)
        # The logarithm over the squared rate rises with the rate: a part that counts less adds less than its square.
        added = epoch.parts.scored / 2 * noise_remainder(rate[..., None] * weights, epoch.noise)
        beside = replace(
            self,
            rate=rate,
            signal=self.signal + signal,
            hits=self.hits + 2 * least * hits,
            total=self.total + hits,
            noise=self.noise + 2 * epoch.parts.count * epoch.noise,
            remainder=self.remainder + added.sum(axis=-1) / rate,
            people=self.people + epoch.people,
            kept=self.kept + epoch.people * epoch.keep,
            others=self.others + epoch.people * epoch.other,
            seen=self.seen + epoch.hits.sum(axis=1),
        )
        return replace(beside, p_value=np.minimum(self.p_value, beside._alpha_now()))

    def difference(self, alpha: float) -> ConfidenceLimits:
        """Return the difference of the shares of positive hits, shape (J, K)."""
        usable = self.hits > 0
        hits = np.where(usable, self.hits, 1.0)
        half = np.log(2 / alpha) / self.rate + self.rate / 2 * self._most + self.remainder
        half = np.where(usable, half / hits, np.inf)
        estimate = np.where(usable, self.signal / hits, 0.0)
        return ConfidenceLimits(estimate, estimate - half, estimate + half)

    def effect(self, asked: ConfidenceLimits | None = None) -> ConfidenceLimits:
        """Return the effects, shape (J, K). A share of people that has to be estimated too shares alpha with it.

        asked: limits at alpha/2 of the segments' shares of the people, where they are asked.
        """
        alpha = self.design.alpha
        if asked:
            contribution = self.difference(alpha / 2).times(self._scale)
            return _ratio(contribution, _inverse(asked.low), _inverse(asked.high), _inverse(asked.estimate))
        if not self.design.counted:
            return self.difference(alpha).times(self._scale / self.design.segments[:, None])
        if not self.others:
            return self.difference(alpha)
        gains = self._gains(alpha / 2)
        return _ratio(self.difference(alpha / 2), *gains, self._gain(self.seen / self.people))

    def contribution(self) -> ConfidenceLimits:
        """Return the share of people times effect, for the segment's hits as they were; shape (J, K)."""
        return self.difference(self.design.alpha).times(self._scale)

    @property
    def _scale(self) -> Array:
        """What turns a difference of the shares of positive hits into a contribution, v/q; shape (J, 1)."""
        seen = self.seen if self.design.counted else np.full(len(self.seen), self.people * self.design.hit)
        return seen[:, None] / self.kept

    @property
    def _most(self) -> Array:
        return self.total + _COUNTS * np.sqrt(self.noise)

    def _alpha_now(self) -> Array:
        excess = np.abs(self.signal) - self.rate / 2 * self._most - self.remainder
        return np.asarray(np.minimum(1.0, 2 * np.exp(-self.rate * np.maximum(excess, 0.0))))

    def _gain(self, rate: Array) -> Array:
        """Return v/(v - 2 o), shape (J, 1); infinite where v does not differ from 2 o."""
        own = rate - 2 * self.others / self.people
        gains: Array = np.where(own > 0, rate / np.where(own > 0, own, 1.0), np.inf)
        return gains[:, None]

    def _gains(self, alpha: float) -> tuple[Array, Array]:
        """Limits of the gain, by a line for the number of hits as for the effects: Hoeffding's, with one rate."""
        level = np.log(2 / alpha)
        rate = np.sqrt(8 * level / self.design.people)
        half = level / rate / self.people + rate / 8
        return self._gain(self.seen / self.people + half), self._gain(self.seen / self.people - half)


def asked_limits(sums: Sums, alpha: float, planned: float) -> ConfidenceLimits:
    """Limits of the segments' shares of the people, shape (J,), by a line for the answers of those who were asked.

    sums: over people who were asked for their segment, with weights of 1.
    alpha: probability that any share is ever outside its own limits.
    planned: hits of a segment that are planned.
    """
    positive, hits = sums.num[:, 0, 0], sums.den[:, 0, 0]
    level = np.log(2 / alpha)
    rate = np.sqrt(2 * level / planned)
    kept = np.maximum(hits, 1.0)
    half = (level / rate + rate / 2 * hits) / kept
    estimate = (2 * positive - hits) / kept
    return ConfidenceLimits(estimate, estimate - half, estimate + half).times(hits / sums.keep[:, 0])


def _inverse(shares: Array) -> Array:
    """Return what a contribution is multiplied by, shape (J, 1); infinite where people are not told from none."""
    return np.where(shares > 0, 1 / np.where(shares > 0, shares, 1.0), np.inf)[:, None]


def _ratio(found: ConfidenceLimits, one: Array, other: Array, between: Array) -> ConfidenceLimits:
    """Limits times a gain between two others."""
    ends = np.stack([found.low * one, found.low * other, found.high * one, found.high * other])
    return ConfidenceLimits(found.estimate * between, ends.min(axis=0), ends.max(axis=0))


def _rate(design: TrialDesign, epoch: Epoch) -> Array:
    """Return lambda, from what is public at the first epoch."""
    p = design.segments[:, None]
    hit = epoch.keep * p + 2 * epoch.other if design.counted else np.full_like(p, design.hit)
    planned = design.people * hit * (design.arms[1:] + design.arms[0])
    rate = np.sqrt(2 * np.log(2 / design.alpha) / planned)
    most = np.arccosh(1 + _NOISE_MAX / epoch.noise) if epoch.noise else np.inf
    return np.asarray(np.minimum(rate, most))


def noise_remainder(rate: Array, noise: float) -> Array:
    """Return the logarithm of the noise's moment generating function for S at this rate, at most, of both signs.

    1/(1 - L (cosh rate - 1)) is that of a discrete Laplace variable on integers, and bounds those of finer grids and
    of normal noise of the same variance L.
    """
    left = 1 - noise * (np.cosh(rate) - 1)
    return np.where(left > 0, -2 * np.log(np.where(left > 0, left, 1.0)), np.inf)
