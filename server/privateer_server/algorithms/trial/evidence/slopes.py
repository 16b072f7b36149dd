"""Slopes of rewards on numbers from before the choice, as a curator's sums of one look tell them."""

from typing import Final

import numpy as np

from privateer_core.algorithms.trial.learned_slopes import SLOPE_MAX, LearnedSlope
from privateer_core.primitives.contributions import BERNSTEIN, CellHits

_NOISES: Final = 10.0
"""Standard deviations of its noise that the people of a segment must reach to be told from it."""


def learned_slope(release: CellHits, segments: int) -> LearnedSlope:
    """Return the slope within segments, whatever their arms, and the mean of the number.

    With c the covariance of number and reward, v the variance of the number, and e the standard deviation of what noise
    adds to v: c / (v + e^2 / v), within `SLOPE_MAX`. Noise in v alone would make slopes steeper on average. It is 0,
    so that nothing is adjusted, where e is above v, or v is no more than rounding adds. Arms differ by their effect,
    which has nothing to do with a number from before: so they are added up (Deng, Xu, Kohavi and Walker 2013).

    release: of a round that asked for the number; its keys are segments, by arms and answers.
    """
    assert release.products is not None
    parts = release.products.reshape(3, 3, segments, -1)
    noise = release.noise / 3 * parts.shape[-1]
    # Sums over each segment of x^i r^j, with powers 1, 0 and 2 in the order of `ValueParts.moments`.
    sums = np.einsum("ai,bj,ijk->abk", BERNSTEIN.moments, BERNSTEIN.moments, parts.sum(axis=-1))
    people = sums[1, 1]
    seen = (people > 0) & (people >= _NOISES * np.sqrt(9 * noise))
    if not seen.any():
        return LearnedSlope(0.0, 0.5)
    people, numbers, squares = people[seen], sums[0, 1, seen], sums[2, 1, seen]
    covariance = (sums[0, 0, seen] - numbers * sums[1, 0, seen] / people).sum() / people.sum()
    variance = (squares - numbers**2 / people).sum() / people.sum()
    mean = float(np.clip(numbers.sum() / people.sum(), 0.0, 1.0))
    means = numbers / people
    taken = np.stack([-2 * means, np.square(means) - variance, np.ones_like(means)])
    varied = 3 * noise * np.einsum("ik,ij,jk->", taken, BERNSTEIN.gram, taken)
    if variance <= release.resolution or np.sqrt(varied) / people.sum() > variance:
        return LearnedSlope(0.0, mean)
    slope = covariance / (variance + varied / people.sum() ** 2 / variance)
    return LearnedSlope(float(np.clip(slope, -SLOPE_MAX, SLOPE_MAX)), mean)
