"""The Gaussian mechanism, exactly (Balle and Wang, ICML 2018), and the classic calibration that papers use."""

import math
from typing import Final

import scipy  # loads its parts when they are first used
from scipy.special import log_ndtr

from privateer.errors import SpecError

_ROUNDING: Final = 1e-9
"""Relative margin that covers what floating point loses."""
_LAST_DIGITS: Final = 2.0**-49
"""Relative error of a logarithm of a normal tail, its argument's rounding included."""
_LOG_MIN: Final = -700.0
"""Smaller tails are taken for e^-700: normal noise is private with no epsilon at delta 0."""
DELTA_MIN: Final = 1e-15
"""Below it nothing is certified."""


def gaussian_delta(epsilon: float, standard_deviation: float, sensitivity: float = 1.0) -> float:
    """Delta at ``epsilon`` of adding normal noise, exact up to last digits, which are rounded up; above 0 always.

    Balle and Wang 2018, Theorem 8.

    Parameters
    ----------
    epsilon
        At least 0.
    deviation
        Standard deviation of the noise, > 0.
    sensitivity
        L2 distance of the values of two neighbours, > 0.

    Raises
    ------
    SpecError
        If an argument is out of range.

    Notes
    -----
    With D the sensitivity and s the deviation: Phi(D/2s - epsilon s/D) - e^epsilon Phi(-D/2s - epsilon s/D), computed
    from logarithms so that small values keep their digits. Their difference loses digits where the noise is huge; by as
    much it is rounded up.
    """
    _check("epsilon", epsilon, least=0.0)
    _check("standard_deviation", standard_deviation)
    _check("sensitivity", sensitivity)
    half, slope = sensitivity / (2 * standard_deviation), epsilon * standard_deviation / sensitivity
    own, other = float(log_ndtr(half - slope)), float(log_ndtr(-half - slope))
    difference = min(0.0, epsilon + other - own) - _LAST_DIGITS * (epsilon + abs(other) + abs(own))
    return min(1.0, math.exp(max(own, _LOG_MIN)) * -math.expm1(difference))


def gaussian_epsilon(delta: float, standard_deviation: float, sensitivity: float = 1.0) -> float:
    """Smallest epsilon at ``delta`` of adding normal noise, rounded up by one part in 10^9; arguments as above."""
    _check_delta(delta)
    if gaussian_delta(0.0, standard_deviation, sensitivity) <= delta:
        return 0.0
    ratio = sensitivity / standard_deviation
    high = ratio * ratio / 2 + ratio * math.sqrt(2 * math.log(1 / delta)) + 1e-12  # concentrated privacy implies it
    root = scipy.optimize.brentq(
        lambda e: gaussian_delta(e, standard_deviation, sensitivity) - delta, 0.0, high, xtol=1e-14, rtol=1e-13
    )
    return float(root) * (1 + _ROUNDING) + 1e-12


def gaussian_standard_deviation(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Smallest deviation whose noise is (epsilon, delta)-private, rounded up by one part in 10^9.

    Raises
    ------
    SpecError
        If epsilon is not above 0 or delta not in [1e-15, 0.5]; with delta 0 no normal noise is private.
    """
    _check("epsilon", epsilon)
    _check_delta(delta)
    _check("sensitivity", sensitivity)
    low, high = 1e-3, 1.0
    while gaussian_delta(epsilon, high) > delta:
        low, high = high, 2 * high
    while gaussian_delta(epsilon, low) <= delta:
        low /= 2
    root = scipy.optimize.brentq(lambda s: gaussian_delta(epsilon, s) - delta, low, high, xtol=1e-14 * high, rtol=1e-13)
    return float(root) * (1 + _ROUNDING) * sensitivity


def classic_gaussian_standard_deviation(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The textbook deviation sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon (Dwork and Roth 2014, Theorem A.1).

    It is (epsilon, delta)-private for epsilon < 1 alone; papers use it beyond, and then it is not.
    """
    _check("epsilon", epsilon)
    _check_delta(delta)
    _check("sensitivity", sensitivity)
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def _check(field: str, value: float, least: float | None = None) -> None:
    good = value > 0 if least is None else value >= least
    if not (good and math.isfinite(value)):
        bound = "above 0" if least is None else f"at least {least:g}"
        raise SpecError(f"must be {bound} and finite", field=field, remedy="choose another value")


def _check_delta(delta: float) -> None:
    if not DELTA_MIN <= delta <= 0.5:
        raise SpecError(
            f"must be {DELTA_MIN:g} to 0.5: normal noise is private with delta above 0 alone",
            field="delta",
            remedy="choose 1e-6, or a mechanism of pure epsilon",
        )
