"""Privacy loss distributions on a grid, and their compositions: certified upper bounds of delta.

A pair of neighbouring output distributions P and Q becomes atoms (loss log P/Q, mass under P). An atom between two grid
points is split so that its masses under P and under Q stay. Merging the two parts is post-processing, so the pair on
the grid dominates the original (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, PoPETs 2022, 'connect the dots').
"""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from privateer_core.accounting.numerics import find_root
from privateer_core.arrays import Array, NDArray

_FFT_ERROR: Final = 64 * 2.0**-53
"""Times (compositions + log2 length), this bounds the error of a transform of total mass 1 in any point."""
_WINDOW_HALF_WIDTH: Final = 14.0
"""Half the width of the transform's window, in standard deviations of the tilted sum."""
_TILT_MAX: Final = 400.0
"""Largest exponent that tilting may give an atom, in either direction."""
_LOSS_MAX: Final = 600.0
"""Larger losses, and larger logarithms of masses, count as infinite."""
_N_TILTS: Final = 24
"""Number of exponents at which Chernoff's bound gives a first guess of epsilon."""
_TILT_CHANGE_MAX: Final = 1.0
"""Tilted masses are exact enough if exp(tilt * loss) differs by at most this exponent from that at their centre."""
_N_MOVES: Final = 6


class LossDistribution(msgspec.Struct, frozen=True, dict=True):
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
        Mass under P of outputs impossible under Q, and of all losses that were cut off. It counts towards delta.
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
        logs = self._log_mass + tilt * self.losses
        largest = float(logs.max())
        return largest + math.log(float(np.exp(logs - largest).sum()))

    def tilt_masses(self, tilt: float) -> Array:
        """Return masses in proportion to mass * exp(tilt * loss), with sum 1."""
        return np.asarray(np.exp(self._log_mass + tilt * self.losses - self.cumulant(tilt)), dtype=np.float64)

    @cached_property
    def _log_mass(self) -> Array:
        """The logarithms of the masses, (points,); minus infinity for an empty point."""
        logs = np.full(len(self.mass), -np.inf)
        is_positive = self.mass > 0
        logs[is_positive] = np.log(self.mass[is_positive])
        return logs


