"""Steps that several bounds share."""

import math
from collections.abc import Callable

import scipy  # loads its parts when they are first used

from privateer.errors import SpecError


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

    def margin(local_epsilon: float) -> float:
        return math.log(max(1e-300, delta_of(local_epsilon))) - math.log(delta)

    if margin(limit) <= 0:
        return limit
    if margin(least + resolution) >= 0:
        return least
    found = float(scipy.optimize.brentq(margin, least + resolution, limit, xtol=resolution / 4))
    steps = math.floor(found / resolution)
    while steps * resolution > least and margin(steps * resolution) > 0:
        steps -= 1
    return max(least, steps * resolution)
