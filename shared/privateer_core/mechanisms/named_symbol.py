"""The mechanism of a symbol for a key and value, for hits of few keys; or for a bucket of keys, for small epsilon."""

import math
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np
from typing_extensions import override

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.arrays import Coins, Ints, NDArray, Records
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import BLOCK, LocalSymbol, Total, with_coins
from privateer_core.primitives.contributions import CellHits, KeyedValues, ValueParts
from privateer_core.primitives.public_coins import SlotLayout, hash_to_sign
from privateer_core.primitives.questions import KeyedHits
from privateer_core.sampling.randomness import SYMBOLS_MAX, NoiseSource, RandomizedResponse, round_stochastically

NAMED_KEYS_FACTOR: Final = 1.3
"""Keys are named if their number is at most this factor times e^epsilon. With more keys, fewer buckets are better."""
_ONE_BUCKET_EPSILON_MAX: Final = 1.3
"""Local epsilon below which a single bucket is most informative."""
_LEVEL_STEPS: Final = ((0.7, 3), (2.5, 5), (4.0, 7), (5.5, 9))
"""Pairs of a local epsilon of one key and the number of levels that is best from it on (docs/rewards-measured.md)."""
_BALANCED_MEAN: Final = 0.2
"""Distance of a mean from the bounds below which values have fewer levels, as with more keys."""
_STEP_MARGIN: Final = 1e-9
"""Distance of a local epsilon below a step, since last digits of logarithms differ between machines."""


class PartTotal(Total, frozen=True):
    """Integer sums over reports: of each part of values, ``cells`` (P, keys, groups), and ``counts`` (keys, groups)."""

    cells: Ints
    counts: Ints

    @classmethod
    def empty(cls, parts: int, keys: int, groups: int) -> Self:
        """Return the total of no reports."""
        return cls(0, np.zeros((parts, keys, groups), np.int64), np.zeros((keys, groups), np.int64))


