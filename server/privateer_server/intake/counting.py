"""Counts groups of requests, each in one transaction."""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Final, NamedTuple

from privateer_core.clock import Clock
from privateer_core.errors import NotFound, PluginError, PrivateerError, Unavailable
from privateer_core.wire.publication import Envelope, decode_publication, hpke_info, split_bytes
from privateer_server.data import Data
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.experiment import Experiment, Snapshot
from privateer_server.intake.accumulator import Accumulator
from privateer_server.intake.decryption import Decryptor
from privateer_server.intake.receipts import Receipt
from privateer_server.metrics import ServerMetrics
from privateer_server.rounds.open_round import OpenRound
from privateer_server.store.records import TRANSIENT_ERRORS, RoundUpdate
from privateer_server.store.rounds import LockedExperiments

_MAX_INDIVIDUAL_REQUESTS: Final = 4
"""The number of requests below which they are counted one by one."""
_MAX_CACHED_SIZES: Final = 4096
"""The number of earlier rounds whose report size is cached."""
_log = logging.getLogger("privateer.server")
Answer = Receipt | PrivateerError
_EXPERIMENT_DELETED: Final = NotFound("the experiment was deleted since the request came", remedy="nothing to do")
_UNREADABLE: Final = Unavailable("the server cannot read the experiment now", remedy="send the same bytes again later")


@dataclass
class Request:
    """A request for an experiment's accumulator."""

    experiment: str
    # counts the request; its second argument has the decrypted messages, if they are decrypted already
    count: Callable[[Accumulator, list[bytes] | None], Receipt]
    envelope: Envelope | None = None  # its reports, if any
    decrypted: list[bytes] | None = field(default=None, repr=False)  # their messages, in order, once decrypted
    # whether ``count`` calls `Accumulator.count_upload` with an upload of one participant without a token
    is_simple: bool = False

    def is_for(self, open_round: OpenRound) -> bool:
        """Whether the request has complete messages for a round that still takes reports."""
        if self.envelope is None or not open_round.is_taking_reports:
            return False
        if self.envelope.header.digest != open_round.digest:
            return False
        return len(self.envelope.sealed) % open_round.round.sealed_size == 0

    def decrypt(self, decryptor: Decryptor, open_round: OpenRound) -> None:
        """Decrypt the messages of the request for the round that it `is_for`."""
        assert self.envelope is not None, "it is for a round"
        info = hpke_info(self.envelope.header, open_round.round.model)
        self.decrypted = decryptor.decrypt(split_bytes(self.envelope.sealed, open_round.round.sealed_size), info)


class CountedExperiment(NamedTuple):
    """An experiment, its new snapshot, and the durable change that led to it."""

    experiment: Experiment
    snapshot: Snapshot
    change: RoundUpdate


class _OpenCount(NamedTuple):
    """An experiment as stored, and the accumulator of its new reports."""

    experiment: Experiment
    snapshot: Snapshot
    accumulator: Accumulator

    def build_counted_experiment(self) -> CountedExperiment:
        """Return the experiment with its counted reports, to be made durable."""
        open_round, change = self.accumulator.build_update()
        refused = Counter(self.snapshot.refused) + Counter(change.refused)
        return CountedExperiment(self.experiment, replace(self.snapshot, current=open_round, refused=refused), change)


class Group(NamedTuple):
    """The result of a group of requests."""

    answers: list[Answer]  # the answer of each request, in order
    counted: list[CountedExperiment]  # the experiments that it changed
    to_close: list[Experiment]  # the experiments whose round is to be closed


