"""The reports held for one round: durable before they are acknowledged, in random places, until their batch is full."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self, TypeVar

from privateer_core.serving.logs import trace
from privateer_core.serving.token_gate import Admission
from privateer_core.serving.write_health import LastCommit
from privateer_core.wire.envelope import Envelope, Header, encode_envelope
from privateer_core.wire.publication import Round
from privateer_shuffler.pool.round import StoredRound
from privateer_shuffler.pool.uploads import PoolReceipt, WaitingUpload, settle

_IDLE_SECONDS: Final = 0.1
"""A round is looked after if nothing arrives for so long; a file's log is overwritten all the time under load."""
_MANY: Final = 8
_GATHER_SECONDS: Final = 0.005
"""If so many requests shared a transaction, the next ones wait so long, so that more of them share theirs."""
_FULL_DISK_SECONDS: Final = 1.0
"""Pause after a failed attempt to look after a round."""
_LOOK_SECONDS: Final = 1.0
"""Pause between looks at what other replicas do."""
_Result = TypeVar("_Result")
_log = logging.getLogger(__name__)


def in_tenths(people: int, batch: int) -> int:
    """Return a number of people rounded down to tenths of a batch, for the operator alone.

    A live count would reveal to whoever watches it when somebody reported, and so how long after fetching the policy.
    Tenths reveal it, too, to a stranger who fills the pool to just below one.
    """
    step = max(1, batch // 10)
    return people // step * step


class Pool:
    """The reports held for one round.

    Requests that arrive while the disk or the database is busy share the next transaction (group commit).
    """

    def __init__(self, stored: StoredRound) -> None:
        self._stored = stored
        self._waiting: list[WaitingUpload] = []
        self._writer: asyncio.Task[None] | None = None
        self._next_look: asyncio.TimerHandle | None = None
        self._ended = False
        self.last_commit = LastCommit(stored.clock)  # whether what was last written is stored
        self.filled = asyncio.Event()  # set once the pool is complete and durable, or the round is over
        self._see()

    @property
    def round(self) -> Round:
        """The public facts of the round."""
        return self._stored.label.round

    @property
    def header(self) -> Header:
        """The header that all reports of the round share."""
        return self._stored.label.header

    @property
    def held(self) -> int:
        """Number of people whose reports are held, by all replicas together."""
        return self._stored.state.held if self._stored.state else 0

    @property
    def shown(self) -> int:
        """The same in tenths of a batch."""
        return in_tenths(self.held, self.round.batch)

    @property
    def full(self) -> bool:
        """Whether it takes no more reports."""
        return self._ended or self.filled.is_set()

    @property
    def full_since(self) -> float:
        """When the batch was complete, in seconds since 1970; 0: it is not yet."""
        return self._stored.state.ended_at if self._stored.state else 0.0

    def hold(self, sealed: list[bytes], admission: Admission | None = None) -> asyncio.Future[PoolReceipt]:
        """Take people's reports into the pool; the receipt comes when those accepted are durable.

        With an ``admission`` it is one person's report, and its token is spent in the same transaction.

        Reports that are held already, or were in an earlier batch of the version, are refused as duplicates. Reports
        beyond the batch are refused for now: the server may ask for another batch. All messages of a person are held,
        or none. A duplicate is as durable as an accepted report when the receipt comes.
        """
        receipt: asyncio.Future[PoolReceipt] = asyncio.get_running_loop().create_future()
        self._waiting.append(WaitingUpload(sealed, receipt, admission))
        self._wake()
        return receipt

    async def complete(self) -> bool:
        """Wait until the pool is complete and this shuffler delivers it; false: another replica did, and it is over."""
        while True:
            await asyncio.shield(self._wake())  # also empties the log that a killed process left behind
            if self._stored.state is None:
                return False
            if self.filled.is_set() and await self._claim():
                return True
            await self._wait()

    async def _claim(self) -> bool:
        with suppress(OSError):
            is_own = await self._stored.claim()
            self._see()
            return is_own
        return False

    async def _wait(self) -> None:
        """Wait for the next moment at which something may have changed."""
        left = self.round.deadline - self._stored.clock.now()
        own = left if left > 0 else None
        with suppress(TimeoutError):
            if self.filled.is_set():
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                await asyncio.wait_for(self.filled.wait(), _LOOK_SECONDS if self._stored.shared else own)

    async def batch(self) -> bytes:
        """Return the batch of a complete pool as an encoded envelope, the same bytes every time, at each replica."""
        while True:
            try:
                sealed = await self._stored.in_thread(self._stored.batch)
                return encode_envelope(Envelope(self.header, sealed))
            except (OSError, sqlite3.Error) as error:
                self.last_commit.note(is_durable=False)
                _log.error("a batch of %s cannot be read, and waits: %s", self.round.experiment, error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def renew(self) -> Self:
        """End this pool, and return an empty one for the same version that takes nothing that this one held."""
        await self._end(self._stored.renew)
        return type(self)(self._stored)

    async def forget(self) -> int:
        """End this pool and erase its reports; of how many people. 0: another replica did, or delivers them now."""
        people = await self._end(self._stored.erase)
        self._stored.close()
        return people

    async def close(self) -> None:
        """End this pool, and keep the reports."""
        await self._end(self._stored.close)

    async def _end(self, last: Callable[[], _Result]) -> _Result:
        """Take no reports any more, and do one last thing with the round. What came before is answered first."""
        self._ended = True
        if self._writer is not None:
            await asyncio.wait({self._writer})
        if self._next_look is not None:
            self._next_look.cancel()
        return await self._stored.in_thread(last)

    def _wake(self) -> asyncio.Task[None]:
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        return self._writer

    async def _write(self) -> None:
        """Store the waiting requests group by group, or look after the round if there are none."""
        try:
            if not self._waiting:
                await self._look()
            while self._waiting:
                group, self._waiting = self._waiting, []
                settle(group, await self._is_stored(group))
                if len(group) >= _MANY and not self.full:
                    await asyncio.sleep(_GATHER_SECONDS)
        finally:
            self._writer = None

    async def _look(self) -> None:
        if self._ended:
            return
        try:
            await self._stored.look()
        except (OSError, sqlite3.Error):
            self._plan_look(_FULL_DISK_SECONDS)
        self._see()

    def _plan_look(self, seconds: float) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        self._next_look = asyncio.get_running_loop().call_later(seconds, self._wake)

    async def _is_stored(self, group: list[WaitingUpload]) -> bool:
        """Store the reports of requests that are to be held, and decide on the others; false if the store fails."""
        try:
            people = await self._stored.add(group, self._ended)
        except Exception as error:  # whatever it is, who sent them gets an answer
            if not isinstance(error, (OSError, sqlite3.Error)):
                _log.error("reports of %s cannot be stored (%s)", self.round.experiment, trace(error))
            self.last_commit.note(is_durable=False)
            return False
        if people:
            self.last_commit.note(is_durable=True)
            self._plan_look(_IDLE_SECONDS)
        self._see()
        return True

    def _see(self) -> None:
        """Take note of how the round is now."""
        if self._stored.state is None or self._stored.state.ended_at:
            self.filled.set()
