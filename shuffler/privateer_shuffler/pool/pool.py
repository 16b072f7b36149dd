"""The held reports of a round: durable before they are acknowledged, in random places, until their batch is full."""

import asyncio
import logging
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ClassVar, Final, NamedTuple, Self, TypeVar

import msgspec

from privateer_core.clock import Clock, SystemClock
from privateer_core.serving.logs import trace
from privateer_core.serving.thread_turns import THREAD_TURNS
from privateer_core.serving.token_gate import Admission
from privateer_core.serving.write_health import LastCommit
from privateer_core.wire.publication import Envelope, Header, Round, encode_envelope, report_header
from privateer_shuffler.pool.uploads import PendingUpload, PoolReceipt, send_receipts

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

    ``read_batch``, ``find_closing``, ``store_closing``, ``start_next_batch`` and ``erase`` block, so they must run in
    that thread. All methods raise `OSError` if the store fails, and may be called again then.

    state: progress at the last check or transaction; None: the round is over.
    """

    shared: ClassVar[bool]  # whether replicas share the round, so that other processes change it

    def __init__(self, label: Label, state: RoundProgress | None, clock: Clock | None = None) -> None:
        self.label, self.state, self.clock = label, state, clock or SystemClock()
        self._thread = ThreadPoolExecutor(1, "store")  # a single thread: operations on the store are queued

    async def in_thread(self, operation: Callable[[], _Result]) -> _Result:
        """Run an operation on the store in the thread, after those that wait already."""
        return await THREAD_TURNS.run(self._thread, operation)

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
    def read_batch(self) -> bytes:
        """Return the held messages, permuted within their kind: the same bytes every time."""

    @abstractmethod
    def find_closing(self) -> bytes | None:
        """Return the helper's closing of this batch, if one was made."""

    @abstractmethod
    def store_closing(self, body: bytes) -> bytes:
        """Store the first closing of this batch durably, and return it: a later closing changes nothing."""

    @abstractmethod
    def start_next_batch(self) -> None:
        """Clear the round for another batch, which refuses messages of this one."""

    @abstractmethod
    def erase(self) -> int:
        """Erase the reports, and return their number of participants; 0 if another replica erases or delivers them."""

    def close(self) -> None:
        """Close the round, and keep its reports."""
        self._thread.shutdown(wait=False)


_IDLE_SECONDS: Final = 0.1
"""Idle time after which a round is maintained; under load, a file's log is overwritten all the time."""
_MIN_SHARED_UPLOADS: Final = 8
_GATHER_SECONDS: Final = 0.005
"""Wait after a transaction shared by at least eight accepted uploads, so that more uploads share the next one."""
_FULL_DISK_SECONDS: Final = 1.0  # pause after a failed maintenance of a round
_LOOK_SECONDS: Final = 1.0  # pause between checks of the state that replicas share
_log = logging.getLogger(__name__)


