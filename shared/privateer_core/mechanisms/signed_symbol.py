"""The mechanism of a signed symbol for keyed means: the default for locally private reports."""

from functools import cached_property, lru_cache
from typing import ClassVar, Final, Self

import numpy as np
from typing_extensions import override

from privateer_core.accounting.allotment import Allotment, allotted_local_epsilon
from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.arrays import Ints, Records
from privateer_core.mechanisms.mechanism import BLOCK, KeyedTotal, LocalSymbol, with_coins
from privateer_core.primitives.contributions import KeyedSums, KeyedValues
from privateer_core.primitives.public_coins import Layout, hash_to_bucket, hash_to_sign
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.sampling.randomness import NoiseSource, RandomizedResponse, draw_signs

_BUCKET_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_COARSE_SHARES: Final = (1.0, 0.7, 0.5, 0.35, 0.25, 0.125, 0.0625, 0.03, 0.015)


class SignedSymbol(LocalSymbol, frozen=True, tag="signed-symbol"):
    """Randomize (key, value) to one of 2 * buckets symbols, or to a further symbol "elsewhere".

    The value becomes a bit, the bit a sign; the coins' sign and bucket of the key turn it into the symbol
    ``2 * bucket + [sign * coins' sign = 1]``, which randomized response protects. A report counts towards every key of
    its bucket: reports of other keys cancel there, since the coins' signs are independent and public. The share of
    participants with a key is not measured: it is common to the key's groups.

    Parameters
    ----------
    layout
        Keys and groups of the round.
    epsilon
        Pure local privacy of a report, for key, group and value together.
    buckets
        At least 1.
    elsewhere
        Whether participants without a key have a symbol of their own; otherwise they send a uniform symbol.

    Raises
    ------
    SpecError
        If there is no such randomizer.

    Notes
    -----
    Privacy cost: epsilon-LDP per report (randomized response; coins are independent of the data).
    """

    can_coins_choose_arm: ClassVar[bool] = True

    layout: Layout
    epsilon: float
    buckets: int
    elsewhere: bool

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
            The keys, and the expected shares of participants with a key.
        epsilon, delta
            Promise; of each report by itself if ``honest`` is 0.
        honest
            Number of reports of a shuffled batch that the promise counts on.
        limit
            Largest local epsilon of a shuffled report.
        allotment
            Privacy budget of one of several reports of a participant; None: the whole promise.
        """
        shares = (_round_up_share(question.undecided), _round_up_share(question.key_share))
        return cls(question.layout, *_best_parameters(epsilon, delta, honest, limit, allotment, *shares))

    def variance(self, question: KeyedMeans) -> float:
        """Return the variance of a report's estimate of (share of participants with a typical key) * (expected rate).

        The estimate is the score minus the best multiple of the hit indicator (a control variate).
        """
        p_own, p_other, p_none = _hit_probabilities(self.response, self.buckets, self.elsewhere)
        share, score = question.key_share, 2 * (question.rate or 0.0) - 1
        hit = share * p_own + np.maximum(0.0, question.undecided - share) * p_other + (1 - question.undecided) * p_none
        expected = self.response.gain * share * score
        max_coefficient = self.response.gain * abs(score) / max(p_own - p_other, 1e-12)
        coefficient = np.where(hit < 1, np.clip(expected / hit, -max_coefficient, max_coefficient), 0.0)
        variance: float = hit * (1 + coefficient**2) - 2 * coefficient * expected - (expected - coefficient * hit) ** 2
        return variance / (2 * self.response.gain) ** 2

    @cached_property
    def response(self) -> RandomizedResponse:
        """The randomizer of the symbol; its probabilities also debias."""
        return RandomizedResponse(self.epsilon, 2 * self.buckets + self.elsewhere)

    @override
    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> Records:
        bits = draw_signs(contributions.values, noise)
        return with_coins(contributions.coins, self.response.randomize(self._true_symbols(contributions, bits), noise))

    def _true_symbols(self, contributions: KeyedValues, bits: Ints) -> Ints:
        """Return the true symbols (n,) for values drawn as signs; "elsewhere" or -1 without a key. Secret."""
        symbols = np.full(len(bits), 2 * self.buckets if self.elsewhere else -1, dtype=np.int64)
        has_key = np.flatnonzero(contributions.keys >= 0)
        hashes = self.layout.hashes(contributions.coins[has_key], contributions.keys[has_key])
        symbols[has_key] = 2 * hash_to_bucket(hashes, self.buckets) + (bits[has_key] * hash_to_sign(hashes) > 0)
        return symbols

    @override
    def empty(self) -> KeyedTotal:
        return KeyedTotal.empty(self.layout.keys, self.layout.groups)

    @override
    def add(self, total: KeyedTotal, reports: Records) -> KeyedTotal:
        """Return ``total`` with reports scored at every key of their bucket."""
        shape = n_keys, n_groups = self.layout.keys, self.layout.groups
        keys, step = np.arange(n_keys), max(1, BLOCK // max(1, n_keys))
        for start in range(0, len(reports), step):
            chunk = reports[start : start + step]
            hashes = self.layout.hashes(chunk["slot"][:, None], keys[None, :])
            symbols = chunk["symbol"].astype(np.int64)[:, None]
            is_hit = hash_to_bucket(hashes, self.buckets) == symbols >> 1
            scores = np.where(is_hit, hash_to_sign(hashes) * (2 * (symbols & 1) - 1), 0)
            cells = (self.layout.find_groups(hashes, keys[None, :]) + keys * n_groups).ravel()
            sums = np.bincount(cells, weights=scores.ravel(), minlength=n_keys * n_groups).astype(np.int64)
            counts = np.bincount(cells, minlength=n_keys * n_groups)
            hits = is_hit.sum(axis=0, dtype=np.int64)
            total = total.merge_with(KeyedTotal(len(chunk), sums.reshape(shape), counts.reshape(shape), hits))
        return total

    def _build_release(self, total: KeyedTotal) -> KeyedSums:
        p_own, p_other, p_none = _hit_probabilities(self.response, self.buckets, self.elsewhere)
        sums, hits = total.sums.astype(np.float64), total.hits.astype(np.float64)
        return KeyedSums(total.reports, sums, total.counts, hits, self.response.gain, p_own, p_other, 0.0, p_none)

    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> KeyedSums:
        """Draw a release without hashing every (report, key).

        The distribution is exact when the coins' hashes are independent between keys: given the number of participants
        of each key who send a bucket's symbol, a report of another key scores 0 but with probability 1/buckets, and
        then a fair sign.
        """
        has_key = contributions.keys >= 0
        cells = contributions.keys[has_key] * self.layout.groups + contributions.groups[has_key]
        is_one = rng.random(len(cells)) < contributions.values[has_key]
        shape = (self.layout.keys, self.layout.groups, 2)
        counts = np.bincount(2 * cells + is_one, minlength=2 * self.layout.keys * self.layout.groups).reshape(shape)
        return self.simulate_counts(counts, len(contributions) - len(cells), rng)

    def simulate_counts(self, counts: Ints, n_keyless: int, rng: "np.random.Generator") -> KeyedSums:
        """Simulate the release of participants counted by key, group and value, (keys, groups, 2), or without a key."""
        response, shape = self.response, (self.layout.keys, self.layout.groups)
        member_counts = counts.reshape(-1, 2)
        n_participants = int(member_counts.sum()) + n_keyless
        # Participants of a cell send the true symbol, that of the other sign, one of another bucket, or "elsewhere".
        other_buckets = 2 * (self.buckets - 1) * response.other
        probabilities = [response.truth, response.other, other_buckets, response.other * self.elsewhere]
        symbols = rng.multinomial(member_counts, np.array(probabilities) / sum(probabilities))
        member_sums = (symbols[:, 1, 0] - symbols[:, 1, 1] - symbols[:, 0, 0] + symbols[:, 0, 1]).reshape(shape)
        members = member_counts.sum(axis=1).reshape(shape)
        members_in_buckets = symbols[..., :3].sum(axis=(1, 2)).reshape(shape).sum(axis=1)
        member_hits = symbols[..., :2].sum(axis=(1, 2)).reshape(shape).sum(axis=1)
        bucket_probability = 2 * self.buckets * response.other if self.elsewhere else 1.0
        n_in_buckets = int(members_in_buckets.sum()) + int(rng.binomial(n_keyless, min(1.0, bucket_probability)))
        n_others = n_participants - members.sum(axis=1)
        hits = rng.binomial(n_in_buckets - members_in_buckets, 1.0 / self.buckets)
        hits_by_group = rng.multinomial(hits, self.layout.shares)
        misses_by_group = rng.multinomial(n_others - hits, self.layout.shares)
        sums = member_sums + 2 * rng.binomial(hits_by_group, 0.5) - hits_by_group
        group_counts = members + hits_by_group + misses_by_group
        return self._build_release(KeyedTotal(n_participants, sums, group_counts, hits + member_hits))

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return small instances with few and many buckets, with and without the symbol "elsewhere"."""
        sizes = ((1.0, 1, False), (1.0, 1, True), (2.0, 3, False), (4.0, 8, True))
        symbols = [cls(Layout.example(), *parameters) for parameters in sizes]
        return {f"{s.epsilon:g}-{s.buckets}{'-elsewhere' * s.elsewhere}": s for s in symbols}


