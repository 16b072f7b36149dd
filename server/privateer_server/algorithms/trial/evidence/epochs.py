"""The plan of a trial, and its releases: epochs of participants, and their weights."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from privateer_core.arrays import Array
from privateer_core.primitives.contributions import BITS, ValueParts
from privateer_server.algorithms.trial.evidence.variances import PlannedValues

_PRIOR_HITS: Final = 2.0  # hits of a mean of 1/2 that an epoch is taken to have beside its own
_PRIOR_HITS_PER_NOISE_DEVIATION: Final = 4.0
"""The same for each standard deviation of a curator's noise in the number of hits."""

_MAX_VARIANCE_RATIO: Final = 100.0  # how many times less than bits numbers may vary before weights no longer follow
_MIN_VARIANCE: Final = 1e-10  # the least variance that weights follow
_MAX_VARIANCE: Final = 0.25  # variance of what a hit counts whose values are 0 and 1 alike often


@dataclass(frozen=True)
class TrialDesign:
    """The design by which intervals and weights are planned, independent of data."""

    alpha: float  # 1 - the level of intervals, in (0, 1)
    people: float  # reports planned over the whole trial
    arms: Array  # shape (K + 1,), above 0, summing to 1: planned shares of the arms; arm 0 is the control
    # shape (J,), above 0: planned shares of people. They decide how good weights are, and whether they are right where
    # ``counted`` is not set.
    segments: Array
    # whether hits tell a segment's share of people: a person hits its own segment (q p + 2 o of the reports do).
    # Otherwise hits are public slots, and the share has to be asked or declared.
    counted: bool = True
    # share of the reports that hit a segment where hits are not counted: 1 if every report is about all
    hit: float = 1.0
    numeric: bool = False  # whether rewards are numbers, whose variance is measured

    @property
    def precision(self) -> float:
        """The information on average effect, up to q^2 and the shares of arms, if hits are not counted."""
        return self.people / (len(self.segments) * self.hit)


@dataclass(frozen=True)
class Epoch:
    """A release, and the public facts before it."""

    people: float  # reports of the epoch, n
    # positive, hits: shape (J, K + 1): positive hits W and hits T of each segment and arm; debiased by nothing, noise
    # included
    positive: Array
    hits: Array
    # keep, other: q and o: a positive hit of a segment's own person has probability q f + o, with f the mean reward,
    # one of anybody else o. 1 and 0 where nobody randomizes. ``other`` is not used where hits are public slots.
    keep: float
    other: float
    noise: float  # variance that the release added to positive and to negative hits, each (L)
    shares: Array  # shape (J, K + 1), above 0: probabilities of the arms, public before the round (pi)
    # squares, parts: where rewards are numbers: ``positive`` is the sum of the values of hits, this that of their
    # squares (None: values are bits), and ``noise`` the variance added to each part of a value
    squares: Array | None = None
    parts: ValueParts = BITS
    resolution: float = 0.0  # variance of values that is no larger may be that of rounding alone
    # how many trials the segments are of, one after the other with as many each: simulations draw many at once
    trials: int = 1

    @property
    def pooled_variance(self) -> "RewardVariance":
        """The variance of hits in this epoch, of all arms together; a value for each segment, (J, 1).

        Which arm got the good luck cannot be told from it, so weights that follow it favour none.
        """
        rows, arms = len(self.hits) // self.trials, self.hits.shape[1]
        # Hits of bits would be most of what small numbers vary by, and more so the fewer people an epoch has.
        noise_deviation = np.sqrt(self.parts.count * self.noise * rows * arms)
        prior_hits = _PRIOR_HITS * (self.squares is None) + _PRIOR_HITS_PER_NOISE_DEVIATION * noise_deviation
        hits = np.maximum(self._sum_trials(self.hits), 0.0 if prior_hits else 1.0)
        mean = (np.clip(self._sum_trials(self.positive), 0.0, hits) + prior_hits / 2) / (hits + prior_hits)
        if self.squares is None:
            return RewardVariance.from_bits(mean)
        squares = (np.clip(self._sum_trials(self.squares), 0.0, hits) + prior_hits / 3) / (hits + prior_hits)
        limit = mean * (1 - mean)
        variance = np.maximum(np.clip(squares - np.square(mean), limit / _MAX_VARIANCE_RATIO, limit), _MIN_VARIANCE)
        return RewardVariance(variance, self.parts.noise_about(mean))

    def _sum_trials(self, cells: Array) -> Array:
        """Return the sum over arms and segments of each trial, for each of its segments."""
        totals = cells.reshape(self.trials, -1).sum(axis=1)
        return np.repeat(totals, len(cells) // self.trials)[:, None]


@dataclass(frozen=True)
class RewardVariance:
    """The variance of a hit's value from rewards, and from noise."""

    hit: Array  # variance of what a hit counts
    noise: Array  # variance that noise of 1 in each part of a value has in what hits count above their mean

    @classmethod
    def from_bits(cls, mean: Array) -> Self:
        """Return the spread of binary hits with this mean."""
        return cls(mean * (1 - mean), np.asarray(BITS.noise_about(mean)))


@dataclass(frozen=True)
class PlannedEpoch:
    """An epoch to come, named as in `Epoch`; ``values`` where rewards are numbers."""

    people: float
    keep: float = 1.0
    other: float = 0.0
    noise: float = 0.0
    values: PlannedValues | None = None


def pair_with_control(cells: Array) -> Array:
    """Return cells (J, K + 1) as contrasts (J, K, 2): treatment and control."""
    return np.stack([cells[:, 1:], np.broadcast_to(cells[:, :1], cells[:, 1:].shape)], axis=-1)


def stable_weights(design: TrialDesign, epoch: Epoch) -> Array:
    """Return the weight of an epoch in each contrast, (J, K), at which it adds variance as planned."""
    planned, actual = contrast_variances(design, epoch)
    return np.asarray(np.sqrt(planned / actual))


def common_weights(planned: Array, actual: Array) -> Array:
    """Return the weight of an epoch in sums over segments, (J, K), from planned and actual variances."""
    return np.broadcast_to(np.sqrt(planned.sum(axis=0) / actual.sum(axis=0)), actual.shape)


def contrast_variances(design: TrialDesign, epoch: Epoch) -> tuple[Array, Array]:
    """Return two variances, up to a constant, of the sum of W/pi of a treatment less that of the control, (J, K) each.

    The first is that of as many people at the planned shares of the arms, if nobody added noise and rewards varied as
    they may: it goes with people, as boundaries assume. The second is that of the epoch, with its noise, at its shares.
    """
    people = epoch.people * expected_hits_per_report(design, epoch.keep, epoch.other)
    planned = _MAX_VARIANCE * people * (1 / pair_with_control(design.arms[None])).sum(axis=-1)
    actual = contrast_sum_variance(people, epoch.noise, epoch.shares, epoch.pooled_variance)
    return np.broadcast_to(planned, actual.shape), actual


def expected_hits_per_report(design: TrialDesign, keep: float, other: float) -> Array:
    """Return the expected hits of a report in each segment, (J, 1); 1 for public slots."""
    p = design.segments[:, None]
    return keep * p + 2 * other if design.counted else np.ones_like(p)


def contrast_sum_variance(hits: Array, noise: float, shares: Array, variance: RewardVariance) -> Array:
    """Return the variance of a treatment's sum of values over shares, less that of the control, (J, K)."""
    inverse_shares = 1 / pair_with_control(shares)
    sampling_variance = hits * variance.hit * inverse_shares.sum(axis=-1)
    return np.asarray(sampling_variance + variance.noise * noise * np.square(inverse_shares).sum(axis=-1))
