"""The single writer: counts queued reports group by group, one transaction a group, and answers after it."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from privateer.clock import Clock
from privateer.errors import BatchRefused, NotFound, PrivateerError, Unavailable, Unopenable
from privateer.wire.envelope import Envelope
from privateer_server.experiments import Experiment, Experiments
from privateer_server.metrics import Metrics
from privateer_server.opening import Opener
from privateer_server.rounds import OpenRound
from privateer_server.store import Change, Store
from privateer_server.tally import Delivery, Outcome, Tally

_log = logging.getLogger("privateer.server")
_QUEUE_MAX: Final = 4096
"""Requests that may wait; further ones are told to come back."""
_GROUP_BYTES: Final = 256 * 1024
"""Sealed bytes after which a group is committed: some 3500 reports, a seventh of a second of opening."""


@dataclass(frozen=True)
class _Request:
    """What is to be done to an experiment's tally, and the bytes that this takes."""

    experiment: str
    take: Callable[[Tally], Outcome]
    size: int
    answer: asyncio.Future[Outcome]


@dataclass(frozen=True)
class _Result:
    """What a group comes to: an answer a request, and the new last round and the change of each experiment."""

    answers: list[Outcome | PrivateerError]
    rounds: list[tuple[Experiment, OpenRound, Change]]


class Intake:
    """Takes reports and batches from the doors.

    Opening, counting, learning and committing run in a worker thread, one group at a time; what comes in meanwhile
    forms the next group. Nothing is answered before it is durable.
    """

    def __init__(
        self, experiments: Experiments, store: Store, opener: Opener, metrics: Metrics, clock: Clock | None = None
    ) -> None:
        self._experiments, self._store, self._opener, self._metrics = experiments, store, opener, metrics
        self._clock = clock
        self._queue: asyncio.Queue[_Request | None] = asyncio.Queue(_QUEUE_MAX)
        self._writer: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def running(self) -> bool:
        """Whether reports are being counted."""
        return self._writer is not None and not self._writer.done() and not self._stopping

    def start(self) -> None:
        """Begin to count."""
        self._writer = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Count what is queued, and end."""
        self._stopping = True
        if self._writer:
            await self._queue.put(None)
            await self._writer

    async def submit(self, envelope: Envelope) -> Outcome:
        """Have reports from devices counted; returns when what was accepted is durable.

        Raises
        ------
        NotFound
            If there is no such experiment.
        Unavailable
            If the server is overloaded or cannot write.
        """
        name = envelope.header.experiment
        self._known(name)
        return await self._do(name, lambda tally: tally.take(envelope), len(envelope.sealed))

    async def deliver(self, delivery: Delivery) -> Outcome:
        """Have a shuffler's batch counted; returns when that is durable.

        Raises
        ------
        NotFound, Unavailable
            As `submit`.
        BatchRefused, ReportRefused
            If the batch as a whole is not the round's, or another shuffler claimed the experiment.
        """
        name = delivery.envelope.header.experiment
        if self._known(name).shuffler not in ("", delivery.shuffler):
            self._metrics.refuse({BatchRefused.slug: 1})
            raise BatchRefused(
                "another shuffler claimed the experiment",
                remedy="deliver through that one, or release its claim: DELETE /experiments/NAME/shuffler",
            )
        return await self._do(name, lambda tally: tally.take_batch(delivery), len(delivery.envelope.sealed))

    def _known(self, name: str) -> Experiment:
        try:
            return self._experiments.get(name)
        except NotFound as error:
            self._metrics.refuse({error.slug: 1})
            raise

    async def expire(self, name: str) -> None:
        """Close the round of an experiment, or give it up, if it is over; returns when that is durable.

        Raises
        ------
        Unavailable
            As `submit`.
        """
        await self._do(name, Tally.expire, 0)

    async def _do(self, name: str, take: Callable[[Tally], Outcome], size: int) -> Outcome:
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        try:
            if not self.running:
                raise asyncio.QueueFull
            self._queue.put_nowait(_Request(name, take, size, answer))
        except asyncio.QueueFull:
            raise Unavailable("the server takes no reports now", remedy="send the same bytes again later") from None
        return await answer

    async def _run(self) -> None:
        stopping = False
        while not stopping:
            group, stopping = await self._next_group()
            if group:
                await self._count(group)

    async def _next_group(self) -> tuple[list[_Request], bool]:
        group: list[_Request] = []
        size = 0
        request = await self._queue.get()
        while request is not None:
            group.append(request)
            size += request.size
            if size >= _GROUP_BYTES or self._queue.empty():
                return group, False
            request = self._queue.get_nowait()
        return group, True

    async def _count(self, group: list[_Request]) -> None:
        try:
            result = await asyncio.to_thread(self._process, group)
        except Exception as error:  # nothing of the group is durable: its senders shall try again
            _log.error("a group of reports was not committed (%s)", type(error).__name__)
            answers: list[Outcome | PrivateerError] = [
                Unavailable("the server cannot store reports now", remedy="send the same bytes again later")
            ] * len(group)
        else:
            self._advance(result)
            answers = result.answers
        for request, answer in zip(group, answers, strict=True):
            _resolve(request.answer, answer)

    def _process(self, group: list[_Request]) -> _Result:
        tallies: dict[str, Tally] = {}
        answers: list[Outcome | PrivateerError] = []
        for request in group:
            name = request.experiment
            if name not in tallies:
                experiment = self._experiments.get(name)
                answered = partial(self._store.answer, name)
                tallies[name] = Tally(experiment.current, experiment.report_ids, self._opener, self._clock, answered)
            answers.append(_taken(tallies[name], request))
        rounds = [(self._experiments.get(name), *tally.close()) for name, tally in tallies.items()]
        self._store.commit([change for _, _, change in rounds])
        return _Result(answers, rounds)

    def _advance(self, result: _Result) -> None:
        for experiment, current, change in result.rounds:
            self._metrics.accept(change.received - experiment.current.received)
            self._metrics.refuse(change.refused)
            self._metrics.fail_to_open(change.experiment, change.refused.get(Unopenable.slug, 0))
            experiment.advance(current, change)
            if change.following:
                self._metrics.close_round()


def _taken(tally: Tally, request: _Request) -> Outcome | PrivateerError:
    try:
        return request.take(tally)
    except PrivateerError as error:
        tally.refused[error.slug] += 1
        return error


def _resolve(future: asyncio.Future[Outcome], answer: Outcome | PrivateerError) -> None:
    if future.done():
        return
    if isinstance(answer, Outcome):
        future.set_result(answer)
    else:
        future.set_exception(answer)
