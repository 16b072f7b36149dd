"""Privacy loss distributions on a grid, and their compositions: certified upper bounds of delta.

A pair of neighbouring output distributions P and Q becomes atoms (loss log P/Q, mass under P). An atom between two grid
points is split so that its masses under P and under Q stay. Merging the two parts is post-processing, so the pair on
the grid dominates the pair itself (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, PoPETs 2022, 'connect the dots').
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.fft import irfft, rfft
from numpy.typing import NDArray

from privateer_core.accounting.numerics import find_root

Array = NDArray[np.float64]

_FFT_ERROR: Final = 64 * 2.0**-53
"""Times (compositions + log2 length), this bounds the error of a transform of total mass 1 in any point."""
_REACH: Final = 14.0
"""Half the width of the window that is kept, in standard deviations of the tilted sum."""
_TILT_MAX: Final = 400.0
"""Largest exponent that tilting may give an atom, in either direction."""
_LOSS_MAX: Final = 600.0
"""Larger losses, and larger logarithms of masses, are as good as infinite."""
_TILTS: Final = 24
"""Exponents at which a first guess of epsilon is tried."""
_NEAR: Final = 1.0
"""Where tilted masses serve as they are: exp(tilt * loss) has changed by at most this exponent since their centre."""
_MOVES: Final = 6


@dataclass(frozen=True)
class LossDistribution:
    """The privacy loss of one direction of a pair, on the grid ``(first + i) * step``.

    Attributes
    ----------
    step
        Distance of grid points.
    first
        Index of the first grid point.
    mass
        Shape (points,): mass under P of each loss.
    infinite
        Mass under P where Q has none, and everything that was cut off. All of it counts towards delta.
    """

    step: float
    first: int
    mass: Array
    infinite: float

    @cached_property
    def losses(self) -> Array:
        """The grid points, shape (points,)."""
        return np.asarray((self.first + np.arange(len(self.mass))) * self.step)

    def delta(self, epsilon: float) -> float:
        """Return delta at ``epsilon`` of this pair alone, by direct summation."""
        above = self.losses > epsilon
        return self.infinite + float(-np.expm1(epsilon - self.losses[above]) @ self.mass[above])

    def cumulant(self, tilt: float) -> float:
        """Return the logarithm of the mean of exp(tilt * loss) under P, without infinite losses."""
        logs = self._logs + tilt * self.losses
        largest = float(logs.max())
        return largest + math.log(float(np.exp(logs - largest).sum()))

    def tilted(self, tilt: float) -> Array:
        """Return masses in proportion to mass * exp(tilt * loss), with sum 1."""
        return np.asarray(np.exp(self._logs + tilt * self.losses - self.cumulant(tilt)), dtype=np.float64)

    @cached_property
    def _logs(self) -> Array:
        logs = np.full(len(self.mass), -np.inf)
        some = self.mass > 0
        logs[some] = np.log(self.mass[some])
        return logs


@dataclass(frozen=True)
class Composition:
    """Losses on one grid, each composed with itself a number of times. Composition may be adaptive.

    Attributes
    ----------
    parts
        Distributions with the same ``step``, and how often each is composed.
    """

    parts: tuple[tuple[LossDistribution, int], ...]

    @property
    def step(self) -> float:
        """Distance of grid points."""
        return self.parts[0][0].step

    @property
    def _first(self) -> int:
        return sum(part.first * count for part, count in self.parts)

    @property
    def _count(self) -> int:
        return sum(count for _, count in self.parts)

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at ``epsilon``."""
        # Masses are tilted by exp(tilt * loss) so that the composed sum centres at epsilon, convolved by the fast
        # Fourier transform within a window, and tilted back: then the transform's error is small against delta itself.
        # We add a bound of that error, and Chernoff's bound of the mass above the window. Mass below the window wraps
        # to larger losses, which is on the safe side.
        losses, masses, rest = self._masses(self._tilt(epsilon))
        above = losses > epsilon
        return min(1.0, float(-np.expm1(epsilon - losses[above]) @ masses[above]) + rest)

    def epsilon(self, delta: float) -> float | None:
        """Return the smallest epsilon whose delta is at most ``delta``, to about nine digits; None if it is not found.

        `delta` at it, or a little above it, is the bound: this is where to look.
        """
        if delta <= self._infinite:
            return None
        found: float | None = self._chernoff(delta - self._infinite)
        for _ in range(_MOVES):
            if found is None or found <= 0:
                break
            tilt, guess = self._tilt(found), found
            found = self._solved(tilt, delta)
            if found is not None and tilt * abs(found - guess) <= _NEAR:
                return found
        return None

    def _masses(self, tilt: float) -> tuple[Array, Array, float]:
        """Return losses, their masses with the bound of their error, and what the window and the grid leave out."""
        tilted = [(part.tilted(tilt), count) for part, count in self.parts]
        start, length, top = _window(tilted)
        losses = np.asarray((self._first + start + np.arange(length)) * self.step, dtype=np.float64)
        lost = _FFT_ERROR * (self._count + math.log2(length))
        kept = np.maximum(np.roll(_convolved(tilted, length), -start), 0.0) + lost
        # No mass underflows to 0: a delta of 0 would claim too much.
        masses: Array = kept * np.exp(np.clip(self._cumulant(tilt) - tilt * losses, -_LOSS_MAX, _LOSS_MAX))
        return losses, masses, (0.0 if top is None else self._above(top)) + self._infinite

    def _chernoff(self, delta: float) -> float:
        """Return an epsilon that Chernoff's bound of the mass above it gives."""
        tilts = self._largest_tilt * np.geomspace(1e-4, 1.0, _TILTS)
        bounds: list[float] = [(self._cumulant(tilt) - math.log(delta)) / tilt for tilt in tilts.tolist()]
        return min(_LOSS_MAX, *bounds)

    def _solved(self, tilt: float, delta: float) -> float | None:
        """Return where the curve is ``delta``, by masses that are exact about where ``tilt`` centres them."""
        losses, masses, rest = self._masses(tilt)
        rest += float(masses[losses > _LOSS_MAX].sum())
        here = (losses >= 0) & (losses <= _LOSS_MAX)
        losses, masses = losses[here], masses[here]
        # Between two losses delta is S - e^epsilon T + rest, with the sums of the masses above under P and under Q.
        under_p = np.append(np.cumsum(masses[::-1])[::-1], 0.0) + rest
        under_q = np.append(np.cumsum((masses * np.exp(-losses))[::-1])[::-1], 0.0)
        enough = under_p[1:] - np.exp(losses) * under_q[1:] <= delta
        if not enough.any():
            return None
        first = int(np.argmax(enough))
        return math.log((under_p[first] - delta) / under_q[first]) if under_p[first] > delta else float(losses[first])

    @property
    def _infinite(self) -> float:
        return -math.expm1(sum(count * math.log1p(-min(part.infinite, 1 - 1e-16)) for part, count in self.parts))

    def _cumulant(self, tilt: float) -> float:
        return sum(count * part.cumulant(tilt) for part, count in self.parts)

    @property
    def _largest_tilt(self) -> float:
        return _TILT_MAX / max(1e-12, *(float(np.abs(part.losses).max()) for part, _ in self.parts))

    def _tilt(self, epsilon: float) -> float:
        """Return the exponent at which the composed sum has mean ``epsilon``, or 0 if its mean is larger already."""

        def excess(tilt: float) -> float:
            return sum(count * float(part.tilted(tilt) @ part.losses) for part, count in self.parts) - epsilon

        largest = self._largest_tilt
        if excess(0.0) >= 0:
            return 0.0
        return largest if excess(largest) <= 0 else find_root(excess, 0.0, largest, relative=1e-6)

    def _above(self, top: int) -> float:
        """Return Chernoff's bound of the mass of composed indices above ``top``."""
        threshold = (self._first + top) * self.step
        tilt = self._tilt(threshold)
        return math.exp(max(-_LOSS_MAX, min(0.0, self._cumulant(tilt) - tilt * threshold)))


