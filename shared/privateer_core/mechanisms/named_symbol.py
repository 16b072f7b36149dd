"""Mechanisms of a symbol that names a person's key and value, for hits of few keys; or a bucket, for small epsilon."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.events import Event, ShuffledResponse
from privateer_core.mechanisms.local_symbol import BLOCK, LocalSymbol, with_coins
from privateer_core.mechanisms.signed_symbol import bernoulli
from privateer_core.primitives.contributions import CellHits, KeyedValues, Total
from privateer_core.primitives.public_coins import SlotLayout, sign
from privateer_core.primitives.questions import KeyedHits
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.response import RandomizedResponse

NAMED: Final = 1.3
"""Keys are named up to so many times e^epsilon of them: beyond, fewer buckets tell more of each key."""
_ONE: Final = 1.3
"""Local epsilon below which one bucket tells most."""


@dataclass(frozen=True)
class HitTotal(Total):
    """Integer counts over reports, of the shapes of `contributions.CellHits`."""

    positive: NDArray[np.int64]
    hits: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def empty(cls, keys: int, groups: int) -> Self:
        """Return the total of no reports."""
        none = np.zeros((keys, groups), np.int64)
        return cls(0, none, none, none)


class NamedSymbol(LocalSymbol, frozen=True, tag="named-symbol"):
    """Randomize (key, value) to one symbol of 2 * buckets.

    The value becomes a bit, and the symbol is ``2 * bucket + bit``. With as many buckets as keys every key has its own.
    With fewer, the coins deal the keys evenly to buckets, and flip the bit by a sign of the key: a report is a hit of
    every key in its bucket, positive or not with even chances for the keys that are not its person's.

    Parameters
    ----------
    layout
        Keys and groups of the round. One hash of the coins gives the group.
    epsilon
        Pure local privacy of a report, for key and value together.
    buckets
        At least 1; as many as keys, or fewer.

    Raises
    ------
    SpecError
        If there is no such randomizer.

    Notes
    -----
    Privacy cost: epsilon-LDP per report (randomized response; coins are independent of the data).
    """

    coins_choose: ClassVar[bool] = True

    layout: SlotLayout
    epsilon: float
    buckets: int

    def __post_init__(self) -> None:
        RandomizedResponse(self.epsilon, 2 * max(0, self.buckets))

    @classmethod
    def calibrated(cls, question: KeyedHits, epsilon: float) -> Self:
        """Return the most informative symbol of a local epsilon.

        A report tells of each of J keys with information H q^2, q the gain of 2 H symbols, which is largest at
        H = (e^epsilon - 1) / 2; naming keys has q^2 / (q / J + 2 o), and tells their shares of people as well.
        """
        keys = question.layout.keys
        if cls.names(keys, epsilon):
            return cls(question.layout, epsilon, max(1, keys))
        best = round(math.expm1(epsilon) / 2)
        return cls(question.layout, epsilon, 1 if epsilon < _ONE else min(max(1, best), keys))

    @classmethod
    def names(cls, keys: int, epsilon: float) -> bool:
        """Whether reports of a local epsilon name so many keys."""
        return keys <= NAMED * math.exp(epsilon)

    @classmethod
    def amplified(cls, question: KeyedHits, epsilon: float, delta: float, honest: int, limit: float) -> Self:
        """Return the symbol of the largest local epsilon, up to ``limit``, whose shuffled batch keeps a promise."""
        keys = max(1, question.layout.keys)
        return cls(question.layout, amplified_local_epsilon(epsilon, delta, 2 * keys, honest, limit), keys)

    @property
    def named(self) -> bool:
        """Whether every key has a symbol of its own, so that hits tell shares of people."""
        return self.buckets == max(1, self.layout.keys)

    @cached_property
    def response(self) -> RandomizedResponse:
        """The randomizer of the symbol; its probabilities also debias."""
        return RandomizedResponse(self.epsilon, 2 * self.buckets)

    @override
    def shuffled(self, honest: int) -> Event:
        return ShuffledResponse(self.epsilon, 2 * self.buckets, honest)

    @override
    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> NDArray[np.void]:
        bits = bernoulli(contributions.values, noise)
        return with_coins(contributions.coins, self.response.randomize(self.truth(contributions, bits), noise))

    def truth(self, contributions: KeyedValues, bits: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return everybody's own symbol for values drawn as ``bits`` of 1 or -1, (n,); -1 without a key. Secret."""
        truth = np.full(len(contributions), -1, dtype=np.int64)
        keyed = np.flatnonzero(contributions.keys >= 0)
        keys = contributions.keys[keyed]
        if self.named:
            truth[keyed] = 2 * keys + (bits[keyed] > 0)
            return truth
        step = max(1, BLOCK // self.layout.keys)
        for start in range(0, len(keyed), step):
            some, own = keyed[start : start + step], keys[start : start + step]
            buckets, signs = self._dealt(contributions.coins[some])
            rows = np.arange(len(some))
            truth[some] = 2 * buckets[rows, own] + (bits[some] * signs[rows, own] > 0)
        return truth

    def _dealt(self, coins: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the bucket and the sign of every key for some coins, (n, keys) each."""
        keys = np.arange(self.layout.keys)
        hashes = self.layout.hashes(coins[:, None], keys[None, :])
        if self.buckets == 1:
            return np.zeros(hashes.shape, np.int64), sign(hashes)
        # Bits that neither sign nor group uses put the keys in an order, and they are dealt in it.
        order = np.argsort((hashes >> np.uint64(24)) & np.uint64(0xFFFFFFFF), axis=1, kind="stable")
        buckets = np.empty(hashes.shape, np.int64)
        np.put_along_axis(buckets, order, np.broadcast_to(keys % self.buckets, hashes.shape), axis=1)
        return buckets, sign(hashes)

    @property
    def together(self) -> float:
        """Probability that two keys are in one bucket."""
        keys = self.layout.keys
        sizes = np.bincount(np.arange(keys) % self.buckets)
        return float((sizes * (sizes - 1)).sum() / max(1, keys * (keys - 1)))

    @override
    def empty(self) -> HitTotal:
        return HitTotal.empty(self.layout.keys, self.layout.groups)

    @override
    def add(self, total: HitTotal, reports: NDArray[np.void]) -> HitTotal:
        step = max(1, BLOCK // max(1, self.layout.keys))
        for start in range(0, len(reports), step):
            part = reports[start : start + step]
            total = total.merged(self._named_hits(part) if self.named else self._dealt_hits(part))
        return total

    def _named_hits(self, reports: NDArray[np.void]) -> HitTotal:
        symbols = reports["symbol"].astype(np.int64)
        keys = symbols >> 1
        if not self.layout.keys:
            keys, symbols = keys[:0], symbols[:0]
        groups = self.layout.group(self.layout.hashes(reports["slot"][: len(keys)], keys), keys)
        return self._total(reports, keys * self.layout.groups + groups, symbols & 1)

    def _dealt_hits(self, reports: NDArray[np.void]) -> HitTotal:
        symbols = reports["symbol"].astype(np.int64)[:, None]
        keys = np.arange(self.layout.keys)[None, :]
        buckets, signs = self._dealt(reports["slot"])
        groups = self.layout.group(self.layout.hashes(reports["slot"][:, None], keys), keys)
        hit = buckets == symbols >> 1
        positive = (symbols & 1) == (signs > 0)
        return self._total(reports, (keys * self.layout.groups + groups)[hit], positive[hit])

    def _total(self, reports: NDArray[np.void], cells: NDArray[np.int64], positive: NDArray[np.integer]) -> HitTotal:
        shape = (self.layout.keys, self.layout.groups)
        size = shape[0] * shape[1]
        hits = np.bincount(cells, minlength=size).reshape(shape)
        positives = np.bincount(cells[positive.astype(bool)], minlength=size).reshape(shape)
        return HitTotal(len(reports), positives, hits, self.layout.count(reports["slot"]))

    def _released(self, total: HitTotal) -> CellHits:
        positive, hits = total.positive.astype(np.float64), total.hits.astype(np.float64)
        return CellHits(total.reports, positive, hits, total.counts, self.response.gain, self.response.other)

    def simulate(self, contributions: KeyedValues, rng: np.random.Generator) -> CellHits:
        """Draw a release: symbols from a seeded generator, counted as reports are."""
        people = len(contributions)
        bits = np.where(rng.random(people) < contributions.values, 1, -1)
        truth = self.truth(contributions, bits)
        kept = (rng.random(people) < self.response.gain) & (truth >= 0)
        symbols = np.where(kept, truth, rng.integers(0, 2 * self.buckets, people))
        return self._released(self.add(self.empty(), with_coins(contributions.coins, symbols)))

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {f"{epsilon:g}-{buckets}": cls(SlotLayout.small(), epsilon, buckets) for epsilon, buckets in _SMALL}


_SMALL: Final = ((1.0, 1), (2.0, 3), (2.0, 4))
