"""The round loop, without I/O, by which server, simulator, audit and tests open, close, miss and finish rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

from privateer_core.answer import Answer
from privateer_core.answer.people import GIVEN_UP, HeldReports, People
from privateer_core.errors import SpecError
from privateer_core.policies.gain_policy import GainPolicy
from privateer_core.policies.policy import Policy
from privateer_core.spec.spec import Spec
from privateer_server.algorithms import Learner, RoundVolume, Step, learner_for

PolicyMix: TypeAlias = Sequence[tuple[Policy, float]]
"""Policies whose decisions a round's reports are about, and each one's share of reports; empty: the round's own."""

__all__ = ["RoundVolume", "Schedule", "Step"]


class Schedule:
    """The rounds of one experiment.

    A round is opened, takes reports, and is closed with its mechanism's release; or it is missed, and nothing is
    released. The experiment is finished when a step invites no participants (``batch`` 0).
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.learner: Learner = learner_for(spec)  # the experiment's learner, created once

    @cached_property
    def encoded_spec(self) -> bytes:
        """The spec as publications carry it."""
        return self.spec.model_dump_json().encode()

    def open(self, seed: int, version: int = 1, initial_state: Any = None) -> Step:
        """Open the first round, with a public seed of 63 bits, by default in the learner's state before any report."""
        state = self.learner.start(seed) if initial_state is None else initial_state
        return self.learner.open_next_round(state, version, seed)

    def advance(self, step: Step, release: Any, seed: int, version: int | None = None, decided: PolicyMix = ()) -> Step:
        """Learn from a round's release, and open the next round; by default it has the next version."""
        next_version = step.policy.version + 1 if version is None else version
        return self.open_next_step(self.learn(step, release, decided), next_version, seed)

    def advance_after_miss(self, step: Step, seed: int, version: int | None = None, *, is_repeated: bool) -> Step:
        """Open the round after a missed round; ``is_repeated``: it asks other participants the same question."""
        next_version = step.policy.version + 1 if version is None else version
        return self.open_next_step(self.learn_from_miss(step, is_repeated=is_repeated), next_version, seed)

    def learn(self, step: Step, release: Any, decided: PolicyMix = ()) -> Any:
        """Return the state after a round's release; ``decided`` has the policies whose decisions were reported."""
        policy = step.policy.with_decision_policies(decided) if decided else step.policy
        return self.learner.learn(step.state, policy, release)

    def learn_from_miss(self, step: Step, *, is_repeated: bool) -> Any:
        """Return the state after a missed round; ``is_repeated``: other participants are asked the same question."""
        return self.learner.learn_without_release(step.state, step.policy, is_repeated=is_repeated)

    def open_next_step(self, state: Any, version: int, seed: int, *, is_inviting: bool = True) -> Step:
        """Open the next round of a state, or a last step with the best policy and no participants."""
        open_round = self.learner.open_next_round if is_inviting else self.learner.open_idle_round
        return open_round(state, version, seed)

    def has_late_reports(self, step: Step) -> bool:
        """Whether earlier choices are still unreported when a step cannot take their reports.

        Such a step has no participants, or measures the gain. A round with drawn participants waits for its own.
        """
        window, is_drawn = self.spec.experiment.conversion_window_seconds, step.policy.draw is not None
        learns = step.batch_size > 0 and not isinstance(step.policy, GainPolicy)
        return bool(window) and not (learns or is_drawn or self.has_failed(step))

    def open_drain_round(self, step: Step, seed: int) -> Step:
        """Open a further round for late reports, as large as the first; without participants if none are needed."""
        # It is the round that the learner would open if that many participants were left.
        spec, knowledge = self.spec.learning, self.learner.extract_learned_state(step.state)
        # Participants of a gain measurement, of a shorter experiment, are not the learner's participants.
        n_reported = step.n_reported
        if spec is not self.spec:
            n_reported = learner_for(spec).open_idle_round(knowledge, step.policy.version, seed).n_reported
        experiment = spec.experiment.model_copy(update={"horizon": n_reported + self.spec.first_batch("")})
        learner = learner_for(spec.model_copy(update={"experiment": experiment}))
        try:
            state = learner.apply_spec_change(knowledge, spec)
        except SpecError:  # its result is valid for the planned participants
            return replace(step, batch_size=0)
        late_step = learner.open_next_round(state, step.policy.version, seed)
        state = self.learner.replace_learned_state(step.state, late_step.state)
        return replace(late_step, state=state, n_reported=step.n_reported)

    def has_failed(self, step: Step) -> bool:
        """Whether the experiment has failed because a round did not end."""
        return self.learner.has_failed(step.state)

    def answer(self, step: Step) -> Answer:
        """Return the experiment's answer when this step opened."""
        return self.learner.answer(step.state)


def count_participants(
    schedule: Schedule,
    step: Step,
    n_closed_reports: int,
    held_reports: HeldReports | None = None,
    refused: Mapping[str, int] | None = None,
    *,
    is_replaced: bool = False,
    is_draining: bool = False,
    is_unknown: bool = False,
) -> People:
    """Count the participants of an experiment at an open or last step, by what happened to their reports.

    n_closed_reports: reports of all closed rounds, including those given up.
    held_reports, refused: pending reports, and refused reports by reason.
    is_replaced: whether other participants are invited in place of refused ones.
    is_draining: whether late reports alone are awaited, so that no participants are invited.
    is_unknown: whether a shuffler may hold reports for the open round, whose number is unknown here.
    """
    held_reports, refused, spec = held_reports or HeldReports(), refused or {}, schedule.spec
    cohort = schedule.learner.planned_round(step.state).cohort
    earlier_cohorts = spec.cohorts[: spec.cohorts.index(cohort)]
    n_planned = sum(source.participants for source in spec.sources if source.name in earlier_cohorts)
    n_earlier = min(n_closed_reports - step.n_reported, n_planned)
    n_lost = n_closed_reports - step.n_reported - n_earlier
    n_replaced = sum(refused.values()) if is_replaced else 0
    if (draw := step.policy.draw) is not None:  # drawn participants who do not come are lost
        n_unreached = max(0, draw.start - n_closed_reports)
    else:
        n_unreached = n_planned - n_earlier + schedule.learner.count_unreachable(step.state)
        n_replaced += n_lost
    return People.from_parts(
        spec.planned_reports,
        step.n_reported + n_earlier,
        reports=held_reports,
        refused={**refused, GIVEN_UP: n_lost} if n_lost else refused,
        replaced=n_replaced,
        out_of_reach=spec.planned_reports if is_draining else n_unreached,
        is_unknown=is_unknown,
    )