def _window(tilted: list[tuple[Array, int]]) -> tuple[int, int, int | None]:
    """Return the first index and the length of the kept part of the sum, and its last index if it cuts anything."""
    support, mean, variance = 1, 0.0, 0.0
    for masses, count in tilted:
        points = np.arange(len(masses))
        centre = float(masses @ points)
        support += count * (len(masses) - 1)
        mean += count * centre
        variance += count * float(masses @ (points - centre) ** 2)
    reach = _REACH * math.sqrt(variance) + max(len(masses) for masses, _ in tilted)
    low = max(0, math.floor(mean - reach))
    high = min(support - 1, math.ceil(mean + reach))
    length = _fast_length(high - low + 1)
    return low, length, None if low + length >= support else low + length - 1


def _fast_length(least: int) -> int:
    """Return the smallest length, at least so many, without a prime factor above 5: transforms of those are quick."""
    best = 1 << (least - 1).bit_length()
    fives = 1
    while fives < best:
        odd = fives
        while odd < best:
            best = min(best, odd << (-(-least // odd) - 1).bit_length())
            odd *= 3
        fives *= 5
    return best


def _convolved(tilted: list[tuple[Array, int]], length: int) -> Array:
    """Return the circular convolution of a length."""
    product = np.ones(length // 2 + 1, np.complex128)
    for masses, count in tilted:
        product *= _power(rfft(np.bincount(np.arange(len(masses)) % length, masses, minlength=length)), count)
    return np.asarray(irfft(product, length))


def _power(base: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """Return ``base ** count``, by squaring: numpy takes logarithms, which is slow."""
    result = base if count % 2 else np.ones_like(base)
    while count := count // 2:
        base = base * base
        if count % 2:
            result = result * base
    return result


def on_grid(losses: Array, masses: Array, step: float, infinite: float) -> LossDistribution:
    """Split atoms of losses and masses under P, shape (atoms,), onto a grid so that the result dominates the pair."""
    below = np.floor(losses / step)
    offset = losses - below * step
    up = np.clip(np.expm1(-offset) / math.expm1(-step), 0.0, 1.0)
    first = int(np.min(below))
    index = (below - first).astype(np.int64)
    size = int(np.max(index)) + 2
    mass = np.bincount(index, masses * (1 - up), size) + np.bincount(index + 1, masses * up, size)
    return LossDistribution(step, first, np.asarray(mass, dtype=np.float64), infinite)


def from_curve(delta: Callable[[float], float], step: float, reach: float) -> LossDistribution:
    """Return a pair that dominates everything whose delta is at most ``delta(epsilon)`` in both directions.

    Parameters
    ----------
    delta
        An upper bound, for epsilon at least 0.
    step
        Distance of grid points.
    reach
        Largest epsilon at which the curve is evaluated. Its value there counts as infinite loss.

    Notes
    -----
    A true curve is convex in e^epsilon, so between grid points it is at most the chord, and the convex hull of the
    points still is a bound. Below 0 the other direction decides: delta(-epsilon) = 1 - e^-epsilon (1 - delta(epsilon)).
    The slopes of the hull are the masses of Q, from which those of P follow.
    """
    points = max(1, math.ceil(reach / step))
    epsilons = np.arange(-points, points + 1) * step
    right = np.array([delta(float(e)) for e in epsilons[points:]])
    left = 1 - np.exp(epsilons[:points]) * (1 - right[:0:-1])
    x, y = _hull(np.exp(epsilons), np.concatenate([left, right]))
    # A pair with Q-mass q_i at loss log x_i has the curve P(infinite) + sum q_i (x_i - x)_+ : slopes are sums of q.
    slopes = np.diff(y) / np.diff(x)
    masses = np.diff(np.concatenate([[-1.0], slopes, [0.0]]))
    mass = np.zeros(len(epsilons))
    mass[np.rint(np.log(x) / step).astype(np.int64) + points] = np.maximum(masses, 0.0) * x
    infinite = max(0.0, float(y[-1]))
    # Slopes near -1 lose digits, all of them below loss 0. The mass of P that is lost there counts at loss 0.
    mass[points] += max(0.0, 1 - infinite - float(mass.sum()))
    return LossDistribution(step, -points, mass, infinite)


def _hull(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the lower convex hull of points sorted by x."""
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return x[kept], y[kept]