class Composition(msgspec.Struct, frozen=True):
    """The composition of losses on a common grid, each repeated a number of times. It may be adaptive.

    Attributes
    ----------
    parts
        Loss distributions with the same ``step``, and the number of repetitions of each.
    """

    parts: tuple[tuple[LossDistribution, int], ...]

    @property
    def step(self) -> float:
        """Distance of grid points."""
        return self.parts[0][0].step

    @property
    def _first(self) -> int:
        return sum(part.first * count for part, count in self.parts)

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at ``epsilon``."""
        # Masses are tilted by exp(tilt * loss) so that the composed sum centres at epsilon, convolved by the fast
        # Fourier transform within a window, and tilted back: then the transform's error is small against delta itself.
        # We add a bound of that error, and Chernoff's bound of the mass above the window. Mass below the window wraps
        # to larger losses, which is on the safe side.
        losses, masses, remainder = self._compose_masses(self._find_tilt(epsilon))
        above = losses > epsilon
        return min(1.0, float(-np.expm1(epsilon - losses[above]) @ masses[above]) + remainder)

    def epsilon(self, delta: float) -> float | None:
        """Return the smallest epsilon whose delta is at most ``delta``, to about nine digits; None without convergence.

        It is a guess: `delta` at this epsilon, or a little above it, is the certified bound.
        """
        if delta <= self._infinite:
            return None
        estimate: float | None = self._chernoff_epsilon(delta - self._infinite)
        for _ in range(_N_MOVES):
            if estimate is None or estimate <= 0:
                break
            tilt, previous = self._find_tilt(estimate), estimate
            estimate = self._solve_epsilon(tilt, delta)
            if estimate is not None and tilt * abs(estimate - previous) <= _TILT_CHANGE_MAX:
                return estimate
        return None

    def _compose_masses(self, tilt: float) -> tuple[Array, Array, float]:
        """Return composed losses, upper bounds of their masses, and a bound of the mass beyond window and grid."""
        tilted_parts = [(part.tilt_masses(tilt), count) for part, count in self.parts]
        start, length, top = _transform_window(tilted_parts)
        losses = np.asarray((self._first + start + np.arange(length)) * self.step, dtype=np.float64)
        transform_error = _FFT_ERROR * (sum(count for _, count in self.parts) + math.log2(length))
        window_masses = np.maximum(np.roll(_convolve_circularly(tilted_parts, length), -start), 0.0) + transform_error
        # No mass underflows to 0: a delta of 0 would claim too much.
        masses: Array = window_masses * np.exp(np.clip(self._cumulant(tilt) - tilt * losses, -_LOSS_MAX, _LOSS_MAX))
        return losses, masses, (0.0 if top is None else self._tail_bound(top)) + self._infinite

    def _chernoff_epsilon(self, delta: float) -> float:
        """Return the epsilon at which Chernoff's bound of the mass above it is ``delta``."""
        tilts = self._largest_tilt * np.geomspace(1e-4, 1.0, _N_TILTS)
        bounds: list[float] = [(self._cumulant(tilt) - math.log(delta)) / tilt for tilt in tilts.tolist()]
        return min(_LOSS_MAX, *bounds)

    def _solve_epsilon(self, tilt: float, delta: float) -> float | None:
        """Return the epsilon at which the curve is ``delta``, exact near the centre of ``tilt``, or None."""
        losses, masses, remainder = self._compose_masses(tilt)
        remainder += float(masses[losses > _LOSS_MAX].sum())
        is_in_range = (losses >= 0) & (losses <= _LOSS_MAX)
        losses, masses = losses[is_in_range], masses[is_in_range]
        # Between two losses delta is S - e^epsilon T + rest, with the sums of the masses above under P and under Q.
        under_p = np.append(np.cumsum(masses[::-1])[::-1], 0.0) + remainder
        under_q = np.append(np.cumsum((masses * np.exp(-losses))[::-1])[::-1], 0.0)
        is_small_enough = under_p[1:] - np.exp(losses) * under_q[1:] <= delta
        if not is_small_enough.any():
            return None
        first = int(np.argmax(is_small_enough))
        return math.log((under_p[first] - delta) / under_q[first]) if under_p[first] > delta else float(losses[first])

    @property
    def _infinite(self) -> float:
        return -math.expm1(sum(count * math.log1p(-min(part.infinite, 1 - 1e-16)) for part, count in self.parts))

    def _cumulant(self, tilt: float) -> float:
        return sum(count * part.cumulant(tilt) for part, count in self.parts)

    @property
    def _largest_tilt(self) -> float:
        return _TILT_MAX / max(1e-12, *(float(np.abs(part.losses).max()) for part, _ in self.parts))

    def _find_tilt(self, epsilon: float) -> float:
        """Return the exponent at which the tilted sum has mean ``epsilon``, or 0 if the untilted mean is larger."""

        def excess(tilt: float) -> float:
            return sum(count * float(part.tilt_masses(tilt) @ part.losses) for part, count in self.parts) - epsilon

        largest = self._largest_tilt
        if excess(0.0) >= 0:
            return 0.0
        return largest if excess(largest) <= 0 else find_root(excess, 0.0, largest, relative=1e-6)

    def _tail_bound(self, top: int) -> float:
        """Return Chernoff's bound of the mass of composed indices above ``top``."""
        threshold = (self._first + top) * self.step
        tilt = self._find_tilt(threshold)
        return math.exp(max(-_LOSS_MAX, min(0.0, self._cumulant(tilt) - tilt * threshold)))


def _transform_window(tilted_parts: list[tuple[Array, int]]) -> tuple[int, int, int | None]:
    """Return first index and length of the transform's window, and its last index, or None if no sums are cut."""
    support, mean, variance = 1, 0.0, 0.0
    for masses, count in tilted_parts:
        points = np.arange(len(masses))
        part_mean = float(masses @ points)
        support += count * (len(masses) - 1)
        mean += count * part_mean
        variance += count * float(masses @ (points - part_mean) ** 2)
    half_width = _WINDOW_HALF_WIDTH * math.sqrt(variance) + max(len(masses) for masses, _ in tilted_parts)
    low = max(0, math.floor(mean - half_width))
    high = min(support - 1, math.ceil(mean + half_width))
    length = _fast_length(high - low + 1)
    return low, length, None if low + length >= support else low + length - 1


