"""Public coins, the public randomness of a report, and the public draw of the participants whom a round invites.

A device draws its coins (32 random bits; ``slot`` on the wire) before it looks at its context, and sends them along.
Coins and the round's public seed determine, for every key, the group (the arm of a participant with this key), a sign
and a bucket. They do not depend on a participant's data, so they cost no privacy. We use 32 bits rather than a small
table of coins: a table of 256 repeats its accidental correlations between keys in every report of a round, and these do
not average out as a round grows (docs/learning.md has the measurement).

A `Draw` is without replacement, and can be repeated from its public seed.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Self

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.accounting.special_functions import normal_quantile
from privateer_core.arrays import Array, Coins, Ints, NDArray, Words
from privateer_core.errors import SpecError

UNIT: Final = 1 << 16
"""Range of group thresholds, which are in units of 1/65536."""
_GROUP_BITS: Final = np.uint64(UNIT - 1)
_BLOCK: Final = 1 << 18
"""Number of (coins, key) pairs hashed at a time, so that the working set stays in the processor's cache."""
_GOLDEN_RATIO_WORD: Final = np.uint64(0x9E3779B97F4A7C15)
_CLASS_WORD: Final = np.uint64(0xA24BAED4963EE407)
_SHARE_MAX: Final = 1 - 2.0**-53
_PARTICIPANT_BLOCK: Final = 1 << 20
"""Number of participants whose hashes are compared at a time."""


