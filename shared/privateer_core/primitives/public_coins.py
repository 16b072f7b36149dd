"""Public coins, the public randomness of a report, and the public draw of the people whom a round asks.

A device draws its coins (32 random bits; ``slot`` on the wire) before it looks at its context, and sends them along.
From the coins and the round's public seed everyone derives, for every key, the group (the arm a person with this key
plays), a sign and a bucket. None of it depends on a person's data, so none of it costs privacy. We use 32 bits rather
than a small table of coins: a table of 256 repeats its accidental correlations between keys in every report of a round,
and these do not average out as a round grows (docs/learning.md has the measurement).

A `Draw` is without replacement, and everybody can repeat it from its seed.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.special_functions import normal_quantile
from privateer_core.errors import SpecError

UNIT: Final = 1 << 16
"""Group thresholds are in units of 1/65536."""
_BLOCK: Final = 1 << 18
"""Number of (coins, key) pairs hashed at a time, so that the working set stays in the processor's cache."""
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_CLASS: Final = np.uint64(0xA24BAED4963EE407)
_BELOW_ONE: Final = 1 - 2.0**-53
_PEOPLE_BLOCK: Final = 1 << 20
"""People whose places in the order are compared at a time."""


def mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply SplitMix64's finalizer (Steele, Lea and Flood 2014), a bijection of 64-bit words that spreads every bit."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def normals_of(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the normal number of each 64-bit word, by its upper 53 bits; finite, whatever the word."""
    shares = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    # The largest share is rounded to 1, and whoever chooses coins finds some whose number would be infinite.
    return normal_quantile(np.minimum(shares, _BELOW_ONE))


def classes_of(coins: NDArray[np.uint32], seed: int, classes: int) -> NDArray[np.int64]:
    """Return the public class, 0..classes-1 and uniform, of each of the coins (n,) of a round with this seed."""
    words = mix(mix(coins.astype(np.uint64) + np.uint64(seed)) ^ _CLASS)
    return np.asarray(((words >> np.uint64(32)) * np.uint64(classes)) >> np.uint64(32), dtype=np.int64)


