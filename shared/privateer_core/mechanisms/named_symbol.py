"""Mechanisms of a symbol that names a person's key and value, for hits of few keys; or a bucket, for small epsilon."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.events import Event, ShuffledResponse
from privateer_core.errors import SpecError
from privateer_core.mechanisms.local_symbol import BLOCK, LocalSymbol, with_coins
from privateer_core.primitives.contributions import CellHits, KeyedValues, Total, ValueParts
from privateer_core.primitives.public_coins import SlotLayout, sign
from privateer_core.primitives.questions import KeyedHits
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.response import SYMBOLS_MAX, RandomizedResponse, rounded

NAMED: Final = 1.3
"""Keys are named up to so many times e^epsilon of them: beyond, fewer buckets tell more of each key."""
_ONE: Final = 1.3
"""Local epsilon below which one bucket tells most."""
_STEPS: Final = ((0.7, 3), (2.5, 5), (4.0, 7), (5.5, 9))
"""Least local epsilons of one key at which so many levels tell most of central scores (docs/rewards-measured.md)."""
_ASIDE: Final = 0.2
"""Values expected closer to a bound have fewer levels: as with so many times the keys."""
_APART: Final = 1e-9
"""A local epsilon stays so far below a step: other machines' logarithms have other last digits."""


@dataclass(frozen=True)
class PartTotal(Total):
    """Integer sums over reports: of each part of values, ``cells`` (P, keys, groups), and ``counts`` (keys, groups)."""

    cells: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def empty(cls, parts: int, keys: int, groups: int) -> Self:
        """Return the total of no reports."""
        return cls(0, np.zeros((parts, keys, groups), np.int64), np.zeros((keys, groups), np.int64))


