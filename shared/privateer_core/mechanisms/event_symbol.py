"""The mechanism of a single symbol for rare rewards: the key of an event, or no event."""

from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np
from typing_extensions import override

from privateer_core.accounting.allotment import Allotment, allotted_local_epsilon
from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.arrays import Bools, Coins, Ints, Records
from privateer_core.mechanisms.mechanism import KeyedTotal, LocalSymbol, with_coins
from privateer_core.primitives.contributions import KeyedEvents, KeyedValues
from privateer_core.primitives.public_coins import Layout, coin_classes
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.sampling.randomness import SYMBOLS_MAX, NoiseSource, RandomizedResponse, draw_signs

KEY_REPORT_CLASSES: Final = 10
"""The coins select one in ten reports to name the participant's key, which measures the shares of the keys."""
_KEY_REPORT_PROBABILITY: Final = -(-(1 << 32) // KEY_REPORT_CLASSES) / (1 << 32)
"""Probability that coins select a report to name the key."""


class EventTotal(KeyedTotal, frozen=True):
    """Integer counts over reports, of the shapes of `contributions.KeyedEvents`."""

    trials: int = 0


class EventSymbol(LocalSymbol, frozen=True, tag="event-symbol"):
    """Randomize (key, value) to one symbol: 0 for no event, or for a participant without a key, else ``1 + key``.

    The value becomes an event or none, at random and without bias. Participants without an event, nearly all if events
    are rare, have the same true symbol, and add no noise to a key. The coins select a tenth of the reports to name the
    key instead of an event, in a report of the same size and alphabet: those measure the share of participants with
    each key.

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
    Privacy cost: epsilon-LDP per report (randomized response). Coins are independent of the data, and for all coins the
    symbol is randomized response of the same alphabet around a symbol that coins and data determine.
    """

    counts_keys: ClassVar[bool] = True
    can_coins_choose_arm: ClassVar[bool] = True

    layout: Layout
    epsilon: float

    @classmethod
    def can_serve(cls, question: KeyedMeans) -> bool:
        """Whether the question expects a rate of events, and the alphabet is large enough for its keys."""
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
        symbols, local_epsilon = question.layout.keys + 1, epsilon
        if honest and allotment:
            local_epsilon = allotted_local_epsilon(allotment, symbols, honest, limit)
        elif honest:
            local_epsilon = amplified_local_epsilon(epsilon, delta, symbols, honest, limit)
        return cls(question.layout, local_epsilon)

    def variance(self, question: KeyedMeans) -> float:
        """Return the variance of a report's estimate of (share of participants with a typical key) * (expected rate).

        The uncertainty of the share, from the reports that name keys, counts in proportion to the rate.
        """
        response, rate = self.response, question.rate or 0.0
        p_event, p_key = (response.other + response.gain * question.key_share * p for p in (rate, 1.0))
        event_variance = p_event * (1 - p_event) / (1 - _KEY_REPORT_PROBABILITY)
        key_variance = rate**2 * p_key * (1 - p_key) / _KEY_REPORT_PROBABILITY
        return (event_variance + key_variance) / response.gain**2

    @cached_property
    def response(self) -> RandomizedResponse:
        """The randomizer of the symbol; its probabilities also debias."""
        return RandomizedResponse(self.epsilon, self.layout.keys + 1)

    def is_key_report(self, coins: Coins) -> Bools:
        """Whether reports with these public coins name the participant's key instead of an event; shape (n,)."""
        return np.asarray(coin_classes(coins, self.layout.seed, KEY_REPORT_CLASSES) == 0)

    @override
    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> Records:
        bits = draw_signs(contributions.values, noise)
        return with_coins(contributions.coins, self.response.randomize(self.true_symbols(contributions, bits), noise))

    def true_symbols(self, contributions: KeyedValues, bits: Ints) -> Ints:
        """Return the participants' true symbols for values drawn as ``bits`` of 1 or -1, (n,). Secret."""
        has_symbol = (bits > 0) | self.is_key_report(contributions.coins)
        return np.where(has_symbol & (contributions.keys >= 0), contributions.keys + 1, 0)

    @override
    def empty(self) -> EventTotal:
        return EventTotal.empty(self.layout.keys, self.layout.groups)

    @override
    def add(self, total: EventTotal, reports: Records) -> EventTotal:
        """Return ``total`` with the events by key and group, and the key reports by key, counted in."""
        shape = (self.layout.keys, self.layout.groups)
        is_key_report, keys = self.is_key_report(reports["slot"]), reports["symbol"].astype(np.int64) - 1
        hits = np.bincount(keys[is_key_report & (keys >= 0)], minlength=shape[0])
        is_event_report = ~is_key_report & (keys >= 0)
        event_keys = keys[is_event_report]
        groups = self.layout.find_groups(self.layout.hashes(reports["slot"][is_event_report], event_keys), event_keys)
        sums = np.bincount(event_keys * shape[1] + groups, minlength=shape[0] * shape[1]).reshape(shape)
        counts = self.layout.group_sizes(reports["slot"][~is_key_report])
        return total.merge_with(EventTotal(len(reports), sums, counts, hits, int(is_key_report.sum())))

    def _build_release(self, total: EventTotal) -> KeyedEvents:
        sums, hits = total.sums.astype(np.float64), total.hits.astype(np.float64)
        gain, other = self.response.gain, self.response.other
        return KeyedEvents(total.reports, sums, total.counts, hits, total.trials, gain, other)

    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> KeyedEvents:
        """Draw a release without hashing every (report, key); exact when the coins' hashes are independent."""
        has_key = contributions.keys >= 0
        cells = contributions.keys[has_key] * self.layout.groups + contributions.groups[has_key]
        is_event = rng.random(len(cells)) < contributions.values[has_key]
        shape = (self.layout.keys, self.layout.groups, 2)
        counts = np.bincount(2 * cells + is_event, minlength=2 * self.layout.keys * self.layout.groups).reshape(shape)
        return self.simulate_counts(counts, len(contributions) - len(cells), rng)

    def simulate_counts(self, counts: Ints, n_keyless: int, rng: "np.random.Generator") -> KeyedEvents:
        """Simulate the release of participants counted by key, group and event, (keys, groups, 2), or without a key."""
        keys = np.arange(self.layout.keys)
        # The public coins tell a tenth of the participants to report their key, and the others to report an event.
        key_reporters = rng.binomial(counts, _KEY_REPORT_PROBABILITY)
        n_keyless_key_reporters = int(rng.binomial(n_keyless, _KEY_REPORT_PROBABILITY))
        n_by_key = np.append(key_reporters.sum(axis=(1, 2)), n_keyless_key_reporters)
        key_symbols = self._draw_symbols(n_by_key, np.append(keys + 1, 0), rng)
        event_reporters = counts - key_reporters
        true_symbols = np.broadcast_to((keys[:, None, None] + 1) * np.array([0, 1]), event_reporters.shape)
        n_by_event = np.append(event_reporters, n_keyless - n_keyless_key_reporters)
        event_symbols = self._draw_symbols(n_by_event, np.append(true_symbols, 0), rng)
        members = event_reporters.sum(axis=2)
        member_events = event_symbols[:-1].reshape(*event_reporters.shape, -1).sum(axis=2)[keys, :, keys + 1]
        # All others are in a random group of a key, because their coins hash to one whatever they report.
        n_others = int(n_by_event.sum()) - members.sum(axis=1)
        n_other_events = event_symbols.sum(axis=0)[1:] - member_events.sum(axis=1)
        other_events = rng.multinomial(n_other_events, self.layout.shares)
        event_counts = member_events + other_events
        group_sizes = members + other_events + rng.multinomial(n_others - n_other_events, self.layout.shares)
        n_participants, n_key_reporters = int(counts.sum()) + n_keyless, int(n_by_key.sum())
        key_counts = key_symbols.sum(axis=0)[1:]
        return self._build_release(EventTotal(n_participants, event_counts, group_sizes, key_counts, n_key_reporters))

    def _draw_symbols(self, counts: Ints, true_symbols: Ints, rng: "np.random.Generator") -> Ints:
        """Draw the numbers of sent symbols, (rows, symbols), of ``counts`` participants with each true symbol."""
        n_kept = rng.binomial(counts, self.response.gain)
        n_sent = rng.multinomial(counts - n_kept, np.full(self.symbols, 1 / self.symbols))
        n_sent[np.arange(len(counts)), true_symbols] += n_kept
        return np.asarray(n_sent)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        grouped = {f"{epsilon:g}": cls(Layout.example(), epsilon) for epsilon in (1.0, 3.0)}
        return grouped | {"2-ungrouped": cls(Layout.ungrouped(4, 5), 2.0)}