def round_to_tenths(n_participants: int, batch: int) -> int:
    """Return a number of participants rounded down to tenths of a batch, for the operator alone.

    A live count would reveal the time of a report, and so its delay after the policy was fetched. Tenths reveal it,
    too, to an adversary who fills the pool to just below a tenth.
    """
    step = max(1, batch // 10)
    return n_participants // step * step


class Pool:
    """The held reports of a round.

    Requests that arrive while the disk or the database is busy share the next transaction (group commit).
    """

    def __init__(self, stored: StoredRound) -> None:
        self._stored = stored
        self._waiting: list[PendingUpload] = []
        self._writer: asyncio.Task[None] | None = None
        self._next_refresh: asyncio.TimerHandle | None = None
        self._is_ended = False
        self.last_commit = LastCommit(stored.clock)  # whether the last commit succeeded
        self.filled = asyncio.Event()  # set once the pool is complete and durable, or the round is over
        self._update_filled()

    @property
    def round(self) -> Round:
        """The public facts of the round."""
        return self._stored.label.round

    @property
    def header(self) -> Header:
        """The header that all reports of the round share."""
        return self._stored.label.header

    @property
    def n_held(self) -> int:
        """Number of participants with held reports, by all replicas together."""
        return self._stored.state.n_held if self._stored.state else 0

    @property
    def n_shown(self) -> int:
        """Number of participants with held reports, in tenths of a batch."""
        return round_to_tenths(self.n_held, self.round.batch_size)

    @property
    def is_full(self) -> bool:
        """Whether the pool takes no more reports."""
        return self._is_ended or self.filled.is_set()

    @property
    def full_since(self) -> float:
        """Time at which the batch was complete, in seconds since 1970; 0: it is incomplete."""
        return self._stored.state.ended_at if self._stored.state else 0.0

    def hold(self, sealed: list[bytes], admission: Admission | None = None) -> asyncio.Future[PoolReceipt]:
        """Take participants' reports into the pool; the receipt comes when accepted reports are durable.

        With an ``admission`` it is a single participant's report, and its token is spent in the same transaction.

        Reports that are held already, or were in an earlier batch of the version, are refused as duplicates. Reports
        beyond the batch are refused for now: the server may ask for another batch. Either all messages of a participant
        are held, or none. A duplicate is as durable as an accepted report when the receipt comes.
        """
        receipt: asyncio.Future[PoolReceipt] = asyncio.get_running_loop().create_future()
        self._waiting.append(PendingUpload(sealed, receipt, admission))
        self._start_writer()
        return receipt

    async def claim_when_complete(self) -> bool:
        """Wait until the batch is complete, and claim its delivery; return False if another replica delivered it."""
        while True:
            await asyncio.shield(self._start_writer())  # also empties the log that a killed process left behind
            if self._stored.state is None:
                return False
            if self.filled.is_set() and await self._claim_delivery():
                return True
            await self._wait_for_change()

    async def _claim_delivery(self) -> bool:
        """Claim the delivery of the batch; return False if another replica has it, or the store fails."""
        with suppress(OSError):
            is_claimed = await self._stored.claim_delivery()
            self._update_filled()
            return is_claimed
        return False

    async def _wait_for_change(self) -> None:
        remaining_seconds = self.round.deadline - self._stored.clock.now()
        timeout = remaining_seconds if remaining_seconds > 0 else None
        with suppress(TimeoutError):
            if self.filled.is_set():
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                await asyncio.wait_for(self.filled.wait(), _LOOK_SECONDS if self._stored.shared else timeout)

    async def read_batch(self) -> bytes:
        """Return the batch of a complete pool as an encoded envelope, the same bytes every time, at each replica."""
        while True:
            try:
                sealed = await self._stored.in_thread(self._stored.read_batch)
                return encode_envelope(Envelope(self.header, sealed))
            except (OSError, sqlite3.Error) as error:
                self.last_commit.record(is_durable=False)
                _log.error("a batch of %s cannot be read, and waits: %s", self.round.experiment, error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def find_closing(self) -> bytes | None:
        """Return the helper's closing of a complete pool, if one was made."""
        return await self._stored.in_thread(self._stored.find_closing)

    async def store_closing(self, body: bytes) -> bytes:
        """Store the helper's closing of a complete pool, and return the stored one, the first that was made."""
        return await self._stored.in_thread(lambda: self._stored.store_closing(body))

    async def start_next_batch(self) -> Self:
        """End this pool, and return an empty pool for the same version that refuses this pool's reports."""
        await self._end_round(self._stored.start_next_batch)
        return type(self)(self._stored)

    async def forget(self) -> int:
        """End this pool, erase its reports, and return their participants; 0 if another replica erases or delivers."""
        n_participants = await self._end_round(self._stored.erase)
        self._stored.close()
        return n_participants

    async def close(self) -> None:
        """End this pool, and keep the reports."""
        await self._end_round(self._stored.close)

    async def _end_round(self, operation: Callable[[], _Result]) -> _Result:
        """Take no more reports, answer earlier uploads, and run a last operation on the round."""
        self._is_ended = True
        if self._writer is not None:
            await asyncio.wait({self._writer})
        if self._next_refresh is not None:
            self._next_refresh.cancel()
        return await self._stored.in_thread(operation)

    def _start_writer(self) -> asyncio.Task[None]:
        if self._writer is None:
            self._writer = asyncio.create_task(self._store_waiting())
        return self._writer

    async def _store_waiting(self) -> None:
        """Store the waiting uploads group by group, or maintain the round if there are none."""
        try:
            if not self._waiting:
                await self._refresh_state()
            while self._waiting:
                group, self._waiting = self._waiting, []
                send_receipts(group, await self._store_group(group))
                n_accepted = sum(not upload.refusals for upload in group)
                if n_accepted >= _MIN_SHARED_UPLOADS and not self.is_full:
                    await asyncio.sleep(_GATHER_SECONDS)
        finally:
            self._writer = None

    async def _refresh_state(self) -> None:
        """Update the state of the round, unless the pool has ended; after a failure, plan another try."""
        if self._is_ended:
            return
        try:
            await self._stored.refresh()
        except (OSError, sqlite3.Error):
            self._schedule_refresh(_FULL_DISK_SECONDS)
        self._update_filled()

    def _schedule_refresh(self, seconds: float) -> None:
        if self._next_refresh is not None:
            self._next_refresh.cancel()
        self._next_refresh = asyncio.get_running_loop().call_later(seconds, self._start_writer)

    async def _store_group(self, group: list[PendingUpload]) -> bool:
        """Store the accepted reports of uploads, refuse the others, and return False if the store fails."""
        try:
            n_participants = await self._stored.add(group, self._is_ended)
        except Exception as error:  # the senders get an answer after any error
            if not isinstance(error, (OSError, sqlite3.Error)):
                _log.error("reports of %s cannot be stored (%s)", self.round.experiment, trace(error))
            self.last_commit.record(is_durable=False)
            return False
        if n_participants:
            self.last_commit.record(is_durable=True)
            self._schedule_refresh(_IDLE_SECONDS)
        self._update_filled()
        return True

    def _update_filled(self) -> None:
        if self._stored.state is None or self._stored.state.ended_at:
            self.filled.set()
