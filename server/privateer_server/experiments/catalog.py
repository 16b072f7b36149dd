"""All experiments of a running server, by name."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final

from privateer_core.algorithms import ALGORITHMS
from privateer_core.clock import Clock
from privateer_core.errors import Conflict, Deleted, NotFound, PluginError, SpecError, Unavailable, WrongEndpoint
from privateer_core.serving.admission import raise_refusals
from privateer_core.serving.logs import log_event, trace
from privateer_core.spec.experiment import is_name
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import decode_publication
from privateer_server.algorithms import LEARNERS
from privateer_server.data import Data, open_data
from privateer_server.experiments.experiment import Experiment, ExperimentLoader, find_experiment_refusals
from privateer_server.rounds.closing import Recovery, RoundCloser
from privateer_server.rounds.open_round import OpenRound, first_unused_version, open_first_round, with_deadlines
from privateer_server.rounds.schedule import Schedule
from privateer_server.settings import ServerSettings
from privateer_server.store.records import TRANSIENT_ERRORS, ExperimentRecord, LogLine, ShufflerKey

_RECOVERED_MESSAGE: Final = "recovered after an unclean stop"
_log = logging.getLogger("privateer.server")


@dataclass(frozen=True)
class Start:
    """The start of an experiment: its initial state, and its first log line."""

    make_state: Callable[[Schedule], Any] | None = None  # makes the initial state; None: the state before any report
    # action, detail: the texts of its log line
    action: str = "create"
    detail: str = ""


class Experiments:
    """All experiments by name. Keys without an open round are destroyed at the start."""

    def __init__(self, data: Data, settings: ServerSettings, clock: Clock) -> None:
        self._store, self._journal, self._keys = data.store, data.journal, data.keys
        self.limits, self._clock = settings.limits, clock
        self._creation_lock, self._claim_lock = asyncio.Lock(), asyncio.Lock()
        self.closer, self.loader = RoundCloser(data, clock), ExperimentLoader(data, clock)
        for name, log_line in self._journal.deletions().items():
            self._store.delete(name, log_line)
        self._deleted = set(self._store.deleted_names())
        recovery = Recovery(data, self.closer, clock)
        self.loaded: dict[str, Experiment] = {}  # by name; other servers may have created further experiments
        self._load_errors: dict[str, PluginError] = {}
        for name in self._store.experiment_states():
            try:
                recovery.recover(name)
                if stored := self._store.experiment(name):
                    self.loaded[name] = self._restore(stored)
            except PluginError as error:  # a missing plug-in of one experiment must not stop the others
                _log.error("experiment %s stands still: %s", name, error)
                self._load_errors[name] = error
        self.recovered = recovery.recovered  # numbers of rounds ``published`` and ``given_up`` at the start
        for name in self._journal.experiments():
            if name not in self.loaded and name not in self._load_errors:
                message = "experiment %s: published earlier, and not in this database; restore a backup that has it"
                _log.warning(message, name)
        publications = {experiment.name: experiment.current.publication for experiment in self}
        for name in self._load_errors:
            if stored := self._store.experiment(name):
                publications[name] = stored.current.publication
        open_keys = [self.list_public_keys(*pair) for pair in publications.items()]
        self._keys.erase_all_except([key for keys in open_keys for key in keys])

    def __iter__(self) -> Iterator[Experiment]:
        return iter(list(self.loaded.values()))

    def list_public_keys(self, name: str, publication: bytes) -> list[bytes]:
        """Return the public keys of an open round, and of the next round if it is recorded already."""
        entry = self._journal.last_entry(name)
        publications = [publication, entry.following.publication] if entry else [publication]
        return [decode_publication(body).round.public_key for body in publications]

    def get(self, name: str) -> Experiment:
        """Return the experiment of a name, or raise an error if it does not exist."""
        if name in self._deleted:
            raise Deleted("the experiment was deleted", remedy="nothing to do: it asks nobody any more")
        if error := self._load_errors.get(name):
            raise Unavailable(error.detail, field=error.field, remedy=error.remedy)
        try:
            return self.loaded[name]
        except KeyError:
            raise NotFound("no such experiment", remedy="GET /experiments lists them") from None

    async def find(self, name: str) -> Experiment:
        """Return the experiment of a name, even if another server has just created it; raises the errors of `get`."""
        if is_name(name) and not (name in self.loaded or name in self._deleted or name in self._load_errors):
            try:
                self.add(await asyncio.to_thread(self.loader.experiment, name))
            except PluginError as error:
                self._load_errors[name] = error
        return self.get(name)

    def add(self, experiment: Experiment | None) -> None:
        """Add an experiment that another server has created, unless it is loaded or deleted."""
        if experiment and experiment.name not in self._deleted:
            self.loaded.setdefault(experiment.name, experiment)

    async def forget_if_deleted(self, name: str) -> None:
        """Forget an experiment if another server has deleted it."""
        if name in await asyncio.to_thread(self._store.deleted_names):
            self.forget(name)

    def end_waits(self) -> None:
        """Answer all long polls now, and later ones at once: the process is about to stop."""
        for experiment in self:
            experiment.end_waits()

    def forget(self, name: str) -> None:
        """Forget a deleted experiment, and reserve its name for good."""
        self._deleted.add(name)
        if experiment := self.loaded.pop(name, None):
            experiment.end_waits()

    def is_deleted(self, name: str) -> bool:
        """Whether an experiment of that name was deleted."""
        return name in self._deleted

    async def create(
        self, spec: Spec, operator: str, start: Start | None = None, is_same: Callable[[Experiment], bool] | None = None
    ) -> tuple[Experiment, bool]:
        """Create an experiment unless it exists, by ``is_same`` or an equal spec; return it, and whether it is new."""
        async with self._creation_lock:
            with suppress(NotFound):
                await self.find(spec.name)
            if self.is_deleted(spec.name):
                detail = "the name was that of an experiment that is deleted"
                raise Conflict(detail, field="experiment.name", remedy="choose another")
            if existing := self.loaded.get(spec.name):
                if not (is_same(existing) if is_same else existing.created == spec):
                    raise Conflict("the name is taken by another experiment", field="experiment.name", remedy="rename")
                return existing, False
            try:
                start = start or Start()
                first = await asyncio.to_thread(self._create_first_round, spec, operator, start)
                self.loaded[spec.name] = Experiment(first, spec)
            except TRANSIENT_ERRORS:
                raise Unavailable("the server cannot store experiments now", remedy="try again later") from None
            log_event(_log, "experiment created", experiment=spec.name, change=start.action, by=operator)
        return self.loaded[spec.name], True

    async def claim(self, name: str, shuffler_key: ShufflerKey, signed_at: float) -> None:
        """Reserve an experiment's batches for a shuffler, by the id of its key; refuse it if another has claimed them.

        Two shufflers would each hold a part of a round's reports, and the part that comes second would be lost.

        shuffler_key: the shuffler and its organisation, which must be the experiment's, if it names any.
        signed_at: when the shuffler signed the claim, in seconds since 1970.
        """
        experiment, shuffler = await self.find(name), shuffler_key.shuffler
        if not experiment.current.is_shuffled:
            raise WrongEndpoint("reports of this experiment go to the server", remedy="send them to the server")
        if experiment.spec.experiment.shuffler not in ("", shuffler_key.organisation):
            detail = f"the experiment is for the shuffler of {experiment.spec.experiment.shuffler}"
            remedy = "report through that one; the server knows its key by a file of this name"
            raise Conflict(detail, field="experiment.shuffler", remedy=remedy)
        async with self._claim_lock:
            stored_state = await asyncio.to_thread(self._store.experiment_state, name)
            owner = stored_state.shuffler if stored_state else ""
            if not owner and await asyncio.to_thread(self._store.claim, name, shuffler, signed_at):
                owner = shuffler
            if not owner:
                raise Conflict("the claim was released since", field="shuffler", remedy="claim it anew")
            if owner != shuffler:
                remedy = "report through that one, or release its claim: DELETE /experiments/NAME/shuffler"
                raise Conflict("another shuffler takes the reports of this experiment", field="shuffler", remedy=remedy)
            experiment.shuffler = shuffler

    async def release(self, name: str, operator: str) -> None:
        """Release the claim of an experiment, so that another shuffler can claim it."""
        experiment = await self.find(name)
        async with self._claim_lock:
            version = experiment.current.round.version
            line = LogLine(self._clock.now(), "release-claim", experiment.shuffler, operator, version, version)
            await asyncio.to_thread(self._store.release, name, line)
            experiment.shuffler = ""
        log_event(_log, "experiment changed", experiment=name, change=line.action, by=operator)

    def _create_first_round(self, spec: Spec, operator: str, start: Start) -> OpenRound:
        """Publish the first round, with a version above those of a lost experiment of that name."""
        previous_entry = self._journal.last_entry(spec.name)
        version = first_unused_version(previous_entry.following.version) if previous_entry else 1
        public_key = self._keys.create_key()
        try:
            first = open_first_round(spec, public_key, self._clock.now(), version, start.make_state)
            raise_refusals(find_experiment_refusals(first.schedule, first.step, self.limits))
            entry = self.closer.record_publication(first, previous_entry)
            line = LogLine(self._clock.now(), start.action, start.detail, operator, version, version)
            self._store.create(spec.name, first.schedule.encoded_spec, entry.following, line)
        except BaseException:
            self._keys.destroy(public_key)
            raise
        return with_deadlines(first, self._clock)

    def _restore(self, record: ExperimentRecord) -> Experiment:
        """Return the experiment of a record, and close its round if learning from it failed before."""
        experiment = self.loader.restore(record)
        try:
            if experiment.current.is_unlearned and (closed := self.closer.close_round(experiment.current)):
                experiment.follow_round(closed)
        except Exception as error:  # an error of one experiment must not stop the others
            experiment.note_failed_closing(error, self._clock.monotonic())
        return experiment


def open_experiments(settings: ServerSettings, clock: Clock) -> tuple[Data, Experiments]:
    """Open the data folder, recover interrupted rounds, and load the experiments."""
    for plugin_error in (*ALGORITHMS.problems(), *LEARNERS.problems()):
        _log.error("%s", plugin_error)
    with ExitStack() as stack:
        try:
            data = open_data(settings)
            stack.callback(data.close)
            experiments = Experiments(data, settings, clock)
            if data.was_cut_short:
                _log_recovery(experiments)
        except SpecError:
            raise
        except TRANSIENT_ERRORS as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be written"
            detail = f"{settings.data.name} cannot be used: {reason}"
            raise SpecError(detail, field="PRIVATEER_DATA", remedy="check the path and free space") from None
        except Exception as error:
            _log.error("the database cannot be read (%s)", trace(error))
            detail = "the database holds an experiment that cannot be read"
            raise SpecError(detail, field="PRIVATEER_DATA", remedy="restore a backup into an empty folder") from None
        stack.pop_all()
    return data, experiments


def _log_recovery(experiments: Experiments) -> None:
    open_rounds = sum(bool(experiment.current.round.batch_size) for experiment in experiments)
    rounds = {f"rounds_{outcome}": count for outcome, count in experiments.recovered.items()}
    log_event(_log, _RECOVERED_MESSAGE, experiments=len(list(experiments)), open_rounds=open_rounds, **rounds)
