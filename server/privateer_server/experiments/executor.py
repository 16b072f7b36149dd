"""Execution of operators' changes to experiments: each change is a durable line of a log, and a public plan.

A change becomes effective with the next publication. The promise to participants does not change with it: a plan holds
a spec and a word, and open rounds keep their terms.
"""

import asyncio
import logging
import secrets
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from privateer_core.algorithms import parse_spec
from privateer_core.answer.export import read_export
from privateer_core.clock import Clock
from privateer_core.codec import decode
from privateer_core.errors import Conflict, NotFound, PrivateerError, SpecError, Unavailable
from privateer_core.policies.gain_policy import check_policy
from privateer_core.privacy.terms import calibrate
from privateer_core.privacy.terms_verification import BATCH_MAX
from privateer_core.privacy.trust import Crowd
from privateer_core.serving.admission import raise_refusals
from privateer_core.serving.logs import log_event
from privateer_core.spec.spec import Spec
from privateer_server.algorithms import learner_for
from privateer_server.data import Data
from privateer_server.experiments.catalog import Experiments, Start
from privateer_server.experiments.changes import Clone, Delete, PlannedChange, SpecChange
from privateer_server.experiments.experiment import Experiment, measure_experiment
from privateer_server.experiments.spec_changes import with_name
from privateer_server.intake.intake import Intake
from privateer_server.rounds.open_round import read_schedule, with_deadlines
from privateer_server.rounds.schedule import Schedule
from privateer_server.settings import ServerSettings
from privateer_server.store.records import STOPPED, TRANSIENT_ERRORS, LogLine, OutdatedState, Plan, PlanBasis

_EXPORT_FIELD: Final = "warm_start"
_log = logging.getLogger("privateer.server")
_ROUND_CLOSING: Final = Unavailable("the round is just closing", remedy="send the same change again")
_STORE_FAILED: Final = Unavailable("the server cannot store changes now", remedy="send the same change again later")


class ExperimentPlanner:
    """A maker of plans for an experiment in its current state; each method returns None if nothing changes."""

    def __init__(self, experiment: Experiment, settings: ServerSettings, clock: Clock) -> None:
        self._experiment, self._settings, self._clock = experiment, settings, clock

    def plan_hold(self, hold: str, round_ends_in_seconds: float | None) -> Plan | None:
        """Plan that no participants are invited until `plan_resume`, or for good, and when the open round ends."""
        plan = self._experiment.current.plan
        if plan.hold == hold and not self._is_sooner(round_ends_in_seconds):
            return None
        if self._is_ended and hold == STOPPED:
            return None
        if self._is_ended or (plan.hold == STOPPED and hold != STOPPED):
            raise _experiment_over_error()
        return self._with_deadline(replace(plan, hold=hold), round_ends_in_seconds)

    @property
    def _is_ended(self) -> bool:
        """Whether participants are neither invited nor awaited any more."""
        return self._experiment.status.is_over and not self._experiment.is_inviting_nobody

    def _is_sooner(self, seconds: float | None) -> bool:
        """Whether the open round would end earlier than planned."""
        current = self._experiment.current
        if seconds is None or not current.round.batch_size:
            return False
        return current.plan.due is None or self._clock.now() + seconds < current.plan.due

    def plan_resume(self) -> Plan | None:
        """Plan that participants are invited again; raises the errors of `plan_hold`."""
        current = self._experiment.current
        if current.plan.hold == STOPPED:
            raise _experiment_over_error()
        if not current.plan.hold:
            return None
        # A published deadline stays, and no participants were invited meanwhile: another round invites others.
        is_round_replaced = not current.round.batch_size or current.round.deadline > 0
        due = current.plan.due if current.plan.spec else None  # another change may wait for it
        return self._with_deadline(replace(current.plan, hold="", due=due), 0.0 if is_round_replaced else None)

    def plan_new_spec(self, change: SpecChange) -> Plan | None:
        """Plan the publication of another spec; raises the errors of `plan_hold`."""
        plan, seconds = self._experiment.current.plan, change.seconds_left
        old_spec = read_schedule(plan.spec).spec if plan.spec else self._experiment.spec
        new_spec = change.apply_to_spec(old_spec)
        if new_spec == old_spec:
            # The same change may be pending already, with a later deadline.
            return self._with_deadline(plan, seconds) if plan.spec and self._is_sooner(seconds) else None
        is_late = change.needs_participants and self._experiment.current.drain is not None
        if is_late or self._experiment.status not in change.statuses():
            raise _experiment_over_error()
        schedule = Schedule(new_spec)
        self._try_spec(schedule, must_have_participants=change.revives and not plan.hold)
        return self._with_deadline(replace(plan, spec=schedule.encoded_spec), seconds)

    def _try_spec(self, schedule: Schedule, *, must_have_participants: bool) -> None:
        """Try a spec on the learner's current state, with a round of every size; refuse what cannot run."""
        current, spec, learner = self._experiment.current, schedule.spec, schedule.learner
        state = learner.apply_spec_change(current.step.state, current.spec)
        step = learner.open_next_round(state, current.round.version + 1, secrets.randbits(63))
        check_policy(step.policy, spec)
        if must_have_participants and not step.batch_size and (current.drain or not current.round.batch_size):
            raise SpecError("leaves no room for a whole round", field="experiment.horizon", remedy="raise it further")
        if not step.batch_size:
            return
        raise_refusals(measure_experiment(schedule, step).find_refusals(self._settings.limits))
        max_participants = max(volume.people for volume in learner.list_round_volumes(step))
        if spec.privacy.trust.crowd is Crowd.BATCH and max_participants > BATCH_MAX:
            detail = f"comes to rounds of {max_participants} people, and devices take part in {BATCH_MAX} at most"
            raise SpecError(detail, field="experiment.horizon", remedy=f"lower it, or {learner.growth[0]}")
        min_reports = spec.min_reports(max_participants)
        calibrate(spec.privacy, max_participants, spec.typical_question(), min_reports, spec.reports)

    def _with_deadline(self, plan: Plan, seconds: float | None) -> Plan:
        """Return a plan that is due in at most ``seconds``: at once if the open round has no participants."""
        if not self._experiment.current.round.batch_size:
            seconds = 0.0
        if seconds is None:
            return plan
        due = self._clock.now() + seconds
        return plan if plan.due is not None and plan.due <= due else replace(plan, due=due, seconds=seconds)


