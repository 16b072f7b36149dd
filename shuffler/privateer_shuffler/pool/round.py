"""The interface of a stored round, in a file or in a database that replicas share."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, NamedTuple, TypeVar

import msgspec

from privateer_core.clock import Clock, SystemClock
from privateer_core.wire.publication import Header, Round, report_header
from privateer_shuffler.pool.uploads import PendingUpload

_Result = TypeVar("_Result")


class Label(msgspec.Struct, frozen=True, array_like=True):
    """The label of a stored round: its public facts and the digest of its publication."""

    round: Round
    digest: bytes

    @property
    def header(self) -> Header:
        """The header that all reports of the round share."""
        return report_header(self.round, self.digest)


class RoundProgress(NamedTuple):
    """The progress of a stored round."""

    batch: int = 0  # number of batches delivered before this one
    n_held: int = 0  # number of participants with held reports
    ended_at: float = 0.0  # time of the last report, in seconds since 1970; 0: the round takes more


class StoredRound(ABC):
    """The stored reports of a round, and the thread that waits for the store.

    ``batch``, ``renew`` and ``erase`` block, so they must run in that thread. All methods raise `OSError` if the store
    fails, and may be called again then.

    state: progress at the last check or transaction; None: the round is over.
    """

    shared: ClassVar[bool]  # whether replicas share the round, so that other processes change it

    def __init__(self, label: Label, state: RoundProgress | None, clock: Clock | None = None) -> None:
        self.label, self.state, self.clock = label, state, clock or SystemClock()
        self._thread = ThreadPoolExecutor(1, "store")  # a single thread: operations on the store are queued

    async def in_thread(self, operation: Callable[[], _Result]) -> _Result:
        """Run an operation on the store in the thread, after those that wait already."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, operation)

    def advance_progress(self, n_held: int, progress: RoundProgress) -> RoundProgress:
        """Return the progress of the round with reports of ``n_held`` participants in all."""
        now = self.clock.now()
        is_due = not progress.ended_at and self.label.round.is_due(now, n_held)
        return progress._replace(n_held=n_held, ended_at=now if is_due else progress.ended_at)

    @abstractmethod
    async def add(self, group: Sequence[PendingUpload], closed: bool) -> int:
        """Store participants' reports in a transaction, which is durable when this returns, or store none.

        Returns the number of accepted participants; the uploads have the refusals of the others.

        closed: whether the pool takes no more reports: only duplicates are recognized then.
        """

    @abstractmethod
    async def refresh(self) -> None:
        """Update ``state`` while no reports are written, and end the round if it may close by its deadline."""

    @abstractmethod
    async def claim_delivery(self) -> bool:
        """Whether this process delivers the batch of an ended round."""

    @abstractmethod
    def batch(self) -> bytes:
        """Return the held messages, permuted within their kind: the same bytes every time."""

    @abstractmethod
    def renew(self) -> None:
        """Clear the round for another batch, which refuses messages of this one."""

    @abstractmethod
    def erase(self) -> int:
        """Erase the reports, and return their number of participants; 0 if another replica erases or delivers them."""

    def close(self) -> None:
        """Close the round, and keep its reports."""
        self._thread.shutdown(wait=False)
