"""Carries out what operators want of experiments: each change is one durable line of a log, and a public plan.

A change is carried out by the next publication. What a person is promised does not change with it: a plan holds a spec
and a word, and rounds that are open keep their terms.
"""

import asyncio
import logging
import secrets
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from privateer_core.clock import Clock
from privateer_core.errors import Conflict, NotFound, SpecError, Unavailable
from privateer_core.policies.gain_policy import check_policy
from privateer_core.privacy.terms import calibrate
from privateer_core.privacy.terms_verification import BATCH_MAX
from privateer_core.serving.admission import refuse
from privateer_core.serving.logs import tell
from privateer_server.data import Data
from privateer_server.experiments.catalog import Experiments, Start
from privateer_server.experiments.changes import Clone, Delete, PlannedChange, SpecChange
from privateer_server.experiments.experiment import Experiment
from privateer_server.experiments.experiment_admission import measure_experiment
from privateer_server.experiments.spec_changes import renamed
from privateer_server.intake.intake import Intake
from privateer_server.rounds.loop import Schedule
from privateer_server.rounds.open_round import read_schedule, timed
from privateer_server.settings import ServerSettings
from privateer_server.store.records import STOPPED, TRANSIENT, Behind, LogLine, Plan, PlanBefore

_log = logging.getLogger("privateer.server")
_MEANWHILE: Final = Unavailable("the round is just closing", remedy="send the same change again")
_DISK: Final = Unavailable("the server cannot store changes now", remedy="send the same change again later")


class Planning:
    """Plans for one experiment, as it stands; each method returns None where nothing changes.

    settings: say how large a report and a batch may be.
    clock: says when a plan is due.
    """

    def __init__(self, experiment: Experiment, settings: ServerSettings, clock: Clock) -> None:
        self._experiment, self._settings, self._clock = experiment, settings, clock

    @property
    def _before(self) -> Plan:
        return self._experiment.current.plan

    def hold(self, hold: str, seconds: float | None) -> Plan | None:
        """Ask nobody until `resume`, or for good; the open round waits so many seconds for those who chose before."""
        plan = self._before
        if plan.hold == hold and not self._is_sooner(seconds):
            return None
        if self._is_ended:
            if hold == STOPPED:
                return None
            raise _over()
        if plan.hold == STOPPED and hold != STOPPED:
            raise _over()
        return self._timely(replace(plan, hold=hold), seconds)

    @property
    def _is_ended(self) -> bool:
        """Whether nobody is asked any more, nor awaited."""
        return self._experiment.is_over and not self._experiment.is_silent

    def _is_sooner(self, seconds: float | None) -> bool:
        """Whether the open round would end earlier than is planned."""
        due = self._before.due
        if seconds is None or not self._experiment.current.round.batch:
            return False
        return due is None or self._clock.now() + seconds < due

    def resume(self) -> Plan | None:
        """Ask people again; raises what `hold` does."""
        current = self._experiment.current
        if current.plan.hold == STOPPED:
            raise _over()
        if not current.plan.hold:
            return None
        # A deadline that was published stays, and people were not asked meanwhile: others are asked anew.
        starts_anew = not current.round.batch or current.round.deadline > 0
        due = current.plan.due if current.plan.spec else None  # another change may wait for it
        return self._timely(replace(current.plan, hold="", due=due), 0.0 if starts_anew else None)

    def respecify(self, change: SpecChange) -> Plan | None:
        """Publish another spec; raises what `hold` does."""
        plan, seconds = self._before, change.ends_in
        before = read_schedule(plan.spec).spec if plan.spec else self._experiment.spec
        after = change.respec(before)
        if after == before:
            # What waits already may be wanted sooner.
            return self._timely(plan, seconds) if plan.spec and self._is_sooner(seconds) else None
        if change.needs_people and (self._is_ended or self._experiment.current.drain):
            raise _over()
        if change.revives and self._is_ended and self._experiment.status != "finished":
            raise _over()
        schedule = Schedule(after)
        self._check(schedule, asks=change.revives and not plan.hold)
        return self._timely(replace(plan, spec=schedule.encoded), seconds)

    def _check(self, schedule: Schedule, *, asks: bool) -> None:
        """Try a spec out on what is known now, with a round of every size that may come."""
        current, spec, learner = self._experiment.current, schedule.spec, schedule.learner
        state = learner.changed(current.step.state, current.spec)
        step = learner.next(state, current.round.version + 1, secrets.randbits(63))
        check_policy(step.policy, spec)
        if asks and not step.batch and (current.drain or not current.round.batch):
            detail = "leaves no room for a whole round"
            raise SpecError(detail, field="experiment.horizon", remedy="raise it further")
        if not step.batch:
            return
        refuse(measure_experiment(schedule, step).find_refusals(self._settings.limits))
        people = max(bulk.people for bulk in learner.bulk(step))
        if spec.privacy.trust.batched and people > BATCH_MAX:
            detail = f"comes to rounds of {people} people, and devices take part in {BATCH_MAX} at most"
            raise SpecError(detail, field="experiment.horizon", remedy=f"lower it, or {learner.growth[0]}")
        calibrate(spec.privacy, people, spec.usual_question(), spec.fewest(people), spec.reports)

    def _timely(self, plan: Plan, seconds: float | None) -> Plan:
        """Return a plan that is due in so many seconds at the latest: at once where nobody can report."""
        if not self._experiment.current.round.batch:
            seconds = 0.0
        if seconds is None:
            return plan
        due = self._clock.now() + seconds
        return plan if plan.due is not None and plan.due <= due else replace(plan, due=due, seconds=seconds)


