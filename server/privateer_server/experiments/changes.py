"""What an operator changes while an experiment runs: each change is one durable line of a log, and a public plan.

A change is carried out by the next publication. What a person is promised does not change with it: a plan holds a spec
and a word, and rounds that are open keep their terms.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from privateer_core.clock import Clock
from privateer_core.errors import Conflict, NotFound, SpecError, Unavailable
from privateer_core.privacy.terms import calibrate
from privateer_core.privacy.terms_verification import BATCH_MAX
from privateer_core.serving.logs import tell
from privateer_core.spec.spec import Spec
from privateer_server.data import Data
from privateer_server.experiments.acceptance import extended, renamed, with_arm, without_arm
from privateer_server.experiments.catalog import Experiments, Start, check_sizes
from privateer_server.experiments.experiment import Experiment
from privateer_server.intake.intake import Intake
from privateer_server.rounds.loop import Schedule
from privateer_server.rounds.open_round import read_schedule, timed
from privateer_server.settings import ServerSettings
from privateer_server.store.records import (
    PAUSED,
    STOPPED,
    TRANSIENT,
    Behind,
    LogLine,
    Plan,
    PlanBefore,
)

_log = logging.getLogger("privateer.server")
_MEANWHILE: Final = Unavailable("the round is just closing", remedy="send the same change again")
_DISK: Final = Unavailable("the server cannot store changes now", remedy="send the same change again later")


@dataclass(frozen=True)
class Wish:
    """A change as it is asked for: its name and argument for the log, and seconds that the open round still has."""

    action: str
    detail: str = ""
    seconds: float | None = None


_Change = Callable[[Experiment], Plan | None]
"""Returns what a change makes of an experiment's plan; None if it changes nothing."""