class ReportCounter:
    """Counts requests in a single thread."""

    def __init__(self, data: Data, experiments: Experiments, clock: Clock, metrics: ServerMetrics) -> None:
        self._metrics = metrics
        self._store, self._keys, self._earlier_policies = data.store, data.keys, experiments.closer.earlier_policies
        self._experiments, self._clock = experiments, clock
        # Repeated reports for rounds that closed long ago must not read their publications again and again.
        self._report_size = lru_cache(maxsize=_MAX_CACHED_SIZES)(self._read_report_size)

    def count(self, requests: list[Request]) -> Group:
        """Count the reports of requests in one transaction, by the stored states of their experiments."""
        by_experiment = defaultdict[str, list[Request]](list)
        for request in requests:
            by_experiment[request.experiment].append(request)
        with ExitStack() as stack:
            with self._metrics.stages["add"].time():
                for name, group in by_experiment.items():  # by the rounds in memory, before experiments are locked
                    if experiment := self._experiments.loaded.get(name):
                        self._decrypt_for(experiment.current, group)
                with self._metrics.stages["lock"].time():
                    locked = stack.enter_context(self._store.lock_experiments(sorted(by_experiment)))
                rounds = {name: self._start_count(name, group, locked) for name, group in by_experiment.items()}
                iterators = {name: iter(_count_requests(rounds[name], group)) for name, group in by_experiment.items()}
                answers = [next(iterators[request.experiment]) for request in requests]
                open_counts = [count for count in rounds.values() if isinstance(count, _OpenCount)]
                counted = [count.build_counted_experiment() for count in open_counts]
            with self._metrics.stages["commit"].time():
                locked.commit([counted_experiment.change for counted_experiment in counted])
        to_close = [count.experiment for count in open_counts if count.accumulator.should_close_round]
        return Group(answers, counted, to_close)

    def _decrypt_for(self, open_round: OpenRound, requests: list[Request]) -> None:
        """Decrypt the messages of requests for an open round, unless they are decrypted already."""
        sealed = [request for request in requests if request.decrypted is None and request.is_for(open_round)]
        if sealed and (decryptor := self._keys.find_decryptor(open_round.round.public_key)):
            with self._metrics.stages["open"].time():
                for request in sealed:
                    request.decrypt(decryptor, open_round)

    def _start_count(self, name: str, group: list[Request], locked: LockedExperiments) -> _OpenCount | PrivateerError:
        """Return an experiment with a new accumulator, or the error for which its requests are refused."""
        stored_state = locked.state(name)
        if stored_state is None:
            return _EXPERIMENT_DELETED
        try:
            experiment = self._experiments.loaded.get(name)
            if experiment is None:
                self._experiments.add(self._experiments.loader.experiment(name))
                experiment = self._experiments.loaded.get(name)  # the follower may have been faster
            if experiment is None:
                return _EXPERIMENT_DELETED
            snapshot = self._experiments.loader.load_latest(name, experiment.snapshot, stored_state)
        except (*TRANSIENT_ERRORS, PluginError) as error:  # one experiment must not keep the others from being counted
            _log.error("experiment %s: its round cannot be read (%s)", name, error)
            return _UNREADABLE
        open_round = snapshot.current
        decryptor = self._keys.find_decryptor(open_round.round.public_key) if open_round.round.batch_size else None
        self._decrypt_for(open_round, group)
        decrypted = [report for request in group for report in request.decrypted or ()]
        counted_ids = locked.counted_ids(name, decrypted)
        find_answer, find_size = partial(self._store.find_batch_answer, name), partial(self._report_size, name)
        finders = find_answer, find_size, partial(self._earlier_policies.find, name)
        find_token_report = self._store.find_token_report
        accumulator = Accumulator(open_round, counted_ids, decryptor, self._clock, *finders, find_token_report)
        accumulator.validate_all(decrypted)
        return _OpenCount(experiment, snapshot, accumulator)

    def _read_report_size(self, name: str, version: int) -> int | None:
        body = self._store.publication(name, version)
        return decode_publication(body).round.report_size if body else None


def _count_requests(experiment_count: _OpenCount | PrivateerError, requests: list[Request]) -> list[Answer]:
    """Count an experiment's requests in order: at once if all are simple and valid, else by halves."""
    if isinstance(experiment_count, PrivateerError):
        return [experiment_count] * len(requests)
    if len(requests) < _MAX_INDIVIDUAL_REQUESTS:
        return [_count_request(experiment_count.accumulator, request) for request in requests]
    simple_requests = (request for request in requests if request.is_simple)
    uploads = [(each.envelope, each.decrypted) for each in simple_requests if each.envelope and each.decrypted]
    if len(uploads) == len(requests) and experiment_count.accumulator.count_simple_uploads(uploads):
        return [Receipt(1)] * len(requests)
    middle = len(requests) // 2
    return _count_requests(experiment_count, requests[:middle]) + _count_requests(experiment_count, requests[middle:])


def _count_request(accumulator: Accumulator, request: Request) -> Answer:
    """Count a request, and return its receipt, or the error that refuses it, which is counted as a refusal."""
    try:
        return request.count(accumulator, request.decrypted)
    except PrivateerError as error:
        accumulator.refused[error.slug] += 1
        return error
