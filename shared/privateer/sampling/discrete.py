"""Discrete Laplace and binomial noise from random words: chances are multiples of 2^-64, or exact."""

import math
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.errors import SpecError
from privateer.sampling.entropy import NoiseSource

DIGITS: Final = 30
"""Binary digits of a discrete Laplace number's two magnitudes."""
SCALE_MAX: Final = (1 << DIGITS) / 80
"""Largest scale: beyond the digits lies e^-80 of a magnitude's mass."""
LAPLACE_COST: Final = 2.0**-59
"""Total variation of one drawn number from the discrete Laplace law: 60 digits, each within 2^-65, and the rest.

A mechanism that adds ``count`` of them and is epsilon-private with exact noise is (epsilon, delta)-private as drawn,
with delta = (1 + e^epsilon) * count * LAPLACE_COST.
"""
_WORD: Final = 1 << 64


def discrete_laplace(count: int, scale: float, noise: NoiseSource) -> NDArray[np.int64]:
    """``count`` integers with probability proportional to exp(-|k| / scale), shape (count,).

    A difference of two geometrics of ratio exp(-1 / scale), whose binary digits are independent: digit i is 1 with
    chance 1 / (1 + exp(2^i / scale)). The law is met within `LAPLACE_COST`.

    Raises
    ------
    SpecError
        If ``scale`` is not above 0 and at most `SCALE_MAX`.
    """
    if not 0 < scale <= SCALE_MAX:
        raise SpecError(f"must be above 0 and at most {SCALE_MAX:g}", field="scale", remedy="choose a larger epsilon")
    magnitudes = np.zeros(2 * count, dtype=np.int64)
    for digit, threshold in enumerate(_digit_thresholds(float(scale))):
        if threshold:
            magnitudes += (noise.words(2 * count) < np.uint64(threshold)).astype(np.int64) << digit
    return np.asarray(magnitudes[:count] - magnitudes[count:])


@lru_cache(maxsize=256)
def _digit_thresholds(scale: float) -> tuple[int, ...]:
    """Words below the i-th make digit i a 1: 2^64 / (1 + exp(2^i / scale)) to the nearest whole number.

    In decimals of 60 digits, since floating point would be off by 2^-53 of a chance.
    """
    with localcontext() as context:
        context.prec = 60
        # Beyond 100 the chance is below 2^-144.
        rates = [min(Decimal(100), Decimal(1 << i) / Decimal(scale)) for i in range(DIGITS)]
        return tuple(round(_WORD / (1 + rate.exp())) for rate in rates)


def binomial(count: int, trials: int, probability: float, noise: NoiseSource) -> NDArray[np.int64]:
    """``count`` draws of Bin(trials, chance), shape (count,).

    Fair bits are counted in words, 64 at a time, and exact. Others compare a word each with ``chance`` * 2^64, rounded
    up: exact too for a chance of 2^-11 or more, and else up to 2^-64 fairer than claimed, which hides more.

    Parameters
    ----------
    trials
        At least 0.
    chance
        In (0, 1/2].

    Raises
    ------
    SpecError
        If ``chance`` is out of range.
    """
    if not 0 < probability <= 0.5:
        raise SpecError("must be above 0 and at most 0.5", field="probability", remedy="use what the calibration gives")
    drawn = np.zeros(count, np.int64)
    if probability == 0.5:
        for left in range(trials, 0, -64):
            mask = np.uint64((1 << min(64, left)) - 1)
            drawn += np.bitwise_count(noise.words(count) & mask).astype(np.int64)
        return drawn
    threshold = np.uint64(math.ceil(probability * 2.0**64))
    for _ in range(trials):
        drawn += noise.words(count) < threshold
    return drawn
