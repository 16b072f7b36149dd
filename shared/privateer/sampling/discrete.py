"""Discrete Laplace and binomial noise from random words: probabilities are multiples of 2^-64, or exact."""

import math
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.errors import SpecError
from privateer.sampling.entropy import NoiseSource

DIGITS: Final = 30
"""Number of binary digits of the two magnitudes of a discrete Laplace number."""
SCALE_MAX: Final = (1 << DIGITS) / 80
"""Largest scale. Beyond the digits lies e^-80 of a magnitude's mass."""
LAPLACE_COST: Final = 2.0**-59
"""Total variation between one drawn number and the distribution: 60 digits, each within 2^-65, and the rest.

A mechanism that adds ``count`` of them and is epsilon-private with exact noise is (epsilon, delta)-private with the
noise drawn here, with delta = (1 + e^epsilon) * count * LAPLACE_COST.
"""
_WORD: Final = 1 << 64


def discrete_laplace(count: int, scale: float, noise: NoiseSource) -> NDArray[np.int64]:
    """Draw ``count`` integers with probability proportional to exp(-|k| / scale), shape (count,).

    Each is a difference of two geometric numbers of ratio exp(-1 / scale). Their binary digits are independent: digit i
    is 1 with probability 1 / (1 + exp(2^i / scale)). The distribution is met within `LAPLACE_COST`.

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
    """Return thresholds: words below the i-th one make digit i a 1.

    They are 2^64 / (1 + exp(2^i / scale)), rounded to whole numbers.
    """
    # Decimals of 60 digits, since floating point would err by 2^-53 of a probability.
    with localcontext() as context:
        context.prec = 60
        # Beyond 100 the probability is below 2^-144.
        rates = [min(Decimal(100), Decimal(1 << i) / Decimal(scale)) for i in range(DIGITS)]
        return tuple(round(_WORD / (1 + rate.exp())) for rate in rates)


def binomial(count: int, trials: int, probability: float, noise: NoiseSource) -> NDArray[np.int64]:
    """Draw ``count`` numbers of Bin(trials, probability), shape (count,).

    Fair bits are counted in words, 64 at a time, and exact. For others each trial compares a word with
    ``probability`` * 2^64, rounded up. That is exact, too, for a probability of 2^-11 or more. Below, a bit is up to
    2^-64 fairer than claimed, which hides more.

    Parameters
    ----------
    trials
        At least 0.
    probability
        In (0, 1/2].

    Raises
    ------
    SpecError
        If ``probability`` is out of range.
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
