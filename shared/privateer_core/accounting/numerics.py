"""Steps that several bounds share."""

import math
from collections.abc import Callable
from typing import Final

from privateer_core.errors import SpecError

_BISECT: Final = 8
"""Every so many steps of a search halve its range, in case the others do not."""
_SLOPE: Final = 0.75
_SLOPE_MIN: Final = 0.1


def check(field: str, value: float, is_good: bool, allowed: str) -> None:
    """Refuse a ``value`` that is not good, and name its field and the values that are allowed.

    Raises
    ------
    SpecError
        If ``is_good`` is false.
    """
    if not is_good:
        raise SpecError(f"{value:g} is out of range: must be {allowed}", field=field, remedy="choose another value")


def binomial_range(trials: int, probability: float, tail: float) -> tuple[int, int]:
    """Return the first and last number of a range outside which Bin(trials, probability) has ``tail`` on either side.

    The range follows from Bernstein's inequality.
    """
    log = -math.log(tail)
    width = math.sqrt(2 * trials * probability * (1 - probability) * log) + log
    mean = trials * probability
    return max(0, math.floor(mean - width)), min(trials, math.ceil(mean + width))


def find_root(
    function: Callable[[float], float], low: float, high: float, absolute: float = 2e-12, relative: float = 1e-15
) -> float:
    """Return where a function changes its sign, by Brent's method (Brent 1973, chapter 4).

    Parameters
    ----------
    function
        Of different signs at ``low`` and ``high``.
    absolute, relative
        How far from the root the result may be, in sum.

    Raises
    ------
    ValueError
        If the signs are the same.
    """
    before, value_before, at, value = low, function(low), high, function(high)
    if value_before == 0 or value == 0:
        return before if value_before == 0 else at
    if (value_before < 0) == (value < 0):
        raise ValueError("the function has one sign at both ends")
    # The root lies between `at`, the best guess, and `other`; `before` is the guess before.
    other, value_other = before, value_before
    step = last_step = at - before
    while True:
        if (value < 0) == (value_other < 0):
            other, value_other, step, last_step = before, value_before, at - before, at - before
        if abs(value_other) < abs(value):
            before, at, other = at, other, at
            value_before, value, value_other = value, value_other, value
        tolerance, half = (absolute + relative * abs(at)) / 2, (other - at) / 2
        if value == 0 or abs(half) < tolerance:
            return at
        aim = half
        if abs(last_step) > tolerance and abs(value) < abs(value_before):
            aim = _interpolated((before, value_before), (at, value), (other, value_other))
        if 2 * abs(aim) < min(abs(last_step), 3 * abs(half) - tolerance):
            last_step, step = step, aim
        else:
            last_step = step = half
        before, value_before = at, value
        at += step if abs(step) > tolerance else math.copysign(tolerance, half)
        value = function(at)


def _interpolated(before: tuple[float, float], here: tuple[float, float], other: tuple[float, float]) -> float:
    """Return the step from here to a root: by a secant, or by inverse quadratic interpolation."""
    (x, fx), (at, value), (y, fy) = before, here, other
    if x == y:
        return -value * (at - x) / (value - fx)
    slope, slope_other = (fx - value) / (x - at), (fy - value) / (y - at)
    return -value * (fy * slope_other - fx * slope) / (slope_other * slope * (fy - fx))


def largest_local_epsilon(
    delta_of: Callable[[float], float], delta: float, least: float, limit: float, resolution: float
) -> float:
    """Return the largest local epsilon, up to ``limit``, whose delta is at most ``delta``.

    Parameters
    ----------
    delta_of
        Delta of a local epsilon, nondecreasing.
    least
        A local epsilon that is small enough in any case.
    resolution
        The result is a multiple of it, ``least`` or ``limit``.
    """
    target = -math.log(delta)

    def margin(local_epsilon: float) -> float:
        """Above 0 where delta is too large. -log(delta) falls about as e^-local_epsilon, a little slower."""
        digits = -math.log(max(1e-300, delta_of(local_epsilon)))
        return -math.log(max(digits / target, 1e-3))

    at, value, slope = limit, margin(limit), _SLOPE
    if value <= 0:
        return limit
    # Secants between multiples of the resolution: `low` keeps the promise and `high` does not.
    low, high, tries = math.floor(least / resolution), math.ceil(limit / resolution - 1e-6), 0
    while high - low > 1:
        tries += 1
        aim = (low + high) / 2 if tries % _BISECT == 0 else (at - value / slope) / resolution
        step = min(max(math.floor(aim), low + 1), high - 1)
        found = margin(step * resolution)
        slope = max((value - found) / (at - step * resolution), _SLOPE_MIN)
        at, value = step * resolution, found
        low, high = (step, high) if found <= 0 else (low, step)
    return max(least, low * resolution)