class NamedSymbol(LocalSymbol, frozen=True, tag="named-symbol", omit_defaults=True):
    """Randomize (key, value) to one symbol of levels * buckets.

    The value becomes one of equally distant levels, by default a bit, rounded at random without bias, and the symbol is
    ``levels * bucket + level``. With as many buckets as keys every key has its own. With fewer there are two levels;
    the coins deal the keys evenly to buckets, and flip the bit by a sign of the key: a report is a hit of every key in
    its bucket, with equal probabilities of positive and negative for the keys of other participants.

    Parameters
    ----------
    layout
        Keys and groups of the round. One hash of the coins gives the group.
    epsilon
        Pure local privacy of a report, for key and value together.
    buckets
        At least 1; as many as keys, or fewer.
    levels
        At least 2, and exactly 2 if keys are dealt. Numeric values have more, for their variance.

    Raises
    ------
    SpecError
        If there is no such randomizer.

    Notes
    -----
    Privacy cost: epsilon-LDP per report (randomized response; coins are independent of the data).
    """

    can_coins_choose_arm: ClassVar[bool] = True

    layout: SlotLayout
    epsilon: float
    buckets: int
    levels: int = 2

    def __post_init__(self) -> None:
        if self.levels < 2:
            raise SpecError("must be at least 2", field="levels", remedy="use what the spec says")
        super().__post_init__()

    @classmethod
    def calibrated(cls, question: KeyedHits, epsilon: float) -> Self:
        """Return the most informative symbol of a local epsilon.

        A report has information H q^2 on each of J keys, q the gain of 2 H symbols, which is largest at
        H = (e^epsilon - 1) / 2; naming keys has q^2 / (q / J + 2 o), and measures the keys' shares, too.
        """
        keys = question.layout.keys
        if cls.can_name_keys(keys, epsilon):
            return cls(question.layout, epsilon, max(1, keys), count_levels(question, epsilon))
        n_buckets = round(math.expm1(epsilon) / 2)
        return cls(question.layout, epsilon, 1 if epsilon < _ONE_BUCKET_EPSILON_MAX else min(max(1, n_buckets), keys))

    @classmethod
    def can_name_keys(cls, keys: int, epsilon: float) -> bool:
        """Whether reports of a local epsilon name keys, by the number of keys."""
        return keys <= NAMED_KEYS_FACTOR * math.exp(epsilon)

    @classmethod
    def amplified(cls, question: KeyedHits, epsilon: float, delta: float, honest: int, limit: float) -> Self:
        """Return the symbol of the largest local epsilon, up to ``limit``, whose shuffled batch keeps a promise."""
        keys = max(1, question.layout.keys)

        def local_epsilon(n_levels: int) -> float:
            return amplified_local_epsilon(epsilon, delta, n_levels * keys, honest, limit)

        # More levels change the local epsilon a little, and the number of levels depends on it.
        max_levels = count_levels(question, local_epsilon(2))
        steps = [(step, levels) for step, levels in list_level_steps(question) if levels <= max_levels]
        best_levels = next((levels for step, levels in reversed(steps) if local_epsilon(levels) >= step), 2)
        next_step = min((step for step, levels in list_level_steps(question) if levels > best_levels), default=math.inf)
        return cls(question.layout, min(local_epsilon(best_levels), next_step - _STEP_MARGIN), keys, best_levels)

    def can_answer(self, question: KeyedHits) -> bool:
        """Whether the number of levels is the best for a question and the local epsilon."""
        return self.levels == (count_levels(question, self.epsilon) if self.is_named else 2)

    @property
    def is_named(self) -> bool:
        """Whether every key has symbols of its own, so that hits measure the keys' shares."""
        return self.buckets == max(1, self.layout.keys)

    @cached_property
    def response(self) -> RandomizedResponse:
        """The randomizer of the symbol; its probabilities also debias."""
        return RandomizedResponse(self.epsilon, self.levels * self.buckets)

    @override
    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> Records:
        levels = round_stochastically(contributions.values, self.levels - 1, noise)
        return with_coins(contributions.coins, self.response.randomize(self.true_symbols(contributions, levels), noise))

    def true_symbols(self, contributions: KeyedValues, levels: NDArray[np.integer]) -> Ints:
        """Return the true symbols for values rounded to ``levels`` from 0, (n,); -1 without a key. Secret."""
        truth = np.full(len(contributions), -1, dtype=np.int64)
        keyed = np.flatnonzero(contributions.keys >= 0)
        keys = contributions.keys[keyed]
        if self.is_named:
            truth[keyed] = self.levels * keys + levels[keyed]
            return truth
        step = max(1, BLOCK // self.layout.keys)
        for start in range(0, len(keyed), step):
            chunk, chunk_keys = keyed[start : start + step], keys[start : start + step]
            buckets, signs = self._deal_keys(contributions.coins[chunk])
            rows = np.arange(len(chunk))
            truth[chunk] = 2 * buckets[rows, chunk_keys] + ((levels[chunk] > 0) == (signs[rows, chunk_keys] > 0))
        return truth

    def _deal_keys(self, coins: Coins) -> tuple[Ints, Ints]:
        """Return the bucket and the sign of every key for each coins, (n, keys) each."""
        keys = np.arange(self.layout.keys)
        hashes = self.layout.hashes(coins[:, None], keys[None, :])
        if self.buckets == 1:
            return np.zeros(hashes.shape, np.int64), hash_to_sign(hashes)
        # Bits that neither sign nor group uses determine the order in which keys are dealt.
        order = np.argsort((hashes >> np.uint64(24)) & np.uint64(0xFFFFFFFF), axis=1, kind="stable")
        buckets = np.empty(hashes.shape, np.int64)
        np.put_along_axis(buckets, order, np.broadcast_to(keys % self.buckets, hashes.shape), axis=1)
        return buckets, hash_to_sign(hashes)

    @property
    def collision_probability(self) -> float:
        """Probability that two keys are in the same bucket."""
        keys = self.layout.keys
        sizes = np.bincount(np.arange(keys) % self.buckets)
        return float((sizes * (sizes - 1)).sum() / max(1, keys * (keys - 1)))

    @override
    def empty(self) -> PartTotal:
        return PartTotal.empty(self.levels, self.layout.keys, self.layout.groups)

    @override
    def add(self, total: PartTotal, reports: Records) -> PartTotal:
        """Return ``total`` with reports counted in as hits of their key, or of all keys in their bucket."""
        step = max(1, BLOCK // max(1, self.layout.keys))
        for start in range(0, len(reports), step):
            chunk = reports[start : start + step]
            total = total.merge_with(self._count_named_hits(chunk) if self.is_named else self._count_dealt_hits(chunk))
        return total

    def _count_named_hits(self, reports: Records) -> PartTotal:
        """Return the total of reports that name their key and level."""
        keys, levels = np.divmod(reports["symbol"].astype(np.int64), self.levels)
        if not self.layout.keys:
            keys, levels = keys[:0], levels[:0]
        groups = self.layout.find_groups(self.layout.hashes(reports["slot"][: len(keys)], keys), keys)
        return self._count_hits(reports, keys * self.layout.groups + groups, levels)

    def _count_dealt_hits(self, reports: Records) -> PartTotal:
        """Return the total of reports that hit every key in their bucket, positive by the key's sign."""
        symbols = reports["symbol"].astype(np.int64)[:, None]
        keys = np.arange(self.layout.keys)[None, :]
        buckets, signs = self._deal_keys(reports["slot"])
        groups = self.layout.find_groups(self.layout.hashes(reports["slot"][:, None], keys), keys)
        is_hit = buckets == symbols >> 1
        levels = ((symbols & 1) == (signs > 0)).astype(np.int64)
        return self._count_hits(reports, (keys * self.layout.groups + groups)[is_hit], levels[is_hit])

    def _count_hits(self, reports: Records, cells: Ints, levels: Ints) -> PartTotal:
        """Count hits by cell and level."""
        shape = (self.layout.keys, self.layout.groups)
        size = shape[0] * shape[1]
        hits = np.bincount(levels * size + cells, minlength=self.levels * size).reshape(self.levels, *shape)
        return PartTotal(len(reports), hits, self.layout.group_sizes(reports["slot"]))

    def _build_release(self, total: Any) -> CellHits:
        # Reports of other keys hit all levels with equal probabilities, as bits of which half are positive.
        other = self.response.other * self.levels / 2
        parameters = {"reports": total.reports, "counts": total.counts, "gain": self.response.gain, "other": other}
        return CellHits.from_parts(ValueParts.levels(self.levels), total.cells, **parameters)

    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> CellHits:
        """Draw a release: symbols from a seeded generator, counted as reports are."""
        n_participants = len(contributions)
        truth = self.true_symbols(contributions, round_stochastically(contributions.values, self.levels - 1, rng))
        is_kept = (rng.random(n_participants) < self.response.gain) & (truth >= 0)
        symbols = np.where(is_kept, truth, rng.integers(0, self.levels * self.buckets, n_participants))
        return self._build_release(self.add(self.empty(), with_coins(contributions.coins, symbols)))

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        sizes = ((1.0, 1), (2.0, 3), (2.0, 4))
        bits = {f"{epsilon:g}-{buckets}": cls(SlotLayout.example(), epsilon, buckets) for epsilon, buckets in sizes}
        return bits | {"2-4-5": cls(SlotLayout.example(), 2.0, 4, 5)}


def list_level_steps(question: KeyedHits) -> tuple[tuple[float, int], ...]:
    """Return pairs of a local epsilon and the number of levels of values at that and larger ones; empty for bits.

    Reports have the information on J keys at an epsilon that they have on a single key at epsilon - log J. Values whose
    mean is close to a bound are mostly next to it, and need a larger epsilon.
    """
    if question.expected is None:
        return ()
    keys, rarity = max(1, question.layout.keys), min(question.expected, 1 - question.expected)
    shift = math.log(keys * max(1.0, _BALANCED_MEAN / rarity))
    return tuple((epsilon + shift, count) for epsilon, count in _LEVEL_STEPS if keys * count <= SYMBOLS_MAX)


def count_levels(question: KeyedHits, epsilon: float) -> int:
    """Return the number of levels of values in symbols that name keys at a local epsilon."""
    return max((levels for step, levels in list_level_steps(question) if step <= epsilon), default=2)
