"""The mechanism of one bit per participant, in public groups that coins choose."""

from functools import cached_property
from typing import ClassVar, Final, Self

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.accounting.events import Event, GroupedResponse, Parallel
from privateer_core.accounting.grouped_bits import grouped_local_epsilon
from privateer_core.arrays import Array, Coins, Ints, Records
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import LocalSymbol, Total, with_coins
from privateer_core.primitives.contributions import GroupSums, KeyedValues
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.sampling.randomness import NoiseSource, RandomizedResponse, draw_signs

SYMBOLS: Final = 2
_SHARE_BITS: Final = 6
"""Significant bits of the group shares that a promise counts on, so that calibrations recur from round to round."""


class GroupTotal(Total, frozen=True):
    """Integer sums over reports, of the shapes of `contributions.GroupSums`."""

    sums: Ints
    counts: Ints


class GroupedBit(LocalSymbol, frozen=True, tag="grouped-bit"):
    """Randomize a value to a bit, with the local epsilon of the group of the report's coins.

    The public coins choose the group independently of the participant. So each group of a batch is a batch of its own,
    even if its members are public, and the fewer participants it has the noisier their bits are.

    Parameters
    ----------
    layout
        One key, and the groups that coins choose.
    epsilons
        Pure local privacy of a report of each group, for the whole record; (groups,).

    Raises
    ------
    SpecError
        If there is no such randomizer.

    Notes
    -----
    Privacy cost: the epsilon of the group, pure, per report (randomized response; coins are independent of the data).
    The cost of a batch with public groups is that of the worst group (docs/privacy/shuffling.md).
    """

    counts_shares: ClassVar[bool] = True
    can_coins_choose_arm: ClassVar[bool] = True

    layout: Layout
    epsilons: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.layout.keys != 1 or len(self.epsilons) != self.layout.groups:
            raise SpecError("must be one for each group of one key", field="epsilons", remedy="use what the spec says")
        _ = self.responses  # refuses epsilons without a randomizer

    @classmethod
    def amplified(cls, question: KeyedMeans, epsilon: float, delta: float, honest: int, limit: float) -> Self:
        """Return the mechanism with the largest local epsilons, up to ``limit``, at which all groups keep a promise.

        No group has less than ``epsilon``, which needs no batch.
        """

        def amplify(share: float) -> float:
            return grouped_local_epsilon(epsilon, delta, honest, limit, share)

        shares = _promised_shares(question.layout)
        return cls(question.layout, tuple(amplify(share) if share else min(epsilon, limit) for share in shares))

    @property
    def epsilon(self) -> float:
        """Pure local privacy of a report in the least private group."""
        return max(self.epsilons)

    @override
    def batch_event(self, honest: int) -> Event:
        """Return the groups' events in parallel: a participant is in one group, independently of the records."""
        epsilons_and_shares = zip(self.epsilons, self.promised_shares, strict=True)
        events = {GroupedResponse(epsilon, honest, share) for epsilon, share in epsilons_and_shares if share}
        return Parallel(tuple(sorted(events, key=repr)))

    @cached_property
    def promised_shares(self) -> tuple[float, ...]:
        """Share of the coins in each group that the promise counts on; 0 for an empty group."""
        return _promised_shares(self.layout)

    @cached_property
    def responses(self) -> tuple[RandomizedResponse, ...]:
        """The randomizer of each group; its probabilities also debias."""
        return tuple(RandomizedResponse(epsilon, SYMBOLS) for epsilon in self.epsilons)

    @property
    def response(self) -> RandomizedResponse:
        """The randomizer of the least private group."""
        return max(self.responses, key=lambda response: response.epsilon)

    @property
    def gains(self) -> Array:
        """Divisors of debiasing; shape (groups,)."""
        return np.array([response.gain for response in self.responses])

    def coin_groups(self, coins: Coins) -> Ints:
        """Return the public groups of coins, (n,)."""
        key = np.zeros(1, np.int64)
        return self.layout.find_groups(self.layout.hashes(coins, key), key)

    @override
    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> Records:
        """Randomize each value to a bit with the local epsilon of its coins' group; return n reports."""
        bits = draw_signs(contributions.values, noise)
        truth = np.where(contributions.keys < 0, -1, bits > 0)
        groups, bits_sent = self.coin_groups(contributions.coins), np.zeros(len(contributions), np.int64)
        for group in np.unique(groups):
            in_group = groups == group
            bits_sent[in_group] = self.responses[group].randomize(truth[in_group], noise)
        return with_coins(contributions.coins, bits_sent)

    @override
    def empty(self) -> GroupTotal:
        zeros = np.zeros((1, self.layout.groups), np.int64)
        return GroupTotal(0, zeros, zeros)

    @override
    def add(self, total: GroupTotal, reports: Records) -> GroupTotal:
        """Return ``total`` with the scores and the number of reports of each group added."""
        groups, scores = self.coin_groups(reports["slot"]), 2 * reports["symbol"].astype(np.int64) - 1
        counts = np.bincount(groups, minlength=self.layout.groups)
        sums = np.rint(np.bincount(groups, scores, self.layout.groups)).astype(np.int64)
        return total.merge_with(GroupTotal(len(reports), sums[None], counts[None]))

    def _build_release(self, total: GroupTotal) -> GroupSums:
        return GroupSums(total.reports, total.sums.astype(np.float64), total.counts, self.gains)

    @override
    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> GroupSums:
        """Draw a release: bits from a seeded generator, counted as reports are."""
        n_participants, groups = len(contributions), self.coin_groups(contributions.coins)
        is_kept = (rng.random(n_participants) < self.gains[groups]) & (contributions.keys >= 0)
        is_one = rng.random(n_participants) < np.where(is_kept, contributions.values, 0.5)
        return self._build_release(self.add(self.empty(), with_coins(contributions.coins, is_one.astype(np.int64))))

    @override
    def with_less_noise(self, factor: float) -> Self:
        """Return the mechanism with ``factor`` times the epsilons."""
        return msgspec.structs.replace(self, epsilons=tuple(factor * epsilon for epsilon in self.epsilons))

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        layout = Layout(5, np.array([[13_107, 45_875]], np.uint32))
        return {"alike": cls(layout, (1.0, 1.0, 1.0)), "apart": cls(layout, (1.5, 3.0, 2.0))}


def _promised_shares(layout: Layout) -> tuple[float, ...]:
    """Return the share of the coins in each group of a layout of one key, rounded down to a few binary digits."""
    units = np.rint(layout.shares[0] * UNIT).astype(np.int64)
    return tuple(_round_down(int(n_units)) / UNIT for n_units in units)


def _round_down(n_units: int) -> int:
    n_dropped_bits = max(0, n_units.bit_length() - _SHARE_BITS)
    return n_units >> n_dropped_bits << n_dropped_bits
