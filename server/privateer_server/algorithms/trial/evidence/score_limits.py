"""Limits of the difference of two rates, by the score test that gives the p-value of no difference too."""

from typing import Final

import numpy as np
from scipy.optimize.elementwise import find_root

from privateer_core.arrays import Array

_MAX_VARIANCE: Final = 0.25  # the largest variance of yes and no
_MIN_RATE_VARIANCE: Final = 1e-11


def restricted_rates(rates: Array, people: Array, difference: Array) -> Array:
    """Return the maximum likelihood rates with a given difference (Miettinen and Nurminen 1985, appendix).

    rates, people (..., 2): observed rates in [0, 1] of a treatment and its control, and of how many people, above 0.
    difference (...): the treatment's rate less that of the control, in [-1, 1].
    """
    treated, control, d = rates[..., 0], rates[..., 1], difference
    people_ratio = people[..., 1] / people[..., 0]
    total = treated + people_ratio * control
    cubic = 1 + people_ratio
    square = -(cubic + total + d * (people_ratio + 2))
    linear = d * d + d * (2 * treated + people_ratio + 1) + total
    centre = -square / (3 * cubic)
    offset = -(centre**3) - square * linear / (6 * cubic**2) - treated * d * (1 + d) / (2 * cubic)
    amplitude = np.sqrt(np.maximum(centre**2 - linear / (3 * cubic), 0.0)) * np.where(offset < 0, -1.0, 1.0)
    cosine = np.clip(offset / np.where(amplitude == 0, 1.0, amplitude**3), -1.0, 1.0)
    rate = centre + 2 * amplitude * np.cos((np.pi + np.arccos(cosine)) / 3)
    rate = np.clip(rate, np.maximum(d, 0.0), np.minimum(1.0, 1 + d))
    return np.stack([rate, rate - d], axis=-1)


def common_rate(rates: Array, people: Array, noise: Array) -> Array:
    """Return the maximum likelihood rate if both arms have the same, (...). Parameters are those of `variance_at`."""
    observed, weights = np.clip(rates, 0.0, 1.0), _effective_people(rates, people, noise)
    return np.asarray((weights * observed).sum(axis=-1) / weights.sum(axis=-1))


def variance_at(rates: Array, people: Array, noise: Array, difference: Array) -> Array:
    """Return the variance of the difference of two observed rates, (...), if the true ones differ by ``difference``.

    rates, people (..., 2): observed rates, which noise may put outside [0, 1], and how many people each is a mean of.
    noise (..., 2): variance that a release added to positive and to negative answers each, over squared people.
    difference (...): beyond [-1, 1] counts as these.
    """
    observed, weights = np.clip(rates, 0.0, 1.0), _effective_people(rates, people, noise)
    likely = restricted_rates(observed, weights, np.clip(difference, -1.0, 1.0))
    added = noise * (np.square(likely) + np.square(1 - likely))
    return np.asarray((likely * (1 - likely) / people + added).sum(axis=-1))


def _effective_people(rates: Array, people: Array, noise: Array) -> Array:
    """Return the number of participants without noise of equal information on each rate, up to a factor."""
    observed = np.clip(rates, 0.0, 1.0)
    pooled = (people * observed).sum(axis=-1, keepdims=True) / people.sum(axis=-1, keepdims=True)
    max_variance = np.maximum(pooled * (1 - pooled), _MIN_RATE_VARIANCE)
    return np.asarray(people / (1 + people * noise / max_variance))


def score_limits(rates: Array, people: Array, noise: Array, critical: float) -> tuple[Array, Array]:
    """Return both confidence limits of the difference by inversion of the score test, (...) each.

    They leave 0 out exactly where the test of no difference is decided: both take the variance that goes with the
    difference they are about. Parameters are those of `variance_at`.
    """
    # The lower end is the upper one of the control less the treatment.
    rates, people, noise = (np.stack([array[..., ::-1], array]) for array in (rates, people, noise))
    middle = np.asarray(rates[..., 0] - rates[..., 1])

    def beyond(end: Array, middle: Array, *sides: Array) -> Array:
        rates, people, noise = (np.stack(sides[index : index + 2], axis=-1) for index in (0, 2, 4))
        return np.asarray(end - middle - critical * np.sqrt(variance_at(rates, people, noise, end)))

    upper_bracket = middle + critical * np.sqrt((_MAX_VARIANCE / people + noise).sum(axis=-1))
    sides = [array[..., arm] for array in (rates, people, noise) for arm in (0, 1)]
    # Where both rates are at a bound, their difference is as likely as can be: what is beyond it has a variance.
    roots = find_root(beyond, (middle + _MIN_RATE_VARIANCE, upper_bracket), args=(middle, *sides))
    ends = np.where(roots.success, roots.x, middle)
    return -ends[0], ends[1]
