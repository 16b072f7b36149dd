"""A round where it is stored: what the pool asks of it, whether a file has it or a database that replicas share."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, NamedTuple, TypeVar

import msgspec

from privateer_core.clock import Clock, SystemClock
from privateer_core.wire.envelope import Header, header_of
from privateer_core.wire.publication import Round
from privateer_shuffler.pool.uploads import WaitingUpload

_Result = TypeVar("_Result")


class Label(msgspec.Struct, frozen=True, array_like=True):
    """The label of a stored round: its public facts and the digest of its publication."""

    round: Round
    digest: bytes

    @property
    def header(self) -> Header:
        """The header that all reports of the round share."""
        return header_of(self.round, self.digest)


class RoundState(NamedTuple):
    """The state of a round."""

    batch: int = 0  # how many batches of it were delivered before this one
    held: int = 0  # people whose reports are held
    ended_at: float = 0.0  # when it took its last report, in seconds since 1970; 0: it takes more


class StoredRound(ABC):
    """The reports of one round where they are stored, and the thread in which that is waited for.

    ``batch``, ``renew`` and ``erase`` wait, so they are for that thread. All raise `OSError` if what stores the reports
    fails, and may be called again then.

    state: how it was at the last look or transaction, which decides; None: it is over.
    """

    shared: ClassVar[bool]  # whether replicas share it, so that others than this process change it

    def __init__(self, label: Label, state: RoundState | None, clock: Clock | None = None) -> None:
        self.label, self.state, self.clock = label, state, clock or SystemClock()
        self._thread = ThreadPoolExecutor(1, "store")  # one thread: what waits for the store, waits in line

    async def in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Do something that waits for the store, after what waits already."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def after(self, held: int, before: RoundState) -> RoundState:
        """Return how the round is once reports of so many people are held in all."""
        now = self.clock.now()
        due = not before.ended_at and self.label.round.is_due(now, held)
        return before._replace(held=held, ended_at=now if due else before.ended_at)

    @abstractmethod
    async def add(self, group: Sequence[WaitingUpload], closed: bool) -> int:
        """Take people's reports in one transaction, which is durable when this returns, or take nothing.

        Returns of how many people; the uploads have the refusals of the others.

        closed: whether the pool takes no more: only what is a duplicate is found then.
        """

    @abstractmethod
    async def look(self) -> None:
        """Bring ``state`` up to date while nothing is written, and end the round if it may close by its deadline."""

    @abstractmethod
    async def claim(self) -> bool:
        """Whether this process is the one to deliver the batch of a round that has ended."""

    @abstractmethod
    def batch(self) -> bytes:
        """Return the messages that are held, permuted within their kind: the same bytes every time."""

    @abstractmethod
    def renew(self) -> None:
        """Make room for another batch, which takes nothing that this one held."""

    @abstractmethod
    def erase(self) -> int:
        """Erase the reports; return of how many people. 0: another replica did, or delivers them now."""

    def close(self) -> None:
        """Let go of the round, and keep its reports."""
        self._thread.shutdown(wait=False)
