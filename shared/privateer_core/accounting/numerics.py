"""Range checks, binomial ranges and root finding for privacy bounds."""

import math
from collections.abc import Callable
from typing import Final

from privateer_core.errors import SpecError

_BISECT_PERIOD: Final = 8
"""Every eighth step of a search bisects its range, in case secants converge slowly."""
_EPSILON_TOLERANCE: Final = 1e-9
_START_SLOPE: Final = 0.75
_SLOPE_MIN: Final = 0.1


def check(field: str, value: float, is_good: bool, allowed: str) -> None:
    """Unless ``is_good``, refuse a ``value`` with an error that names its field and the ``allowed`` range."""
    if not is_good:
        raise SpecError(f"{value:g} is out of range: must be {allowed}", field=field, remedy="choose another value")


def binomial_range(trials: int, probability: float, tail: float) -> tuple[int, int]:
    """Return the ends of a range outside which Bin(trials, probability) has at most ``tail`` on either side.

    The range follows from Bernstein's inequality. Its last number is larger by 1, for one more success.
    """
    log = -math.log(tail)
    width = log / 3 + math.sqrt(log * log / 9 + 2 * trials * probability * (1 - probability) * log)
    mean = trials * probability
    return max(0, math.floor(mean - width)), min(trials, math.ceil(mean + width) + 1)


def find_root(
    function: Callable[[float], float], low: float, high: float, absolute: float = 2e-12, relative: float = 1e-15
) -> float:
    """Return a root of a function that changes its sign, by Brent's method (Brent 1973, chapter 4).

    Parameters
    ----------
    function
        A continuous function with different signs at ``low`` and ``high``.
    absolute, relative
        Tolerances of the result's distance from the root; their sum counts.

    Raises
    ------
    ValueError
        If the signs are the same.
    """
    previous, previous_value, best, best_value = low, function(low), high, function(high)
    if previous_value == 0 or best_value == 0:
        return previous if previous_value == 0 else best
    if (previous_value < 0) == (best_value < 0):
        raise ValueError("the function has one sign at both ends")
    # The root lies between `best` and `opposite`, which have different signs; `previous` is the best point before.
    opposite, opposite_value = previous, previous_value
    step = last_step = best - previous
    while True:
        if (best_value < 0) == (opposite_value < 0):
            opposite, opposite_value, step, last_step = previous, previous_value, best - previous, best - previous
        if abs(opposite_value) < abs(best_value):
            previous, best, opposite = best, opposite, best
            previous_value, best_value, opposite_value = best_value, opposite_value, best_value
        tolerance, half_interval = (absolute + relative * abs(best)) / 2, (opposite - best) / 2
        if best_value == 0 or abs(half_interval) < tolerance:
            return best
        next_step = half_interval
        if abs(last_step) > tolerance and abs(best_value) < abs(previous_value):
            next_step = _interpolate_step((previous, previous_value), (best, best_value), (opposite, opposite_value))
        if 2 * abs(next_step) < min(abs(last_step), 3 * abs(half_interval) - tolerance):
            last_step, step = step, next_step
        else:
            last_step = step = half_interval
        previous, previous_value = best, best_value
        best += step if abs(step) > tolerance else math.copysign(tolerance, half_interval)
        best_value = function(best)


def _interpolate_step(previous: tuple[float, float], best: tuple[float, float], opposite: tuple[float, float]) -> float:
    """Return the step from the best point to the root: by a secant, or by inverse quadratic interpolation."""
    (x, fx), (x_best, f_best), (y, fy) = previous, best, opposite
    if x == y:
        return -f_best * (x_best - x) / (f_best - fx)
    slope_x, slope_y = (fx - f_best) / (x - x_best), (fy - f_best) / (y - x_best)
    return -f_best * (fy * slope_y - fx * slope_x) / (slope_y * slope_x * (fy - fx))


def smallest_epsilon(is_kept: Callable[[float], bool], max_epsilon: float) -> float:
    """Return an epsilon at which a promise is kept, by bisection from 0, rounded up; infinity above ``max_epsilon``.

    It is the smallest one if a promise that is kept at an epsilon is kept above it.
    """
    if is_kept(0.0):
        return 0.0
    if not is_kept(max_epsilon):
        return math.inf
    low, high = 0.0, max_epsilon
    while high - low > _EPSILON_TOLERANCE * max(1.0, low):
        middle = (low + high) / 2
        low, high = (low, middle) if is_kept(middle) else (middle, high)
    return high


def largest_local_epsilon(
    compute_delta: Callable[[float], float], delta: float, min_epsilon: float, limit: float, resolution: float
) -> float:
    """Return the largest local epsilon, up to ``limit``, whose delta is at most ``delta``.

    Parameters
    ----------
    compute_delta
        Function from a local epsilon to delta, nondecreasing.
    min_epsilon
        A local epsilon that is small enough in any case.
    resolution
        The result is a multiple of it, ``min_epsilon`` or ``limit``.
    """
    target = -math.log(delta)

    def margin(local_epsilon: float) -> float:
        """Return a number above 0 if delta is too large. -log(delta) falls a little slower than e^-local_epsilon."""
        digits = -math.log(max(1e-300, compute_delta(local_epsilon)))
        return -math.log(max(digits / target, 1e-3))

    last_epsilon, last_margin, slope = limit, margin(limit), _START_SLOPE
    if last_margin <= 0:
        return limit
    # Secants between multiples of the resolution: `low` keeps the promise and `high` does not.
    low, high, tries = math.floor(min_epsilon / resolution), math.ceil(limit / resolution - 1e-6), 0
    while high - low > 1:
        tries += 1
        aim = (low + high) / 2 if tries % _BISECT_PERIOD == 0 else (last_epsilon - last_margin / slope) / resolution
        step = min(max(math.floor(aim), low + 1), high - 1)
        new_margin = margin(step * resolution)
        slope = max((last_margin - new_margin) / (last_epsilon - step * resolution), _SLOPE_MIN)
        last_epsilon, last_margin = step * resolution, new_margin
        low, high = (step, high) if new_margin <= 0 else (low, step)
    return max(min_epsilon, low * resolution)
