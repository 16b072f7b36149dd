"""The single writer: counts queued reports group by group, one transaction a group, and answers after it."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final

from privateer.clock import Clock
from privateer.errors import BatchRefused, Conflict, NotFound, PrivateerError, Unavailable
from privateer.serving.database import is_damage
from privateer.serving.logs import trace
from privateer.wire.envelope import Envelope
from privateer.wire.publication import decode_publication
from privateer.wire.upload import check_alone
from privateer_server.accumulator import Accumulator, Delivery, Receipt
from privateer_server.data import Data
from privateer_server.experiment import Experiment
from privateer_server.experiments import Experiments
from privateer_server.metrics import Metrics
from privateer_server.rounds import OpenRound
from privateer_server.store import Change
from privateer_server.turns import Turns

_log = logging.getLogger("privateer.server")
_QUEUE_MAX: Final = 4096
"""Requests that may wait, of one sender half as many; further ones are refused until there is room."""
_GROUP_BYTES: Final = 64 * 1024
"""Sealed bytes after which a group is committed: some 900 reports, for whose opening others wait 35 milliseconds."""
_SIZES_MAX: Final = 4096
"""Earlier rounds whose size of a report is kept."""
_Answer = Receipt | PrivateerError
_Counted = tuple[Experiment, OpenRound, Change]
"""An experiment with its new last round, and the change that made it durable."""


@dataclass(frozen=True)
class _Request:
    """What is to be done to an experiment's accumulator, and the bytes that this takes."""

    experiment: str
    take: Callable[[Accumulator], Receipt]
    size: int
    answer: asyncio.Future[Receipt]