def _fast_length(min_length: int) -> int:
    """Return the smallest length from ``min_length`` on without a prime factor above 5, for quick transforms."""
    best = 1 << (min_length - 1).bit_length()
    fives = 1
    while fives < best:
        odd = fives
        while odd < best:
            best = min(best, odd << (-(-min_length // odd) - 1).bit_length())
            odd *= 3
        fives *= 5
    return best


def _convolve_circularly(tilted_parts: list[tuple[Array, int]], length: int) -> Array:
    """Return the circular convolution of all parts, repeated, in a window of ``length`` points."""
    product = np.ones(length // 2 + 1, np.complex128)
    for masses, count in tilted_parts:
        product *= _raise_to_power(
            np.fft.rfft(np.bincount(np.arange(len(masses)) % length, masses, minlength=length)), count
        )
    return np.asarray(np.fft.irfft(product, length))


def _raise_to_power(base: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """Return ``base ** count``, by squaring: numpy takes logarithms, which is slow."""
    power = base if count % 2 else np.ones_like(base)
    while count := count // 2:
        base = base * base
        if count % 2:
            power = power * base
    return power


def loss_from_atoms(losses: Array, masses: Array, step: float, infinite: float) -> LossDistribution:
    """Split atoms of losses and masses under P, shape (atoms,), onto a grid; the result dominates the pair."""
    lower_indices = np.floor(losses / step)
    offset = losses - lower_indices * step
    upper_shares = np.clip(np.expm1(-offset) / math.expm1(-step), 0.0, 1.0)
    first = int(np.min(lower_indices))
    index = (lower_indices - first).astype(np.int64)
    size = int(np.max(index)) + 2
    mass = np.bincount(index, masses * (1 - upper_shares), size) + np.bincount(index + 1, masses * upper_shares, size)
    return LossDistribution(step, first, np.asarray(mass, dtype=np.float64), infinite)


def loss_from_curve(delta: Callable[[float], float], step: float, max_epsilon: float) -> LossDistribution:
    """Return a pair that dominates all pairs whose delta is at most ``delta(epsilon)`` in both directions.

    Parameters
    ----------
    delta
        An upper bound, for epsilon at least 0.
    step
        Distance of grid points.
    max_epsilon
        Largest epsilon at which the curve is evaluated. Delta at this epsilon counts as infinite loss.

    Notes
    -----
    A true curve is convex in e^epsilon, so between grid points it is at most the chord, and the convex hull of the
    points still is a bound. Below 0 the other direction decides: delta(-epsilon) = 1 - e^-epsilon (1 - delta(epsilon)).
    The slopes of the hull are the masses of Q, from which those of P follow.
    """
    points = max(1, math.ceil(max_epsilon / step))
    epsilons = np.arange(-points, points + 1) * step
    right = np.array([delta(float(e)) for e in epsilons[points:]])
    left = 1 - np.exp(epsilons[:points]) * (1 - right[:0:-1])
    x, y = _lower_hull(np.exp(epsilons), np.concatenate([left, right]))
    # A pair with Q-mass q_i at loss log x_i has the curve P(infinite) + sum q_i (x_i - x)_+ : slopes are sums of q.
    slopes = np.diff(y) / np.diff(x)
    masses = np.diff(np.concatenate([[-1.0], slopes, [0.0]]))
    mass = np.zeros(len(epsilons))
    mass[np.rint(np.log(x) / step).astype(np.int64) + points] = np.maximum(masses, 0.0) * x
    infinite = max(0.0, float(y[-1]))
    # Slopes near -1 lose digits, all at losses below 0. The mass of P that is lost to rounding counts at loss 0.
    mass[points] += max(0.0, 1 - infinite - float(mass.sum()))
    return LossDistribution(step, -points, mass, infinite)


def _lower_hull(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the lower convex hull of points sorted by x."""
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return x[hull], y[hull]
