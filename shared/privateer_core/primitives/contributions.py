"""Contributions of people before they are randomized, which never leave a device; and releases about many people."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final, Protocol, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, repr=False)
class KeyedValues:
    """Contributions of one value for one key per person: the primitive "keyed means"."""

    coins: NDArray[np.uint32]  # shape (n,), uint32: public
    # shape (n,), int64: the person's key, or -1 for a person who has nothing to contribute this round. Secret.
    keys: NDArray[np.int64]
    # shape (n,), int64: the group (arm) that the person's coins have at the key. Secret, as the key is.
    groups: NDArray[np.int64]
    values: NDArray[np.float64]  # shape (n,), float64 in [0, 1]. Secret.
    # shape (n,), float64 in [0, 1]: a number beside each value, where the round asks for one. Secret.
    numbers: NDArray[np.float64] | None = None

    @classmethod
    def ungrouped(cls, coins: NDArray[np.uint32], keys: NDArray[np.int64], values: NDArray[np.float64]) -> Self:
        """Return values for keys that have one group each."""
        return cls(coins, keys, np.zeros_like(keys), values)

    def __len__(self) -> int:
        return len(self.coins)


@dataclass(frozen=True)
class KeyedSums:
    """Private sums over one round of keyed values."""

    additive: ClassVar[tuple[str, ...]] = ("reports", "sums", "counts", "hits")

    reports: int  # number of reports
    # shape (keys, groups): sum, over reports whose coins are in the group, of a score in [-1, 1] with expectation
    # ``gain * share of people with the key * (2 value - 1)``
    sums: NDArray[np.float64]
    counts: NDArray[np.int64]  # shape (keys, groups), int64: reports whose coins are in the group
    # shape (keys,): reports with a score other than 0; or (keys, groups), those of them whose coins are in the group
    hits: NDArray[np.float64]
    gain: float  # what debiasing divides by
    # hit_own, hit_other: probability of a score other than 0 for a person with the key, and for one with another key
    hit_own: float
    hit_other: float
    noise: float = 0.0  # variance of what a curator added to each of ``sums`` and ``hits``
    hit_none: float = 0.0  # probability of a score other than 0 for a person without a key

    @property
    def trials(self) -> int:
        """Reports that may be ``hits``."""
        return self.reports


@dataclass(frozen=True)
class KeyedEvents:
    """Private counts over one round of keyed values: of events, such as rewards, and of people who have a key.

    Coins deal the reports: most are about events, and the others name the person's key, whatever its value.
    """

    additive: ClassVar[tuple[str, ...]] = ("reports", "sums", "counts", "hits", "trials")

    reports: int  # number of reports
    # shape (keys, groups): reports of an event with the key, of those about events whose coins are in the group. Each
    # of these is one with probability ``gain * share of people with the key * mean value + other``.
    sums: NDArray[np.float64]
    counts: NDArray[np.int64]  # shape (keys, groups), int64: reports about events whose coins are in the group
    hits: NDArray[np.float64]  # shape (keys,): reports that name the key, of those which are to name one
    trials: int  # number of reports that are to name a key
    gain: float  # what debiasing divides by
    other: float  # probability that a report says of another key, or of none, what is said of this one

    @property
    def hit_own(self) -> float:
        """Probability that a person's own key is named."""
        return self.gain + self.other

    @property
    def hit_other(self) -> float:
        """Probability that another key is named."""
        return self.other

    @property
    def hit_none(self) -> float:
        """Probability that a key is named by a person without one."""
        return self.other

    @property
    def noise(self) -> float:
        """Variance of what a curator added: there is none."""
        return 0.0


KeyedRelease: TypeAlias = KeyedSums | KeyedEvents


@dataclass(frozen=True)
class GroupSums:
    """Private sums over one round of values of people in groups that coins choose, each with noise of its own."""

    additive: ClassVar[tuple[str, ...]] = ("reports", "sums", "counts")

    reports: int  # number of reports
    # shape (1, groups): sum, over the reports of the group, of a score of -1 or 1 with expectation ``gain of the group
    # * (2 value - 1)``
    sums: NDArray[np.float64]
    counts: NDArray[np.int64]  # shape (1, groups), int64: reports of the group
    gain: NDArray[np.float64]  # shape (groups,): what debiasing divides by

    @property
    def noise(self) -> float:
        """Variance of what a curator added: there is none."""
        return 0.0


