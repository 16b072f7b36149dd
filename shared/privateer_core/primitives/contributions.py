"""Participants' contributions before randomization, which never leave a device, and releases about a whole round."""

import math
from typing import Any, ClassVar, Final, Protocol, Self, TypeAlias, TypeVar, cast

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.arrays import Array, Coins, Ints, NDArray
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.secret_values import SecretValues


class KeyedValues(SecretValues, frozen=True):
    """Contributions of a value for a key per participant: the primitive "keyed means"."""

    coins: Coins  # shape (n,), uint32: public
    # shape (n,), int64: the participant's key, or -1 for a participant without a contribution this round. Secret.
    keys: Ints
    groups: Ints  # shape (n,), int64: the group (arm) of the participant's coins at the key. Secret, as the key is.
    values: Array  # shape (n,), float64 in [0, 1]. Secret.
    # shape (n,), float64 in [0, 1]: a covariate beside each value, if the round asks for it. Secret.
    numbers: Array | None = None
    # shape (n,), int64: the tiers of simulated participants; None: all are of the mechanism's tier, as a device's is.
    tiers: Ints | None = None

    @classmethod
    def ungrouped(cls, coins: Coins, keys: Ints, values: Array) -> Self:
        """Return contributions for keys with one group each."""
        return cls(coins, keys, np.zeros_like(keys), values)

    def __len__(self) -> int:
        return len(self.coins)

    def select(self, rows: Ints) -> Self:
        """Return the contributions of some participants, in the order of ``rows``."""
        numbers = None if self.numbers is None else self.numbers[rows]
        tiers = None if self.tiers is None else self.tiers[rows]
        return type(self)(self.coins[rows], self.keys[rows], self.groups[rows], self.values[rows], numbers, tiers)


class FeatureValues(SecretValues, frozen=True):
    """Contributions of a value and of the answers to all questions about features per participant."""

    coins: Coins  # shape (n,), uint32: public
    arms: Ints  # shape (n,), int64: the participant's arm. Secret.
    answers: Ints  # shape (n, questions), int64: the participant's answer to each question, from 0. Secret.
    values: Array  # shape (n,), float64 from a lower bound of -1 at least, to 1. Secret.

    def __len__(self) -> int:
        return len(self.coins)


class RowValues(SecretValues, frozen=True):
    """Contributions of a value and of a row of coordinates per participant."""

    coins: Coins  # shape (n,), uint32: public
    arms: Ints  # shape (n,), int64: the participant's arm. Secret.
    rows: Array  # shape (n, d), float64; the mechanism clips them. Secret.
    values: Array  # shape (n,), float64; the mechanism clips them. Secret.

    def __len__(self) -> int:
        return len(self.coins)


Contributions: TypeAlias = KeyedValues | FeatureValues | RowValues | BoundedVectors


class KeyedSums(msgspec.Struct, frozen=True):
    """Private sums over a round of keyed values."""

    additive: ClassVar[tuple[str, ...]] = ("reports", "sums", "counts", "hits")

    reports: int  # number of reports
    # shape (keys, groups): sum, over reports whose coins are in the group, of a score in [-1, 1] with expectation
    # ``gain * share of participants with the key * (2 value - 1)``
    sums: Array
    counts: NDArray[Any]  # shape (keys, groups): reports whose coins are in the group, or the sum of their weights
    hits: Array  # shape (keys,): reports with a score other than 0; or (keys, groups), by the group of their coins
    gain: float  # divisor of debiasing
    # hit_own, hit_other: probability of a score other than 0 for a participant with the key, and with another key
    hit_own: float
    hit_other: float
    noise: float = 0.0  # variance of a curator's noise in each of ``sums`` and ``hits``
    hit_none: float = 0.0  # probability of a score other than 0 for a participant without a key

    @property
    def trials(self) -> float:
        """Number of reports that may be ``hits``."""
        return self.reports