def mix_words(words: Words) -> Words:
    """Apply SplitMix64's finalizer (Steele, Lea and Flood 2014), a bijection of 64-bit words that spreads every bit."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def words_to_normals(words: Words) -> Array:
    """Map 64-bit words to normal numbers, by their upper 53 bits; finite for every word."""
    shares = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    # The largest share is rounded to 1, and an adversary can find coins whose number would be infinite.
    return normal_quantile(np.minimum(shares, _SHARE_MAX))


def coin_classes(coins: Coins, seed: int, classes: int) -> Ints:
    """Return the public class, 0..classes-1 and uniform, of each coins (n,) in a round with this seed."""
    words = mix_words(mix_words(coins.astype(np.uint64) + np.uint64(seed)) ^ _CLASS_WORD)
    return np.asarray(((words >> np.uint64(32)) * np.uint64(classes)) >> np.uint64(32), dtype=np.int64)


@dataclass(frozen=True)
class Layout:
    """The public plan of a round's reports: its keys, and the distribution of coins over the groups of each key."""

    seed: int  # public seed of the round, 64 bits
    # shape (keys, groups - 1), uint32, nondecreasing along rows, at most 65536: coins fall into group g of a key when
    # their hash in 0..65535 is below ``thresholds[key, g]`` and not below the one before
    thresholds: NDArray[np.uint32]

    def __post_init__(self) -> None:
        if self.thresholds.ndim != 2 or self.thresholds.dtype != np.uint32 or not 0 <= self.seed < 1 << 64:
            raise ValueError("thresholds are two-dimensional unsigned integers, and a seed has 64 bits")

    @classmethod
    def example(cls) -> "Layout":
        """Return a layout of four keys and three groups, for tests and audits."""
        edges = [[20_000, 40_000], [10_000, UNIT], [0, 30_000], [30_000, 30_000]]
        return cls(5, np.array(edges, np.uint32))

    @classmethod
    def ungrouped(cls, keys: int, seed: int) -> Self:
        """Return a plan of ``keys`` with one group each, so that coins choose no group."""
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
    def shares(self) -> Array:
        """Share of the coins in each group, shape (keys, groups)."""
        edges = np.zeros((self.keys, self.groups + 1))
        edges[:, 1:-1] = self.thresholds
        edges[:, -1] = UNIT
        return np.diff(edges, axis=1) / UNIT

    def hashes(self, coins: Coins, keys: NDArray[np.integer]) -> Words:
        """Return 64 public bits for each (coins, key). The arguments broadcast."""
        coin_words = mix_words((coins.astype(np.uint64) + np.uint64(self.seed)) * _GOLDEN_RATIO_WORD)
        return mix_words(coin_words ^ self._key_words[keys])

    @cached_property
    def _key_words(self) -> Words:
        return mix_words(np.arange(1, self.keys + 1, dtype=np.uint64) * _GOLDEN_RATIO_WORD)

    def group_sizes(self, coins: Coins) -> Ints:
        """Count the coins that fall into each group of each key, shape (keys, groups)."""
        counts = np.zeros((self.keys, self.groups), np.int64)
        keys = np.arange(self.keys)
        step = max(1, _BLOCK // max(1, self.keys))
        for start in range(0, len(coins), step):
            hashes = self.hashes(coins[start : start + step, None], keys[None, :])
            cells = (self.find_groups(hashes, keys[None, :]) + keys * self.groups).ravel()
            counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
        return counts

    def find_groups(self, hashes: Words, keys: NDArray[np.integer]) -> Ints:
        """Return the group of each hash at its key."""
        group_hashes = (hashes & _GROUP_BITS).astype(np.uint32)
        group = np.zeros(np.broadcast_shapes(hashes.shape, keys.shape), dtype=np.int64)
        for column in range(self.groups - 1):
            group += group_hashes >= self.thresholds[keys, column]
        return group


@dataclass(frozen=True)
class EarlierChoices(Layout):
    """A round's plan for reports whose coins chose an arm under an earlier plan.

    Coins have the groups of the earlier plan, and signs and buckets of this round: reports of different keys cancel
    only if no two keys share signs and buckets.
    """

    earlier: Layout  # the plan by which the coins chose the arm
    # shape (keys,), int64: index of the earlier key that contains each key; any if the earlier plan has no keys
    places: Ints

    def hashes(self, coins: Coins, keys: NDArray[np.integer]) -> Words:
        """Return 64 public bits for each (coins, key), of which the lowest choose the group."""
        own_hashes = super().hashes(coins, keys)
        if not self.earlier.keys:
            return own_hashes
        earlier_hashes = self.earlier.hashes(coins, self.places[keys])
        return np.asarray((own_hashes & ~_GROUP_BITS) | (earlier_hashes & _GROUP_BITS))


@dataclass(frozen=True)
class SlotLayout(Layout):
    """A plan in which a hash of the coins alone decides the group at all keys, the same at keys of equal thresholds."""

    @classmethod
    @override
    def example(cls) -> "SlotLayout":
        return cls(5, Layout.example().thresholds)

    def hashes(self, coins: Coins, keys: NDArray[np.integer]) -> Words:
        """Return 64 public bits for each (coins, key): the lowest choose the group, and depend on the coins alone."""
        coin_hashes = mix_words((coins.astype(np.uint64) + np.uint64(self.seed)) * _GOLDEN_RATIO_WORD)
        return np.asarray((super().hashes(coins, keys) & ~_GROUP_BITS) | (coin_hashes & _GROUP_BITS))


def hash_to_sign(hashes: Words) -> Ints:
    """Return the public random sign, 1 or -1, of each hash."""
    return 1 - 2 * (hashes >> np.uint64(63)).astype(np.int64)


def hash_to_bucket(hashes: Words, buckets: int) -> Ints:
    """Return the public random bucket, 0..buckets-1, of each hash, from bits that sign and group do not use."""
    bits = (hashes >> np.uint64(24)) & np.uint64(0xFFFFFFFF)
    return ((bits * np.uint64(buckets)) >> np.uint64(32)).astype(np.int64)


class Draw(msgspec.Struct, frozen=True):
    """The public draw of the participants whom a round invites.

    Draws of one seed whose positions do not overlap have no participant in common, which parallel composition needs.
    """

    seed: int  # public, 64 bits. It determines a random order of the population.
    people: int  # size of the population: participants are numbered from 0 to ``people`` - 1
    start: int  # first position of the order that the round invites
    places: int  # number of participants whom the round invites

    def select_participants(self) -> Ints:
        """Return the numbers of the invited participants in the random order, and refuse more than there are."""
        end = self.start + self.places
        if not 0 <= self.start <= end <= self.people:
            detail = f"there are {self.people} people, but {end} are to be asked"
            raise SpecError(detail, field="experiment.participants", remedy="raise it")
        return _shuffle_participants(self.seed, self.people)[self.start : end]

    def is_invited(self, number: int) -> bool:
        """Whether the round invites the participant of that number, from 0. A device computes this by itself."""
        # Counting the participants before this one takes less memory than sorting the population.
        own_hash = _hash_numbers(self.seed, number, number + 1)[0]
        position = 0
        for first in range(0, self.people, _PARTICIPANT_BLOCK):
            hashes = _hash_numbers(self.seed, first, min(self.people, first + _PARTICIPANT_BLOCK))
            position += int(np.count_nonzero(hashes < own_hash))
        return self.start <= position < self.start + self.places


@lru_cache(maxsize=4)
def _shuffle_participants(seed: int, population_size: int) -> Ints:
    """Return the numbers of the population sorted by their hashes."""
    order = np.argsort(_hash_numbers(seed, 0, population_size)).astype(np.int64)
    order.flags.writeable = False
    return order


def _hash_numbers(seed: int, first: int, end: int) -> Words:
    """Hash the numbers from ``first`` to ``end`` - 1. SplitMix64 is a bijection, so no two hashes are equal."""
    return mix_words(np.arange(first, end, dtype=np.uint64) ^ mix_words(np.full(1, seed, np.uint64)))
