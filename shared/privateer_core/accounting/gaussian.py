"""The exact privacy of normal noise (Balle and Wang, ICML 2018), and the classic calibration that papers use."""

import math
from functools import lru_cache
from typing import Final

from privateer_core.accounting.numerics import check, find_root
from privateer_core.accounting.special_functions import log_normal_cdf
from privateer_core.portable import round_up

_ROUNDING_MARGIN: Final = 1e-9
"""Relative margin that covers rounding errors."""
_LOG_ERROR: Final = 2.0**-49
"""Relative error of a logarithm of a normal tail, its argument's rounding included."""
_LOG_MIN: Final = -700.0
"""Smaller tails count as e^-700: with delta 0, normal noise is private at no epsilon."""
DELTA_MIN: Final = 1e-15
"""No smaller delta is certified."""
_DIGITS: Final = 6


def gaussian_delta(epsilon: float, standard_deviation: float, sensitivity: float = 1.0) -> float:
    """Return delta at ``epsilon`` of adding normal noise (Balle and Wang 2018, Theorem 8).

    It is exact up to the last digits, which are rounded up, and always above 0.

    Parameters
    ----------
    epsilon
        At least 0.
    standard_deviation
        Standard deviation of the noise, > 0.
    sensitivity
        L2 distance of the outputs of two neighbours, > 0.

    Raises
    ------
    SpecError
        If an argument is out of range.

    Notes
    -----
    With D the sensitivity and s the standard deviation, delta is Phi(D/2s - epsilon s/D) - e^epsilon
    Phi(-D/2s - epsilon s/D). It is computed from logarithms, so that small values keep their digits. The difference of
    the two terms loses digits if the noise is huge, and is rounded up by its error.
    """
    check("epsilon", epsilon, 0 <= epsilon < math.inf, "at least 0 and finite")
    _check_positive(standard_deviation=standard_deviation, sensitivity=sensitivity)
    half_ratio, slope = sensitivity / (2 * standard_deviation), epsilon * standard_deviation / sensitivity
    log_upper, log_lower = log_normal_cdf(half_ratio - slope), log_normal_cdf(-half_ratio - slope)
    difference = min(0.0, epsilon + log_lower - log_upper) - _LOG_ERROR * (epsilon + abs(log_lower) + abs(log_upper))
    return min(1.0, math.exp(max(log_upper, _LOG_MIN)) * -math.expm1(difference))


def gaussian_epsilon(delta: float, standard_deviation: float, sensitivity: float = 1.0) -> float:
    """Return the smallest epsilon at ``delta`` of adding normal noise, rounded up by one part in 10^9.

    The arguments are those of `gaussian_delta`.
    """
    _check_delta(delta)
    if gaussian_delta(0.0, standard_deviation, sensitivity) <= delta:
        return 0.0
    ratio = sensitivity / standard_deviation
    high = ratio * ratio / 2 + ratio * math.sqrt(2 * math.log(1 / delta)) + 1e-12  # concentrated privacy implies it
    root = find_root(lambda e: gaussian_delta(e, standard_deviation, sensitivity) - delta, 0.0, high, 1e-14, 1e-13)
    return root * (1 + _ROUNDING_MARGIN) + 1e-12


def gaussian_standard_deviation(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the smallest standard deviation that is (epsilon, delta)-private, rounded up by one part in 10^9.

    Raises
    ------
    SpecError
        If epsilon is not above 0 or delta not in [1e-15, 0.5]. With delta 0 no normal noise is private.
    """
    _check_delta(delta)
    _check_positive(epsilon=epsilon, sensitivity=sensitivity)
    low, high = 1e-3, 1.0
    while gaussian_delta(epsilon, high) > delta:
        low, high = high, 2 * high
    while gaussian_delta(epsilon, low) <= delta:
        low /= 2
    root = find_root(lambda s: gaussian_delta(epsilon, s) - delta, low, high, 1e-14 * high, 1e-13)
    return root * (1 + _ROUNDING_MARGIN) * sensitivity


@lru_cache(maxsize=256)
def published_standard_deviation(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return `gaussian_standard_deviation` rounded up to six digits, which are the same on all machines."""
    return round_up(gaussian_standard_deviation(epsilon, delta, sensitivity), _DIGITS)


def classic_gaussian_standard_deviation(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the textbook's standard deviation, sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon.

    It is proved to be (epsilon, delta)-private only for epsilon < 1 (Dwork and Roth 2014, Theorem A.1). Papers use it
    for larger epsilon, too, where it is not private enough.
    """
    _check_delta(delta)
    _check_positive(epsilon=epsilon, sensitivity=sensitivity)
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def _check_positive(**values: float) -> None:
    for field, value in values.items():
        check(field, value, 0 < value < math.inf, "above 0 and finite")


def _check_delta(delta: float) -> None:
    allowed = f"{DELTA_MIN:g} to 0.5, since normal noise is never private with delta 0"
    check("delta", delta, DELTA_MIN <= delta <= 0.5, allowed)
