"""Plans: what a change makes of the one that an experiment has.

What a person is promised does not change with it: a plan holds a spec and a word, and rounds that are open keep their
terms.
"""

import secrets
from dataclasses import replace

from privateer_core.clock import Clock
from privateer_core.errors import Conflict, SpecError
from privateer_core.privacy.terms import calibrate
from privateer_core.privacy.terms_verification import BATCH_MAX
from privateer_server.experiments.catalog import check_sizes
from privateer_server.experiments.changes import SpecChange
from privateer_server.experiments.experiment import Experiment
from privateer_server.rounds.loop import Schedule
from privateer_server.rounds.open_round import read_schedule
from privateer_server.settings import ServerSettings
from privateer_server.store.records import STOPPED, Plan


class Planning:
    """Plans for one experiment, as it stands; each method returns None where nothing changes.

    Parameters
    ----------
    settings
        Say how large a report and a batch may be.
    clock
        Says when a plan is due.
    """

    def __init__(self, experiment: Experiment, settings: ServerSettings, clock: Clock) -> None:
        self._experiment, self._settings, self._clock = experiment, settings, clock

    @property
    def _before(self) -> Plan:
        return self._experiment.current.plan

    def hold(self, hold: str, seconds: float | None) -> Plan | None:
        """Ask nobody until `resume`, or for good; the open round waits for those who chose before, or so many seconds.

        Raises
        ------
        Conflict
            If the experiment is over.
        """
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
        """Publish another spec; raises what `hold` does.

        Raises
        ------
        SpecError
            If the spec or the learner does not take the change.
        """
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
        """Try a spec out on what is known now, with a round of every size that may come.

        Raises
        ------
        SpecError
            If the learner cannot change so, no round follows although one should, or a round keeps no promise.
        """
        current, spec, learner = self._experiment.current, schedule.spec, schedule.learner
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