@dataclass(frozen=True)
class ValueParts:
    """What a value in [0, 1] is parted in, so that sums over people tell its mean, and its variance if there are three.

    Part l of P counts l / (P - 1) in a sum of values. The parts of a value are at least 0 and sum up to 1.
    """

    squares: tuple[int, ...]  # shape (P,): what each part counts in a sum of squares, times (P - 1)^2

    @classmethod
    def levels(cls, count: int) -> Self:
        """Return so many levels at equal distances, of which a value is rounded to one."""
        return cls(tuple(level**2 for level in range(count)))

    @property
    def count(self) -> int:
        """How many parts there are."""
        return len(self.squares)

    @property
    def moments(self) -> NDArray[np.float64]:
        """What each part counts in sums of values, of people, and of squares; shape (3, P)."""
        steps = self.count - 1
        return np.array([np.arange(self.count) / steps, np.ones(self.count), np.array(self.squares) / steps**2])

    @property
    def scored(self) -> float:
        """Sum of the squares of what parts count in a sum of scores, 2 value - 1."""
        return float(np.square(2 * self.moments[0] - 1).sum())

    @property
    def average_square(self) -> float:
        """What a part counts in a sum of squares, on average."""
        return float(self.moments[2].mean())

    def noise_about(self, centre: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the variance of a sum of values above a centre, of its shape, where each part varies by 1."""
        return np.asarray(sum(np.square(place - centre) for place in self.moments[0]))

    @property
    def gram(self) -> NDArray[np.float64]:
        """Covariance of these three sums, (3, 3), where each part varies by 1 and independently."""
        moments = self.moments
        return np.asarray(moments @ moments.T)


BITS: Final = ValueParts((0, 1))
"""1 - value and value: the square of a bit is itself."""
BERNSTEIN: Final = ValueParts((0, 0, 4))
"""(1 - r)^2, 2 r (1 - r) and r^2 of a value r: the last is its square."""


@dataclass(frozen=True)
class CellHits:
    """Private counts over one round of keyed values: how often each key was named, and how often with value 1.

    Where values are numbers, ``positive`` is the sum of the values of hits.
    """

    additive: ClassVar[tuple[str, ...]] = ("reports", "positive", "hits", "counts")

    reports: int  # number of reports
    # positive, hits: shape (keys, groups): hits with value 1, and all hits, of reports whose coins are in the group. A
    # person with the key has a positive hit with probability ``gain * value + other``, and a hit with ``gain + 2
    # other``.
    positive: NDArray[np.float64]
    hits: NDArray[np.float64]
    counts: NDArray[np.int64]  # shape (keys, groups), int64: reports whose coins are in the group
    gain: float  # what debiasing divides by
    # probability of a positive hit for a person with another key, and of a negative one, where keys are named
    other: float
    # variance of what a curator added to each of ``positive`` and ``hits - positive``; to each part, in general
    noise: float = 0.0
    # shape (keys, groups): sum of the squares of the values of hits; None where values are bits
    squares: NDArray[np.float64] | None = None
    parts: ValueParts = BITS  # what the mechanism counted of a value
    # shape (3, 3, keys, groups): sums of the parts of a number beside the value (first axis) times those of the value,
    # each with a third of ``noise``; None where there is no such number
    products: NDArray[np.float64] | None = None
    resolution: float = 0.0  # variance of values that is no larger may be that of rounding alone

    @classmethod
    def of_parts(cls, parts: ValueParts, cells: NDArray[np.int64], unit: int = 1, **others: Any) -> Self:
        """Return hits whose values are parted.

        cells (P, keys, groups): whole numbers, of which ``unit`` make a person.
        others: the other attributes.
        """
        steps = parts.count - 1
        # Whole numbers are added before they are divided: a sum of floats would show last digits of all parts.
        shared = math.gcd(*parts.squares, steps**2)
        each = np.array([range(parts.count), parts.squares]) // [[1], [shared]]
        values, squares = (np.tensordot(one, cells, 1) for one in each)
        known = None if parts == BITS else squares / (steps**2 // shared * unit)
        sums = {"positive": values / (steps * unit), "hits": cells.sum(axis=0) / unit}
        return cls(**sums, **others, squares=known, parts=parts)

    @property
    def sums(self) -> NDArray[np.float64]:
        """Sum of scores, 1 for a positive hit and -1 for another; shape (keys, groups), as of `KeyedSums`."""
        return 2 * self.positive - self.hits

    @property
    def hit_own(self) -> float:
        """Probability of a hit for a person with the key, where keys are named."""
        return self.gain + 2 * self.other

    @property
    def hit_other(self) -> float:
        """Probability of a hit for a person with another key, where keys are named."""
        return 2 * self.other

    @property
    def keyed(self) -> KeyedSums:
        """The same as sums of scores and hits, each with the noise of both counts."""
        parts = (self.reports, self.sums, self.counts, self.hits, self.gain, self.hit_own, self.hit_other)
        return KeyedSums(*parts, 2 * self.noise, self.hit_other)

    def estimates(self) -> NDArray[np.float64]:
        """Estimate what people have, where keys are named; shape (3, keys, groups).

        Returns
        -------
        People who have the key, the sum of their scores ``2 value - 1``, and the variance of that sum at most: the
        estimates of several rounds add up.
        """
        people = (self.hits - self.hit_other * self.reports) / self.gain
        variances = (np.maximum(self.hits, 0.0) + 2 * self.noise) / self.gain**2
        return np.stack([people, self.sums / self.gain, variances])


@dataclass(frozen=True)
class Total:
    """Integer sums over reports, which add up in any order; a subclass has its sums as fields."""

    reports: int

    def merged(self, other: Self) -> Self:
        """Return the total of two disjoint sets of reports."""
        return type(self)(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


class _Additive(Protocol):
    """A release that two disjoint sets of people have together: the sums of some of its fields."""

    additive: ClassVar[tuple[str, ...]]


S = TypeVar("S", bound=_Additive)


def merged(left: S, right: S) -> S:
    """Merge the releases of two disjoint sets of people of one round, where nobody but they themselves adds noise."""
    added = {name: getattr(left, name) + getattr(right, name) for name in left.additive}
    return cast(S, replace(cast(Any, left), **added))