@dataclass(frozen=True)
class Layout:
    """The public plan of a round's reports: its keys, and how coins spread over the groups of each key."""

    seed: int  # public seed of the round, 64 bits
    # shape (keys, groups - 1), uint32, nondecreasing along rows, at most 65536: coins fall into group g of a key when
    # their hash in 0..65535 is below ``thresholds[key, g]`` and not below the one before
    thresholds: NDArray[np.uint32]

    def __post_init__(self) -> None:
        if self.thresholds.ndim != 2 or self.thresholds.dtype != np.uint32 or not 0 <= self.seed < 1 << 64:
            raise ValueError("thresholds are two-dimensional unsigned integers, and a seed has 64 bits")

    @classmethod
    def small(cls) -> "Layout":
        """Return a layout of four keys and three groups, for tests and audits."""
        edges = [[20_000, 40_000], [10_000, UNIT], [0, 30_000], [30_000, 30_000]]
        return cls(5, np.array(edges, np.uint32))

    @classmethod
    def ungrouped(cls, keys: int, seed: int) -> Self:
        """Return a plan of so many keys, of one group each, so that coins choose nothing."""
        return cls(seed, np.zeros((keys, 0), np.uint32))

    @property
    def keys(self) -> int:
        """Number of keys."""
        return int(self.thresholds.shape[0])

    @property
    def groups(self) -> int:
        """Number of groups of every key."""
        return int(self.thresholds.shape[1]) + 1

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Share of the coins in each group, shape (keys, groups)."""
        edges = np.zeros((self.keys, self.groups + 1))
        edges[:, 1:-1] = self.thresholds
        edges[:, -1] = UNIT
        return np.diff(edges, axis=1) / UNIT

    def hashes(self, coins: NDArray[np.uint32], keys: NDArray[np.integer]) -> NDArray[np.uint64]:
        """Return 64 public bits for each (coins, key). The arguments broadcast."""
        left = mix((coins.astype(np.uint64) + np.uint64(self.seed)) * _GOLDEN)
        return mix(left ^ self._key_words[keys])

    @cached_property
    def _key_words(self) -> NDArray[np.uint64]:
        return mix(np.arange(1, self.keys + 1, dtype=np.uint64) * _GOLDEN)

    def count(self, coins: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Count the coins that fall into each group of each key, shape (keys, groups)."""
        counts = np.zeros((self.keys, self.groups), np.int64)
        keys = np.arange(self.keys)
        step = max(1, _BLOCK // max(1, self.keys))
        for start in range(0, len(coins), step):
            hashes = self.hashes(coins[start : start + step, None], keys[None, :])
            cells = (self.group(hashes, keys[None, :]) + keys * self.groups).ravel()
            counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
        return counts

    def group(self, hashes: NDArray[np.uint64], keys: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the group of each hash at its key."""
        low = (hashes & np.uint64(UNIT - 1)).astype(np.uint32)
        group = np.zeros(np.broadcast_shapes(hashes.shape, keys.shape), dtype=np.int64)
        for column in range(self.groups - 1):
            group += low >= self.thresholds[keys, column]
        return group


@dataclass(frozen=True)
class EarlierChoices(Layout):
    """A round's plan for reports whose coins chose an arm under an earlier one.

    Coins spread over groups as they did then, and have the round's own signs and buckets: what people of different keys
    send cancels only if no two keys share them.
    """

    earlier: Layout  # the plan by which the coins chose
    # shape (keys,), int64: which of its keys holds each key; any where coins chose nothing there
    places: NDArray[np.int64]

    def hashes(self, coins: NDArray[np.uint32], keys: NDArray[np.integer]) -> NDArray[np.uint64]:
        """Return 64 public bits for each (coins, key): the lowest choose the group."""
        own = super().hashes(coins, keys)
        if not self.earlier.keys:
            return own
        chosen = self.earlier.hashes(coins, self.places[keys])
        low = np.uint64(UNIT - 1)
        return np.asarray((own & ~low) | (chosen & low))


@dataclass(frozen=True)
class SlotLayout(Layout):
    """A plan in which one hash of the coins decides the group at all keys: keys of alike thresholds have one group."""

    @classmethod
    @override
    def small(cls) -> "SlotLayout":
        return cls(5, Layout.small().thresholds)

    def hashes(self, coins: NDArray[np.uint32], keys: NDArray[np.integer]) -> NDArray[np.uint64]:
        """Return 64 public bits for each (coins, key): the lowest, which choose the group, are the coins' own."""
        own = super().hashes(coins, keys)
        slot = mix((coins.astype(np.uint64) + np.uint64(self.seed)) * _GOLDEN)
        low = np.uint64(UNIT - 1)
        return np.asarray((own & ~low) | (slot & low))


def sign(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the public random sign, 1 or -1, of each hash."""
    return 1 - 2 * (hashes >> np.uint64(63)).astype(np.int64)


def bucket(hashes: NDArray[np.uint64], buckets: int) -> NDArray[np.int64]:
    """Return the public random bucket, 0..buckets-1, of each hash, from bits that sign and group do not use."""
    middle = (hashes >> np.uint64(24)) & np.uint64(0xFFFFFFFF)
    return ((middle * np.uint64(buckets)) >> np.uint64(32)).astype(np.int64)


@dataclass(frozen=True)
class Draw:
    """The public draw of the people whom a round asks.

    Draws of one seed whose places do not overlap have no person in common, which parallel composition relies on.
    """

    seed: int  # public, 64 bits. It puts everybody in a random order.
    people: int  # size of the population: people are numbered from 0 to ``people`` - 1
    start: int  # first place of the order that the round asks
    places: int  # number of people whom the round asks

    def asked(self) -> NDArray[np.int64]:
        """Return the numbers of the people whom the round asks, shape (places,), in the order of their places."""
        end = self.start + self.places
        if not 0 <= self.start <= end <= self.people:
            detail = f"there are {self.people} people, but {end} are to be asked"
            raise SpecError(detail, field="experiment.people", remedy="raise it")
        return _order(self.seed, self.people)[self.start : end]

    def asks(self, number: int) -> bool:
        """Whether the round asks the person of that number, from 0. A device finds this out by itself."""
        # It counts how many come before, which takes less memory than putting everybody in order.
        own = _hashes(self.seed, number, number + 1)[0]
        place = 0
        for first in range(0, self.people, _PEOPLE_BLOCK):
            others = _hashes(self.seed, first, min(self.people, first + _PEOPLE_BLOCK))
            place += int(np.count_nonzero(others < own))
        return self.start <= place < self.start + self.places


@lru_cache(maxsize=4)
def _order(seed: int, people: int) -> NDArray[np.int64]:
    """Sort people by their hashes."""
    order = np.argsort(_hashes(seed, 0, people)).astype(np.int64)
    order.flags.writeable = False
    return order


def _hashes(seed: int, first: int, end: int) -> NDArray[np.uint64]:
    """Hash the numbers from ``first`` to ``end`` - 1. SplitMix64 is a bijection, so no two hashes are equal."""
    return mix(np.arange(first, end, dtype=np.uint64) ^ mix(np.full(1, seed, np.uint64)))
