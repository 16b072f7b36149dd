"""The learner of a trial: epochs are rounds, and every round ends with a look."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.algorithms.trial.coin_questions import coin_layout
from privateer_core.answer import Answer
from privateer_core.answer.facts import Table
from privateer_core.answer.measured_rate import MeasuredRate
from privateer_core.errors import SpecError
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.primitives.contributions import CellHits
from privateer_server.algorithms import Learner, NewRound, RoundsLearner
from privateer_server.algorithms.trial.allocation import CHOSEN_AFTER, Holdout, allocated
from privateer_server.algorithms.trial.decisions import TrialFindings, stops
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.power.planned_designs import designs
from privateer_server.algorithms.trial.power.power_tables import check_effect, power_tables
from privateer_server.algorithms.trial.state import TrialState
from privateer_server.algorithms.trial.treatment_effects import control_rate
from privateer_server.algorithms.trial.trial_answer import answer, expected

Array = NDArray[np.float64]


class TrialLearner(RoundsLearner[TrialSpec, TrialState, TrialPolicy]):
    """Adds up releases, and looks at them at times that the spec fixes."""

    state_type = TrialState
    growth = ("algorithm.looks", "the people in all")

    def __init__(self, spec: TrialSpec) -> None:
        super().__init__(spec)
        self.plans = designs(spec)
        self.design = self.plans.segments

    @override
    def start(self, seed: int) -> TrialState:
        if self.spec.experiment.retired:
            detail = "a test compares all its arms from the first person to the last"
            raise SpecError(detail, field="experiment.retired", remedy="remove them from experiment.arms")
        check_effect(self.spec, self.plans)
        return TrialState.begin(seed, self.spec, self.plans)

    @override
    def policy(self, state: TrialState, ahead: NewRound) -> TrialPolicy:
        spec = self.spec
        if ahead.batch:
            choice, questions = spec.layout(state.seed, state.shares), spec.questions
            asked = spec.asked(choice, len(state.learned))
        else:  # everybody gets the arm that is decided for their segment
            choice, questions = coin_layout(state.seed, np.eye(spec.arm_count)[self._given(state)], ()), ()
            asked = spec.named_cells(choice)
        terms = self.terms(ahead, asked)
        return TrialPolicy(ahead.version, spec.segmentation, choice, terms, questions, state.learned)

    def _given(self, state: TrialState) -> NDArray[np.int64]:
        """Return the arm of each segment when nobody is asked any more; the control before the first look."""
        return self._found(state).given if state.evidence.looks else np.zeros(self.spec.segment_count, np.int64)

    def _found(self, state: TrialState) -> TrialFindings:
        return TrialFindings.of(state, self.spec)

    @override
    def stopped(self, state: TrialState) -> bool:
        return bool(state.stopped)

    @override
    def changed(self, state: TrialState, before: TrialSpec) -> TrialState:
        """Refuse: boundaries of all looks follow from the people planned and the arms compared."""
        grown = before.experiment.horizon != self.spec.experiment.horizon
        field = "experiment.horizon" if grown else "experiment.arms"
        detail = "intervals hold for the people and arms that were planned"
        raise SpecError(detail, field=field, remedy="let it end or stop it, and create another with the spec wanted")

    @override
    def begun(self, state: TrialState, before: TrialSpec) -> TrialState:
        """Refuse: intervals hold for people of one experiment."""
        detail = f"a test cannot begin with what {before.name} found: its looks are spent"
        raise SpecError(detail, field="algorithm.name", remedy="begin without it")

    @override
    def learn(self, state: TrialState, policy: TrialPolicy, release: CellHits) -> TrialState:
        known = state.add(policy, release)
        found = self._found(known)
        dropped, shares = self._allocated(known)
        return replace(
            known,
            shares=shares,
            dropped=dropped,
            held=known.held or self._held(known.evidence, found),
            path=np.concatenate([state.path, found.intervals[None]]),
            average_path=np.concatenate([state.average_path, found.average_intervals(self.spec.arm_count - 1)[None]]),
            stopped=stops(found, self.spec),
        )

    def _allocated(self, state: TrialState) -> tuple[NDArray[np.bool_], Array]:
        """Return arms dropped and shares of the next epoch: segment by segment, and of everybody as of one segment."""
        size, rule, floor = self.spec.segment_count, self.spec.algorithm.allocation, self.spec.floor
        dropped, shares = allocated(state.evidence, state.dropped[:size], rule, floor)
        if not state.everybody:
            return dropped, shares
        gone, whole = allocated(state.everybody[0], state.dropped[size:], rule, floor)
        return np.concatenate([dropped, gone]), np.concatenate([shares, whole])

    def _held(self, evidence: TrialEvidence, found: TrialFindings) -> Holdout | None:
        """Choose what to hold choosing by segment against, if it is time and there are segments."""
        people = float(evidence.people[-1])
        early = people < CHOSEN_AFTER * self.design.people
        if early or self.spec.segment_count == 1:
            return None
        return Holdout.begin(self.design, people, found.given, found.constant)

    @override
    def answer(self, state: TrialState) -> Answer:
        """Return what is known at the last look; nothing before the first."""
        if not state.evidence.looks:
            return Answer("learning", 0, 0, 1 - self.spec.algorithm.level)
        return answer(state, self._found(state), self.spec, self.warnings(state), over=self.over(state))

    @override
    def expected(self, state: TrialState) -> ExpectedRewards | None:
        return expected(state, self._found(state), self.spec) if state.evidence.looks else None

    @override
    def measured_rate(self, state: TrialState) -> MeasuredRate | None:
        return control_rate(state.evidence)

    def foreseen(self, waiting: float = 0.0, shares: Sequence[float] | None = None) -> tuple[Table, ...]:
        """Return what can be found, with how many people, and when; of segments with these shares, if they are given.

        Shares of 0 are those of segments in which nobody is.
        """
        return power_tables(self.spec, self.plans, waiting, shares)

    @override
    def figures(self, state: TrialState) -> dict[str, float]:
        """Return the looks used, the share of effects decided, and whether a rule ended the trial early."""
        decided = self._found(state).called.decided.mean() if state.evidence.looks else 0.0
        return {
            "looks": float(state.evidence.looks),
            "decided": float(decided),
            "stopped_early": float(bool(state.stopped)),
        }


def learner(spec: TrialSpec) -> Learner:
    """Return the learner of a spec."""
    return TrialLearner(spec)
