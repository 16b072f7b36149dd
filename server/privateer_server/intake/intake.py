"""The intake of reports: they are decrypted, counted group by group, and answered once they are durable."""

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from privateer_core.clock import Clock
from privateer_core.errors import BatchRefused, Conflict, NotFound, PrivateerError, RoundClosed, Unavailable
from privateer_core.serving.fair_queue import SenderQueue
from privateer_core.serving.http.bodies import Body
from privateer_core.serving.logs import trace
from privateer_core.serving.store.database import is_damage
from privateer_core.serving.thread_turns import THREAD_TURNS
from privateer_core.serving.write_health import WriteHealth
from privateer_core.spec.experiment import is_name
from privateer_core.wire.publication import Envelope, Header, check_single_report, hpke_info
from privateer_server.data import Data
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.experiment import Experiment
from privateer_server.intake.accumulator import Accumulator
from privateer_server.intake.counting import Answer, ReportCounter, Request
from privateer_server.intake.decryption import MIN_BYTES_FOR_PROCESSES, DecryptPool
from privateer_server.intake.receipts import Delivery, Receipt
from privateer_server.intake.spent_tokens import ReportToken, ReportTokens
from privateer_server.metrics import ServerMetrics
from privateer_server.rounds.closing import ClosedRound
from privateer_server.rounds.open_round import OpenRound
from privateer_server.store.records import TRANSIENT_ERRORS

_log = logging.getLogger("privateer.server")
_MAX_QUEUED_REQUESTS: Final = 4096
"""The number of queued requests, of one sender half as many; further requests are refused while the queue is full. As
many may be held for rounds that close."""
_MIN_REQUESTS_TO_GATHER: Final = 8
_GATHER_SECONDS: Final = 0.005
"""After a group of that minimum size the next requests wait so long, so that more of them share a group's costs."""
_GROUP_BYTES: Final = 64 * 1024
"""Sealed bytes after which a group is committed: about 900 reports, which take 35 milliseconds to decrypt."""
_MAX_CLOSING_ROUNDS: Final = 4
"""Rounds that are learned from at the same time."""


class _PendingRequest(NamedTuple):
    """A request whose sender awaits the answer."""

    request: Request
    future: asyncio.Future[Receipt]
    size: int  # sealed bytes


