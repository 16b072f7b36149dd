"""Limits of the difference of two rates, by the score test that gives the p-value of no difference too."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize.elementwise import find_root

Array = NDArray[np.float64]

_MOST: Final = 0.25
"""The largest variance of yes and no."""
_LITTLE: Final = 1e-11


def restricted_rates(rates: Array, people: Array, difference: Array) -> Array:
    """Return the most likely two rates that differ by so much (Miettinen and Nurminen 1985, appendix).

    rates, people (..., 2): observed rates in [0, 1] of a treatment and its control, and of how many people, above 0.
    difference (...): the treatment's rate less that of the control, in [-1, 1].
    """
    treated, control, d = rates[..., 0], rates[..., 1], difference
    times = people[..., 1] / people[..., 0]
    total = treated + times * control
    cubic = 1 + times
    square = -(cubic + total + d * (times + 2))
    linear = d * d + d * (2 * treated + times + 1) + total
    mid = -square / (3 * cubic)
    offset = -(mid**3) - square * linear / (6 * cubic**2) - treated * d * (1 + d) / (2 * cubic)
    reach = np.sqrt(np.maximum(mid**2 - linear / (3 * cubic), 0.0)) * np.where(offset < 0, -1.0, 1.0)
    cosine = np.clip(offset / np.where(reach == 0, 1.0, reach**3), -1.0, 1.0)
    rate = mid + 2 * reach * np.cos((np.pi + np.arccos(cosine)) / 3)
    rate = np.clip(rate, np.maximum(d, 0.0), np.minimum(1.0, 1 + d))
    return np.stack([rate, rate - d], axis=-1)


def common_rate(rates: Array, people: Array, noise: Array) -> Array:
    """Return the most likely rate of both arms if they have the same, (...). Parameters are those of `variance_at`."""
    observed, weights = np.clip(rates, 0.0, 1.0), _weights(rates, people, noise)
    return np.asarray((weights * observed).sum(axis=-1) / weights.sum(axis=-1))


def variance_at(rates: Array, people: Array, noise: Array, difference: Array) -> Array:
    """Return the variance of the difference of two observed rates, (...), if the true ones differ by ``difference``.

    rates, people (..., 2): observed rates, which noise may put outside [0, 1], and how many people each is a mean of.
    noise (..., 2): variance that a release added to positive and to negative answers each, over squared people.
    difference (...): beyond [-1, 1] counts as these.
    """
    observed, weights = np.clip(rates, 0.0, 1.0), _weights(rates, people, noise)
    likely = restricted_rates(observed, weights, np.clip(difference, -1.0, 1.0))
    added = noise * (np.square(likely) + np.square(1 - likely))
    return np.asarray((likely * (1 - likely) / people + added).sum(axis=-1))


def _weights(rates: Array, people: Array, noise: Array) -> Array:
    """Return of how many people without noise each rate tells as much, up to a factor."""
    observed = np.clip(rates, 0.0, 1.0)
    pooled = (people * observed).sum(axis=-1, keepdims=True) / people.sum(axis=-1, keepdims=True)
    most = np.maximum(pooled * (1 - pooled), _LITTLE)
    return np.asarray(people / (1 + people * noise / most))


def score_limits(rates: Array, people: Array, noise: Array, critical: float) -> tuple[Array, Array]:
    """Return both ends of the differences that a test of them at this critical value does not rule out, (...) each.

    They leave 0 out exactly where the test of no difference is decided: both take the variance that goes with the
    difference they are about. Parameters are those of `variance_at`.
    """
    # The lower end is the upper one of the control less the treatment.
    rates, people, noise = (np.stack([one[..., ::-1], one]) for one in (rates, people, noise))
    middle = np.asarray(rates[..., 0] - rates[..., 1])

    def beyond(end: Array, middle: Array, *sides: Array) -> Array:
        rates, people, noise = (np.stack(sides[place : place + 2], axis=-1) for place in (0, 2, 4))
        return np.asarray(end - middle - critical * np.sqrt(variance_at(rates, people, noise, end)))

    farthest = middle + critical * np.sqrt((_MOST / people + noise).sum(axis=-1))
    sides = [one[..., place] for one in (rates, people, noise) for place in (0, 1)]
    # Where both rates are at a bound, their difference is as likely as can be: what is beyond it has a variance.
    found = find_root(beyond, (middle + _LITTLE, farthest), args=(middle, *sides))
    ends = np.where(found.success, found.x, middle)
    return -ends[0], ends[1]
