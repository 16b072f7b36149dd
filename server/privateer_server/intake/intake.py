"""The way of reports into the store: they are opened, counted group by group, and answered once they are durable."""

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from privateer_core.clock import Clock
from privateer_core.errors import NotFound, PrivateerError, RoundClosed, Unavailable
from privateer_core.serving.fair_queue import SenderQueue
from privateer_core.serving.logs import trace
from privateer_core.serving.store.sqlite import is_damage
from privateer_core.serving.token_gate import Admission
from privateer_core.serving.write_health import WriteHealth
from privateer_core.spec.experiment import is_name
from privateer_core.wire.batch import check_alone
from privateer_core.wire.envelope import Envelope, binding
from privateer_server.data import Data
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.experiment import Experiment
from privateer_server.intake.admission import Shufflers, SpentToken
from privateer_server.intake.counting import Answer, CountedGroup, Counting, Request
from privateer_server.intake.opening_pool import Openers
from privateer_server.intake.receipts import Delivery, Receipt
from privateer_server.metrics import ServerMetrics
from privateer_server.rounds.open_round import OpenRound
from privateer_server.store.records import TRANSIENT

_log = logging.getLogger("privateer.server")
_QUEUE_MAX: Final = 4096
"""Requests that may wait, of one sender half as many; further ones are refused until there is room. As many may be held
for rounds that close."""
_MANY: Final = 8
_GATHER_SECONDS: Final = 0.005
"""If so many requests were opened together, the next wait so long, so that more of them share the costs of a group."""
_GROUP_BYTES: Final = 64 * 1024
"""Sealed bytes after which a group is committed: some 900 reports, for whose opening others wait 35 milliseconds."""
_CLOSERS: Final = 4
"""Rounds that are learned from at the same time."""


class _Waiting(NamedTuple):
    """A request whose sender waits for the answer."""

    request: Request
    answer: asyncio.Future[Receipt]

    @property
    def size(self) -> int:
        """Sealed bytes."""
        return self.request.size