class Intake:
    """The queue of reports and batches from the endpoints, and the tasks that count them.

    While a group is counted and committed in a thread of its own, processes decrypt the next group, in which senders
    take turns. A full round is closed and learned from in another thread: only requests for its experiment wait for
    that. No request is answered before its reports are durable.
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
        self._keys, self._experiments, self._metrics, self._clock = data.keys, experiments, metrics, clock
        self._store, self._journal, self._is_shared = data.store, data.journal, data.notifications is not None
        self._counter, self._pool = ReportCounter(data, experiments, clock, metrics), DecryptPool(processes)
        self._writes, self._has_failed, self._is_damaged, self._is_stopping = writes, False, False, False
        self._queue: SenderQueue[_PendingRequest] = SenderQueue(_MAX_QUEUED_REQUESTS, _GROUP_BYTES)
        self._wake_up, self._write_lock = asyncio.Event(), asyncio.Lock()
        self._counting_thread = ThreadPoolExecutor(1, "count")
        self._closing_threads = ThreadPoolExecutor(_MAX_CLOSING_ROUNDS, "close")
        self._closing_tasks: dict[str, asyncio.Task[None]] = {}
        self._held_requests: list[_PendingRequest] = []
        self._start_times: dict[asyncio.Future[Receipt], float] = {}  # the oldest first
        self._run_task: asyncio.Task[None] | None = None
        self._start_task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether reports are being counted."""
        return self._run_task is not None and not self._run_task.done() and not (self._is_stopping or self._is_damaged)

    @property
    def n_pending(self) -> int:
        """The number of requests that await their answer."""
        return len(self._start_times)

    @property
    def oldest_wait_seconds(self) -> float:
        """The seconds since the oldest pending request came."""
        now = asyncio.get_running_loop().time()
        return now - next(iter(self._start_times.values()), now)

    def start(self) -> None:
        """Start the tasks that decrypt and count."""
        self._run_task = asyncio.create_task(self._process_queue())
        self._start_task = asyncio.create_task(self._pool.start())

    async def stop(self) -> None:
        """Count all queued requests, close the rounds that end, and stop the tasks."""
        self._is_stopping = True
        self._wake_up.set()
        if self._run_task and self._start_task:
            await self._start_task
            await self._run_task
        for threads in (self._counting_thread, self._closing_threads):
            threads.shutdown()
        await self._pool.close()

    @asynccontextmanager
    async def lock_experiment(self, name: str) -> AsyncIterator[None]:
        """Pause counting here, and closing of an experiment's round, until the context is left.

        The experiment in memory is refreshed from the store first.
        """
        while True:
            async with self._write_lock:
                closing = self._closing_tasks.get(name)
                if closing is None:
                    await self._refresh(name)
                    yield
                    return
            await asyncio.wait([closing])  # other experiments are counted meanwhile

    def is_closing(self, name: str) -> bool:
        """Whether this server is closing the round of an experiment."""
        return name in self._closing_tasks

    async def _refresh(self, name: str) -> None:
        """Refresh a loaded experiment from the store, where other servers may have changed or deleted it."""
        experiment, loader = self._experiments.loaded.get(name), self._experiments.loader
        if experiment is None:
            return
        try:
            stored_state = await asyncio.to_thread(self._store.experiment_state, name)
            if stored_state is None:
                await self._experiments.forget_if_deleted(name)
                return
            experiment.advance_to(await asyncio.to_thread(loader.load_latest, name, experiment.snapshot, stored_state))
            experiment.shuffler = stored_state.shuffler
        except TRANSIENT_ERRORS as error:
            _log.error("experiment %s: what other servers did cannot be read (%s)", name, error)
            raise Unavailable("the server cannot read the experiment now", remedy="try again later") from None

    def submit(self, envelope: Envelope, body: Body) -> asyncio.Future[Receipt]:
        """Queue the reports of a device, or of a trusted sender; the receipt comes when accepted reports are durable.

        The envelope of a body that no trusted sender signed has the report of one participant.
        """
        name, is_alone, admission = envelope.header.experiment, body.digest is None, body.admission
        try:
            # Another server may have just created it: the counter reads the store first. But
            # a database may have no text for an invalid name, and the whole group would be refused.
            can_be_new = self._is_shared and is_name(name)
            experiment = self._experiments.loaded.get(name)
            if experiment is None and not can_be_new:
                experiment = self._experiments.get(name)  # raises why there is none
            # A report for an earlier version is refused undecrypted, and may be larger than a report of this version; a
            # report for a later version, which another server may have published, is checked once that is read.
            if experiment and is_alone and envelope.header.version == experiment.current.round.version:
                check_single_report(envelope, experiment.current.round)
            if admission:
                admission.check_for(name)
        except PrivateerError as error:
            self._metrics.count_refusals({error.slug: 1})
            raise
        if admission:
            token = ReportToken.from_admission(admission, envelope.sealed)
            return asyncio.create_task(self._submit_with_token(envelope, body.sender, token))

        def count(accumulator: Accumulator, decrypted: list[bytes] | None) -> Receipt:
            return accumulator.count_upload(envelope, decrypted, is_alone)

        return self._enqueue(Request(name, count, envelope, is_simple=is_alone), body.sender)

    async def _submit_with_token(self, envelope: Envelope, sender: str, token: ReportToken) -> Receipt:
        """Queue a report with a token, unless the token was spent."""
        try:
            await asyncio.to_thread(ReportTokens(self._store.find_token_report).check_unspent, token)
        except PrivateerError as error:
            self._metrics.count_refusals({error.slug: 1})
            raise
        except TRANSIENT_ERRORS as error:
            _log.error("whether an upload token was spent cannot be read (%s)", trace(error))
            raise Unavailable("the server cannot read its data now", remedy="send the same bytes again later") from None
        name = envelope.header.experiment
        request = Request(name, lambda into, read: into.count_upload(envelope, read, True, token), envelope)
        return await self._enqueue(request, sender)

    async def deliver(self, delivery: Delivery) -> Receipt:
        """Queue a shuffler's batch, and return its receipt when it is durable."""
        name = delivery.envelope.header.experiment
        try:
            await self.claim_experiment(delivery)
        except PrivateerError as error:
            self._metrics.count_refusals({error.slug: 1})
            raise
        request = Request(name, lambda into, read: into.count_batch(delivery, read), delivery.envelope)
        try:
            receipt = await self._enqueue(request, delivery.shuffler_key.shuffler)
        except RoundClosed:
            await self._record_end_of_batches(delivery.envelope.header)
            raise
        if receipt.is_round_closed:
            await self._record_end_of_batches(delivery.envelope.header)
        return receipt

    async def claim_experiment(self, delivery: Delivery) -> None:
        """Claim a batch's experiment for its shuffler, or refuse the batch if another shuffler has claimed it."""
        header = delivery.envelope.header
        try:
            experiment = await self._experiments.find(header.experiment)
            if header.version >= experiment.current.round.version:  # closed rounds are not claimed
                await self._experiments.claim(experiment.name, delivery.shuffler_key, delivery.signed_at)
        except Conflict:
            raise BatchRefused(
                "another shuffler claimed the experiment, it is for another's, or this one's claim was released",
                remedy="deliver through that one, or release its claim: DELETE /experiments/NAME/shuffler",
            ) from None
        except TRANSIENT_ERRORS as error:
            _log.error("whose an experiment's batches are cannot be read (%s)", trace(error))
            raise Unavailable("the server cannot read its data now", remedy="send the same batch again") from None

    async def _record_end_of_batches(self, header: Header) -> None:
        """Record that a round takes no further batch, before its shuffler erases its reports; nothing if it is over.

        If the next round is published, the journal has that record already.
        """
        loaded = self._experiments.loaded.get(header.experiment)
        # The claim was not checked if a header names an earlier version, and the digest is public.
        if loaded is None or (loaded.current.round.version, loaded.current.digest) != (header.version, header.digest):
            return
        try:
            await asyncio.to_thread(self._journal.record_end_of_batches, header.experiment, header.digest)
        except TRANSIENT_ERRORS as error:
            _log.error("experiment %s: a round's last batch cannot be put on record (%s)", loaded.name, trace(error))
            raise Unavailable("the server cannot write its journal now", remedy="send the same batch again") from None

    async def end_round_if_due(self, name: str) -> None:
        """End the round of an experiment if it is due; return when the round is closed, and that is durable."""
        await self._enqueue(Request(name, lambda into, _: into.end_round_if_due()), "")

    def _enqueue(self, request: Request, sender: str) -> asyncio.Future[Receipt]:
        """Queue a request, and return the future of its receipt; refuse it if the queue is full or the intake stops."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Receipt] = loop.create_future()
        size = len(request.envelope.sealed) if request.envelope else 0
        if not self.is_running or not self._queue.put(sender, _PendingRequest(request, future, size), size):
            raise _busy_error()
        self._wake_up.set()
        self._start_times[future] = loop.time()
        return future

    async def _process_queue(self) -> None:
        """Decrypt a group while the previous group is counted; after a stop, end once nothing is pending."""
        counting: asyncio.Task[None] | None = None
        while True:
            self._wake_up.clear()
            pending, self._held_requests = self._held_requests + self._queue.take_group(), []
            if group := self._select_processable(pending):
                await self._decrypt_group(group)
                if counting:
                    await counting
                counting = asyncio.create_task(self._count_group(self._select_processable(group)))
                counting.add_done_callback(lambda _: self._wake_up.set())
                if len(group) >= _MIN_REQUESTS_TO_GATHER and not self._is_stopping:
                    await asyncio.sleep(_GATHER_SECONDS)
                continue
            has_counted = counting is None or counting.done()
            if self._is_stopping and has_counted and not (self._queue or self._held_requests or self._closing_tasks):
                break
            await self._wake_up.wait()
        if counting:
            await counting

    def _select_processable(self, pending: list[_PendingRequest]) -> list[_PendingRequest]:
        """Return the requests of experiments whose round is not closing; hold or refuse the rest."""
        processable: list[_PendingRequest] = []
        for pending_request in pending:
            if pending_request.request.experiment not in self._closing_tasks:
                processable.append(pending_request)
            elif len(self._held_requests) < _MAX_QUEUED_REQUESTS:
                self._held_requests.append(pending_request)
            else:
                self._answer(pending_request.future, _busy_error())
        return processable

    async def _decrypt_group(self, group: list[_PendingRequest]) -> None:
        """Decrypt a large group round by round in other processes; a small group is decrypted when counted."""
        if sum(pending.size for pending in group) < MIN_BYTES_FOR_PROCESSES:
            return
        rounds: dict[str, tuple[OpenRound, list[Request]]] = {}
        for request, _, _ in group:
            with suppress(NotFound, Unavailable):
                open_round = self._experiments.get(request.experiment).current
                if request.is_for(open_round):
                    rounds.setdefault(request.experiment, (open_round, []))[1].append(request)
        # After a failure here a request is decrypted when it is counted, where a failure is answered to its sender.
        await asyncio.gather(*(self._decrypt_round(*pair) for pair in rounds.values()), return_exceptions=True)

    async def _decrypt_round(self, open_round: OpenRound, requests: list[Request]) -> None:
        """Decrypt the messages of requests for a round, if processes and its key are available."""
        facts, decryptor = open_round.round, self._keys.find_decryptor(open_round.round.public_key)
        sealed = [request.envelope.sealed for request in requests if request.envelope]
        info, size = hpke_info(open_round.header, facts.model), facts.sealed_size
        with self._metrics.stages["open"].time():
            decrypted = await self._pool.decrypt(decryptor, b"".join(sealed), size, info) if decryptor else None
        if decrypted is not None:
            remaining = iter(decrypted)
            for request, chunk in zip(requests, sealed, strict=True):
                request.decrypted = list(islice(remaining, len(chunk) // size))

    async def _count_group(self, group: list[_PendingRequest]) -> None:
        """Count a group in a thread, answer its requests, and start to close the rounds that it ends."""
        requests = [pending.request for pending in group]
        answers: list[Answer]
        to_close: list[Experiment] = []
        async with self._write_lock:
            try:
                count = partial(self._counter.count, requests)
                answers, counted, to_close = await THREAD_TURNS.run(self._counting_thread, count)
            except Exception as error:  # nothing of the group is answered: its senders shall try again
                self._note_failure(error)
                # It is unknown whether the store has the last additions to the current partial sums.
                for name in {request.experiment for request in requests}:
                    if loaded := self._experiments.loaded.get(name):
                        loaded.current = loaded.current.with_new_part()
                refusal = Unavailable("the server cannot store reports now", remedy="send the same bytes again later")
                answers, counted = [refusal] * len(group), []
            else:
                if self._has_failed:
                    self._has_failed = False
                    self._writes.record_commit()
            for experiment, snapshot, change in counted:
                self._metrics.count_change(change)
                experiment.advance_to(snapshot)
            for experiment in to_close:
                self._closing_tasks[experiment.name] = asyncio.create_task(self._await_next_round(experiment))
        for pending, answer in zip(group, answers, strict=True):
            # A request that ends a round is answered once the next round is open.
            closing = self._closing_tasks.get(pending.request.experiment)
            if closing:
                closing.add_done_callback(partial(self._answer, pending.future, answer))
            else:
                self._answer(pending.future, answer)

    def _answer(self, future: asyncio.Future[Receipt], answer: Answer, _: object = None) -> None:
        """Answer a pending request by its receipt or error, unless its sender has hung up."""
        del self._start_times[future]
        if future.done():
            return
        if isinstance(answer, Receipt):
            future.set_result(answer)
        else:
            future.set_exception(answer)

    async def _await_next_round(self, experiment: Experiment) -> None:
        """Continue with the next round of an experiment once a thread has closed the current round."""
        loop = asyncio.get_running_loop()
        try:
            closed = await loop.run_in_executor(self._closing_threads, self._close_timed, experiment.current)
            if closed:
                self._metrics.count_change(closed.change)
                experiment.follow_round(closed)
            else:
                experiment.note_lease(self._clock.monotonic())
        except Exception as error:
            experiment.note_failed_closing(error, self._clock.monotonic())
        finally:
            del self._closing_tasks[experiment.name]
            self._wake_up.set()

    def _close_timed(self, current: OpenRound) -> ClosedRound | None:
        with self._metrics.time_learning():
            return self._experiments.closer.close_round(current)

    def _note_failure(self, error: Exception) -> None:
        """Note a failure for the health of writes; a damaged database ends the counting."""
        self._has_failed, self._is_damaged = True, self._is_damaged or is_damage(error)
        if self._is_damaged:
            _log.critical("the database is damaged: stop the server and restore a backup (%s)", trace(error))
        self._writes.record_commit(error)


def _busy_error() -> Unavailable:
    return Unavailable("the server takes no reports now", remedy="send the same bytes again later")