def key_information(local_epsilon: float, buckets: int, elsewhere: bool, undecided: float, key_share: float) -> float:
    """Return squared gain over variance of a report's score at a key: a participant's information on a key."""
    response = RandomizedResponse(local_epsilon, 2 * buckets + elsewhere)
    p_own, p_other, p_none = _hit_probabilities(response, buckets, elsewhere)
    variance = key_share * p_own + max(0.0, undecided - key_share) * p_other + (1 - undecided) * p_none
    return response.gain**2 / variance


def _hit_probabilities(response: RandomizedResponse, buckets: int, elsewhere: bool) -> tuple[float, float, float]:
    """Return the probabilities of a score for participants with the key, with another key, and without a key."""
    p_own = response.truth + response.other
    p_other = p_own / buckets + 2 * response.other * (1 - 1 / buckets)
    return p_own, p_other, 2 * response.other if elsewhere else 1 / buckets


def _round_up_share(share: float) -> float:
    """Round a share up to the next of nine values, so that calibrations recur from round to round."""
    return min((value for value in _COARSE_SHARES if value >= share), default=1.0)


@lru_cache(maxsize=4096)
def _best_parameters(
    epsilon: float,
    delta: float,
    honest: int,
    limit: float,
    allotment: Allotment | None,
    undecided: float,
    key_share: float,
) -> tuple[float, int, bool]:
    """Return the local epsilon, the number of buckets and whether there is "elsewhere", most informative."""

    def local_epsilon(symbols: int) -> float:
        if not honest:
            return epsilon
        if allotment is None:
            return amplified_local_epsilon(epsilon, delta, symbols, honest, limit)
        return allotted_local_epsilon(allotment, symbols, honest, limit, proved=False)

    best_score, parameters = 0.0, (epsilon, 1, False)
    for elsewhere in (False, True) if undecided < 1 else (False,):
        previous = 0.0
        for buckets in _BUCKET_COUNTS:
            chosen_epsilon = local_epsilon(2 * buckets + elsewhere)
            score = key_information(chosen_epsilon, buckets, elsewhere, undecided, key_share)
            if score > best_score:
                best_score, parameters = score, (chosen_epsilon, buckets, elsewhere)
            if score < previous:
                break
            previous = score
    if honest and allotment:
        _, buckets, elsewhere = parameters
        parameters = (allotted_local_epsilon(allotment, 2 * buckets + elsewhere, honest, limit), buckets, elsewhere)
    return parameters
