"""All experiments of a running server, by name."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from privateer_core.algorithms import ALGORITHMS
from privateer_core.clock import Clock
from privateer_core.errors import Conflict, Deleted, NotFound, PluginError, SpecError, Unavailable, WrongEndpoint
from privateer_core.serving.admission import refuse
from privateer_core.serving.logs import tell, trace
from privateer_core.spec.experiment import is_name
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import decode_publication
from privateer_server.algorithms import LEARNERS
from privateer_server.data import Data, open_data
from privateer_server.experiments.experiment import Experiment, ExperimentLoader
from privateer_server.experiments.experiment_admission import find_experiment_refusals
from privateer_server.rounds.closing import Closer, Recovery
from privateer_server.rounds.loop import Schedule
from privateer_server.rounds.open_round import OpenRound, beyond, first_round, timed
from privateer_server.settings import ServerSettings
from privateer_server.store.records import TRANSIENT, ExperimentRecord, LogLine, ShufflerKey

_RECOVERED: Final = "recovered after an unclean stop"
_log = logging.getLogger("privateer.server")


@dataclass(frozen=True)
class Start:
    """The way in which an experiment comes into being."""

    begun: Callable[[Schedule], Any] | None = None  # makes the state that it begins with; None: that before any report
    # action, detail: what its log says
    action: str = "create"
    detail: str = ""


class Experiments:
    """All experiments by name.

    Keys of no open round are destroyed at the start.

    closer: what ends their rounds.
    limits: what a new experiment keeps to.
    loader: what reads them from the store.
    """

    def __init__(self, data: Data, settings: ServerSettings, clock: Clock) -> None:
        self._store, self._journal, self._keys = data.store, data.journal, data.keys
        self.limits, self._clock = settings.limits, clock
        self._creating, self._claiming = asyncio.Lock(), asyncio.Lock()
        self.closer, self.loader = Closer(data, clock), ExperimentLoader(data, clock)
        for name, line in self._journal.buried().items():
            self._store.delete(name, line)
        self._deleted = set(self._store.deleted())
        recovery = Recovery(data, self.closer, clock)
        self._by_name: dict[str, Experiment] = {}
        self._idle: dict[str, PluginError] = {}
        for name in self._store.standings():
            try:
                recovery.recover(name)
                if stored := self._store.experiment(name):
                    self._by_name[name] = self._restored(stored)
            except PluginError as error:  # what one experiment lacks must not keep the server from the others
                _log.error("experiment %s stands still: %s", name, error)
                self._idle[name] = error
        self.recovered = recovery.recovered  # how many rounds the start ``published`` and has ``given_up``
        for name in self._journal.experiments():
            if name not in self._by_name and name not in self._idle:
                _log.warning(
                    "experiment %s: published earlier, and not in this database; restore a backup that has it", name
                )
        kept = (*map(self.keys_of, self), *map(self._stored_keys, self._idle))
        self._keys.keep([key for keys in kept for key in keys])

    def __iter__(self) -> Iterator[Experiment]:
        return iter(list(self._by_name.values()))

    def keys_of(self, experiment: Experiment) -> list[bytes]:
        """Return the public keys of the open round, and of the next one if it is on record already."""
        return [experiment.current.round.public_key, *self._following_key(experiment.name)]

    def _following_key(self, name: str) -> list[bytes]:
        entry = self._journal.last(name)
        return [decode_publication(entry.following.publication).round.public_key] if entry else []

    def _stored_keys(self, name: str) -> list[bytes]:
        """Return what `keys_of` would, of an experiment that cannot be read."""
        stored = self._store.experiment(name)
        open_round = [decode_publication(stored.current.publication).round.public_key] if stored else []
        return [*open_round, *self._following_key(name)]

    def get(self, name: str) -> Experiment:
        """Return the experiment of that name."""
        if name in self._deleted:
            raise Deleted("the experiment was deleted", remedy="nothing to do: it asks nobody any more")
        if error := self._idle.get(name):
            raise Unavailable(error.detail, field=error.field, remedy=error.remedy)
        try:
            return self._by_name[name]
        except KeyError:
            raise NotFound("no such experiment", remedy="GET /experiments lists them") from None

    def known(self, name: str) -> Experiment | None:
        """Return the experiment of that name, if this server knows it."""
        return self._by_name.get(name)

    async def find(self, name: str) -> Experiment:
        """Return the experiment of that name, also if another server has just created it; raises what `get` does."""
        if is_name(name) and not (name in self._by_name or name in self._deleted or name in self._idle):
            try:
                self.add(await asyncio.to_thread(self.loader.experiment, name))
            except PluginError as error:
                self._idle[name] = error
        return self.get(name)

    def add(self, experiment: Experiment | None) -> None:
        """Keep an experiment that another server has created, unless it is known or deleted."""
        if experiment and experiment.name not in self._deleted:
            self._by_name.setdefault(experiment.name, experiment)

    async def check_deleted(self, name: str) -> None:
        """Let an experiment go if another server has deleted it."""
        if name in await asyncio.to_thread(self._store.deleted):
            self.forget(name)

    def end_waits(self) -> None:
        """Answer all long polls now, and those to come at once: the process is about to stop."""
        for experiment in self:
            experiment.end_waits()

    def forget(self, name: str) -> None:
        """Let an experiment that is deleted go, and never take its name again."""
        self._deleted.add(name)
        if experiment := self._by_name.pop(name, None):
            experiment.end_waits()

    def is_deleted(self, name: str) -> bool:
        """Whether there was an experiment of that name that is deleted."""
        return name in self._deleted

    async def create(
        self, spec: Spec, who: str, start: Start | None = None, is_known: Callable[[Experiment], bool] | None = None
    ) -> tuple[Experiment, bool]:
        """Return the experiment of a spec, and whether it is new.

        who: whose request it is, for the log.
        start: what it begins with, if another experiment has learned that.
        is_known: whether an experiment of that name is the one that is wanted; by default one of the same spec is.
        """
        async with self._creating:
            with suppress(NotFound):
                await self.find(spec.name)
            if self.is_deleted(spec.name):
                detail = "the name was that of an experiment that is deleted"
                raise Conflict(detail, field="experiment.name", remedy="choose another")
            if known := self._by_name.get(spec.name):
                if not (is_known(known) if is_known else known.created == spec):
                    raise Conflict("the name is taken by another experiment", field="experiment.name", remedy="rename")
                return known, False
            try:
                start = start or Start()
                first = await asyncio.to_thread(self._created, spec, who, start)
                self._by_name[spec.name] = Experiment(first, spec)
            except TRANSIENT:
                raise Unavailable("the server cannot store experiments now", remedy="try again later") from None
            tell(_log, "experiment created", experiment=spec.name, change=start.action, by=who)
        return self._by_name[spec.name], True

    async def claim(self, name: str, closer: ShufflerKey, signed_at: float) -> None:
        """Let one shuffler alone, by the id of its key, bring batches; the same again changes nothing.

        Two shufflers would each hold a part of a round's reports, and the part that comes second would be lost.

        closer: the shuffler, and its organisation: the one that the experiment names, if it names one.
        signed_at: when the shuffler signed the claim, in seconds since 1970.
        """
        experiment, shuffler = await self.find(name), closer.shuffler
        if not experiment.current.shuffled:
            raise WrongEndpoint("reports of this experiment go to the server", remedy="send them to the server")
        if experiment.spec.experiment.shuffler not in ("", closer.organisation):
            raise Conflict(
                f"the experiment is for the shuffler of {experiment.spec.experiment.shuffler}",
                field="experiment.shuffler",
                remedy="report through that one; the server knows its key by a file of this name",
            )
        async with self._claiming:
            owner = await asyncio.to_thread(self._owner, name)
            if not owner and await asyncio.to_thread(self._store.claim, name, shuffler, signed_at):
                owner = shuffler
            if not owner:
                raise Conflict("the claim was released since", field="shuffler", remedy="claim it anew")
            if owner != shuffler:
                raise Conflict(
                    "another shuffler takes the reports of this experiment",
                    field="shuffler",
                    remedy="report through that one, or release its claim: DELETE /experiments/NAME/shuffler",
                )
            experiment.shuffler = shuffler

    async def release(self, name: str, who: str) -> None:
        """Let any shuffler claim the experiment, since the one that did is gone."""
        experiment = await self.find(name)
        async with self._claiming:
            version = experiment.current.round.version
            line = LogLine(self._clock.now(), "release-claim", experiment.shuffler, who, version, version)
            await asyncio.to_thread(self._store.release, name, line)
            experiment.shuffler = ""
        tell(_log, "experiment changed", experiment=name, change=line.action, by=who)

    def _owner(self, name: str) -> str:
        """Return whose claim the store has."""
        standing = self._store.standing(name)
        return standing.shuffler if standing else ""

    def _created(self, spec: Spec, who: str, start: Start) -> OpenRound:
        """Publish the first round, above the versions of an experiment that had the name and is lost."""
        earlier = self._journal.last(spec.name)
        version = beyond(earlier.following.version) if earlier else 1
        public_key = self._keys.make()
        try:
            first = first_round(spec, public_key, self._clock.now(), version, start.begun)
            refuse(find_experiment_refusals(first.schedule, first.step, self.limits))
            entry = self.closer.enter(first, earlier)
            line = LogLine(self._clock.now(), start.action, start.detail, who, version, version)
            self._store.create(spec.name, first.schedule.encoded, entry.following, line)
        except BaseException:
            self._keys.destroy(public_key)
            raise
        return timed(first, self._clock)

    def _restored(self, stored: ExperimentRecord) -> Experiment:
        experiment = self.loader.restored(stored)
        if experiment.current.is_unlearned:
            self._learn_again(experiment)
        return experiment

    def _learn_again(self, experiment: Experiment) -> None:
        """Close a round whose reports are in but whose learning failed when they came."""
        try:
            if closed := self.closer.close(experiment.current):
                before = experiment.before + closed.received
                experiment.advance(replace(experiment.snapshot, current=closed.opened, before=before))
        except Exception as error:  # one experiment must not keep the server from the others
            experiment.put_off(error, self._clock.monotonic())


def open_experiments(settings: ServerSettings, clock: Clock) -> tuple[Data, Experiments]:
    """Open the data folder, recover what a stop interrupted, and read the experiments."""
    for problem in (*ALGORITHMS.problems(), *LEARNERS.problems()):
        _log.error("%s", problem)
    with ExitStack() as stack:
        try:
            data = open_data(settings)
            stack.callback(data.close)
            experiments = Experiments(data, settings, clock)
            if data.was_cut_short:
                _tell_recovered(experiments)
        except SpecError:
            raise
        except TRANSIENT as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be written"
            detail = f"{settings.data.name} cannot be used: {reason}"
            raise SpecError(detail, field="PRIVATEER_DATA", remedy="check the path and free space") from None
        except Exception as error:
            _log.error("the database cannot be read (%s)", trace(error))
            raise SpecError(
                "the database holds an experiment that cannot be read",
                field="PRIVATEER_DATA",
                remedy="restore a backup into an empty folder",
            ) from None
        stack.pop_all()
    return data, experiments


def _tell_recovered(experiments: Experiments) -> None:
    open_rounds = sum(bool(experiment.current.round.batch) for experiment in experiments)
    rounds = {f"rounds_{what}": count for what, count in experiments.recovered.items()}
    tell(_log, _RECOVERED, experiments=len(list(experiments)), open_rounds=open_rounds, **rounds)
