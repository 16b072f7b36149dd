"""Counts groups of requests, each in one transaction, and closes the rounds that they end."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Final, NamedTuple

from privateer.clock import Clock
from privateer.errors import NotFound, PrivateerError
from privateer.wire.envelope import Envelope, binding, pieces
from privateer.wire.publication import decode_publication
from privateer_server.accumulator import Accumulator, Receipt
from privateer_server.data import Data
from privateer_server.experiment import Experiment
from privateer_server.experiments import Experiments
from privateer_server.opening import Opener
from privateer_server.rounds import OpenRound
from privateer_server.store import Change

_SIZES_MAX: Final = 4096
"""Earlier rounds whose size of a report is kept."""
Answer = Receipt | PrivateerError
Stage = Callable[[str], AbstractContextManager[object]]
"""Times a stage in a context."""
_Begun = tuple[Experiment, Accumulator]


@dataclass
class Request:
    """What is to be done to an experiment's accumulator.

    Attributes
    ----------
    take
        Does it; its second argument is what the reports hold, if they are open already.
    envelope
        The reports, if it brings any.
    opened
        What they hold, in order, once they are open.
    """

    experiment: str
    take: Callable[[Accumulator, list[bytes] | None], Receipt]
    envelope: Envelope | None = None
    opened: list[bytes] | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Sealed bytes."""
        return len(self.envelope.sealed) if self.envelope else 0

    def is_for(self, current: OpenRound) -> bool:
        """Whether it brings whole messages for this round, which still takes reports."""
        if self.envelope is None or current.taken:
            return False
        is_whole = len(self.envelope.sealed) % current.round.sealed_size == 0
        return is_whole and self.envelope.header == current.header

    def open(self, opener: Opener, current: OpenRound) -> None:
        """Open what it brings for the round that it `is_for`."""
        assert self.envelope is not None, "it is for a round"
        info = binding(self.envelope.header, current.round.model)
        self.opened = opener.open(pieces(self.envelope.sealed, current.round.sealed_size), info)


class Counted(NamedTuple):
    """An experiment with its new last round, and the change that made it durable."""

    experiment: Experiment
    current: OpenRound
    change: Change


class Group(NamedTuple):
    """What became of a group of requests.

    Attributes
    ----------
    answers
        One for each request, in order.
    counted
        The experiments that it changed.
    ended
        Those of them whose round is to be closed.
    """

    answers: list[Answer]
    counted: list[Counted]
    ended: list[Experiment]


class Counting:
    """Counts requests and closes rounds, in threads: `count` in one, `close` in one for each experiment.

    Parameters
    ----------
    stage
        Times what reports and rounds go through.
    """

    def __init__(self, data: Data, experiments: Experiments, clock: Clock, stage: Stage) -> None:
        self._stage = stage
        self._store, self._keys, self._closer = data.store, data.keys, experiments.closer
        self._experiments, self._clock = experiments, clock
        # Whoever sends reports for rounds long over shall not have their publications read again and again.
        self._report_size = lru_cache(maxsize=_SIZES_MAX)(self._read_report_size)

    def count(self, requests: list[Request]) -> Group:
        """Count what requests bring, in one transaction.

        Raises
        ------
        Exception
            What keeps the store from writing. Nothing of the group is durable then.
        """
        with self._stage("add"):
            rounds = {name: self._begun(name, those) for name, those in _by_experiment(requests).items()}
            answers = [_taken(rounds[request.experiment], request) for request in requests]
            open_ones = list(filter(None, rounds.values()))
            counted = [Counted(experiment, *accumulator.close()) for experiment, accumulator in open_ones]
        with self._stage("commit"):
            self._store.commit([one.change for one in counted])
        return Group(answers, counted, [experiment for experiment, accumulator in open_ones if accumulator.ends_round])

    def _begun(self, name: str, requests: list[Request]) -> _Begun | None:
        """Return an experiment and what counts for it, with what requests bring for it open; None if it is deleted."""
        try:
            experiment = self._experiments.get(name)
        except NotFound:
            return None
        current, opener = experiment.current, self._keys.find(experiment.current.round.public_key)
        answered, size = partial(self._store.answer, name), partial(self._report_size, name)
        earlier = partial(self._closer.earlier.find, name)
        accumulator = Accumulator(
            current, experiment.report_ids, opener, self._clock, answered, size, earlier, self._store.spent
        )
        for request in requests:
            if opener and request.opened is None and request.is_for(current):
                request.open(opener, current)
        accumulator.examine([report for request in requests for report in request.opened or ()])
        return experiment, accumulator

    def _read_report_size(self, name: str, version: int) -> int | None:
        body = self._store.publication(name, version)
        return decode_publication(body).round.report_size if body else None

    def close(self, experiment: Experiment) -> Counted | None:
        """Open the next round of an experiment.

        If that fails, this one stays, and takes no more reports once its end is on record; None if nothing changes.
        """
        current = experiment.current
        try:
            with self._stage("learn"):
                return Counted(experiment, *self._closer.close(current))
        except Exception as error:
            experiment.put_off(error, self._clock.monotonic())
            if not self._closer.is_on_record(current):
                return None
            facts, ended = current.round, replace(current, taken=True)
            return Counted(experiment, ended, Change(facts.experiment, facts.version, current.received, True))


def _by_experiment(requests: list[Request]) -> dict[str, list[Request]]:
    found: dict[str, list[Request]] = {}
    for request in requests:
        found.setdefault(request.experiment, []).append(request)
    return found


def _taken(begun: _Begun | None, request: Request) -> Answer:
    if begun is None:
        return NotFound("the experiment was deleted since the request came", remedy="nothing to do")
    accumulator = begun[1]
    try:
        return request.take(accumulator, request.opened)
    except PrivateerError as error:
        accumulator.refused[error.slug] += 1
        return error