def _experiment_over_error() -> Conflict:
    return Conflict("the experiment is over", field="status", remedy="clone it, or create another one")


class ChangeResult(NamedTuple):
    """The result of a change."""

    is_new: bool  # whether it had an effect
    is_given_up: bool = False  # whether the open round ended with it, and nothing is learned from its reports


class ChangeExecutor:
    """The executor of operators' changes.

    No report is counted and no round closes while a plan is made, so plans are serialized, and the log has their
    order. A plan that is due ends the open round by the usual path of closing, so that a restart finds the plan
    again.
    """

    def __init__(
        self, data: Data, experiments: Experiments, intake: Intake, settings: ServerSettings, clock: Clock
    ) -> None:
        self._data, self._experiments, self._intake = data, experiments, intake
        self._settings, self._clock = settings, clock

    async def carry_out(self, name: str, operator: str, change: PlannedChange) -> ChangeResult:
        """Change an experiment's plan."""
        # The request may be cancelled meanwhile: disk and memory must stay consistent.
        return await asyncio.shield(asyncio.create_task(self._carry_out(name, operator, change)))

    async def _carry_out(self, name: str, operator: str, change: PlannedChange) -> ChangeResult:
        """Store the changed plan and its log line, and close the open round if the plan is due."""
        await self._experiments.find(name)
        async with self._intake.lock_experiment(name):
            experiment = self._experiments.get(name)
            plan = await asyncio.to_thread(self._make_plan, experiment, change)
            if plan is None:
                return ChangeResult(is_new=False)
            current = experiment.current
            basis = PlanBasis(current.digest, current.plan)
            line = self._build_log_line(experiment, operator, change, plan)
            try:
                await asyncio.to_thread(self._data.store.store_plan, name, basis, plan, line)
            except OutdatedState:
                raise _ROUND_CLOSING from None
            except TRANSIENT_ERRORS:
                raise _STORE_FAILED from None
            experiment.current = with_deadlines(replace(experiment.current, plan=plan), self._clock)
        log_event(_log, "experiment changed", experiment=name, change=change.verb, by=operator)
        if experiment.current.end_time <= self._clock.monotonic():
            with suppress(Unavailable, *TRANSIENT_ERRORS):  # the next check of deadlines closes the round
                await self._intake.end_round_if_due(name)
                invited = current.round.batch_size > 0  # the round of a pause had no participants
                return ChangeResult(True, invited and await asyncio.to_thread(self._is_given_up, name, current.digest))
        return ChangeResult(is_new=True)

    def _is_given_up(self, name: str, closed_digest: bytes) -> bool:
        """Whether the round of a digest is the last closed round, and nothing was learned from it."""
        last = self._data.journal.last_entry(name)
        return last is not None and last.closed == closed_digest and not last.taken

    def _make_plan(self, experiment: Experiment, change: PlannedChange) -> Plan | None:
        """Return the changed plan, None without a change; refuse it while the round is closing."""
        current, last = experiment.current, self._data.journal.last_entry(experiment.name)
        # If the journal has the end of the round already, no plan can be added to it.
        if (last and last.closed == current.digest) or current.is_unlearned:
            raise _ROUND_CLOSING
        return change.apply(ExperimentPlanner(experiment, self._settings, self._clock))

    def _build_log_line(self, experiment: Experiment, operator: str, change: PlannedChange, plan: Plan) -> LogLine:
        """Return the log line of a change, with the version from which it is effective, if known."""
        version, old_plan = experiment.current.round.version, experiment.current.plan
        # A pause or resumption is effective at once; other changes wait for the next publication.
        is_immediate = plan.spec == old_plan.spec and (plan.due is None or plan.seconds > 0)
        seconds, since = change.seconds_left, version if is_immediate else None
        detail = change.detail if seconds is None else f"{change.detail} within {seconds:g} s".strip()
        return LogLine(self._clock.now(), change.verb, detail, operator, version, since)

    async def clone(self, name: str, operator: str, change: Clone) -> tuple[Experiment, bool]:
        """Create an experiment with another experiment's learned state; return it, and whether it is new."""
        current = (await self._experiments.find(name)).current
        state, spec = current.schedule.learner.extract_learned_state(current.step.state), current.spec
        origin, version = f"of {name} at version", current.round.version

        def make_state(schedule: Schedule) -> Any:
            return schedule.learner.start_from_state(state, spec)

        def is_same(existing: Experiment) -> bool:
            first = self._data.store.log(existing.name)[0]
            return first.action == change.verb and first.detail.startswith(f"{origin} ")

        start = Start(make_state, change.verb, f"{origin} {version}")
        new_spec = with_name(spec, change.name, change.horizon)
        return await self._experiments.create(new_spec, operator, start, is_same)

    async def delete(self, name: str, operator: str) -> bool:
        """Erase an experiment for good: its keys, its sums, its rounds and its publications; its name stays reserved.

        The journal decides: every start deletes the journal's deleted experiments again. Return whether it existed.
        """
        return await asyncio.shield(asyncio.create_task(self._delete(name, operator)))

    async def _delete(self, name: str, operator: str) -> bool:
        """Record the deletion in the journal, then erase keys and rows; return whether the experiment existed."""
        with suppress(NotFound):
            await self._experiments.find(name)
        async with self._intake.lock_experiment(name):
            exists = not self._experiments.is_deleted(name)
            keys, version = list[bytes](), 0
            if exists:
                current = self._experiments.get(name).current
                keys, version = self._experiments.list_public_keys(name, current.publication), current.round.version
            line = LogLine(self._clock.now(), Delete.verb, "", operator, version, version)
            line = self._data.journal.deletions().get(name, line)
            try:
                if exists:
                    await asyncio.to_thread(self._data.journal.record_deletion, name, line)
                    self._experiments.forget(name)
                await asyncio.to_thread(self._erase, name, line, keys)
            except TRANSIENT_ERRORS:
                raise _STORE_FAILED from None
        if exists:
            log_event(_log, "experiment changed", experiment=name, change=line.action, by=operator)
        return exists

    def _erase(self, name: str, line: LogLine, keys: list[bytes]) -> None:
        for key in keys:
            self._data.keys.destroy(key)
        self._data.store.delete(name, line)