class NamedSymbol(LocalSymbol, frozen=True, tag="named-symbol", omit_defaults=True):
    """Randomize (key, value) to one symbol of levels * buckets.

    The value becomes one of equally distant levels, by default a bit, rounded at random so that its mean stays, and the
    symbol is ``levels * bucket + level``. With as many buckets as keys every key has its own. With fewer there are two
    levels; the coins deal the keys evenly to buckets, and flip the bit by a sign of the key: a report is a hit of every
    key in its bucket, positive or not with even chances for the keys that are not its person's.

    Parameters
    ----------
    layout
        Keys and groups of the round. One hash of the coins gives the group.
    epsilon
        Pure local privacy of a report, for key and value together.
    buckets
        At least 1; as many as keys, or fewer.
    levels
        At least 2, and no more where keys are dealt: numbers whose variance is wanted have more than bits.

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
    levels: int = 2

    def __post_init__(self) -> None:
        RandomizedResponse(self.epsilon, self.levels * max(0, self.buckets))
        if self.levels < 2:
            raise SpecError("must be at least 2", field="levels", remedy="use what the spec says")

    @classmethod
    def calibrated(cls, question: KeyedHits, epsilon: float) -> Self:
        """Return the most informative symbol of a local epsilon.

        A report tells of each of J keys with information H q^2, q the gain of 2 H symbols, which is largest at
        H = (e^epsilon - 1) / 2; naming keys has q^2 / (q / J + 2 o), and tells their shares of people as well.
        """
        keys = question.layout.keys
        if cls.names(keys, epsilon):
            return cls(question.layout, epsilon, max(1, keys), levels_of(question, epsilon))
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

        def local(levels: int) -> float:
            return amplified_local_epsilon(epsilon, delta, levels * keys, honest, limit)

        # More levels change the local epsilon a little, and it decides how many there are.
        most = levels_of(question, local(2))
        steps = [(least, levels) for least, levels in level_steps(question) if levels <= most]
        found = next((levels for least, levels in reversed(steps) if local(levels) >= least), 2)
        above = min((least for least, levels in level_steps(question) if levels > found), default=math.inf)
        return cls(question.layout, min(local(found), above - _APART), keys, found)

    def fits(self, question: KeyedHits) -> bool:
        """Whether values have as many levels as a question and the local epsilon say."""
        return self.levels == (levels_of(question, self.epsilon) if self.named else 2)

    @property
    def named(self) -> bool:
        """Whether every key has a symbol of its own, so that hits tell shares of people."""
        return self.buckets == max(1, self.layout.keys)

    @cached_property
    def response(self) -> RandomizedResponse:
        """The randomizer of the symbol; its probabilities also debias."""
        return RandomizedResponse(self.epsilon, self.levels * self.buckets)

    @override
    def shuffled(self, honest: int) -> Event:
        return ShuffledResponse(self.epsilon, self.levels * self.buckets, honest)

    @override
    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> NDArray[np.void]:
        levels = rounded(contributions.values, self.levels - 1, noise)
        return with_coins(contributions.coins, self.response.randomize(self.truth(contributions, levels), noise))

    def truth(self, contributions: KeyedValues, levels: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return everybody's own symbol for values rounded to ``levels`` from 0, (n,); -1 without a key. Secret."""
        truth = np.full(len(contributions), -1, dtype=np.int64)
        keyed = np.flatnonzero(contributions.keys >= 0)
        keys = contributions.keys[keyed]
        if self.named:
            truth[keyed] = self.levels * keys + levels[keyed]
            return truth
        step = max(1, BLOCK // self.layout.keys)
        for start in range(0, len(keyed), step):
            some, own = keyed[start : start + step], keys[start : start + step]
            buckets, signs = self._dealt(contributions.coins[some])
            rows = np.arange(len(some))
            truth[some] = 2 * buckets[rows, own] + ((levels[some] > 0) == (signs[rows, own] > 0))
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
    def empty(self) -> PartTotal:
        return PartTotal.empty(self.levels, self.layout.keys, self.layout.groups)

    @override
    def add(self, total: PartTotal, reports: NDArray[np.void]) -> PartTotal:
        step = max(1, BLOCK // max(1, self.layout.keys))
        for start in range(0, len(reports), step):
            part = reports[start : start + step]
            total = total.merged(self._named_hits(part) if self.named else self._dealt_hits(part))
        return total

    def _named_hits(self, reports: NDArray[np.void]) -> PartTotal:
        keys, levels = np.divmod(reports["symbol"].astype(np.int64), self.levels)
        if not self.layout.keys:
            keys, levels = keys[:0], levels[:0]
        groups = self.layout.group(self.layout.hashes(reports["slot"][: len(keys)], keys), keys)
        return self._total(reports, keys * self.layout.groups + groups, levels)

    def _dealt_hits(self, reports: NDArray[np.void]) -> PartTotal:
        symbols = reports["symbol"].astype(np.int64)[:, None]
        keys = np.arange(self.layout.keys)[None, :]
        buckets, signs = self._dealt(reports["slot"])
        groups = self.layout.group(self.layout.hashes(reports["slot"][:, None], keys), keys)
        hit = buckets == symbols >> 1
        positive = (symbols & 1) == (signs > 0)
        return self._total(reports, (keys * self.layout.groups + groups)[hit], positive[hit].astype(np.int64))

    def _total(self, reports: NDArray[np.void], cells: NDArray[np.int64], levels: NDArray[np.int64]) -> PartTotal:
        """Count hits by cell and level."""
        shape = (self.layout.keys, self.layout.groups)
        size = shape[0] * shape[1]
        hits = np.bincount(levels * size + cells, minlength=self.levels * size).reshape(self.levels, *shape)
        return PartTotal(len(reports), hits, self.layout.count(reports["slot"]))

    def _released(self, total: Any) -> CellHits:
        # Others hit each level alike, half of them above the middle: as so many bits of which half are positive.
        other = self.response.other * self.levels / 2
        facts = {"reports": total.reports, "counts": total.counts, "gain": self.response.gain, "other": other}
        return CellHits.of_parts(ValueParts.levels(self.levels), total.cells, **facts)

    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> CellHits:
        """Draw a release: symbols from a seeded generator, counted as reports are."""
        people = len(contributions)
        truth = self.truth(contributions, rounded(contributions.values, self.levels - 1, rng))
        kept = (rng.random(people) < self.response.gain) & (truth >= 0)
        symbols = np.where(kept, truth, rng.integers(0, self.levels * self.buckets, people))
        return self._released(self.add(self.empty(), with_coins(contributions.coins, symbols)))

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        bits = {f"{epsilon:g}-{buckets}": cls(SlotLayout.small(), epsilon, buckets) for epsilon, buckets in _SMALL}
        return bits | {"2-4-5": cls(SlotLayout.small(), 2.0, 4, 5)}


def level_steps(question: KeyedHits) -> tuple[tuple[float, int], ...]:
    """Return the least local epsilons from which values have so many levels; bits have two at any.

    What reports tell of J keys at an epsilon they tell of one at epsilon - log J, of which the steps are. Values whose
    mean is close to a bound are mostly next to it, and it takes more to tell where they are.
    """
    if question.expected is None:
        return ()
    keys, rare = max(1, question.layout.keys), min(question.expected, 1 - question.expected)
    more = math.log(keys * max(1.0, _ASIDE / rare))
    return tuple((least + more, count) for least, count in _STEPS if keys * count <= SYMBOLS_MAX)


def levels_of(question: KeyedHits, epsilon: float) -> int:
    """Return how many levels values have in symbols that name keys at a local epsilon."""
    return max((levels for least, levels in level_steps(question) if least <= epsilon), default=2)


_SMALL: Final = ((1.0, 1), (2.0, 3), (2.0, 4))
