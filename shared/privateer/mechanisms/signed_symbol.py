"""One signed symbol for keyed means: the default of the partition algorithm under local and shuffle privacy."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privateer.coins import Layout, bucket, sign
from privateer.contributions import KeyedSums, KeyedValues
from privateer.errors import OutOfRange
from privateer.sampling.entropy import NoiseSource
from privateer.sampling.response import RandomizedResponse

REPORT = np.dtype([("slot", "<u4"), ("symbol", "<u2")])
_BLOCK = 1 << 18
"""(report, key) pairs decoded at a time; keeps the working set in the processor's cache."""


@dataclass(frozen=True)
class SymbolTotal:
    """Integer sums over reports: additive in any order, mergeable. Shapes as in `KeyedSums`."""

    reports: int
    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
    hits: NDArray[np.int64]


@dataclass(frozen=True)
class SignedSymbol:
    """Randomize (key, value) to one symbol of 2 * buckets, or one more that says 'elsewhere'.

    The value becomes a bit, the bit a sign; the slot's sign and bucket of the key turn it into the symbol
    ``2 * bucket + [sign * slot sign = 1]``, which randomized response protects. A report counts towards every key in
    whose bucket it falls: reports of other keys cancel there, since the slot's signs are independent and public. The
    share of people with a key is never measured: it is common to the key's groups.

    Parameters
    ----------
    layout
        Keys and groups of the round.
    epsilon
        Pure local privacy of a report, for key, group and value together.
    buckets
        At least 1.
    elsewhere
        Whether people without a key have a symbol of their own; otherwise they send a uniform one.

    Notes
    -----
    Privacy cost: epsilon-LDP per report (randomized response; slots are independent of the data).
    """

    layout: Layout
    epsilon: float
    buckets: int
    elsewhere: bool

    @cached_property
    def response(self) -> RandomizedResponse:
        """The randomizer of the symbol; its probabilities also debias."""
        return RandomizedResponse(self.epsilon, 2 * self.buckets + self.elsewhere)

    @property
    def report_size(self) -> int:
        """Bytes of a report."""
        return REPORT.itemsize

    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> NDArray[np.void]:
        """Reports of n people, shape (n,), dtype `REPORT`."""
        bits = bernoulli(contributions.values, noise)
        reports = np.empty(len(contributions), dtype=REPORT)
        reports["slot"] = contributions.slots
        reports["symbol"] = self.response.randomize(self._truth(contributions, bits), noise)
        return reports

    def _truth(self, contributions: KeyedValues, bits: NDArray[np.int64]) -> NDArray[np.int64]:
        truth = np.full(len(contributions), 2 * self.buckets if self.elsewhere else -1, dtype=np.int64)
        asked = np.flatnonzero(contributions.keys >= 0)
        hashes = self.layout.hashes(contributions.slots[asked], contributions.keys[asked])
        truth[asked] = 2 * bucket(hashes, self.buckets) + (bits[asked] * sign(hashes) > 0)
        return truth

    def parse(self, rows: bytes) -> NDArray[np.void]:
        """Reports from their concatenated bytes, shape (n,), dtype `REPORT`.

        Raises
        ------
        OutOfRange
            If the bytes are not whole reports or a symbol is not in the alphabet.
        """
        if len(rows) % REPORT.itemsize:
            raise OutOfRange("not a whole number of reports", remedy="send what the client library makes")
        reports = np.frombuffer(rows, dtype=REPORT)
        if np.any(reports["symbol"] >= self.response.symbols):
            raise OutOfRange("not a symbol of this round's alphabet", remedy="send what the client library makes")
        return reports

    def empty(self) -> SymbolTotal:
        """The total of no reports."""
        shape = (self.layout.keys, self.layout.groups)
        return SymbolTotal(0, np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape[0], np.int64))

    def add(self, total: SymbolTotal, reports: NDArray[np.void]) -> SymbolTotal:
        """``total`` with ``reports`` (n,) counted in."""
        step = max(1, _BLOCK // max(1, self.layout.keys))
        for start in range(0, len(reports), step):
            total = self.merge(total, self._count(reports[start : start + step]))
        return total

    def merge(self, left: SymbolTotal, right: SymbolTotal) -> SymbolTotal:
        """The total of two disjoint sets of reports."""
        return SymbolTotal(
            left.reports + right.reports, left.sums + right.sums, left.counts + right.counts, left.hits + right.hits
        )

    def _count(self, reports: NDArray[np.void]) -> SymbolTotal:
        keys = np.arange(self.layout.keys)
        hashes = self.layout.hashes(reports["slot"][:, None], keys[None, :])
        symbols = reports["symbol"].astype(np.int64)[:, None]
        hit = bucket(hashes, self.buckets) == symbols >> 1
        scores = np.where(hit, sign(hashes) * (2 * (symbols & 1) - 1), 0)
        groups = self.layout.group(hashes, keys[None, :])
        shape = (self.layout.keys, self.layout.groups)
        cells = (groups + keys * self.layout.groups).ravel()
        sums = np.bincount(cells, weights=scores.ravel(), minlength=shape[0] * shape[1])
        counts = np.bincount(cells, minlength=shape[0] * shape[1])
        return SymbolTotal(
            len(reports), sums.astype(np.int64).reshape(shape), counts.reshape(shape), hit.sum(axis=0, dtype=np.int64)
        )

    def release(self, total: SymbolTotal, _: NoiseSource) -> KeyedSums:
        """What the learner may see: a function of randomized reports alone, without further cost or noise."""
        return self._released(total)

    def _released(self, total: SymbolTotal) -> KeyedSums:
        response = self.response
        own = response.truth + response.other
        other = own / self.buckets + 2 * response.other * (1 - 1 / self.buckets)
        none = 2 * response.other if self.elsewhere else 1 / self.buckets
        sums, hits = total.sums.astype(np.float64), total.hits.astype(np.float64)
        return KeyedSums(total.reports, sums, total.counts, hits, response.gain, own, other, 0.0, none)

    def simulate(self, contributions: KeyedValues, rng: np.random.Generator) -> KeyedSums:
        """Draw a release with the law of randomizing, adding and releasing, without hashing every (report, key).

        Exact in law when slots' hashes are independent between keys: given how many people of each key send a
        bucket's symbol, a report of another key scores 0 but for chance 1/buckets, and then a fair sign.
        """
        told = contributions.keys >= 0
        cells = contributions.keys[told] * self.layout.groups + contributions.groups[told]
        won = rng.random(len(cells)) < contributions.values[told]
        size = self.layout.keys * self.layout.groups
        counts = np.stack([np.bincount(cells[~won], minlength=size), np.bincount(cells[won], minlength=size)], axis=1)
        shape = (self.layout.keys, self.layout.groups, 2)
        return self.simulate_counts(counts.reshape(shape), len(contributions) - len(cells), rng)

    def simulate_counts(self, counts: NDArray[np.int64], without: int, rng: np.random.Generator) -> KeyedSums:
        """As `simulate`, for people counted by key, group and value 0 or 1, (keys, groups, 2), and those without."""
        return self._released(_simulated(self, counts, without, rng))


def bernoulli(values: NDArray[np.float64], noise: NoiseSource) -> NDArray[np.int64]:
    """Signs, 1 with probability ``values`` and else -1: unbiased for ``2 values - 1``; shape (n,)."""
    uniform = (noise.words(len(values)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.where(uniform < values, 1, -1)


def _simulated(
    mechanism: SignedSymbol, counts: NDArray[np.int64], without: int, rng: np.random.Generator
) -> SymbolTotal:
    layout, response = mechanism.layout, mechanism.response
    shape = (layout.keys, layout.groups)
    own = counts.reshape(-1, 2)
    people = int(own.sum()) + without
    # Of the people of a cell: score right, score wrong, symbol of another bucket, symbol 'elsewhere'.
    rest = 2 * (mechanism.buckets - 1) * response.other
    probabilities = [response.truth, response.other, rest, response.other * mechanism.elsewhere]
    sent = rng.multinomial(own, np.array(probabilities) / sum(probabilities))
    own_sums = (sent[:, 1, 0] - sent[:, 1, 1] - sent[:, 0, 0] + sent[:, 0, 1]).reshape(shape)
    own_counts = own.sum(axis=1).reshape(shape)
    own_bucketed = sent[..., :3].sum(axis=(1, 2)).reshape(shape).sum(axis=1)
    own_hits = sent[..., :2].sum(axis=(1, 2)).reshape(shape).sum(axis=1)

    bucketed_chance = 2 * mechanism.buckets * response.other if mechanism.elsewhere else 1.0
    bucketed = int(own_bucketed.sum()) + int(rng.binomial(without, min(1.0, bucketed_chance)))
    others = people - own_counts.sum(axis=1)
    hits = rng.binomial(bucketed - own_bucketed, 1.0 / mechanism.buckets)
    shares = layout.shares
    hits_by_group = rng.multinomial(hits, shares)
    misses_by_group = rng.multinomial(others - hits, shares)
    sums = own_sums + 2 * rng.binomial(hits_by_group, 0.5) - hits_by_group
    seen = own_counts + hits_by_group + misses_by_group
    return SymbolTotal(people, sums, seen, hits + own_hits)
