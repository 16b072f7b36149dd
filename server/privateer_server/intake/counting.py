"""Counts groups of requests, each in one transaction, and closes the rounds that they end."""

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Final, NamedTuple

from privateer_core.clock import Clock
from privateer_core.errors import NotFound, PluginError, PrivateerError, Unavailable
from privateer_core.wire.envelope import Envelope, binding, pieces
from privateer_core.wire.publication import decode_publication
from privateer_server.data import Data
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.experiment import Experiment, Snapshot
from privateer_server.intake.accumulator import Accumulator
from privateer_server.intake.opening import Opener
from privateer_server.intake.receipts import Receipt
from privateer_server.rounds.open_round import OpenRound
from privateer_server.store.records import TRANSIENT, RoundUpdate
from privateer_server.store.report_ids import Locked

_FEW: Final = 4
"""Requests that are taken one by one."""
_SIZES_MAX: Final = 4096
"""Earlier rounds whose size of a report is kept."""
_log = logging.getLogger("privateer.server")
Answer = Receipt | PrivateerError
Stage = Callable[[str], AbstractContextManager[object]]
"""Times a stage in a context."""
_GONE: Final = NotFound("the experiment was deleted since the request came", remedy="nothing to do")
_UNREADABLE: Final = Unavailable("the server cannot read the experiment now", remedy="send the same bytes again later")


@dataclass
class Request:
    """A request for an experiment's accumulator."""

    experiment: str
    # does it; its second argument is what the reports hold, if they are open already
    take: Callable[[Accumulator, list[bytes] | None], Receipt]
    envelope: Envelope | None = None  # the reports, if it brings any
    opened: list[bytes] | None = field(default=None, repr=False)  # what they hold, in order, once they are open
    # whether ``take`` does no more than `Accumulator.take` does with an upload of one person that needs no token
    is_plain: bool = False

    @property
    def size(self) -> int:
        """Sealed bytes."""
        return len(self.envelope.sealed) if self.envelope else 0

    def is_for(self, current: OpenRound) -> bool:
        """Whether it brings whole messages for this round, which still takes reports."""
        if self.envelope is None or current.taken or current.given_up or not current.round.batch:
            return False
        is_whole = len(self.envelope.sealed) % current.round.sealed_size == 0
        return is_whole and self.envelope.header == current.header

    def open(self, opener: Opener, current: OpenRound) -> None:
        """Open what it brings for the round that it `is_for`."""
        assert self.envelope is not None, "it is for a round"
        info = binding(self.envelope.header, current.round.model)
        self.opened = opener.open(pieces(self.envelope.sealed, current.round.sealed_size), info)


class CountedGroup(NamedTuple):
    """An experiment, where it stands now, and the change that made it so and is durable."""

    experiment: Experiment
    snapshot: Snapshot
    change: RoundUpdate


class _Begun(NamedTuple):
    """An experiment as the store has it, and what counts for it."""

    experiment: Experiment
    known: Snapshot
    accumulator: Accumulator

    def counted(self) -> CountedGroup:
        """Return what has been counted, to be made durable."""
        current, change = self.accumulator.close()
        refused = Counter(self.known.refused) + Counter(change.refused)
        return CountedGroup(self.experiment, replace(self.known, current=current, refused=refused), change)


class Group(NamedTuple):
    """The outcome of a group of requests."""

    answers: list[Answer]  # one for each request, in order
    counted: list[CountedGroup]  # the experiments that it changed
    ended: list[Experiment]  # those of them whose round is to be closed