class Intake:
    """Takes reports and batches from the endpoints.

    Opening, counting, learning and committing run in a worker thread, one group at a time; what comes in meanwhile
    forms the next group, in which senders take turns. Nothing is answered before it is durable.
    """

    def __init__(self, data: Data, experiments: Experiments, metrics: Metrics, clock: Clock) -> None:
        self._store, self._keys, self._closer = data.store, data.keys, experiments.closer
        self._experiments, self._metrics, self._clock = experiments, metrics, clock
        self._is_failing = self._is_damaged = self._stopping = False
        self._queue: Turns[_Request] = Turns(_QUEUE_MAX, _GROUP_BYTES)
        # Whoever sends reports for rounds long over shall not have their publications read again and again.
        self._report_size = lru_cache(maxsize=_SIZES_MAX)(self._read_report_size)
        self._called, self._writing = asyncio.Event(), asyncio.Lock()
        self._writer: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether reports are being counted."""
        return self._writer is not None and not self._writer.done() and not (self._stopping or self._is_damaged)

    def start(self) -> None:
        """Begin to count."""
        self._writer = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Count what is queued, and end."""
        self._stopping = True
        self._called.set()
        if self._writer:
            await self._writer

    def alone(self) -> asyncio.Lock:
        """Return what to hold while nothing may be counted and no round may close."""
        return self._writing

    async def submit(self, envelope: Envelope, sender: str = "", *, is_signed: bool = False) -> Receipt:
        """Have reports from devices counted; return when what was accepted is durable.

        Parameters
        ----------
        sender
            Who takes turns with others.
        is_signed
            Whether a trusted sender signed it; what nobody signed carries one person's report.

        Raises
        ------
        NotFound
            If there is no such experiment.
        ReportRefused
            If the upload as a whole is refused.
        Unavailable
            If the server is overloaded or cannot write.
        """
        name = envelope.header.experiment
        try:
            current = self._experiments.get(name).current
            # What comes for an earlier version is refused unopened, and may be larger than a report of this one.
            if not is_signed and envelope.header.version >= current.round.version:
                check_alone(envelope, current.round)
        except PrivateerError as error:
            self._metrics.refuse({error.slug: 1})
            raise
        return await self._do(name, lambda accumulator: accumulator.take(envelope), len(envelope.sealed), sender)

    async def deliver(self, delivery: Delivery) -> Receipt:
        """Have a shuffler's batch counted; return when that is durable.

        Raises
        ------
        NotFound, Unavailable
            As `submit`.
        BatchRefused, ReportRefused
            If the batch as a whole is not the round's, or another shuffler claimed the experiment.
        """
        name = delivery.envelope.header.experiment
        try:
            await self._claim(self._experiments.get(name), delivery)
        except PrivateerError as error:
            self._metrics.refuse({error.slug: 1})
            raise
        size = len(delivery.envelope.sealed)
        return await self._do(name, lambda accumulator: accumulator.take_batch(delivery), size, delivery.shuffler)

    async def _claim(self, experiment: Experiment, delivery: Delivery) -> None:
        """See that the experiment is the shuffler's; it becomes that with its first batch."""
        if delivery.envelope.header.version < experiment.current.round.version:
            return  # nobody owns rounds that are over
        try:
            await self._experiments.claim(experiment.name, delivery.shuffler, delivery.signed_at)
        except Conflict:
            raise BatchRefused(
                "another shuffler claimed the experiment, or this one's claim was released",
                remedy="deliver through that one, or release its claim: DELETE /experiments/NAME/shuffler",
            ) from None

    async def expire(self, name: str) -> None:
        """Close the round of an experiment, or give it up, if it is over; return when that is durable.

        Raises
        ------
        Unavailable
            As `submit`.
        """
        await self._do(name, Accumulator.expire, 0, "")

    async def _do(self, name: str, take: Callable[[Accumulator], Receipt], size: int, sender: str) -> Receipt:
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        if not self.running or not self._queue.put(sender, _Request(name, take, size, answer)):
            raise Unavailable("the server takes no reports now", remedy="send the same bytes again later")
        self._called.set()
        return await answer

    async def _run(self) -> None:
        while self._queue or not self._stopping:
            if self._queue:
                await self._count(self._queue.group())
            else:
                self._called.clear()
                await self._called.wait()

    async def _count(self, group: list[_Request]) -> None:
        answers: list[_Answer]
        async with self._writing:
            try:
                answers, rounds = await asyncio.to_thread(self._process, group)
            except Exception as error:  # nothing of the group is durable: its senders shall try again
                self._note(error)
                refusal = Unavailable("the server cannot store reports now", remedy="send the same bytes again later")
                answers, rounds = [refusal] * len(group), []
            for experiment, current, change in rounds:
                self._metrics.follow(change, change.received - experiment.current.received)
                experiment.advance(current, change)
        for request, answer in zip(group, answers, strict=True):
            _resolve(request.answer, answer)

    def _note(self, error: Exception) -> None:
        """Log the first of the failures in a row; a damaged database ends the counting."""
        self._is_damaged = is_damage(error)
        if self._is_damaged:
            _log.critical("the database is damaged: stop the server and restore a backup (%s)", trace(error))
        elif not self._is_failing:
            _log.error("reports cannot be stored, and their senders are asked to come again (%s)", trace(error))
        self._is_failing = True

    def _process(self, group: list[_Request]) -> tuple[list[_Answer], list[_Counted]]:
        """Count a group in one transaction, then close the rounds that it ends; return an answer to each request."""
        accumulators: dict[str, Accumulator] = {}
        answers: list[_Answer] = []
        for request in group:
            try:
                if request.experiment not in accumulators:
                    accumulators[request.experiment] = self._accumulator(self._experiments.get(request.experiment))
            except NotFound as error:  # deleted since the request came
                answers.append(error)
            else:
                answers.append(_taken(accumulators[request.experiment], request))
        rounds = [(self._experiments.get(name), *accumulator.close()) for name, accumulator in accumulators.items()]
        self._store.commit([change for _, _, change in rounds])
        if self._is_failing:
            self._is_failing = False
            _log.warning("reports are stored again")
        ended = [counted for counted in rounds if accumulators[counted[0].name].ends_round]
        return answers, rounds + [result for counted in ended for result in self._closed(*counted[:2])]

    def _accumulator(self, experiment: Experiment) -> Accumulator:
        opener = self._keys.find(experiment.current.round.public_key)
        answered = partial(self._store.answer, experiment.name)
        size = partial(self._report_size, experiment.name)
        earlier = partial(self._closer.earlier.find, experiment.name)
        return Accumulator(experiment.current, experiment.report_ids, opener, self._clock, answered, size, earlier)

    def _read_report_size(self, name: str, version: int) -> int | None:
        body = self._store.publication(name, version)
        return decode_publication(body).round.report_size if body else None

    def _closed(self, experiment: Experiment, current: OpenRound) -> list[_Counted]:
        """Open the next round. If that fails, keep this one, which takes no more reports once its end is on record."""
        try:
            return [(experiment, *self._closer.close(current))]
        except Exception as error:
            experiment.put_off(error, self._clock.monotonic())
            if not self._closer.is_on_record(current):
                return []
            facts, ended = current.round, replace(current, taken=True)
            return [(experiment, ended, Change(facts.experiment, facts.version, current.received, True))]


def _taken(accumulator: Accumulator, request: _Request) -> _Answer:
    try:
        return request.take(accumulator)
    except PrivateerError as error:
        accumulator.refused[error.slug] += 1
        return error


def _resolve(future: asyncio.Future[Receipt], answer: _Answer) -> None:
    if future.done():
        return
    if isinstance(answer, Receipt):
        future.set_result(answer)
    else:
        future.set_exception(answer)
