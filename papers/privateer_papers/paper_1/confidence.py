"""Bounds for martingales that hold at all times at once."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_EXPONENTS: Final = np.arange(-10, 61)
"""Lines are laid for variances 2^j, j from here."""
_DEPTH: Final = 8.0
"""Logarithm of the inverse failure for which a line touches its variance's bound."""


def upper_bound(variance: Array, scale: Array, failure: Array, expected: float) -> Array:
    """Return a bound that a martingale exceeds at any time with at most this ``failure``; the arguments broadcast.

    For every line's slope b, exp(b Z - psi(b) V) is a supermartingale that starts at 1, psi(b) = b^2 / (2 (1 - c b)),
    and by Ville's inequality it ever exceeds 1/a with probability at most a. So does Z exceed the least of all lines
    (log(1/a_j) + psi(b_j) V) / b_j with probability at most the sum of the a_j (Howard, Ramdas, McAuliffe and Sekhon
    2021, Section 3, with lines in place of their mixtures).

    Parameters
    ----------
    variance
        V: the sum of the steps' variances given the past, or bounds of them.
    scale
        c: a third of the largest step so far; 0 where steps are sub-Gaussian with these variances.
    failure
        Probability of ever being exceeded.
    expected
        The variance at which the bound should be tightest; fixed in advance.
    """
    distance = np.abs(_EXPONENTS - np.log2(max(1.0, expected)))
    weights = 1 / (2 + distance) ** 2
    log = np.log(weights.sum() / (weights * np.asarray(failure)[..., None]))
    slopes = np.sqrt(2 * _DEPTH / 2.0**_EXPONENTS)
    room = 1 - np.asarray(scale)[..., None] * slopes
    curve = slopes / (2 * np.where(room > 0, room, np.inf))
    lines = log / slopes + curve * np.asarray(variance)[..., None]
    return np.asarray(np.where(room > 0, lines, np.inf).min(axis=-1))
