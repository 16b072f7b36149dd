"""The mechanism of one symbol for rare rewards: that there was one in the person's key, or that there was none."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.allotment import Allotment, allotted_local_epsilon
from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.events import Event, ShuffledResponse
from privateer_core.mechanisms.local_symbol import LocalSymbol, with_coins
from privateer_core.mechanisms.mechanism import KeyedTotal
from privateer_core.primitives.contributions import KeyedEvents, KeyedValues
from privateer_core.primitives.public_coins import Layout, classes_of
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.response import SYMBOLS_MAX, RandomizedResponse, bernoulli

NAMING: Final = 10
"""The coins have one of so many reports name the person's key, so that shares of people are measured as well."""
_NAMES: Final = -(-(1 << 32) // NAMING) / (1 << 32)
"""The share of coins that do."""


@dataclass(frozen=True)
class EventTotal(KeyedTotal):
    """Integer counts over reports, of the shapes of `contributions.KeyedEvents`."""

    trials: int = 0


class EventSymbol(LocalSymbol, frozen=True, tag="event-symbol"):
    """Randomize (key, value) to one symbol: 0 says that there was no event, or that the person has no key.

    The value becomes an event or none, at random and without bias; ``1 + key`` says that there was one in the key.
    People without an event, who are nearly all where events are rare, send one and the same symbol, and noise that is
    in no key. The coins have a tenth of the reports name the key in place of its events, in a report of the same size
    and alphabet: those measure which share of the people has it.

    Parameters
    ----------
    layout
        Keys and groups of the round, at least one key.
    epsilon
        Pure local privacy of a report, for key, group and value together.

    Raises
    ------
    SpecError
        If there is no such randomizer.

    Notes
    -----
    Privacy cost: epsilon-LDP per report (randomized response). Coins are independent of the data, and whatever they
    say, the symbol is randomized response of one alphabet around a symbol that coins and data determine.
    """

    counts_keys: ClassVar[bool] = True

    layout: Layout
    epsilon: float

    def __post_init__(self) -> None:
        RandomizedResponse(self.epsilon, self.symbols)

    @classmethod
    def serves(cls, question: KeyedMeans) -> bool:
        """Whether somebody expects a rate of events, and the keys have symbols enough."""
        return question.rate is not None and 1 <= question.layout.keys < SYMBOLS_MAX

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
        """Return the symbol that keeps a promise; the parameters are those of `SignedSymbol.calibrated`."""
        symbols, local = question.layout.keys + 1, epsilon
        if honest and allotment:
            local = allotted_local_epsilon(allotment, symbols, honest, limit)
        elif honest:
            local = amplified_local_epsilon(epsilon, delta, symbols, honest, limit)
        return cls(question.layout, local)

    def variance(self, question: KeyedMeans) -> float:
        """Return the variance of a report's estimate of (share of people with a typical key) * (expected rate).

        The share is as uncertain as the reports that name keys leave it, which counts in proportion to the rate.
        """
        response, rate = self.response, question.rate or 0.0
        event, named = (response.other + response.gain * question.key_share * chance for chance in (rate, 1.0))
        spread = event * (1 - event) / (1 - _NAMES) + rate**2 * named * (1 - named) / _NAMES
        return spread / response.gain**2

    @cached_property
    def response(self) -> RandomizedResponse:
        """The randomizer of the symbol; its probabilities also debias."""
        return RandomizedResponse(self.epsilon, self.symbols)

    @property
    def symbols(self) -> int:
        """Size of the alphabet."""
        return self.layout.keys + 1

    @property
    @override
    def coins_choose(self) -> bool:
        return True

    @override
    def shuffled(self, honest: int) -> Event:
        return ShuffledResponse(self.epsilon, self.symbols, honest)

    def names(self, coins: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Whether reports with these public coins name the person's key in place of its events; shape (n,)."""
        return np.asarray(classes_of(coins, self.layout.seed, NAMING) == 0)

    @override
    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> NDArray[np.void]:
        bits = bernoulli(contributions.values, noise)
        return with_coins(contributions.coins, self.response.randomize(self.truth(contributions, bits), noise))

    def truth(self, contributions: KeyedValues, bits: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return everybody's own symbol for values drawn as ``bits`` of 1 or -1, (n,). Secret."""
        tells = (bits > 0) | self.names(contributions.coins)
        return np.where(tells & (contributions.keys >= 0), contributions.keys + 1, 0)

    @override
    def empty(self) -> EventTotal:
        none = KeyedTotal.empty(self.layout.keys, self.layout.groups)
        return EventTotal(0, none.sums, none.counts, none.hits)

    @override
    def add(self, total: EventTotal, reports: NDArray[np.void]) -> EventTotal:
        shape = (self.layout.keys, self.layout.groups)
        names, keys = self.names(reports["slot"]), reports["symbol"].astype(np.int64) - 1
        hits = np.bincount(keys[names & (keys >= 0)], minlength=shape[0])
        told = ~names & (keys >= 0)
        groups = self.layout.group(self.layout.hashes(reports["slot"][told], keys[told]), keys[told])
        sums = np.bincount(keys[told] * shape[1] + groups, minlength=shape[0] * shape[1]).reshape(shape)
        counts = self.layout.count(reports["slot"][~names])
        return total.merged(EventTotal(len(reports), sums, counts, hits, int(names.sum())))

    def _released(self, total: EventTotal) -> KeyedEvents:
        sums, hits = total.sums.astype(np.float64), total.hits.astype(np.float64)
        gain, other = self.response.gain, self.response.other
        return KeyedEvents(total.reports, sums, total.counts, hits, total.trials, gain, other)

    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> KeyedEvents:
        """Draw a release without hashing every (report, key); exact when the coins' hashes are independent."""
        has = contributions.keys >= 0
        cells = contributions.keys[has] * self.layout.groups + contributions.groups[has]
        won = rng.random(len(cells)) < contributions.values[has]
        shape = (self.layout.keys, self.layout.groups, 2)
        counts = np.bincount(2 * cells + won, minlength=2 * self.layout.keys * self.layout.groups).reshape(shape)
        return self.simulate_counts(counts, len(contributions) - len(cells), rng)

    def simulate_counts(self, counts: NDArray[np.int64], without: int, rng: "np.random.Generator") -> KeyedEvents:
        """Simulate people counted by key, group and value 0 or 1, (keys, groups, 2), and people without a key."""
        keys = np.arange(self.layout.keys)
        naming, nobody = rng.binomial(counts, _NAMES), int(rng.binomial(without, _NAMES))
        named = self._sent(np.append(naming.sum(axis=(1, 2)), nobody), np.append(keys + 1, 0), rng)
        about, rest = counts - naming, without - nobody
        truths = np.broadcast_to((keys[:, None, None] + 1) * np.array([0, 1]), about.shape)
        sent = self._sent(np.append(about, rest), np.append(truths, 0), rng)
        own = sent[:-1].reshape(*about.shape, -1).sum(axis=2)[keys, :, keys + 1]
        # A report of another key is in a group of this one by its coins, whatever it says.
        people, shares = about.sum(axis=2), self.layout.shares
        others = int(about.sum()) + rest - people.sum(axis=1)
        told = sent.sum(axis=0)[1:] - own.sum(axis=1)
        sums = own + (told_by_group := rng.multinomial(told, shares))
        seen = people + told_by_group + rng.multinomial(others - told, shares)
        trials = int(naming.sum()) + nobody
        total = EventTotal(int(counts.sum()) + without, sums, seen, named.sum(axis=0)[1:], trials)
        return self._released(total)

    def _sent(
        self, people: NDArray[np.int64], truths: NDArray[np.int64], rng: "np.random.Generator"
    ) -> NDArray[np.int64]:
        """Draw how many of so many people with each of some own symbols send which symbol, (rows, symbols)."""
        kept = rng.binomial(people, self.response.gain)
        sent = rng.multinomial(people - kept, np.full(self.symbols, 1 / self.symbols))
        sent[np.arange(len(people)), truths] += kept
        return np.asarray(sent)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        grouped = {f"{epsilon:g}": cls(Layout.small(), epsilon) for epsilon in (1.0, 3.0)}
        return grouped | {"2-ungrouped": cls(Layout.ungrouped(4, 5), 2.0)}