class Changes:
    """Carries out what operators want of experiments.

    Nothing is counted and no round closes while a plan is made, so plans follow each other, and the log has their
    order. A plan that is due ends the open round by the path that every round takes, so that a death in between finds
    the plan again.
    """

    def __init__(
        self, data: Data, experiments: Experiments, intake: Intake, settings: ServerSettings, clock: Clock
    ) -> None:
        self._data, self._experiments, self._intake = data, experiments, intake
        self._settings, self._clock = settings, clock

    async def pause(self, name: str, who: str, seconds: float | None) -> bool:
        """Ask nobody until `resume`; the open round waits for those who chose before, or so many seconds.

        Returns
        -------
        Whether that changes anything.

        Raises
        ------
        NotFound
            If there is no such experiment.
        Conflict
            If it is over.
        Unavailable
            If the server cannot do it now.
        """
        return await self._hold(name, who, Wish("pause", seconds=seconds), PAUSED)

    async def stop(self, name: str, who: str, seconds: float | None) -> bool:
        """Ask nobody any more, and publish the best policy for good; returns and raises what `pause` does."""
        return await self._hold(name, who, Wish("stop", seconds=seconds), STOPPED)

    async def _hold(self, name: str, who: str, wish: Wish, hold: str) -> bool:
        def change(experiment: Experiment) -> Plan | None:
            plan = experiment.current.plan
            if plan.hold == hold and not self._is_sooner(experiment, wish.seconds):
                return None
            if experiment.is_over and not experiment.is_silent:
                if hold == STOPPED:
                    return None
                raise _over()
            if plan.hold == STOPPED and hold != STOPPED:
                raise _over()
            return self._timely(experiment, replace(plan, hold=hold), wish.seconds)

        return await self._carry_out(name, who, wish, change)

    def _is_sooner(self, experiment: Experiment, seconds: float | None) -> bool:
        """Whether the open round would end earlier than is planned."""
        due = experiment.current.plan.due
        if seconds is None or not experiment.current.round.batch:
            return False
        return due is None or self._clock.now() + seconds < due

    async def resume(self, name: str, who: str) -> bool:
        """Ask people again; returns and raises what `pause` does."""

        def change(experiment: Experiment) -> Plan | None:
            current = experiment.current
            if current.plan.hold == STOPPED:
                raise _over()
            if not current.plan.hold:
                return None
            # A deadline that was published stays, and people were not asked meanwhile: others are asked anew.
            starts_anew = not current.round.batch or current.round.deadline > 0
            due = current.plan.due if current.plan.spec else None  # another change may wait for it
            plan = replace(current.plan, hold="", due=due)
            return self._timely(experiment, plan, 0.0 if starts_anew else None)

        return await self._carry_out(name, who, Wish("resume"), change)

    async def extend(self, name: str, who: str, horizon: int, seconds: float | None) -> bool:
        """Let the horizon grow to a number; also raises `SpecError` if it cannot."""
        wish = Wish("extend", f"horizon {horizon}", seconds)
        return await self._respecify(name, who, wish, lambda spec: extended(spec, horizon), revives=True)

    async def retire_arm(self, name: str, who: str, arm: str, seconds: float | None) -> bool:
        """Give an arm to nobody from the next publication on; also raises `SpecError` if that cannot be."""
        return await self._respecify(name, who, Wish("retire-arm", arm, seconds), lambda spec: without_arm(spec, arm))

    async def add_arm(self, name: str, who: str, arm: str, seconds: float | None) -> bool:
        """Try one more arm from the next publication on; also raises `SpecError` if that cannot be."""
        wish = Wish("add-arm", arm, seconds)
        return await self._respecify(name, who, wish, lambda spec: with_arm(spec, arm), needs_people=True)

    async def _respecify(
        self,
        name: str,
        who: str,
        wish: Wish,
        respec: Callable[[Spec], Spec],
        *,
        revives: bool = False,
        needs_people: bool = False,
    ) -> bool:
        def change(experiment: Experiment) -> Plan | None:
            plan = experiment.current.plan
            before = read_schedule(plan.spec).spec if plan.spec else experiment.spec
            after = respec(before)
            if after == before:
                # What waits already may be wanted sooner.
                sooner = bool(plan.spec) and self._is_sooner(experiment, wish.seconds)
                return self._timely(experiment, plan, wish.seconds) if sooner else None
            ended = experiment.is_over and not experiment.is_silent
            if needs_people and (ended or experiment.current.drain):
                raise _over()
            if revives and ended and experiment.status != "finished":
                raise _over()
            schedule = Schedule(after)
            self._check(experiment, schedule, asks=revives and not plan.hold)
            return self._timely(experiment, replace(plan, spec=schedule.encoded), wish.seconds)

        return await self._carry_out(name, who, wish, change)

    def _check(self, experiment: Experiment, schedule: Schedule, *, asks: bool) -> None:
        """Try a spec out on what is known now, with a round of every size that may come.

        Raises
        ------
        SpecError
            If the learner cannot change so, no round follows although one should, or a round keeps no promise.
        """
        current, spec, learner = experiment.current, schedule.spec, schedule.learner
        state = learner.changed(current.step.state, current.spec)
        step = learner.next(state, current.round.version + 1, secrets.randbits(63))
        step.policy.check(spec)
        if asks and not step.batch and (current.drain or not current.round.batch):
            detail = "leaves no room for a whole round"
            raise SpecError(detail, field="experiment.horizon", remedy="raise it further")
        if not step.batch:
            return
        check_sizes(schedule, step, self._settings)
        people = max(bulk.people for bulk in learner.bulk(step))
        if spec.privacy.trust.batched and people > BATCH_MAX:
            detail = f"comes to rounds of {people} people, and devices take part in {BATCH_MAX} at most"
            raise SpecError(detail, field="experiment.horizon", remedy=f"lower it, or {learner.growth[0]}")
        calibrate(spec.privacy, people, spec.usual_question(), spec.fewest(people), spec.reports)

    def _timely(self, experiment: Experiment, plan: Plan, seconds: float | None) -> Plan:
        """Return a plan that is due in so many seconds at the latest: at once where nobody can report."""
        if not experiment.current.round.batch:
            seconds = 0.0
        if seconds is None:
            return plan
        due = self._clock.now() + seconds
        return plan if plan.due is not None and plan.due <= due else replace(plan, due=due, seconds=seconds)

    async def _carry_out(self, name: str, who: str, wish: Wish, change: _Change) -> bool:
        # Whoever asked may go away meanwhile: what is on disk and what is in memory must not part.
        return await asyncio.shield(asyncio.create_task(self._carried_out(name, who, wish, change)))

    async def _carried_out(self, name: str, who: str, wish: Wish, change: _Change) -> bool:
        await self._experiments.find(name)
        async with self._intake.alone(name):
            experiment = self._experiments.get(name)
            plan = await asyncio.to_thread(self._planned, experiment, change)
            if plan is None:
                return False
            current = experiment.current
            before, line = PlanBefore(current.digest, current.plan), self._line(experiment, who, wish, plan)
            try:
                await asyncio.to_thread(self._data.store.plan, name, before, plan, line)
            except Behind:
                raise _MEANWHILE from None
            except TRANSIENT:
                raise _DISK from None
            experiment.current = timed(replace(experiment.current, plan=plan), self._clock)
        tell(_log, "experiment changed", experiment=name, change=wish.action, by=who)
        if experiment.current.is_ended(self._clock.monotonic()):
            with suppress(Unavailable):  # the next look at deadlines does it
                await self._intake.expire(name)
        return True

    def _planned(self, experiment: Experiment, change: _Change) -> Plan | None:
        if self._data.journal_is_ahead(experiment.current) or experiment.current.is_unlearned:
            raise _MEANWHILE
        return change(experiment)

    def _line(self, experiment: Experiment, who: str, wish: Wish, plan: Plan) -> LogLine:
        version, before = experiment.current.round.version, experiment.current.plan
        # Whom a publication asks changes at once; all else waits for the next one.
        is_at_once = plan.spec == before.spec and (plan.due is None or plan.seconds > 0)
        detail = wish.detail if wish.seconds is None else f"{wish.detail} within {wish.seconds:g} s".strip()
        since = version if is_at_once else None
        return LogLine(self._clock.now(), wish.action, detail, who, version, since)

    async def clone(self, name: str, who: str, new: str, horizon: int | None) -> tuple[Experiment, bool]:
        """Create an experiment that begins with what another one has learned; return it, and whether it is new.

        Raises
        ------
        NotFound
            If there is no such experiment.
        SpecError, Conflict, Unavailable
            As `Experiments.create`.
        """
        current = (await self._experiments.find(name)).current
        state, before = current.step.state, current.spec
        origin, version = f"of {name} at version", current.round.version
        start = Start(lambda schedule: schedule.learner.begun(state, before), "clone", f"{origin} {version}")

        def is_known(known: Experiment) -> bool:
            first = self._data.store.log(known.name)[0]
            return first.action == "clone" and first.detail.startswith(f"{origin} ")

        return await self._experiments.create(renamed(before, new, horizon), who, start, is_known)

    async def delete(self, name: str, who: str) -> bool:
        """Erase an experiment for good: its keys, its sums, its rounds and its publications; its name stays taken.

        The journal decides: what it has as deleted, every start deletes again.

        Returns
        -------
        Whether it was there.

        Raises
        ------
        NotFound
            If there was no such experiment.
        Unavailable
            If the disk does not take it now; sent again, the request goes on.
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
            line = LogLine(self._clock.now(), "delete", "", who, version, version)
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


def _over() -> Conflict:
    remedy = "clone it, or create another one"
    return Conflict("the experiment is over", field="status", remedy=remedy)
