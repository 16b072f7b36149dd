"""The strict interval: a line that the error crosses with probability alpha, whoever looks whenever, for ever."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.design import Design
from privateer_server.algorithms.trial.evidence import Epoch, pairs

Array = NDArray[np.float64]

_NOISE_MAX: Final = 0.25
"""The rate is held so low that noise adds no more than a quarter of what its transform allows."""
_COUNTS: Final = 3.0
"""Standard deviations added to noisy numbers of hits: the one thing that is not finite-sample."""


@dataclass(frozen=True)
class Limits:
    """Estimates and their limits, of one shape; infinite where nothing is known."""

    estimate: Array
    low: Array
    high: Array

    def times(self, gain: Array) -> "Limits":
        """In other units."""
        return Limits(gain * self.estimate, gain * self.low, gain * self.high)


@dataclass(frozen=True)
class Line:
    """Sums over epochs, shape (J, K) each, of the two arms of a contrast.

    With pi' the arms' shares among the two, u = 2 min pi' and S = 2 W - T, the process
    exp(rate signal - rate^2/2 total - rate remainder) is a supermartingale without an effect: Doob's inequality with
    one fixed rate, exact for bits and for Laplace noise.

    Attributes
    ----------
    rate
        lambda = sqrt(2 ln(2/alpha)/V), with V the planned hits of the two arms; 0 before the first epoch.
    signal, hits
        Sums of u (S_a/(2 pi'_a) - S_0/(2 pi'_0)) and of u T.
    total, noise
        Sum of T, and the variance that releases added to it.
    remainder
        What noise may add to the signal.
    people, kept, others, seen
        Sums of n, n q, n o, and shape (J,): of the segment's hits of all arms.
    p_value
        The least alpha at which 0 was left out so far.
    """

    design: Design
    rate: Array
    signal: Array
    hits: Array
    total: Array
    noise: Array
    remainder: Array
    people: float
    kept: float
    others: float
    seen: Array
    p_value: Array

    def add(self, epoch: Epoch) -> "Line":
        """Add an epoch."""
        rate = self.rate if self.people else _rate(self.design, epoch)
        share = pairs(epoch.shares)
        share = share / share.sum(axis=-1, keepdims=True)
        least = share.min(axis=-1)
        scores, hits = pairs(2 * epoch.positive - epoch.hits), pairs(epoch.hits).sum(axis=-1)
        weights = least[..., None] / share
        signal = (weights * scores * np.array([1.0, -1.0])).sum(axis=-1)
        added = replace(
            self,
            rate=rate,
            signal=self.signal + signal,
            hits=self.hits + 2 * least * hits,
            total=self.total + hits,
            noise=self.noise + 4 * epoch.noise,
            remainder=self.remainder + _remainder(rate[..., None] * weights, epoch.noise).sum(axis=-1) / rate,
            people=self.people + epoch.people,
            kept=self.kept + epoch.people * epoch.keep,
            others=self.others + epoch.people * epoch.other,
            seen=self.seen + epoch.hits.sum(axis=1),
        )
        return replace(added, p_value=np.minimum(self.p_value, added._alpha_now()))

    def difference(self, alpha: float) -> Limits:
        """Difference of the shares of positive hits, shape (J, K)."""
        usable = self.hits > 0
        hits = np.where(usable, self.hits, 1.0)
        half = np.log(2 / alpha) / self.rate + self.rate / 2 * self._most + self.remainder
        half = np.where(usable, half / hits, np.inf)
        estimate = np.where(usable, self.signal / hits, 0.0)
        return Limits(estimate, estimate - half, estimate + half)

    def effect(self) -> Limits:
        """Effects, shape (J, K). A share of people that has to be estimated too shares alpha with it."""
        alpha = self.design.alpha
        if not self.design.counted:
            return self.difference(alpha).times(self.people / (self.kept * self.design.segments[:, None]))
        if not self.others:
            return self.difference(alpha)
        found, (least, most) = self.difference(alpha / 2), self._gains(alpha / 2)
        ends = np.stack([found.low * least, found.low * most, found.high * least, found.high * most])
        return Limits(found.estimate * self._gain(self.seen / self.people), ends.min(axis=0), ends.max(axis=0))

    def contribution(self) -> Limits:
        """Share of people times effect, for the segment's hits as they were; shape (J, K)."""
        seen = self.seen[:, None] if self.design.counted else np.full((len(self.seen), 1), self.people)
        return self.difference(self.design.alpha).times(seen / self.kept)

    @property
    def _most(self) -> Array:
        return self.total + _COUNTS * np.sqrt(self.noise)

    def _alpha_now(self) -> Array:
        excess = np.abs(self.signal) - self.rate / 2 * self._most - self.remainder
        return np.asarray(np.minimum(1.0, 2 * np.exp(-self.rate * np.maximum(excess, 0.0))))

    def _gain(self, rate: Array) -> Array:
        """v/(v - 2 o), shape (J, 1); infinite where people are not told from none."""
        own = rate - 2 * self.others / self.people
        gains: Array = np.where(own > 0, rate / np.where(own > 0, own, 1.0), np.inf)
        return gains[:, None]

    def _gains(self, alpha: float) -> tuple[Array, Array]:
        """Limits of the gain, by a line for the number of hits as for the effects: Hoeffding's, with one rate."""
        level = np.log(2 / alpha)
        rate = np.sqrt(8 * level / self.design.people)
        half = level / rate / self.people + rate / 8
        return self._gain(self.seen / self.people + half), self._gain(self.seen / self.people - half)


def draw_line(design: Design) -> Line:
    """A line that has seen nothing."""
    zero = np.zeros((len(design.segments), len(design.arms) - 1))
    seen = np.zeros(len(design.segments))
    return Line(design, zero, zero, zero, zero, zero, zero, 0.0, 0.0, 0.0, seen, zero + 1)


def _rate(design: Design, epoch: Epoch) -> Array:
    """Lambda, from what is public at the first epoch."""
    p = design.segments[:, None]
    hit = epoch.keep * p + 2 * epoch.other if design.counted else np.ones_like(p)
    planned = design.people * hit * (design.arms[1:] + design.arms[0])
    rate = np.sqrt(2 * np.log(2 / design.alpha) / planned)
    most = np.arccosh(1 + _NOISE_MAX / epoch.noise) if epoch.noise else np.inf
    return np.asarray(np.minimum(rate, most))


def _remainder(rate: Array, noise: float) -> Array:
    """Logarithm of the noise's moment generating function for S at this rate, at most, of both signs.

    1/(1 - L (cosh rate - 1)) is that of a discrete Laplace variable on integers, and bounds those of finer grids and
    of normal noise of the same variance L.
    """
    left = 1 - noise * (np.cosh(rate) - 1)
    return np.where(left > 0, -2 * np.log(np.where(left > 0, left, 1.0)), np.inf)