def start_from_export(document: dict[str, Any]) -> Start:
    """Return the start of an experiment with the learned state of an export."""
    export = read_export(document, _EXPORT_FIELD)
    old_spec = parse_spec(export.spec)
    detail = f"warm start from {old_spec.name} at version {export.version}"
    return Start(lambda schedule: _read_initial_state(schedule, old_spec, export.state_bytes), "create", detail)


def _read_initial_state(schedule: Schedule, old_spec: Spec, encoded: bytes) -> Any:
    """Decode an untrusted learner state, and check that it leads to a valid policy."""
    if old_spec.algorithm.name != schedule.spec.algorithm.name:
        detail = "differs from that of the experiment to begin with"
        raise SpecError(detail, field="algorithm.name", remedy="make it the same, or begin without")
    try:
        state = decode(encoded, learner_for(old_spec).state_type)
        initial_state = schedule.learner.start_from_state(learner_for(old_spec).extract_learned_state(state), old_spec)
        if _has_nan(state):
            raise ValueError("not a number")
        check_policy(schedule.open(0, 1, initial_state).policy, schedule.spec)
        schedule.learner.answer(initial_state)
    except SpecError:
        raise
    except (PrivateerError, ValueError, TypeError, IndexError, ArithmeticError, AttributeError, AssertionError):
        raise SpecError("its state does not fit its spec", field=_EXPORT_FIELD, remedy="export it again") from None
    return initial_state


def _has_nan(value: Any) -> bool:
    if is_dataclass(value):
        return any(_has_nan(getattr(value, state_field.name)) for state_field in fields(value))
    if isinstance(value, tuple | list):
        return any(map(_has_nan, value))
    return isinstance(value, np.ndarray | float) and bool(np.isnan(value).any())
