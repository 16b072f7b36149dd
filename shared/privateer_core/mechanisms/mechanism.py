"""The base of all mechanisms: a randomizer for devices and an analyzer for the server, of the same constants."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.events import Event
from privateer_core.errors import OutOfRange
from privateer_core.primitives.contributions import KeyedValues, Total
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.response import rounded


class Mechanism(msgspec.Struct, frozen=True, dict=True, eq=False, forbid_unknown_fields=True, tag_field="type"):
    """A mechanism with its parameters; it travels inside a round's terms.

    Subclasses randomize contributions into rows, one a person; parse rows from the bytes of reports; add rows to a
    total, in any order; merge totals; and release what the learner may see. A total that cannot be summed may as well
    hold its rows until the release. `simulate` draws a release with the distribution of all these steps.
    """

    message: ClassVar[np.dtype[Any]]
    """What one message is, where all messages have the same fields."""

    pure: ClassVar[bool] = False
    """Whether it keeps promises of delta 0, and does not use a larger one."""

    counts_keys: ClassVar[bool] = False
    """Whether its promise depends on how many keys there are, which a record then says."""

    counts_shares: ClassVar[bool] = False
    """Whether its promise depends on the share of the coins in each group, which a record then says."""

    continues: ClassVar[bool] = False
    """Whether noise of a release depends on that of earlier ones, which the total of a round brings along."""

    @property
    def coins_choose(self) -> bool:
        """Whether the coins of a report, which everybody sees, may be those that chose the person's arm."""
        return False

    @property
    def report_size(self) -> int:
        """Bytes of one message."""
        return self.message.itemsize

    @property
    def messages(self) -> int:
        """Messages of one person."""
        return 1

    @property
    def groups(self) -> int:
        """Kinds of messages, of which a person sends equally many, kind after kind; shufflers keep them apart."""
        return 1

    def kinds(self, rows: bytes) -> NDArray[np.int64]:
        """Return the kinds that messages say they are of, from their concatenated bytes; they need not parse."""
        return np.zeros(len(rows) // self.report_size, np.int64)

    @property
    def message_bits(self) -> int:
        """Bits that a message carries, as Li, Zhou and Ji count."""
        return 8 * self.report_size

    @property
    def alone(self) -> Event | None:
        """What one report reveals by itself, for the accountant; None: the record, or all but the record."""
        return None

    def shuffled(self, honest: int) -> Event | None:
        """Return what a permuted batch reveals of a person among ``honest`` honest ones; None: the record."""
        del honest
        return None

    @property
    def released(self) -> Event | None:
        """What a release reveals, if reports themselves are kept secret; None: the record."""
        return None

    @property
    def sampling(self) -> float:
        """What the sampler of noise may add to delta."""
        return 0.0

    @property
    def local_epsilon(self) -> float:
        """Pure epsilon of one report by itself; infinite if it has none."""
        return math.inf

    @classmethod
    def instances(cls) -> dict[str, Self]:
        """Return small instances by name, for tests and audits."""
        raise NotImplementedError

    def weaker(self, factor: float) -> Self:
        """Return the mechanism with so much less noise: a planted defect for tests."""
        raise NotImplementedError

    def parse(self, rows: bytes) -> Any:
        """Parse reports from their concatenated bytes, in any order.

        Raises
        ------
        OutOfRange
            If the bytes are not whole reports, or not what `randomize` can make.
        """
        raise NotImplementedError

    def randomize(self, contributions: Any, noise: NoiseSource) -> Any:
        """Randomize the contributions of n people; return n rows, or n rows of messages."""
        raise NotImplementedError

    def empty(self) -> Any:
        """Return the total of no reports."""
        raise NotImplementedError

    def add(self, total: Any, reports: Any) -> Any:
        """Return ``total`` with ``reports`` counted in."""
        raise NotImplementedError

    def merge(self, left: Any, right: Any) -> Any:
        """Return the total of two disjoint sets of reports."""
        return left.merged(right)

    def release(self, total: Any, noise: NoiseSource) -> Any:
        """Return what the learner may see. A curator's noise is drawn here, so a round is released once."""
        raise NotImplementedError

    def settle(self, total: Any, noise: NoiseSource) -> tuple[Any, Any]:
        """Return what the learner may see, and what is left for the next round to `resume`: by default nothing."""
        return self.release(total, noise), self.empty()

    def resume(self, before: "Mechanism", left: Any) -> Any:
        """Return the total that a round begins with, after one of the mechanism ``before``: by default that of none.

        Parameters
        ----------
        left
            What `settle` left, or the total of a round of which nothing was released.
        """
        del before, left
        return self.empty()

    def simulate(self, contributions: Any, rng: "np.random.Generator") -> Any:
        """Draw a release with the distribution of randomizing, adding and releasing."""
        raise NotImplementedError


@dataclass(frozen=True)
class KeyedTotal(Total):
    """Integer sums over reports on keys, of the shapes of `contributions.KeyedSums`."""

    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
    hits: NDArray[np.int64]

    @classmethod
    def empty(cls, keys: int, groups: int, *, by_group: bool = False) -> Self:
        """Return the total of no reports; ``by_group``: with hits of every key and group."""
        none = np.zeros((keys, groups), np.int64)
        return cls(0, none, none, none if by_group else np.zeros(keys, np.int64))


UNIT: Final = 65535
"""Steps of a value in [0, 1] in the record of a person."""
NO_KEY: Final = (1 << 32) - 1
"""The key in the record of a person who has none."""


def keyed_records(
    contributions: KeyedValues, kind: np.dtype[Any], source: "NoiseSource | np.random.Generator"
) -> NDArray[np.void]:
    """Return the keys and values of n people, for a curator; values are rounded to the grid at random."""
    has, records = contributions.keys >= 0, np.empty(len(contributions), dtype=kind)
    records["key"] = np.where(has, contributions.keys, NO_KEY)
    records["value"] = np.where(has, rounded(contributions.values, UNIT, source), 0)
    return records


def parse_keyed(rows: bytes, kind: np.dtype[Any], keys: int) -> NDArray[np.void]:
    """Parse the records of people with one of so many keys, or none.

    Raises
    ------
    OutOfRange
        If the bytes are not whole records, or one has another key.
    """
    records = whole(rows, kind)
    check_range(not np.any((records["key"] >= keys) & (records["key"] != NO_KEY)), "not a key of this round")
    return records


def whole(rows: bytes, kind: np.dtype[Any]) -> NDArray[Any]:
    """View concatenated bytes as rows of a kind.

    Raises
    ------
    OutOfRange
        If the bytes are not whole rows.
    """
    if len(rows) % kind.itemsize:
        raise OutOfRange("not a whole number of reports", remedy="send what the client library makes")
    return np.frombuffer(rows, dtype=kind)


def check_range(good: bool, what: str) -> None:
    """Refuse reports that are ``what``.

    Raises
    ------
    OutOfRange
        If they are not ``good``.
    """
    if not good:
        raise OutOfRange(what, remedy="send what the client library makes")
