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