class Counting:
    """Counts requests and closes rounds, in threads: `count` in one, `close` in one for each experiment.

    stage: times what reports and rounds go through.
    """

    def __init__(self, data: Data, experiments: Experiments, clock: Clock, stage: Stage) -> None:
        self._stage = stage
        self._store, self._keys, self._closer = data.store, data.keys, experiments.closer
        self._experiments, self._clock = experiments, clock
        # Whoever sends reports for rounds long over shall not have their publications read again and again.
        self._report_size = lru_cache(maxsize=_SIZES_MAX)(self._read_report_size)

    def count(self, requests: list[Request]) -> Group:
        """Count what requests bring, in one transaction, by where their experiments stand in the store."""
        by_experiment = _by_experiment(requests)
        with ExitStack() as stack:
            with self._stage("add"):
                self._open(by_experiment)
                with self._stage("lock"):
                    locked = stack.enter_context(self._store.locked(sorted(by_experiment)))
                rounds = {name: self._begun(name, those, locked) for name, those in by_experiment.items()}
                taken = {name: iter(_taken(rounds[name], those)) for name, those in by_experiment.items()}
                answers = [next(taken[request.experiment]) for request in requests]
                open_ones = [one for one in rounds.values() if isinstance(one, _Begun)]
                counted = [one.counted() for one in open_ones]
            with self._stage("commit"):
                locked.commit([one.change for one in counted])
        return Group(answers, counted, [one.experiment for one in open_ones if one.accumulator.ends_round])

    def _open(self, by_experiment: dict[str, list[Request]]) -> None:
        """Open what is not open yet, by what this server knows, before others have to wait for its experiments."""
        for name, requests in by_experiment.items():
            if experiment := self._experiments.known(name):
                self._open_for(experiment.current, requests)

    def _open_for(self, current: OpenRound, requests: list[Request]) -> None:
        sealed = [request for request in requests if request.opened is None and request.is_for(current)]
        if sealed and (opener := self._keys.find(current.round.public_key)):
            for request in sealed:
                request.open(opener, current)

    def _begun(self, name: str, requests: list[Request], locked: Locked) -> _Begun | PrivateerError:
        """Return an experiment and what counts for it; or why nothing is counted."""
        standing = locked.standing(name)
        if standing is None:
            return _GONE
        try:
            if self._experiments.known(name) is None:
                self._experiments.add(self._experiments.loader.experiment(name))
            experiment = self._experiments.known(name)  # the follower may have been faster
            if experiment is None:
                return _GONE
            known = self._experiments.loader.latest(name, experiment.snapshot, standing)
        except (*TRANSIENT, PluginError) as error:  # one experiment must not keep the others from being counted
            _log.error("experiment %s: its round cannot be read (%s)", name, error)
            return _UNREADABLE
        current = known.current
        opener = self._keys.find(current.round.public_key) if current.round.batch else None
        self._open_for(current, requests)
        opened = [report for request in requests for report in request.opened or ()]
        seen = locked.seen(name, opened)
        answered, size = partial(self._store.answer, name), partial(self._report_size, name)
        earlier = partial(self._closer.earlier.find, name)
        spent = self._store.spent
        accumulator = Accumulator(current, seen, opener, self._clock, answered, size, earlier, spent)
        accumulator.examine(opened)
        return _Begun(experiment, known, accumulator)

    def _read_report_size(self, name: str, version: int) -> int | None:
        body = self._store.publication(name, version)
        return decode_publication(body).round.report_size if body else None

    def close(self, experiment: Experiment) -> CountedGroup | None:
        """Open the next round of an experiment; if that fails, or another server does it, this one stays."""
        known = experiment.snapshot
        try:
            with self._stage("learn"):
                closed = self._closer.close(known.current)
        except Exception as error:
            experiment.put_off(error, self._clock.monotonic())
            return None
        if closed is None:
            experiment.wait(self._clock.monotonic())
            return None
        opened = replace(known, current=closed.opened, before=known.before + closed.received)
        return CountedGroup(experiment, opened, closed.change)


def _by_experiment(requests: list[Request]) -> dict[str, list[Request]]:
    found: dict[str, list[Request]] = {}
    for request in requests:
        found.setdefault(request.experiment, []).append(request)
    return found


def _taken(begun: _Begun | PrivateerError, requests: list[Request]) -> list[Answer]:
    """Have what an experiment's requests bring taken, in order: at once, or what is not like the rest by itself."""
    if isinstance(begun, PrivateerError):
        return [begun] * len(requests)
    if len(requests) < _FEW:
        return [_taken_alone(begun.accumulator, one) for one in requests]
    plain = [(one.envelope, one.opened) for one in requests if one.is_plain and one.envelope and one.opened]
    if len(plain) == len(requests) and begun.accumulator.take_alike(plain):
        return [Receipt(1)] * len(requests)
    half = len(requests) // 2
    return _taken(begun, requests[:half]) + _taken(begun, requests[half:])


def _taken_alone(accumulator: Accumulator, request: Request) -> Answer:
    try:
        return request.take(accumulator, request.opened)
    except PrivateerError as error:
        accumulator.refused[error.slug] += 1
        return error