class TieredSums(KeyedSums, frozen=True):
    """Private sums over a round whose participants took different tiers, pooled by inverse variance.

    A report of a tier has the weight of its gain over its probability of a score. ``counts`` and `trials` are sums of
    weights, for which probabilities and variances are those of one mechanism; ``reports`` counts reports as they are.
    """

    weight: float = 0.0  # sum of the weights of all reports
    tiers: tuple[KeyedSums, ...] = ()  # the sums of every tier, with its own probabilities

    @classmethod
    def pool(cls, tiers: tuple[KeyedSums, ...]) -> Self:
        """Pool the sums of tiers.

        Weights have the scale at which the variance of a weighted sum of scores, ``sum w^2 n h``, is that of as many
        scores as the weights add up to, ``sum w n h``.
        """
        reports = np.array([float(tier.reports) for tier in tiers])
        gains, hit_rates = (np.array([rate(tier) for tier in tiers]) for rate in (_get_gain, _estimate_hit_rate))
        weights, is_empty = gains / hit_rates, not reports.any()
        masses = reports + is_empty  # without reports, any scale
        weights *= (weights * masses * hit_rates).sum() / (weights**2 * masses * hit_rates).sum()
        weighted_reports = weights * masses / (weights * masses).sum()
        gain = float(weighted_reports @ gains)

        def add_weighted(name: str, factors: Array) -> Array:
            return np.asarray(sum(factor * getattr(tier, name) for factor, tier in zip(factors, tiers, strict=True)))

        def average(name: str) -> float:
            return float(weighted_reports @ [getattr(tier, name) for tier in tiers])

        return cls(
            reports=sum(tier.reports for tier in tiers),
            sums=add_weighted("sums", weights),
            counts=add_weighted("counts", weights * gains / gain),
            hits=add_weighted("hits", weights),
            gain=gain,
            hit_own=average("hit_own"),
            hit_other=average("hit_other"),
            hit_none=average("hit_none"),
            weight=float(weights @ reports),
            tiers=tiers,
        )

    @property
    @override
    def trials(self) -> float:
        """Sum of the weights of reports that may be ``hits``."""
        return self.weight

    @property
    def information(self) -> Array:
        """Squared gain over the variance of a score, summed over the reports of every tier, (tiers,)."""
        return np.array([tier.reports * tier.gain**2 / _estimate_hit_rate(tier) for tier in self.tiers])


def _get_gain(sums: KeyedSums) -> float:
    return sums.gain


def _estimate_hit_rate(sums: KeyedSums) -> float:
    """Return the share of scores other than 0, over all keys; one hit is added, so that it is above 0."""
    return (float(sums.hits.sum()) + 1) / (sums.reports * len(sums.hits) + 1)


class KeyedEvents(msgspec.Struct, frozen=True):
    """Private counts over a round of keyed values: of events, such as rewards, and of participants with a key.

    Coins divide the reports: most are about events, and the others name the participant's key, whatever its value.
    """

    additive: ClassVar[tuple[str, ...]] = ("reports", "sums", "counts", "hits", "trials")

    reports: int  # number of reports
    # shape (keys, groups): reports of an event with the key, of those about events whose coins are in the group. Each
    # of these is an event with probability ``gain * share of participants with the key * mean value + other``.
    sums: Array
    counts: Ints  # shape (keys, groups), int64: reports about events whose coins are in the group
    hits: Array  # shape (keys,): reports that name the key, of the key reports
    trials: int  # number of key reports, which name a key
    gain: float  # divisor of debiasing
    other: float  # probability that randomization makes a report name this key instead of another key or none

    noise: ClassVar[float] = 0.0  # a curator's noise: none

    @property
    def hit_own(self) -> float:
        """Probability that a participant's own key is named."""
        return self.gain + self.other

    @property
    def hit_other(self) -> float:
        """Probability that another key is named."""
        return self.other

    @property
    def hit_none(self) -> float:
        """Probability that a participant without a key names a key."""
        return self.other


KeyedRelease: TypeAlias = KeyedSums | KeyedEvents


class GroupSums(msgspec.Struct, frozen=True):
    """Private sums over a round of values in groups that coins choose, with the noise of each group."""

    additive: ClassVar[tuple[str, ...]] = ("reports", "sums", "counts")

    reports: int  # number of reports
    # shape (1, groups): sum, over the reports of the group, of a score of -1 or 1 with expectation ``gain of the group
    # * (2 value - 1)``
    sums: Array
    counts: Ints  # shape (1, groups), int64: reports of the group
    gain: Array  # shape (groups,): divisors of debiasing
    noise: ClassVar[float] = 0.0  # a curator's noise: none


class ValueParts(msgspec.Struct, frozen=True):
    """A division of values in [0, 1] into parts whose sums estimate the mean, and with three parts the variance.

    Part l of P has the weight l / (P - 1) in a sum of values. The parts of a value are at least 0 and sum up to 1.
    """

    squares: tuple[int, ...]  # shape (P,): weight of each part in a sum of squares, times (P - 1)^2

    @classmethod
    def levels(cls, count: int) -> Self:
        """Return parts for values rounded to ``count`` levels at equal distances."""
        return cls(tuple(level**2 for level in range(count)))

    @property
    def count(self) -> int:
        """Number of parts."""
        return len(self.squares)

    @property
    def moments(self) -> Array:
        """Weights of the parts in sums of values, of participants, and of squares; shape (3, P)."""
        steps = self.count - 1
        return np.array([np.arange(self.count) / steps, np.ones(self.count), np.array(self.squares) / steps**2])

    @property
    def score_square_sum(self) -> float:
        """Sum of the squared weights of the parts in a sum of scores, 2 value - 1."""
        return float(np.square(2 * self.moments[0] - 1).sum())

    @property
    def average_square(self) -> float:
        """Mean weight of a part in a sum of squares."""
        return float(self.moments[2].mean())

    def noise_about(self, centre: Array) -> Array:
        """Return the variance of a sum of values above a centre, of its shape, if each part has variance 1."""
        return np.asarray(sum(np.square(score - centre) for score in self.moments[0]))

    @property
    def gram(self) -> Array:
        """Covariance of the three sums, (3, 3), if the parts have variance 1 and are independent."""
        moments = self.moments
        return np.asarray(moments @ moments.T)


