"""The mechanism of rounds whose participants take different tiers: a signed symbol at each tier's own epsilon."""

from functools import cached_property
from typing import ClassVar, Final, Self

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.accounting.events import Event
from privateer_core.arrays import Ints, Records
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import REPORT, KeyedTotal, LocalSymbol
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.primitives.contributions import KeyedValues, TieredSums
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.sampling.randomness import NoiseSource, RandomizedResponse

_ALPHABET_MAX: Final = 1 << 16
"""Largest number of symbols of all tiers together, which a report has two bytes for."""


class Channel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a tier's `SignedSymbol`, and the share of participants who are expected to take the tier."""

    epsilon: float
    buckets: int
    elsewhere: bool
    share: float


class TieredTotal(msgspec.Struct, frozen=True):
    """The totals of the tiers' reports."""

    tiers: tuple[KeyedTotal, ...]

    @property
    def reports(self) -> int:
        """Number of reports of all tiers."""
        return sum(total.reports for total in self.tiers)

    def merge_with(self, other: Self) -> Self:
        """Return the total of two disjoint sets of reports."""
        return type(self)(tuple(left.merge_with(right) for left, right in zip(self.tiers, other.tiers, strict=True)))


class TieredSymbol(LocalSymbol, frozen=True, omit_defaults=True, tag="tiered-symbol"):
    """Randomize (key, value) by the `SignedSymbol` of the participant's tier, in an alphabet of the tier's own.

    The symbols of a tier follow those of the tiers before it, so that a report shows its tier: estimates of each tier
    are debiased by its own probabilities, and combined by inverse variance (`TieredSums`). Which tier a participant
    takes is public; key and value are as secret as the tier's epsilon says.

    Parameters
    ----------
    layout
        Keys and groups of the round, the same in all tiers.
    channels
        The tiers: first that of the experiment's own epsilon, then the others as in the spec.
    tier
        The tier of the participant whose reports are randomized.

    Raises
    ------
    SpecError
        If there is no such randomizer, tier or alphabet.

    Notes
    -----
    Privacy cost: that of the tier's signed symbol. Its symbols are shifted by a public number.
    """

    can_coins_choose_arm: ClassVar[bool] = True

    layout: Layout
    channels: tuple[Channel, ...]
    tier: int = 0

    @override
    def __post_init__(self) -> None:
        if not 0 <= self.tier < len(self.channels):
            raise SpecError("there is no such tier", field="tier", remedy="fetch the policy again")
        if self.symbols > _ALPHABET_MAX:
            raise SpecError("the tiers have too many symbols", field="channels", remedy="have fewer tiers")

    @classmethod
    def calibrated(cls, question: KeyedMeans, tiers: tuple[tuple[float, float], ...]) -> Self:
        """Return the most informative signed symbol of every tier, by its epsilon and expected share of people."""
        symbols = [SignedSymbol.calibrated(question, epsilon, 0.0, 0, epsilon) for epsilon, _ in tiers]
        pairs = zip(symbols, tiers, strict=True)
        channels = tuple(
            Channel(symbol.epsilon, symbol.buckets, symbol.elsewhere, share) for symbol, (_, share) in pairs
        )
        return cls(question.layout, channels)

    @cached_property
    def tier_symbols(self) -> tuple[SignedSymbol, ...]:
        """The signed symbol of every tier."""
        return tuple(
            SignedSymbol(self.layout, channel.epsilon, channel.buckets, channel.elsewhere) for channel in self.channels
        )

    @cached_property
    def first_symbols(self) -> Ints:
        """The first symbol of every tier, and at the end the size of the alphabet; shape (tiers + 1,)."""
        return np.cumsum([0, *(symbol.symbols for symbol in self.tier_symbols)])

    @property
    @override
    def epsilon(self) -> float:
        return self.channels[self.tier].epsilon

    @property
    @override
    def response(self) -> RandomizedResponse:
        return self.tier_symbols[self.tier].response

    @property
    @override
    def symbols(self) -> int:
        return int(self.first_symbols[-1])

    @override
    def batch_event(self, honest: int) -> Event | None:
        """Return None: reports of a batch would show their tiers."""
        return None

    def variance(self, question: KeyedMeans) -> float:
        """Return the variance of an estimate per report, with the tiers' expected shares, by inverse variance."""
        pairs = zip(self.tier_symbols, self.channels, strict=True)
        return 1 / sum(channel.share / symbol.variance(question) for symbol, channel in pairs)

    def draw_tiers(self, n_participants: int, rng: "np.random.Generator") -> Ints:
        """Draw the tiers of simulated participants by the expected shares, (n,)."""
        return np.asarray(
            rng.choice(len(self.channels), n_participants, p=[channel.share for channel in self.channels])
        )

    @override
    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> Records:
        reports = np.empty(len(contributions), dtype=REPORT)
        for tier, rows in self._rows_by_tier(contributions):
            if len(rows):
                reports[rows] = self.tier_symbols[tier].randomize(contributions.select(rows), noise)
                reports["symbol"][rows] += np.uint16(self.first_symbols[tier])
        return reports

    def _rows_by_tier(self, contributions: KeyedValues) -> list[tuple[int, Ints]]:
        """Return the participants of every tier, who are of `tier` unless the contributions say otherwise."""
        tiers = np.full(len(contributions), self.tier) if contributions.tiers is None else contributions.tiers
        return [(tier, np.flatnonzero(tiers == tier)) for tier in range(len(self.channels))]

    @override
    def empty(self) -> TieredTotal:
        return TieredTotal(tuple(symbol.empty() for symbol in self.tier_symbols))

    @override
    def add(self, total: TieredTotal, reports: Records) -> TieredTotal:
        """Return ``total`` with the reports of every tier added to the tier's own total."""
        tiers = np.searchsorted(self.first_symbols, reports["symbol"], side="right") - 1
        totals = []
        for tier, symbol in enumerate(self.tier_symbols):
            own_reports = reports[tiers == tier]
            own_reports["symbol"] -= np.uint16(self.first_symbols[tier])
            totals.append(symbol.add(total.tiers[tier], own_reports))
        return TieredTotal(tuple(totals))

    @override
    def _build_release(self, total: TieredTotal) -> TieredSums:
        pairs = zip(self.tier_symbols, total.tiers, strict=True)
        return TieredSums.pool(tuple(symbol._build_release(own_total) for symbol, own_total in pairs))

    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> TieredSums:
        """Draw a release from those of the tiers."""
        rows_by_tier = self._rows_by_tier(contributions)
        releases = (self.tier_symbols[tier].simulate(contributions.select(rows), rng) for tier, rows in rows_by_tier)
        return TieredSums.pool(tuple(releases))

    @override
    def with_less_noise(self, factor: float) -> Self:
        """Return the mechanism with ``factor`` times the epsilon of every tier."""
        channels = tuple(
            msgspec.structs.replace(channel, epsilon=factor * channel.epsilon) for channel in self.channels
        )
        return msgspec.structs.replace(self, channels=channels)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return a small instance for the participants of each of two tiers."""
        channels = (Channel(1.0, 1, False, 0.5), Channel(4.0, 8, True, 0.5))
        return {f"tier {tier}": cls(Layout.example(), channels, tier) for tier in range(len(channels))}
