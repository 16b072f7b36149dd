"""The mechanism of one bit a person, in groups that public coins choose and everybody may see."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.events import Event, Parallel, Pure, ShuffledResponse
from privateer_core.errors import SpecError
from privateer_core.mechanisms.local_symbol import REPORT, with_coins
from privateer_core.mechanisms.mechanism import Mechanism, check_range, whole
from privateer_core.primitives.contributions import GroupSums, KeyedValues, Total
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.response import RandomizedResponse, bernoulli

SYMBOLS: Final = 2
_DIGITS: Final = 6
"""Binary digits of the shares that a promise counts on, so that calibrations recur from round to round."""


@dataclass(frozen=True)
class GroupTotal(Total):
    """Integer sums over reports, of the shapes of `contributions.GroupSums`."""

    sums: NDArray[np.int64]
    counts: NDArray[np.int64]


class GroupedBit(Mechanism, frozen=True, tag="grouped-bit"):
    """Randomize a value to a bit, with a local epsilon that the group of the report's coins has.

    The coins, which everybody sees, choose the group whoever the person is. So each group of a batch is a batch of its
    own, however many see who is in which, and the fewer people it has the less exact their bits are.

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
    What a batch costs with who is in which group is the worst of the groups (docs/privacy/shuffling.md).
    """

    message: ClassVar = REPORT
    pure: ClassVar[bool] = True
    counts_shares: ClassVar[bool] = True

    layout: Layout
    epsilons: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.layout.keys != 1 or len(self.epsilons) != self.layout.groups:
            raise SpecError("must be one for each group of one key", field="epsilons", remedy="use what the spec says")
        for epsilon in self.epsilons:
            RandomizedResponse(epsilon, SYMBOLS)

    @classmethod
    def amplified(cls, question: KeyedMeans, epsilon: float, delta: float, honest: int, limit: float) -> Self:
        """Return the bits of the largest local epsilons, up to ``limit``, with which every group keeps a promise.

        No group has less than ``epsilon`` itself, which needs no batch.
        """
        layout = question.layout
        local = (
            amplified_local_epsilon(epsilon, delta, SYMBOLS, honest, limit, share) if share else min(epsilon, limit)
            for share in _counted(layout)
        )
        return cls(layout, tuple(local))

    @property
    @override
    def coins_choose(self) -> bool:
        return True

    @property
    @override
    def alone(self) -> Event:
        return Pure(self.local_epsilon)

    @property
    @override
    def local_epsilon(self) -> float:
        return max(self.epsilons)

    @override
    def shuffled(self, honest: int) -> Event:
        """Return the groups' events: a person is in one of them, whatever the records are."""
        groups = zip(self.epsilons, self.shared, strict=True)
        events = {ShuffledResponse(epsilon, SYMBOLS, honest, share) for epsilon, share in groups if share}
        return Parallel(tuple(sorted(events, key=repr)))

    @cached_property
    def shared(self) -> tuple[float, ...]:
        """The share of the coins that the promise to the people of each group counts on; 0 where nobody is."""
        return _counted(self.layout)

    @cached_property
    def responses(self) -> tuple[RandomizedResponse, ...]:
        """The randomizer of each group; its probabilities also debias."""
        return tuple(RandomizedResponse(epsilon, SYMBOLS) for epsilon in self.epsilons)

    @property
    def symbols(self) -> int:
        """Size of the alphabet."""
        return SYMBOLS

    @property
    def gains(self) -> NDArray[np.float64]:
        """What debiasing divides by, group by group; shape (groups,)."""
        return np.array([response.gain for response in self.responses])

    def groups_of(self, coins: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return the public groups of some coins, (n,)."""
        key = np.zeros(1, np.int64)
        return self.layout.group(self.layout.hashes(coins, key), key)

    @override
    def parse(self, rows: bytes) -> NDArray[np.void]:
        reports = whole(rows, REPORT)
        check_range(not np.any(reports["symbol"] >= SYMBOLS), "not a symbol of this round's alphabet")
        return reports

    @override
    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> NDArray[np.void]:
        bits = bernoulli(contributions.values, noise)
        truth = np.where(contributions.keys < 0, -1, bits > 0)
        groups, sent = self.groups_of(contributions.coins), np.zeros(len(contributions), np.int64)
        for group in np.unique(groups):
            own = groups == group
            sent[own] = self.responses[group].randomize(truth[own], noise)
        return with_coins(contributions.coins, sent)

    @override
    def empty(self) -> GroupTotal:
        none = np.zeros((1, self.layout.groups), np.int64)
        return GroupTotal(0, none, none)

    @override
    def add(self, total: GroupTotal, reports: NDArray[np.void]) -> GroupTotal:
        groups, scores = self.groups_of(reports["slot"]), 2 * reports["symbol"].astype(np.int64) - 1
        counts = np.bincount(groups, minlength=self.layout.groups)
        sums = np.rint(np.bincount(groups, scores, self.layout.groups)).astype(np.int64)
        return total.merged(GroupTotal(len(reports), sums[None], counts[None]))

    @override
    def release(self, total: GroupTotal, noise: NoiseSource) -> GroupSums:
        return self._released(total)

    def _released(self, total: GroupTotal) -> GroupSums:
        return GroupSums(total.reports, total.sums.astype(np.float64), total.counts, self.gains)

    @override
    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> GroupSums:
        """Draw a release: bits from a seeded generator, counted as reports are."""
        people, groups = len(contributions), self.groups_of(contributions.coins)
        kept = (rng.random(people) < self.gains[groups]) & (contributions.keys >= 0)
        ones = rng.random(people) < np.where(kept, contributions.values, 0.5)
        return self._released(self.add(self.empty(), with_coins(contributions.coins, ones.astype(np.int64))))

    @override
    def weaker(self, factor: float) -> Self:
        """Return the mechanism with ``factor`` times the epsilons."""
        return msgspec.structs.replace(self, epsilons=tuple(factor * epsilon for epsilon in self.epsilons))

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        three = Layout(5, np.array([[13_107, 45_875]], np.uint32))
        return {"alike": cls(three, (1.0, 1.0, 1.0)), "apart": cls(three, (1.5, 3.0, 2.0))}


def _counted(layout: Layout) -> tuple[float, ...]:
    """Return the share of the coins in each group of a layout of one key, rounded down to a few binary digits."""
    parts = np.rint(layout.shares[0] * UNIT).astype(np.int64)
    return tuple(_rounded_down(int(part)) / UNIT for part in parts)


def _rounded_down(part: int) -> int:
    dropped = max(0, part.bit_length() - _DIGITS)
    return part >> dropped << dropped
