"""Average effects over segments, of which some have too few people for a rate of their own."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.evidence.epochs import TrialDesign
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums, rates, scaled_variance

Array = NDArray[np.float64]

_OWN: Final = 20.0
"""Rare outcomes, positive or negative, with which a segment's mean counts as much as that of all segments."""


@dataclass(frozen=True)
class Average:
    """Average effects of K treatments, post-stratified: sums of contributions, shape (K,) each.

    ``contributions`` (J, K) are shares of people times effects.
    """

    estimate: Array
    variance: Array
    ready: NDArray[np.bool_]
    contributions: Array

    @property
    def scores(self) -> Array:
        """Shape (K,): estimate over standard deviation, nan where not ready."""
        usable = self.ready & (self.variance > 0) & np.isfinite(self.variance)
        return np.where(usable, self.estimate / np.sqrt(np.where(usable, self.variance, 1.0)), np.nan)


def average(sums: Sums, design: TrialDesign) -> Average:
    """Add up contributions over all segments.

    With v a segment's share of hits, q what is kept and d its difference in positive hits: the average is the sum of
    contributions c = (v/q) d. Its variance is that of the differences, and of the segments' shares of hits, which are
    multinomial: (sum c^2/v - average^2)/n. Hits of public slots have no such variance.

    A segment that is not ready, which may have nobody, is told from public numbers of people instead of its hits
    (`by_people`). The average is ready when everybody's hits together are.
    """
    rate, q, _, people = rates(sums)
    ratios, ratio_variance = rate / q * sums.difference, scaled_variance(sums, rate / q)
    ratio_noise = np.square(sums.difference / q) * sums.hits_noise / np.square(sums.people)
    values = HitValues.shrunk(sums)
    few, few_variances = by_people(sums, values, centres(sums, values))
    contributions = np.where(sums.ready, ratios, few[..., 0] - few[..., 1])
    estimate = contributions.sum(axis=0)
    variance = np.where(sums.ready, ratio_variance + ratio_noise, few_variances.sum(axis=-1)).sum(axis=0)
    if design.counted:
        between = np.where(sums.ready, ratios / q * sums.difference, 0.0).sum(axis=0) - np.square(estimate)
        variance = variance + np.maximum(between, 0.0) / people.mean(axis=0)
    return Average(estimate, np.asarray(variance), np.asarray(sums.together.ready[0]), contributions)


@dataclass(frozen=True)
class HitValues:
    """Mean and variance of what a hit of both arms of a contrast counts, (J, K) each."""

    mean: Array
    variance: Array

    @classmethod
    def shrunk(cls, sums: Sums) -> Self:
        """Return a segment's own, drawn to those of all segments.

        With t a segment's effective hits, f the mean of all segments, or what it lacks of 1 where that is less, and s^2
        the variance, its own count t f^2/(t f^2 + 20 s^2): of rare rewards half where 20 people had some.
        """
        everybody, own = cls._of(sums.together), cls._of(sums)
        hits, square = sums.den.sum(axis=-1), sums.square.sum(axis=-1)
        seen = _ratio(np.square(hits), square, 0.0) * np.square(np.minimum(everybody.mean, 1 - everybody.mean))
        weight = _ratio(seen, seen + _OWN * everybody.variance, 0.0)
        mean = weight * own.mean + (1 - weight) * everybody.mean
        squares = weight * own._square + (1 - weight) * everybody._square
        return cls(mean, np.maximum(squares - np.square(mean), 0.0))

    @classmethod
    def _of(cls, sums: Sums) -> Self:
        mean = np.clip(_ratio(sums.num.sum(axis=-1), sums.den.sum(axis=-1), 0.5), 0.0, 1.0)
        return cls(mean, mean * (1 - mean) if sums.values is None else sums.spread_of_hits)

    @property
    def _square(self) -> Array:
        return np.asarray(self.variance + np.square(self.mean))


def centres(sums: Sums, values: HitValues) -> Array:
    """Return the numbers c in [0, 1], (J, K), at which the sums of w (W - c T) vary least.

    Without noise that is what a hit counts on average. A curator's noise varies least at 1/2.
    """
    square, noise = np.maximum(sums.square.sum(axis=-1), 0.0), sums.noise_of_hits.sum(axis=-1)
    return np.asarray(0.5 + _ratio(square, square + noise, 0.0) * (values.mean - 0.5))


def by_people(sums: Sums, values: HitValues, centre: Array) -> tuple[Array, Array]:
    """Return shares of people times (mean reward - centre) of both arms, and variances, (J, K, 2), however few people.

    With c the centre, the sum of w (W - c T) over an arm's hits expects u n (q p (f - c) + o (1 - 2 c)): p is the share
    of people and f their mean reward. A hit varies it by w^2 (s^2 + (f' - c)^2), with f' and s^2 the mean and variance
    of what hits count, and a curator by its noise (Horvitz and Thompson 1952). Where hits are public slots, the values
    differ from those named by a number of the segment, the same for both arms.

    Parameters
    ----------
    values
        Of both arms together, and each of them.
    centre
        Shape (J, K).
    """
    c, scale = centre[..., None], sums.keep[..., None]
    others = (1 - 2 * c) * sums.other[..., None]
    each = (values.variance + np.square(values.mean - centre))[..., None]
    spread = np.maximum(sums.square, 0.0) * each + sums.noise_about(centre)
    return (sums.num - c * sums.den - others) / scale, spread / np.square(scale)


def _ratio(top: Array, bottom: Array, otherwise: float) -> Array:
    some = bottom > 0
    return np.asarray(np.where(some, top / np.where(some, bottom, 1.0), otherwise))
