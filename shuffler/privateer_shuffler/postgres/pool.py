"""The reports of one round that replicas hold together: any of them takes reports, and one delivers the batch."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Self, TypeVar

from privateer_core.clock import Clock, SystemClock
from privateer_core.serving.logs import trace
from privateer_core.serving.store.leases import Lease, Leases
from privateer_core.serving.token_gate import Admission
from privateer_core.wire.envelope import Envelope, Header, encode_envelope
from privateer_core.wire.publication import Round
from privateer_shuffler.pool.protocol import PoolReceipt, WaitingUpload, in_tenths, settle, waiting
from privateer_shuffler.postgres.round import RoundState, SharedRound

_LOOK_SECONDS: Final = 1.0
"""Pause between looks at what other replicas do."""
_MANY: Final = 8
_GATHER_SECONDS: Final = 0.005
"""If so many requests shared a transaction, the next ones wait so long, so that more of them share theirs."""
_Result = TypeVar("_Result")
_log = logging.getLogger(__name__)


class SharedPool:
    """The reports held for one round (`privateer_shuffler.pool.protocol.RoundPool`).

    Requests that arrive while the database is busy share the next transaction (group commit). What is known here of the
    round is as old as the last look or transaction; the transaction decides.

    Parameters
    ----------
    held
        The round in the database.
    state
        How it was a moment ago.
    leases
        Who has one delivers the batch.

    Attributes
    ----------
    failed
        Whether the database did not take what was last written.
    """

    def __init__(self, held: SharedRound, state: RoundState, leases: Leases, clock: Clock | None = None) -> None:
        self._round, self._state, self._leases = held, state, leases
        self._clock = clock or SystemClock()
        self._thread = ThreadPoolExecutor(1, "database")  # one thread: what waits for the database, waits in line
        self._waiting: list[WaitingUpload] = []
        self._writer: asyncio.Task[None] | None = None
        self._lease: Lease | None = None
        self._is_over = self._ended = False
        self._changed = asyncio.Event()
        self.failed = False

    @property
    def round(self) -> Round:
        """The public facts of the round."""
        return self._round.label.round

    @property
    def header(self) -> Header:
        """The header that all reports of the round share."""
        return self._round.label.header

    @property
    def held(self) -> int:
        """Number of people whose reports all replicas hold."""
        return self._state.held

    @property
    def shown(self) -> int:
        """The same in tenths of a batch."""
        return in_tenths(self.held, self.round.batch)

    @property
    def full(self) -> bool:
        """Whether it takes no more reports."""
        return self._ended or self._is_over or bool(self._state.ended_at)

    @property
    def full_since(self) -> float:
        """When the batch was complete, in seconds since 1970; 0: it is not yet."""
        return self._state.ended_at

    def hold(self, sealed: list[bytes], admission: Admission | None = None) -> asyncio.Future[PoolReceipt]:
        """Take people's reports into the pool; the receipt comes when those accepted are durable.

        Raises
        ------
        Unavailable
            If the database does not answer. It is not known then whether the reports are held: who sends them again is
            refused as duplicates, if they are. Also if this pool has ended: nobody writes any more.
        """
        if self._ended:
            raise waiting()
        receipt: asyncio.Future[PoolReceipt] = asyncio.get_running_loop().create_future()
        self._waiting.append(WaitingUpload(sealed, receipt, admission))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        return receipt

    async def _write(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                settle(group, await self._stored(group))
                if len(group) >= _MANY and not self.full:
                    await asyncio.sleep(_GATHER_SECONDS)
        finally:
            self._writer = None

    async def _stored(self, group: list[WaitingUpload]) -> list[PoolReceipt] | None:
        try:
            receipts, state = await self._in_thread(lambda: self._round.add(group, self._clock.now()))
        except Exception as error:  # whatever it is, who sent them gets an answer
            if not isinstance(error, OSError):
                _log.error("reports of %s cannot be stored (%s)", self.round.experiment, trace(error))
            self.failed = True
            return None
        self.failed = False
        self._see(state)
        return receipts

    async def complete(self) -> bool:
        """Wait until the round has ended and this replica has the lease to deliver it; false: it is over."""
        while True:
            with suppress(OSError):
                if await self._is_mine():
                    return True
            if self._is_over:
                return False
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _LOOK_SECONDS)

    async def _is_mine(self) -> bool:
        """Look at the round, and take the lease if it has ended and the lease is free."""
        self._see(await self._in_thread(lambda: self._round.end(self._clock.now())))
        if self._is_over or not self._state.ended_at:
            return False
        await self._in_thread(self._take_lease)
        if self._lease:  # another replica may have delivered the batch between the look and the lease
            self._see(await self._in_thread(self._round.state))
            if self._is_over or not self._state.ended_at:
                await self._in_thread(self._let_go)
        return self._lease is not None

    def _take_lease(self) -> None:
        """Take it in the thread, where a pool that is ended meanwhile finds it."""
        self._lease = self._lease or self._leases.take(self._round.label.digest.hex())

    def _see(self, state: RoundState | None) -> None:
        """Take note of how the round is."""
        if state is None:
            self._is_over = True
        else:
            self._state = state
        if self.full:
            self._changed.set()

    async def batch(self) -> bytes:
        """Return the batch as an encoded envelope, the same bytes at each replica every time."""
        state = self._state
        while True:
            try:
                return await self._in_thread(lambda: encode_envelope(Envelope(self.header, self._round.batch(state))))
            except OSError as error:
                self.failed = True
                _log.error("a batch of %s cannot be read, and waits: %s", self.round.experiment, error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def renew(self) -> Self:
        """End this pool, and return an empty one for the same version that takes nothing that this one held.

        Raises
        ------
        OSError
            If the database does not answer; call it again.
        """
        number = self._state.batch
        await self._end(lambda: self._round.renew(number))
        return type(self)(self._round, RoundState(number + 1, 0, 0.0), self._leases, self._clock)

    async def forget(self) -> int:
        """End this pool and erase its reports, unless another replica delivers them; of how many people.

        Raises
        ------
        OSError
            If the database does not answer; call it again.
        """
        return await self._end(lambda: self._round.erase(even_ended=self._lease is not None))

    async def close(self) -> None:
        """End this pool, and let another replica deliver the reports."""
        await self._end(lambda: None)

    async def _end(self, last: Callable[[], _Result]) -> _Result:
        """Take no reports any more, do one last thing, and let go of the lease. What came before is answered first."""
        self._ended = True
        if self._writer is not None:
            await asyncio.wait({self._writer})
        result = await self._in_thread(last)
        await self._in_thread(self._let_go)
        self._thread.shutdown(wait=False)
        return result

    def _let_go(self) -> None:
        if self._lease:
            self._lease.give_back()
        self._lease = None

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