def _over() -> Conflict:
    return Conflict("the experiment is over", field="status", remedy="clone it, or create another one")


class CarriedOut(NamedTuple):
    """What became of a change."""

    is_new: bool  # whether it changed anything
    is_given_up: bool = False  # whether the open round ended with it, and nothing of what came in it is learned from


class ChangeExecutor:
    """Carries out changes.

    Nothing is counted and no round closes while a plan is made, so plans follow each other, and the log has their
    order. A plan that is due ends the open round by the path that every round takes, so that a death in between finds
    the plan again.
    """

    def __init__(
        self, data: Data, experiments: Experiments, intake: Intake, settings: ServerSettings, clock: Clock
    ) -> None:
        self._data, self._experiments, self._intake = data, experiments, intake
        self._settings, self._clock = settings, clock

    async def carry_out(self, name: str, who: str, change: PlannedChange) -> CarriedOut:
        """Change an experiment's plan."""
        # Whoever asked may go away meanwhile: what is on disk and what is in memory must not part.
        return await asyncio.shield(asyncio.create_task(self._carried_out(name, who, change)))

    async def _carried_out(self, name: str, who: str, change: PlannedChange) -> CarriedOut:
        await self._experiments.find(name)
        async with self._intake.alone(name):
            experiment = self._experiments.get(name)
            plan = await asyncio.to_thread(self._planned, experiment, change)
            if plan is None:
                return CarriedOut(is_new=False)
            current = experiment.current
            before, line = PlanBefore(current.digest, current.plan), self._line(experiment, who, change, plan)
            try:
                await asyncio.to_thread(self._data.store.plan, name, before, plan, line)
            except Behind:
                raise _MEANWHILE from None
            except TRANSIENT:
                raise _DISK from None
            experiment.current = timed(replace(experiment.current, plan=plan), self._clock)
        tell(_log, "experiment changed", experiment=name, change=change.verb, by=who)
        if experiment.current.is_ended(self._clock.monotonic()):
            with suppress(Unavailable, *TRANSIENT):  # the next look at deadlines does it
                await self._intake.expire(name)
                asked = current.round.batch > 0  # the round of a pause had nobody
                return CarriedOut(True, asked and await asyncio.to_thread(self._is_given_up, name, current.digest))
        return CarriedOut(is_new=True)

    def _is_given_up(self, name: str, ended: bytes) -> bool:
        """Whether the round of this digest is the last one that ended, and nothing is learned from it."""
        last = self._data.journal.last(name)
        return last is not None and last.closed == ended and not last.taken

    def _planned(self, experiment: Experiment, change: PlannedChange) -> Plan | None:
        if self._data.journal_is_ahead(experiment.current) or experiment.current.is_unlearned:
            raise _MEANWHILE
        return change.apply(Planning(experiment, self._settings, self._clock))

    def _line(self, experiment: Experiment, who: str, change: PlannedChange, plan: Plan) -> LogLine:
        version, before = experiment.current.round.version, experiment.current.plan
        # Whom a publication asks changes at once; all else waits for the next one.
        is_at_once = plan.spec == before.spec and (plan.due is None or plan.seconds > 0)
        seconds = change.ends_in
        detail = change.detail if seconds is None else f"{change.detail} within {seconds:g} s".strip()
        since = version if is_at_once else None
        return LogLine(self._clock.now(), change.verb, detail, who, version, since)

    async def clone(self, name: str, who: str, change: Clone) -> tuple[Experiment, bool]:
        """Create an experiment that begins with what another one has learned; return it, and whether it is new."""
        current = (await self._experiments.find(name)).current
        state, before = current.schedule.learner.learned(current.step.state), current.spec
        origin, version = f"of {name} at version", current.round.version
        start = Start(lambda schedule: schedule.learner.begun(state, before), change.verb, f"{origin} {version}")

        def is_known(known: Experiment) -> bool:
            first = self._data.store.log(known.name)[0]
            return first.action == change.verb and first.detail.startswith(f"{origin} ")

        return await self._experiments.create(renamed(before, change.name, change.horizon), who, start, is_known)

    async def delete(self, name: str, who: str) -> bool:
        """Erase an experiment for good: its keys, its sums, its rounds and its publications; its name stays taken.

        The journal decides: what it has as deleted, every start deletes again.

        Returns
        -------
        Whether it was there.
        """
        return await asyncio.shield(asyncio.create_task(self._deleted(name, who)))

    async def _deleted(self, name: str, who: str) -> bool:
        with suppress(NotFound):
            await self._experiments.find(name)
        async with self._intake.alone(name):
            is_there = not self._experiments.is_deleted(name)
            keys, version = list[bytes](), 0
            if is_there:
                experiment = self._experiments.get(name)
                keys, version = self._experiments.keys_of(experiment), experiment.current.round.version
            line = LogLine(self._clock.now(), Delete.verb, "", who, version, version)
            line = self._data.journal.buried().get(name, line)
            try:
                if is_there:
                    await asyncio.to_thread(self._data.journal.bury, name, line)
                    self._experiments.forget(name)
                await asyncio.to_thread(self._erase, name, line, keys)
            except TRANSIENT:
                raise _DISK from None
        if is_there:
            tell(_log, "experiment changed", experiment=name, change=line.action, by=who)
        return is_there

    def _erase(self, name: str, line: LogLine, keys: list[bytes]) -> None:
        for key in keys:
            self._data.keys.destroy(key)
        self._data.store.delete(name, line)
