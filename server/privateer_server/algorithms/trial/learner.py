"""What learns in a trial: epochs are rounds, and every round ends with a look."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.algorithms.trial.questions import coin_layout
from privateer_core.answer import Answer
from privateer_core.contributions import CellHits
from privateer_core.errors import SpecError
from privateer_core.result import Result, Table
from privateer_core.terms import calibrate, nobody_asked
from privateer_server.algorithms import Bulk, Step
from privateer_server.algorithms.trial.allocation import CHOSEN_AFTER, Holdout, allocated
from privateer_server.algorithms.trial.decisions import TrialFindings, stops
from privateer_server.algorithms.trial.power import check_effect, designs, power_tables
from privateer_server.algorithms.trial.report import described, reported
from privateer_server.algorithms.trial.state import TrialState
from privateer_server.algorithms.trial.trial_answer import answer
from privateer_server.algorithms.trial.trial_evidence import TrialEvidence

Array = NDArray[np.float64]


class TrialLearner:
    """Adds up releases, and looks at them at times that the spec fixes."""

    state_type = TrialState
    repeats: ClassVar[bool] = False
    publishes_result: ClassVar[bool] = True
    growth: ClassVar[tuple[str, str]] = ("algorithm.looks", "the people in all")

    def __init__(self, spec: TrialSpec) -> None:
        self.spec = spec
        self.plans = designs(spec)
        self.design = self.plans.segments

    def start(self, seed: int) -> TrialState:
        """Return the state before any report.

        Raises
        ------
        SpecError
            If an arm is retired, or nothing could find the effect that matters.
        """
        if self.spec.experiment.retired:
            detail = "a test compares all its arms from the first person to the last"
            raise SpecError(detail, field="experiment.retired", remedy="remove them from experiment.arms")
        check_effect(self.spec, self.plans)
        return TrialState.begin(seed, self.spec, self.plans)

    def next(self, state: TrialState, version: int, seed: int) -> Step:
        """Return the next epoch, or the end."""
        batch = 0 if state.stopped else self.spec.turn("", state.heard).batch
        if not batch:
            return self.last(state, version, seed)
        choice = self.spec.layout(state.seed, state.shares)
        terms = calibrate(self.spec.privacy, batch, self.spec.asked(choice))
        policy = TrialPolicy(version, self.spec.segmentation, choice, terms, self.spec.questions)
        return Step(state, policy, batch, state.heard)

    def last(self, state: TrialState, version: int, _seed: int) -> Step:
        """Return the step that asks nobody: everybody gets the arm that looks best in their segment."""
        size = self.spec.segment_count
        best = TrialFindings.of(state, self.spec).best if state.evidence.looks else np.zeros(size, np.int64)
        shares = (np.arange(self.spec.arm_count) == best[:, None]).astype(np.float64)
        choice = coin_layout(state.seed, shares, ())
        terms = nobody_asked(self.spec.privacy, self.spec.named_cells(choice))
        return Step(state, TrialPolicy(version, self.spec.segmentation, choice, terms), 0, state.heard)

    def changed(self, _state: TrialState, before: TrialSpec) -> TrialState:
        """Refuse: boundaries of all looks follow from the people planned and the arms compared.

        Raises
        ------
        SpecError
            Always.
        """
        grown = before.experiment.horizon != self.spec.experiment.horizon
        field = "experiment.horizon" if grown else "experiment.arms"
        detail = "intervals hold for the people and arms that were planned"
        raise SpecError(detail, field=field, remedy="let it end or stop it, and create another with the spec wanted")

    def begun(self, _state: TrialState, before: TrialSpec) -> TrialState:
        """Refuse: intervals hold for people of one experiment.

        Raises
        ------
        SpecError
            Always.
        """
        detail = f"a test cannot begin with what {before.name} found: its looks are spent"
        raise SpecError(detail, field="algorithm.name", remedy="begin without it")

    def learn(self, state: TrialState, policy: TrialPolicy, release: CellHits) -> TrialState:
        """Add a release, look at all of them, and decide whether to go on and with which shares."""
        told = state.add(policy, release)
        found = TrialFindings.of(told, self.spec)
        dropped, shares = self._allocated(told)
        return replace(
            told,
            shares=shares,
            dropped=dropped,
            held=told.held or self._held(told.evidence, found),
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
        return (
            None
            if early or self.spec.segment_count == 1
            else Holdout.begin(self.design, people, found.best, found.constant)
        )

    def miss(self, state: TrialState, _policy: TrialPolicy, *, again: bool) -> TrialState:
        """Return the state as it is: other people report in the next round."""
        del again
        return state

    def failed(self, _state: TrialState) -> bool:
        """Whether a round came to no end: rounds wait for their people."""
        return False

    def answer(self, state: TrialState) -> Answer:
        """Return what is known at the last look; nothing before the first."""
        if not state.evidence.looks:
            return Answer("learning", 0, 0, 1 - self.spec.algorithm.level)
        over = bool(state.stopped) or not self.spec.turn("", state.heard).batch
        return answer(state, TrialFindings.of(state, self.spec), self.spec, over=over)

    def result(self, state: TrialState) -> Result | None:
        """Return the effects at the last look; None before the first."""
        return reported(self.answer(state)) if state.evidence.looks else None

    def describe(self, state: TrialState) -> dict[str, Any]:
        """Describe a state as JSON, for people."""
        return described(self.answer(state), self.spec, state.stopped)

    def bulk(self, first: Step) -> list[Bulk]:
        """Return the largest epoch."""
        return [Bulk(self.spec.largest_batch(), 1, first.policy.terms.mechanism.report_size)]

    def foreseen(self, waiting: float = 0.0) -> tuple[Table, ...]:
        """Return what can be found, with how many people, and when."""
        return power_tables(self.spec, self.plans, waiting)

    def figures(self, state: TrialState) -> dict[str, float]:
        """Return the looks used, the share of effects decided, and whether a rule ended the trial early."""
        decided = TrialFindings.of(state, self.spec).called.decided.mean() if state.evidence.looks else 0.0
        return {
            "looks": float(state.evidence.looks),
            "decided": float(decided),
            "stopped_early": float(bool(state.stopped)),
        }
