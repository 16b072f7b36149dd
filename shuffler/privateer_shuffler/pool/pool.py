"""The reports held for one round: every message in a random place, durable before it is acknowledged."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self, TypeVar

from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import PrivateerError, Unavailable
from privateer_core.serving.token_gate import Admission
from privateer_core.wire.envelope import Envelope, Header, encode_envelope, pieces
from privateer_core.wire.publication import Round
from privateer_shuffler.pool.protocol import (
    PoolReceipt,
    WaitingUpload,
    duplicate,
    failure,
    in_tenths,
    settle,
    waiting,
)
from privateer_shuffler.pool.round_file import RoundStore
from privateer_shuffler.pool.spent_tokens import RoundTokens, Spent
from privateer_shuffler.shuffle import Groups, RandomBelow

_IDLE_SECONDS: Final = 0.1
"""The write-ahead log is emptied if nothing arrives for so long; under load it is overwritten all the time."""
_MANY: Final = 8
_GATHER_SECONDS: Final = 0.005
"""If so many requests shared a commit, the next ones wait so long, so that more of them share theirs."""
_FULL_DISK_SECONDS: Final = 1.0
"""Pause after a failed attempt to empty the log."""
_Result = TypeVar("_Result")


class Pool:
    """The reports held for one round.

    Requests that arrive while the disk is busy share the next transaction (group commit). Reports are written to the
    database from the event loop, which costs microseconds each; only waiting for the disk happens in a thread.

    Parameters
    ----------
    store
        The round's database. Reports that it holds already count as held.
    below
        Source of randomness of the permutation. Only tests pass one.
    clock
        Says when the round is due.
    spent
        The upload tokens that were spent; None: reports come without.

    Attributes
    ----------
    failed
        Whether the disk did not take what was last written.
    filled
        Set once the pool is complete and durable.
    full_since
        When that was, in seconds since 1970; 0: not yet.
    """

    def __init__(
        self,
        store: RoundStore,
        below: Callable[[int], int] | None = None,
        clock: Clock | None = None,
        spent: Spent | None = None,
    ) -> None:
        self._store = store
        self._below = below or RandomBelow()
        self._spent = spent
        self._tokens = RoundTokens(store, spent, self._below) if spent else None
        self._clock = clock or SystemClock()
        self._disk = ThreadPoolExecutor(1, "disk")  # one thread: what waits for the disk, waits in line
        self._held: set[bytes] = set()
        facts = self.round
        self._places = Groups(self._recover(), facts.batch, facts.messages_of_kind, facts.groups, self._below)
        self._waiting: list[WaitingUpload] = []
        self._writer: asyncio.Task[None] | None = None
        self._truncation: asyncio.TimerHandle | None = None
        self._ended = False
        self._lost = False
        self.failed = False
        self.filled = asyncio.Event()
        self.full_since = 0.0
        self._end_when_due()

    @property
    def round(self) -> Round:
        """The public facts of the round."""
        return self._store.label.round

    @property
    def header(self) -> Header:
        """The header that all reports of the round share."""
        return self._store.label.header

    @property
    def held(self) -> int:
        """Number of people whose reports are held."""
        return len(self._held) // self.round.messages

    @property
    def shown(self) -> int:
        """The same in tenths of a batch."""
        return in_tenths(self.held, self.round.batch)

    @property
    def full(self) -> bool:
        """Whether it takes no more reports, though the disk may not have all of them yet."""
        return self._ended or self._places.room == 0

    async def complete(self) -> bool:
        """Wait until the pool is ``filled``: by the whole batch, or from the deadline on by enough people."""
        self._wake()  # empties the log that a killed process left behind
        while not self.filled.is_set():
            left = self.round.deadline - self._clock.now()
            try:
                await asyncio.wait_for(self.filled.wait(), left if left > 0 else None)
            except TimeoutError:
                self._wake()
        return True

    def hold(self, sealed: list[bytes], admission: Admission | None = None) -> asyncio.Future[PoolReceipt]:
        """Take people's reports into the pool; the receipt comes when those accepted are durable.

        With an ``admission`` it is one person's report, and its token is spent in the same transaction.

        Reports that are held already, or were in an earlier batch of the version, are refused as duplicates. Reports
        beyond the batch are refused for now: the server may ask for another batch. All messages of a person are held,
        or none. A duplicate is as durable as an accepted report when the receipt comes.

        Raises
        ------
        Unavailable
            If the disk is full or fails. Nothing of such a request is held, and the next one is tried anew.
        """
        if self._lost:
            raise failure()
        receipt: asyncio.Future[PoolReceipt] = asyncio.get_running_loop().create_future()
        self._waiting.append(WaitingUpload(sealed, receipt, admission))
        self._wake()
        return receipt

    async def batch(self) -> bytes:
        """Return the batch of a ``filled`` pool as an encoded envelope, the same bytes every time."""
        return await self._in_thread(lambda: encode_envelope(Envelope(self.header, self._store.batch())))

    async def renew(self) -> Self:
        """End this pool, and return an empty one for the same version that takes nothing that this one held.

        Raises
        ------
        sqlite3.Error, OSError
            If the disk is full or fails; call it again.
        """
        await self._end(lambda: self._leave(self._store.renew))
        return type(self)(self._store, self._below, self._clock, self._spent)

    async def forget(self) -> int:
        """End this pool, and erase the reports in memory and on disk; of how many people.

        Raises
        ------
        sqlite3.Error, OSError
            If the disk is full or fails; call it again.
        """
        people = self.held
        self._held.clear()
        await self._end(lambda: self._leave(self._store.erase))
        return people

    async def close(self) -> None:
        """End this pool: finish writing and close the database, which keeps the reports."""
        await self._end(self._store.close)

    def _leave(self, last: Callable[[], None]) -> None:
        """Do the last thing with the reports, once their tokens are kept elsewhere."""
        if self._tokens:
            self._tokens.keep()
        last()

    async def _end(self, last: Callable[[], None]) -> None:
        """Take no reports any more, and do one last thing with the database."""
        self._ended = True
        if self._writer is not None:
            await asyncio.wait({self._writer})
        if self._truncation is not None:
            self._truncation.cancel()
        await self._in_thread(last)
        self._disk.shutdown(wait=False)

    def _recover(self) -> list[int]:
        free = []
        for place, sealed in self._store.places():
            if sealed is None:
                free.append(place)
            else:
                self._held |= self._store.fingerprints([sealed])
        return free

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)

    def _wake(self) -> None:
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())

    async def _write(self) -> None:
        """Commit the waiting requests group by group, or empty the log if there are none."""
        try:
            if not self._waiting:
                await self._truncate()
            while self._waiting:
                group, self._waiting = self._waiting, []
                settle(group, await self._stored(group))
                if len(group) >= _MANY and not self.full:
                    await asyncio.sleep(_GATHER_SECONDS)
            self._end_when_due()
        finally:
            self._writer = None

    async def _truncate(self) -> None:
        try:
            await self._in_thread(self._store.truncate_log)
        except sqlite3.Error:
            self._plan_truncation(_FULL_DISK_SECONDS)

    def _end_when_due(self) -> None:
        if self.round.is_due(self._clock.now(), self.held):
            self._ended = True
            self.full_since = self.full_since or self._clock.now()
            self.filled.set()

    def _plan_truncation(self, seconds: float = _IDLE_SECONDS) -> None:
        if self._truncation is not None:
            self._truncation.cancel()
        self._truncation = asyncio.get_running_loop().call_later(seconds, self._wake)

    async def _stored(self, group: list[WaitingUpload]) -> list[PoolReceipt] | None:
        """Store the reports of requests and return their receipts, or undo it and return None if the disk fails."""
        placed: list[tuple[bytes, int]] = []
        try:
            receipts = [self._place(request, placed) for request in group]
            if placed:
                self._store.write(placed)
                if self._tokens:
                    self._tokens.write()
                await self._in_thread(self._store.commit)
        except sqlite3.Error:
            await self._take_back(placed)
            return None
        if placed:
            self.failed = False
            if self._tokens:
                self._tokens.written()
            self._plan_truncation()
        return receipts

    async def _take_back(self, placed: list[tuple[bytes, int]]) -> None:
        """Undo a write that the disk did not take. Its messages may come again, and get other places."""
        self.failed = True
        self._held -= self._store.fingerprints(message for message, _ in placed)
        for _, place in placed:
            self._places.give_back(place)
        if self._tokens:
            self._tokens.take_back()
        try:
            await self._in_thread(self._store.rollback)
        except sqlite3.Error:
            self._lost = True  # only a restart shows what the database holds

    def _place(self, request: WaitingUpload, placed: list[tuple[bytes, int]]) -> PoolReceipt:
        """Find places for the reports of one request, adding those found to ``placed``."""
        reports, admission = request.sealed, request.admission
        refusal = self._take(reports, admission, placed)
        if refusal is None or len(reports) == 1:
            return PoolReceipt.of(len(reports), [refusal] if refusal else [])
        each = (self._take([report], admission, placed) for report in reports)
        return PoolReceipt.of(len(reports), [one for one in each if one])

    def _take(
        self, reports: list[bytes], admission: Admission | None, placed: list[tuple[bytes, int]]
    ) -> PrivateerError | None:
        """Find places for people's reports, for all of them or for none; return why that cannot be."""
        messages = pieces(b"".join(reports), self.round.sealed_size)
        fingerprints = self._store.fingerprints(messages)
        if len(fingerprints) < len(messages) or self._knows(fingerprints):
            return duplicate()
        if self.full or self._places.room < len(reports):
            return waiting()
        if unpaid := self._unpaid(admission):
            return unpaid
        self._held |= fingerprints
        placed += zip(messages, self._places.draw(len(reports)), strict=True)
        return None

    def _unpaid(self, admission: Admission | None) -> PrivateerError | None:
        """Spend the token that a report comes with, if it needs one; return why that cannot be."""
        if admission is None or self._tokens is None:
            return None
        try:
            return None if self._tokens.spend(admission) else admission.spent()
        except Unavailable as problem:
            return problem

    def _knows(self, fingerprints: set[bytes]) -> bool:
        """Whether any of these messages is held or was delivered before. A full pool knows only what it holds."""
        if not self._held.isdisjoint(fingerprints):
            return True
        return not self.full and self._store.has_delivered(fingerprints)  # another task uses a full one's database
