"""Binomial noise from random words: probabilities are exact, or multiples of 2^-64."""

import math

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.sampling.entropy import NoiseSource


def binomial(count: int, trials: int, probability: float, noise: NoiseSource) -> NDArray[np.int64]:
    """Draw ``count`` numbers of Bin(trials, probability), shape (count,).

    Fair bits are counted in words, 64 at a time, and exact. For others each draw compares a word with
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