class Intake:
    """Takes reports and batches from the endpoints.

    While a group is counted and committed in a thread of its own, processes open the next one, in which senders take
    turns. A round that is full is closed and learned from in another thread: what comes for its experiment waits for
    that, and nobody else does. Nothing is answered before it is durable.
    """

    def __init__(
        self,
        data: Data,
        experiments: Experiments,
        metrics: ServerMetrics,
        clock: Clock,
        processes: int,
        writes: WriteHealth,
    ) -> None:
        self._keys, self._experiments, self._metrics = data.keys, experiments, metrics
        self._store, self._is_shared = data.store, data.notifications is not None
        self._shufflers = Shufflers(experiments, data.journal)
        self._counting, self._openers = Counting(data, experiments, clock, metrics.stage), Openers(processes)
        self._writes, self._is_damaged, self._stopping = writes, False, False
        self._queue: SenderQueue[_Waiting] = SenderQueue(_QUEUE_MAX, _GROUP_BYTES)
        self._called, self._writing = asyncio.Event(), asyncio.Lock()
        self._writer, self._closers = ThreadPoolExecutor(1, "count"), ThreadPoolExecutor(_CLOSERS, "close")
        self._closing: dict[str, asyncio.Task[None]] = {}
        self._held: list[_Waiting] = []
        self._since: dict[asyncio.Future[Receipt], float] = {}  # the oldest first
        self._running: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether reports are being counted."""
        return self._running is not None and not self._running.done() and not (self._stopping or self._is_damaged)

    @property
    def waiting(self) -> int:
        """Requests that wait for their answer."""
        return len(self._since)

    @property
    def oldest_wait(self) -> float:
        """Seconds that the oldest of them has waited."""
        now = asyncio.get_running_loop().time()
        return now - next(iter(self._since.values()), now)

    def start(self) -> None:
        """Begin to count."""
        self._running = asyncio.create_task(self._run())
        self._starting = asyncio.create_task(self._openers.start())

    async def stop(self) -> None:
        """Count what is queued, close the rounds that end, and end."""
        self._stopping = True
        self._called.set()
        if self._running and self._starting:
            await self._starting
            await self._running
        for threads in (self._writer, self._closers):
            threads.shutdown()
        await self._openers.close()

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[None]:
        """Have nothing counted here, and the round of an experiment not closed, until the context is left.

        The experiment is what the store has of it then.
        """
        while True:
            async with self._writing:
                closing = self._closing.get(name)
                if closing is None:
                    await self._catch_up(name)
                    yield
                    return
            await asyncio.wait([closing])  # other experiments are counted meanwhile

    def is_closing(self, name: str) -> bool:
        """Whether this server closes the round of an experiment just now."""
        return name in self._closing

    async def _catch_up(self, name: str) -> None:
        """Read what another server has made of an experiment."""
        experiment, loader = self._experiments.known(name), self._experiments.loader
        if experiment is None:
            return
        try:
            standing = await asyncio.to_thread(self._store.standing, name)
            if standing is None:
                await self._experiments.check_deleted(name)
                return
            experiment.advance(await asyncio.to_thread(loader.latest, name, experiment.snapshot, standing))
            experiment.shuffler = standing.shuffler
        except TRANSIENT as error:
            _log.error("experiment %s: what other servers did cannot be read (%s)", name, error)
            raise Unavailable("the server cannot read the experiment now", remedy="try again later") from None

    def submit(
        self, envelope: Envelope, sender: str = "", *, is_signed: bool = False, admission: Admission | None = None
    ) -> asyncio.Future[Receipt]:
        """Have reports from devices counted; the receipt comes when what was accepted is durable.

        sender: who takes turns with others.
        is_signed: whether a trusted sender signed it; what nobody signed carries one person's report.
        admission: the upload token that it comes with, if it needs one.
        """
        name = envelope.header.experiment
        try:
            # Another server may have just created it: whoever counts reads that first. But
            # a database may have no text for what is no name, and everybody in the group would be refused.
            may_be_new = self._is_shared and is_name(name)
            known = self._experiments.known(name) if may_be_new else self._experiments.get(name)
            # What comes for an earlier version is refused unopened, and may be larger than a report of this one; what
            # comes for a later one, which another server may have published, is looked at once that is read.
            if known and not is_signed and envelope.header.version == known.current.round.version:
                check_alone(envelope, known.current.round)
            if admission:
                admission.check_for(name)
        except PrivateerError as error:
            self._metrics.refuse({error.slug: 1})
            raise
        if admission:
            return asyncio.create_task(self._spend(envelope, sender, SpentToken.of(admission, envelope.sealed)))
        alone = not is_signed
        request = Request(name, lambda into, opened: into.take(envelope, opened, alone), envelope, is_plain=alone)
        return self._do(request, sender)

    async def _spend(self, envelope: Envelope, sender: str, token: SpentToken) -> Receipt:
        """Have a report counted that comes with a token, unless that was spent."""
        try:
            await token.check_early(self._store.spent)
        except PrivateerError as error:
            self._metrics.refuse({error.slug: 1})
            raise
        except TRANSIENT as error:
            _log.error("whether an upload token was spent cannot be read (%s)", trace(error))
            raise Unavailable("the server cannot read its data now", remedy="send the same bytes again later") from None
        name = envelope.header.experiment
        request = Request(name, lambda into, opened: into.take(envelope, opened, True, token), envelope)
        return await self._do(request, sender)

    async def deliver(self, delivery: Delivery) -> Receipt:
        """Have a shuffler's batch counted; return when that is durable."""
        name = delivery.envelope.header.experiment
        try:
            await self._shufflers.claim(delivery)
        except PrivateerError as error:
            self._metrics.refuse({error.slug: 1})
            raise
        request = Request(name, lambda into, opened: into.take_batch(delivery, opened), delivery.envelope)
        try:
            receipt = await self._do(request, delivery.closer.shuffler)
        except RoundClosed:
            await self._shufflers.shut(delivery.envelope.header)
            raise
        if receipt.closed:
            await self._shufflers.shut(delivery.envelope.header)
        return receipt

    async def expire(self, name: str) -> None:
        """Close the round of an experiment, or give it up, if it is over; return when that is durable."""
        await self._do(Request(name, lambda into, _: into.expire()), "")

    def _do(self, request: Request, sender: str) -> asyncio.Future[Receipt]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Receipt] = loop.create_future()
        if not self.running or not self._queue.put(sender, _Waiting(request, answer)):
            raise _busy()
        self._called.set()
        self._since[answer] = loop.time()
        return answer

    async def _run(self) -> None:
        """Open a group while the one before is counted; end once nothing waits and no round closes."""
        counting: asyncio.Task[None] | None = None
        while True:
            self._called.clear()
            waiting, self._held = self._held + self._queue.group(), []
            if group := self._free(waiting):
                await self._open(group)
                if counting:
                    await counting
                counting = asyncio.create_task(self._count(self._free(group)))
                counting.add_done_callback(lambda _: self._called.set())
                if len(group) >= _MANY and not self._stopping:
                    await asyncio.sleep(_GATHER_SECONDS)
            elif (
                self._stopping
                and not (self._queue or self._held or self._closing)
                and (counting is None or counting.done())
            ):
                break
            else:
                await self._called.wait()
        if counting:
            await counting

    def _free(self, waiting: list[_Waiting]) -> list[_Waiting]:
        """Return the requests of experiments whose round is not just closing; the others are held until then."""
        free: list[_Waiting] = []
        for one in waiting:
            if one.request.experiment not in self._closing:
                free.append(one)
            elif len(self._held) < _QUEUE_MAX:
                self._held.append(one)
            else:
                self._resolve(one.answer, _busy())
        return free

    async def _open(self, group: list[_Waiting]) -> None:
        """Open the reports of a group, those for one round together. What is not for an open round stays closed."""
        rounds: dict[str, tuple[OpenRound, list[Request]]] = {}
        for request, _ in group:
            with suppress(NotFound, Unavailable):
                current = self._experiments.get(request.experiment).current
                if request.is_for(current):
                    rounds.setdefault(request.experiment, (current, []))[1].append(request)
        # What fails to open here is opened as it is counted, where a failure is answered to those whom it concerns.
        await asyncio.gather(*(self._open_round(*one) for one in rounds.values()), return_exceptions=True)

    async def _open_round(self, current: OpenRound, requests: list[Request]) -> None:
        facts, opener = current.round, self._keys.find(current.round.public_key)
        sealed = [request.envelope.sealed for request in requests if request.envelope]
        info, size = binding(current.header, facts.model), facts.sealed_size
        with self._metrics.stage("open"):
            opened = await self._openers.open(opener, b"".join(sealed), size, info) if opener else None
        if opened is not None:
            left = iter(opened)
            for request, part in zip(requests, sealed, strict=True):
                request.opened = list(islice(left, len(part) // size))

    async def _count(self, group: list[_Waiting]) -> None:
        loop, requests = asyncio.get_running_loop(), [one.request for one in group]
        answers: list[Answer]
        ended: list[Experiment] = []
        async with self._writing:
            try:
                answers, counted, ended = await loop.run_in_executor(self._writer, self._counting.count, requests)
            except Exception as error:  # nothing of the group is answered: its senders shall try again
                self._note(error)
                self._part({request.experiment for request in requests})
                refusal = Unavailable("the server cannot store reports now", remedy="send the same bytes again later")
                answers, counted = [refusal] * len(group), []
            else:
                self._writes.note()
            for one in counted:
                self._follow(one)
            for experiment in ended:
                self._closing[experiment.name] = asyncio.create_task(self._close(experiment))
        for waiting, answer in zip(group, answers, strict=True):
            # Whoever ends a round hears of it once the next one is there.
            closing = self._closing.get(waiting.request.experiment)
            if closing:
                closing.add_done_callback(partial(self._resolve, waiting.answer, answer))
            else:
                self._resolve(waiting.answer, answer)

    def _resolve(self, future: asyncio.Future[Receipt], answer: Answer, _: object = None) -> None:
        del self._since[future]
        if future.done():  # the sender has hung up
            return
        if isinstance(answer, Receipt):
            future.set_result(answer)
        else:
            future.set_exception(answer)

    async def _close(self, experiment: Experiment) -> None:
        try:
            closed = await asyncio.get_running_loop().run_in_executor(self._closers, self._counting.close, experiment)
            if closed:
                self._follow(closed)
        finally:
            del self._closing[experiment.name]
            self._called.set()

    def _follow(self, counted: CountedGroup) -> None:
        self._metrics.follow(counted.change)
        counted.experiment.advance(counted.snapshot)

    def _part(self, names: set[str]) -> None:
        """Begin new parts of sums: it is not known whether the store has what was added to those so far."""
        for name in names:
            if experiment := self._experiments.known(name):
                experiment.current = experiment.current.apart()

    def _note(self, error: Exception) -> None:
        """Take note of a failure; a damaged database ends the counting."""
        self._is_damaged = self._is_damaged or is_damage(error)
        if self._is_damaged:
            _log.critical("the database is damaged: stop the server and restore a backup (%s)", trace(error))
        self._writes.note(error)


def _busy() -> Unavailable:
    return Unavailable("the server takes no reports now", remedy="send the same bytes again later")