BITS: Final = ValueParts((0, 1))
"""1 - value and value: the square of a bit is itself."""
BERNSTEIN: Final = ValueParts((0, 0, 4))
"""(1 - r)^2, 2 r (1 - r) and r^2 of a value r: the last is its square."""


class CellHits(msgspec.Struct, frozen=True):
    """Private counts over a round of keyed values: of reports by named key, and of reports with value 1.

    If values are numbers, ``positive`` is the sum of the values of hits.
    """

    additive: ClassVar[tuple[str, ...]] = ("reports", "positive", "hits", "counts")

    reports: int  # number of reports
    # positive, hits: shape (keys, groups): hits with value 1, and all hits, of reports whose coins are in the group. A
    # participant with the key has a positive hit with probability ``gain * value + other``, and a hit with ``gain + 2
    # other``.
    positive: Array
    hits: Array
    counts: Ints  # shape (keys, groups), int64: reports whose coins are in the group
    gain: float  # divisor of debiasing
    # probability of a positive hit for a participant with another key, and of a negative hit, if keys are named
    other: float
    # variance of a curator's noise in each of ``positive`` and ``hits - positive``; in general, in each part
    noise: float = 0.0
    # shape (keys, groups): sum of the squares of the values of hits; None if values are bits
    squares: Array | None = None
    parts: ValueParts = BITS  # parts of a value that the mechanism counted
    # shape (3, 3, keys, groups): sums of the parts of a covariate (first axis) times the parts of the value, each with
    # a third of ``noise``; None without a covariate
    products: Array | None = None
    resolution: float = 0.0  # a variance of values up to this number may be due to rounding alone

    @classmethod
    def from_parts(cls, parts: ValueParts, cells: Ints, unit: int = 1, **attributes: Any) -> Self:
        """Return hits from sums of the parts of values.

        cells (P, keys, groups): whole numbers; ``unit`` is the sum of a participant's parts.
        """
        steps = parts.count - 1
        # Whole numbers are added before they are divided: a sum of floats would show last digits of all parts.
        divisor = math.gcd(*parts.squares, steps**2)
        weights = np.array([range(parts.count), parts.squares]) // [[1], [divisor]]
        values, squares = (np.tensordot(row, cells, 1) for row in weights)
        known_squares = None if parts == BITS else squares / (steps**2 // divisor * unit)
        sums = {"positive": values / (steps * unit), "hits": cells.sum(axis=0) / unit}
        return cls(**sums, **attributes, squares=known_squares, parts=parts)

    @property
    def sums(self) -> Array:
        """Sum of scores, 1 for a positive hit and -1 for a negative hit; shape (keys, groups), as of `KeyedSums`."""
        return 2 * self.positive - self.hits

    @property
    def hit_own(self) -> float:
        """Probability of a hit for a participant with the key, if keys are named."""
        return self.gain + 2 * self.other

    @property
    def hit_other(self) -> float:
        """Probability of a hit for a participant with another key, if keys are named."""
        return 2 * self.other

    @property
    def keyed_sums(self) -> KeyedSums:
        """The counts as sums of scores and hits, each with the noise of both counts."""
        parts = (self.reports, self.sums, self.counts, self.hits, self.gain, self.hit_own, self.hit_other)
        return KeyedSums(*parts, 2 * self.noise, self.hit_other)

    def estimates(self) -> Array:
        """Return estimates for each cell, if keys are named, which add up over rounds; shape (3, keys, groups).

        They are the participants with the key, the sum of their scores ``2 value - 1``, and a bound of its variance.
        """
        n_people = (self.hits - self.hit_other * self.reports) / self.gain
        variances = (np.maximum(self.hits, 0.0) + 2 * self.noise) / self.gain**2
        return np.stack([n_people, self.sums / self.gain, variances])


class _AdditiveRelease(Protocol):
    """A release that can be merged with that of a disjoint set of participants, by adding its ``additive`` fields."""

    additive: ClassVar[tuple[str, ...]]


S = TypeVar("S", bound=_AdditiveRelease)


def merge_releases(left: S, right: S) -> S:
    """Merge the releases of two disjoint sets of participants of a round, if only devices add noise."""
    if isinstance(left, TieredSums) and isinstance(right, TieredSums):
        return cast(S, left.pool(tuple(merge_releases(*pair) for pair in zip(left.tiers, right.tiers, strict=True))))
    sums = {name: getattr(left, name) + getattr(right, name) for name in left.additive}
    return cast(S, msgspec.structs.replace(cast(Any, left), **sums))
