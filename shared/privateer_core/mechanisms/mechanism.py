"""The base of all mechanisms: a randomizer for devices and an analyzer for the server, of the same constants."""

import math
from typing import Any, ClassVar, Final, Self

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.accounting.events import Event, Pure, ShuffledResponse
from privateer_core.arrays import Coins, Ints, NDArray, Records
from privateer_core.errors import OutOfRange
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.sampling.randomness import (
    NoiseSource,
    RandomizedResponse,
    RandomSource,
    SubsetResponse,
    round_stochastically,
)

SEALED_SIZE: Final = 64
"""Bytes of a sealed message beside its payload: an encapsulated key, a tag and a random id."""


class Mechanism(msgspec.Struct, frozen=True, dict=True, eq=False, forbid_unknown_fields=True, tag_field="type"):
    """A mechanism with its parameters, as in a round's terms.

    Subclasses randomize contributions into rows, one per participant; parse rows from the bytes of reports; add rows to
    a total, in any order; merge totals; and release results to the learner. A total that cannot be summed may hold its
    rows until the release. `simulate` draws a release with the distribution of all these steps.
    """

    message: ClassVar[np.dtype[Any]]
    """Type of a message, if all messages have the same fields."""

    pure: ClassVar[bool] = False
    """Whether it keeps promises of delta 0, and does not use a larger delta."""

    counts_keys: ClassVar[bool] = False
    """Whether its promise depends on the number of keys, which a record then contains."""

    counts_shares: ClassVar[bool] = False
    """Whether its promise depends on the share of the coins in each group, which a record then contains."""

    continues: ClassVar[bool] = False
    """Whether noise of a release depends on that of earlier releases, which the total of a round contains."""

    @property
    def can_coins_choose_arm(self) -> bool:
        """Whether the public coins of a report may have chosen the participant's arm."""
        return False

    @property
    def norm(self) -> str | None:
        """Norm of the ball of the vectors, which decides their sensitivity; None: reports are no vectors."""
        ball = getattr(self, "ball", None)
        return None if ball is None else ball.norm

    @property
    def report_size(self) -> int:
        """Size of a message in bytes."""
        return self.message.itemsize

    @property
    def sent_size(self) -> int:
        """Size in bytes of what a participant sends as a message, without seals: a message, or its shares."""
        return self.report_size

    @property
    def sealed_size(self) -> int:
        """Size in bytes of a message as it is sent: sealed with an id, or its sealed shares."""
        return SEALED_SIZE + self.report_size

    @property
    def messages(self) -> int:
        """Number of messages of a participant."""
        return 1

    @property
    def groups(self) -> int:
        """Number of kinds of messages. A participant sends equally many of each; shufflers permute within a kind."""
        return 1

    def kinds(self, rows: bytes) -> Ints:
        """Return the kinds of messages by their concatenated bytes; the messages need not be valid."""
        return np.zeros(len(rows) // self.report_size, np.int64)

    @property
    def message_bits(self) -> int:
        """Number of bits of a message, as Li, Zhou and Ji count."""
        return 8 * self.report_size

    @property
    def report_event(self) -> Event | None:
        """Event of a single report, for the accountant; None: it reveals the record, or all but the record."""
        return None

    def batch_event(self, honest: int) -> Event | None:
        """Return the event of a permuted batch with ``honest`` honest reports; None: it reveals the record."""
        del honest
        return None

    @property
    def release_event(self) -> Event | None:
        """Event of a release, if reports themselves are kept secret; None: it reveals the record."""
        return None

    @property
    def sampling(self) -> float:
        """Upper bound of the delta that the sampler of noise adds."""
        return 0.0

    @property
    def local_epsilon(self) -> float:
        """Pure epsilon of a single report; infinite if it has none."""
        return math.inf

    @classmethod
    def instances(cls) -> dict[str, Self]:
        """Return small instances by name, for tests and audits."""
        raise NotImplementedError

    def with_less_noise(self, factor: float) -> Self:
        """Return the mechanism with ``factor`` times less noise: a planted defect for tests."""
        raise NotImplementedError

    def parse(self, rows: bytes) -> Any:
        """Parse reports from concatenated bytes, in any order; `OutOfRange` if `randomize` cannot make them."""
        raise NotImplementedError

    def randomize(self, contributions: Any, noise: NoiseSource) -> Any:
        """Randomize the contributions of n participants; return n rows, or n rows of messages."""
        raise NotImplementedError

    def empty(self) -> Any:
        """Return the total of no reports."""
        raise NotImplementedError

    def add(self, total: Any, reports: Any) -> Any:
        """Return ``total`` with ``reports`` counted in."""
        raise NotImplementedError

    def merge(self, left: Any, right: Any) -> Any:
        """Return the total of two disjoint sets of reports."""
        return left.merge_with(right)

    def release(self, total: Any, noise: NoiseSource) -> Any:
        """Return the release of a total. A curator's noise is drawn here, so a round is released once."""
        raise NotImplementedError

    def release_and_carry(self, total: Any, noise: NoiseSource) -> tuple[Any, Any]:
        """Return the release of a total, and the total for `start_total_after`: by default an empty one."""
        return self.release(total, noise), self.empty()

    def start_total_after(self, previous: "Mechanism", total: Any) -> Any:
        """Return the first total of a round after a round of the mechanism ``previous``: by default an empty total.

        Parameters
        ----------
        total
            The total that `release_and_carry` returned, or the total of a round without a release.
        """
        del previous, total
        return self.empty()

    def simulate(self, contributions: Any, rng: "np.random.Generator") -> Any:
        """Draw a release with the distribution of randomizing, adding and releasing."""
        raise NotImplementedError


class Total(msgspec.Struct, frozen=True):
    """Integer sums over reports, to be added in any order; a subclass has its sums as fields."""

    reports: int

    def merge_with(self, other: Self) -> Self:
        """Return the total of two disjoint sets of reports."""
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class VectorTotal(Total, frozen=True):
    """Integer sums over reports, or messages, of any shape."""

    sums: Ints


class KeyedTotal(Total, frozen=True):
    """Integer sums over reports on keys, of the shapes of `contributions.KeyedSums`."""

    sums: Ints
    counts: Ints
    hits: Ints

    @classmethod
    def empty(cls, keys: int, groups: int, *, by_group: bool = False) -> Self:
        """Return the total of no reports; ``by_group``: with hits for every key and group."""
        zeros = np.zeros((keys, groups), np.int64)
        return cls(0, zeros, zeros, zeros if by_group else np.zeros(keys, np.int64))


UNIT: Final = 65535
"""Steps of a value in [0, 1] in a participant's record."""
_BYTE: Final = 1 << 8
NO_KEY: Final = (1 << 32) - 1
"""The key in the record of a participant without a key."""


def build_keyed_records(contributions: KeyedValues, kind: np.dtype[Any], source: RandomSource) -> Records:
    """Return the keys and values of n participants, for a curator; values are rounded to the grid at random."""
    has_key, records = contributions.keys >= 0, np.empty(len(contributions), dtype=kind)
    records["key"] = np.where(has_key, contributions.keys, NO_KEY)
    records["value"] = np.where(has_key, round_stochastically(contributions.values, UNIT, source), 0)
    return records


def parse_keyed_records(rows: bytes, kind: np.dtype[Any], keys: int) -> Records:
    """Parse records with one of ``keys`` keys, or without; `OutOfRange` for another key or incomplete bytes."""
    records = view_rows(rows, kind)
    check_valid(not np.any((records["key"] >= keys) & (records["key"] != NO_KEY)), "not a key of this round")
    return records


def view_rows(rows: bytes, kind: np.dtype[Any]) -> NDArray[Any]:
    """View concatenated bytes as rows of a data type; `OutOfRange` if they are not whole rows."""
    if len(rows) % kind.itemsize:
        raise OutOfRange("not a whole number of reports", remedy="send what the client library makes")
    return np.frombuffer(rows, dtype=kind)


def index_type(count: int) -> str:
    """Return the type of an index below ``count`` in a record: a byte, or two."""
    return "u1" if count <= _BYTE else "<u2"


def check_valid(is_valid: bool, description: str) -> None:
    """Refuse reports by `OutOfRange`, with a description of their defect, unless ``is_valid``."""
    if not is_valid:
        raise OutOfRange(description, remedy="send what the client library makes")


REPORT: Final = np.dtype([("slot", "<u4"), ("symbol", "<u2")])
BLOCK: Final = 1 << 18
"""Number of (report, key) pairs decoded at a time; keeps the working set in the processor's cache."""


class LocalSymbol(Mechanism, frozen=True):
    """Base class of mechanisms that protect a symbol by randomized response or subset selection.

    A subclass has a field ``epsilon``, the pure local privacy of a message, and its ``response``, the randomizer of the
    symbol, whose probabilities also debias.
    """

    message: ClassVar = REPORT
    pure: ClassVar[bool] = True

    @property
    def epsilon(self) -> float:
        """Pure local privacy of a message."""
        raise NotImplementedError

    @property
    def response(self) -> RandomizedResponse | SubsetResponse:
        """The randomizer of the symbol; its probabilities also debias."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        _ = self.response  # refuses parameters without a randomizer

    @property
    def symbols(self) -> int:
        """Size of the alphabet."""
        return self.response.symbols

    @property
    @override
    def report_event(self) -> Event:
        return Pure(self.local_epsilon)

    @property
    @override
    def local_epsilon(self) -> float:
        return self.epsilon

    @override
    def batch_event(self, honest: int) -> Event | None:
        return ShuffledResponse(self.epsilon, self.symbols, honest)

    @override
    def parse(self, rows: bytes) -> Records:
        reports = view_rows(rows, REPORT)
        check_valid(not np.any(reports["symbol"] >= self.symbols), "not a symbol of this round's alphabet")
        return reports

    @override
    def release(self, total: Any, noise: NoiseSource) -> Any:
        return self._build_release(total)

    def _build_release(self, total: Any) -> Any:
        """Return the release of a total: a function of randomized reports alone, without further cost or noise."""
        raise NotImplementedError

    @override
    def with_less_noise(self, factor: float) -> Self:
        """Return the mechanism with ``factor`` times the epsilon."""
        return msgspec.structs.replace(self, epsilon=factor * self.epsilon)


def with_coins(coins: Coins, symbols: NDArray[np.integer]) -> Records:
    """Return the reports of n participants from their coins (n,) and symbols (n,); dtype `REPORT`."""
    reports = np.empty(len(coins), dtype=REPORT)
    reports["slot"], reports["symbol"] = coins, symbols
    return reports
