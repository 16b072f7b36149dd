"""The mechanism of one signed symbol for keyed means: the default where every report is private by itself."""

from functools import cached_property, lru_cache
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.allotment import Allotment, allotted_local_epsilon
from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.events import Event, ShuffledResponse
from privateer_core.mechanisms.local_symbol import BLOCK, LocalSymbol, with_coins
from privateer_core.mechanisms.mechanism import KeyedTotal
from privateer_core.primitives.contributions import KeyedSums, KeyedValues
from privateer_core.primitives.public_coins import Layout, bucket, sign
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.response import RandomizedResponse, bernoulli

_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SHARES: Final = (1.0, 0.7, 0.5, 0.35, 0.25, 0.125, 0.0625, 0.03, 0.015)


class SignedSymbol(LocalSymbol, frozen=True, tag="signed-symbol"):
    """Randomize (key, value) to one symbol of 2 * buckets, or one more that says "elsewhere".

    The value becomes a bit, the bit a sign; the coins' sign and bucket of the key turn it into the symbol
    ``2 * bucket + [sign * coins' sign = 1]``, which randomized response protects. A report counts towards every key in
    whose bucket it falls: reports of other keys cancel there, since the coins' signs are independent and public. The
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

    Raises
    ------
    SpecError
        If there is no such randomizer.

    Notes
    -----
    Privacy cost: epsilon-LDP per report (randomized response; coins are independent of the data).
    """

    layout: Layout
    epsilon: float
    buckets: int
    elsewhere: bool

    def __post_init__(self) -> None:
        RandomizedResponse(self.epsilon, 2 * max(0, self.buckets) + self.elsewhere)

    @classmethod
    def calibrated(
        cls,
        question: KeyedMeans,
        epsilon: float,
        delta: float,
        honest: int,
        limit: float,
        allotment: Allotment | None = None,
    ) -> Self:
        """Return the most informative symbol for a promise.

        Parameters
        ----------
        question
            The keys, and how many people are expected to have one.
        epsilon, delta
            The promise; of each report by itself if ``honest`` is 0.
        honest
            Reports of a shuffled batch that the promise counts on.
        limit
            The most that a shuffled report may cost by itself.
        allotment
            What one of several reports of a person may cost; None: the whole promise.
        """
        shares = (_coarse(question.undecided), _coarse(question.key_share))
        best = _best(epsilon, delta, honest, limit, allotment, *shares)
        return cls(question.layout, *best)

    def variance(self, question: KeyedMeans) -> float:
        """Return the variance of a report's estimate of (share of people with a typical key) * (expected rate).

        Of the score less its best multiple of whether there is one (a control variate), which is as large as it may be
        without knowing who has the key.
        """
        own, other, none = self._hits()
        share, score = question.key_share, 2 * (question.rate or 0.0) - 1
        hit = share * own + max(0.0, question.undecided - share) * other + (1 - question.undecided) * none
        expected = self.response.gain * share * score
        most = self.response.gain * abs(score) / max(own - other, 1e-12)
        times = float(np.clip(expected / hit, -most, most)) if hit < 1 else 0.0
        spread = hit * (1 + times**2) - 2 * times * expected - (expected - times * hit) ** 2
        return spread / (2 * self.response.gain) ** 2

    def _hits(self) -> tuple[float, float, float]:
        """Return the probabilities of a score for people with the key, with another one, and with none."""
        own = self.response.truth + self.response.other
        other = own / self.buckets + 2 * self.response.other * (1 - 1 / self.buckets)
        return own, other, 2 * self.response.other if self.elsewhere else 1 / self.buckets

    @cached_property
    def response(self) -> RandomizedResponse:
        """The randomizer of the symbol; its probabilities also debias."""
        return RandomizedResponse(self.epsilon, self.symbols)

    @property
    def symbols(self) -> int:
        """Size of the alphabet."""
        return 2 * self.buckets + self.elsewhere

    @property
    @override
    def coins_choose(self) -> bool:
        return True

    @override
    def shuffled(self, honest: int) -> Event:
        return ShuffledResponse(self.epsilon, self.symbols, honest)

    @override
    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> NDArray[np.void]:
        bits = bernoulli(contributions.values, noise)
        return with_coins(contributions.coins, self.response.randomize(self._truth(contributions, bits), noise))

    def _truth(self, contributions: KeyedValues, bits: NDArray[np.int64]) -> NDArray[np.int64]:
        truth = np.full(len(bits), 2 * self.buckets if self.elsewhere else -1, dtype=np.int64)
        asked = np.flatnonzero(contributions.keys >= 0)
        hashes = self.layout.hashes(contributions.coins[asked], contributions.keys[asked])
        truth[asked] = 2 * bucket(hashes, self.buckets) + (bits[asked] * sign(hashes) > 0)
        return truth

    @override
    def empty(self) -> KeyedTotal:
        return KeyedTotal.empty(self.layout.keys, self.layout.groups)

    @override
    def add(self, total: KeyedTotal, reports: NDArray[np.void]) -> KeyedTotal:
        step = max(1, BLOCK // max(1, self.layout.keys))
        for start in range(0, len(reports), step):
            total = total.merged(self._count(reports[start : start + step]))
        return total

    def _count(self, reports: NDArray[np.void]) -> KeyedTotal:
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
        hits = hit.sum(axis=0, dtype=np.int64)
        return KeyedTotal(len(reports), sums.astype(np.int64).reshape(shape), counts.reshape(shape), hits)

    def _released(self, total: KeyedTotal) -> KeyedSums:
        own, other, without = self._hits()
        sums, hits = total.sums.astype(np.float64), total.hits.astype(np.float64)
        return KeyedSums(total.reports, sums, total.counts, hits, self.response.gain, own, other, 0.0, without)

    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> KeyedSums:
        """Draw a release without hashing every (report, key).

        The distribution is exact when the coins' hashes are independent between keys: given how many people of each
        key send a bucket's symbol, a report of another key scores 0 but with probability 1/buckets, and then a fair
        sign.
        """
        has = contributions.keys >= 0
        cells = contributions.keys[has] * self.layout.groups + contributions.groups[has]
        won = rng.random(len(cells)) < contributions.values[has]
        size = self.layout.keys * self.layout.groups
        counts = np.stack([np.bincount(cells[~won], minlength=size), np.bincount(cells[won], minlength=size)], axis=1)
        shape = (self.layout.keys, self.layout.groups, 2)
        return self.simulate_counts(counts.reshape(shape), len(contributions) - len(cells), rng)

    def simulate_counts(self, counts: NDArray[np.int64], without: int, rng: "np.random.Generator") -> KeyedSums:
        """Simulate people counted by key, group and value 0 or 1, (keys, groups, 2), and people without a key."""
        return self._released(_simulated(self, counts, without, rng))

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        sizes = ((1.0, 1, False), (1.0, 1, True), (2.0, 3, False), (4.0, 8, True))
        return {
            f"{epsilon:g}-{buckets}{'-elsewhere' * elsewhere}": cls(Layout.small(), epsilon, buckets, elsewhere)
            for epsilon, buckets, elsewhere in sizes
        }


def _simulated(mechanism: SignedSymbol, counts: Any, without: int, rng: "np.random.Generator") -> KeyedTotal:
    layout, response = mechanism.layout, mechanism.response
    shape = (layout.keys, layout.groups)
    own = counts.reshape(-1, 2)
    people = int(own.sum()) + without
    # The people of a cell send the right symbol, the wrong one, one of another bucket, or "elsewhere".
    rest = 2 * (mechanism.buckets - 1) * response.other
    probabilities = [response.truth, response.other, rest, response.other * mechanism.elsewhere]
    sent = rng.multinomial(own, np.array(probabilities) / sum(probabilities))
    own_sums = (sent[:, 1, 0] - sent[:, 1, 1] - sent[:, 0, 0] + sent[:, 0, 1]).reshape(shape)
    own_counts = own.sum(axis=1).reshape(shape)
    own_bucketed = sent[..., :3].sum(axis=(1, 2)).reshape(shape).sum(axis=1)
    own_hits = sent[..., :2].sum(axis=(1, 2)).reshape(shape).sum(axis=1)

    bucketed_probability = 2 * mechanism.buckets * response.other if mechanism.elsewhere else 1.0
    bucketed = int(own_bucketed.sum()) + int(rng.binomial(without, min(1.0, bucketed_probability)))
    others = people - own_counts.sum(axis=1)
    hits = rng.binomial(bucketed - own_bucketed, 1.0 / mechanism.buckets)
    shares = layout.shares
    hits_by_group = rng.multinomial(hits, shares)
    misses_by_group = rng.multinomial(others - hits, shares)
    sums = own_sums + 2 * rng.binomial(hits_by_group, 0.5) - hits_by_group
    seen = own_counts + hits_by_group + misses_by_group
    return KeyedTotal(people, sums, seen, hits + own_hits)


def information(local_epsilon: float, buckets: int, elsewhere: bool, undecided: float, key_share: float) -> float:
    """Return squared gain over variance of one report's score at a key: what one person reveals about one key."""
    response = RandomizedResponse(local_epsilon, 2 * buckets + elsewhere)
    own = response.truth + response.other
    same_bucket = own / buckets + 2 * response.other * (1 - 1 / buckets)
    without = 2 * response.other if elsewhere else 1 / buckets
    variance = key_share * own + max(0.0, undecided - key_share) * same_bucket + (1 - undecided) * without
    return response.gain**2 / variance


def _coarse(share: float) -> float:
    """Round a share up to one of a few values, so that calibrations recur from round to round."""
    return min((value for value in _SHARES if value >= share), default=1.0)


@lru_cache(maxsize=4096)
def _best(
    epsilon: float,
    delta: float,
    honest: int,
    limit: float,
    allotment: Allotment | None,
    undecided: float,
    key_share: float,
) -> tuple[float, int, bool]:
    def local_epsilon(symbols: int) -> float:
        if not honest:
            return epsilon
        if allotment is None:
            return amplified_local_epsilon(epsilon, delta, symbols, honest, limit)
        return allotted_local_epsilon(allotment, symbols, honest, limit, proved=False)

    best, chosen = 0.0, (epsilon, 1, False)
    for elsewhere in (False, True) if undecided < 1 else (False,):
        previous = 0.0
        for buckets in _BUCKETS:
            local = local_epsilon(2 * buckets + elsewhere)
            value = information(local, buckets, elsewhere, undecided, key_share)
            if value > best:
                best, chosen = value, (local, buckets, elsewhere)
            if value < previous:
                break
            previous = value
    if honest and allotment:
        _, buckets, elsewhere = chosen
        chosen = (allotted_local_epsilon(allotment, 2 * buckets + elsewhere, honest, limit), buckets, elsewhere)
    return chosen
