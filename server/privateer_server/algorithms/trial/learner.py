"""The learner of a trial: epochs are rounds, and every round ends with a look."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from typing_extensions import override

from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.algorithms.trial.coin_questions import make_coin_layout
from privateer_core.answer import Answer
from privateer_core.answer.estimates import MeasuredRate
from privateer_core.answer.facts import Table
from privateer_core.arrays import Array, Ints
from privateer_core.errors import SpecError
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.primitives.contributions import CellHits
from privateer_server.algorithms import NewRound, RoundsLearner
from privateer_server.algorithms.trial.allocation import CHOSEN_AFTER, Holdout, allocate_arms
from privateer_server.algorithms.trial.decisions import TrialFindings, find_stopping_rule
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.power.power_analysis import build_designs
from privateer_server.algorithms.trial.power.power_tables import build_power_tables, check_effect
from privateer_server.algorithms.trial.state import TrialState
from privateer_server.algorithms.trial.treatment_effects import control_rate
from privateer_server.algorithms.trial.trial_answer import build_answer, build_expected_rewards


class TrialLearner(RoundsLearner[TrialSpec, TrialState, TrialPolicy]):
    """A learner that adds up releases, and tests effects at the looks that the spec fixes."""

    state_type = TrialState
    growth = ("algorithm.looks", "the people in all")

    def __init__(self, spec: TrialSpec) -> None:
        super().__init__(spec)
        self.plans = build_designs(spec)
        self.design = self.plans.segments

    @override
    def start(self, seed: int) -> TrialState:
        if self.spec.experiment.retired_arms:
            detail = "must be empty: a trial compares all its arms from the first person to the last"
            raise SpecError(detail, field="experiment.retired_arms", remedy="remove them from experiment.arms")
        check_effect(self.spec, self.plans)
        return TrialState.begin(seed, self.spec, self.plans)

    @override
    def policy(self, state: TrialState, next_round: NewRound) -> TrialPolicy:
        spec = self.spec
        if next_round.batch_size:
            layout, questions = spec.layout(state.seed, state.shares), spec.questions
            question = spec.make_question(layout, len(state.learned))
        else:  # everybody gets the arm that is decided for their segment
            layout, questions = make_coin_layout(state.seed, np.eye(spec.arm_count)[self._choose_arms(state)], ()), ()
            question = spec.make_named_question(layout)
        terms = self.calibrate_terms(next_round, question)
        return TrialPolicy(next_round.version, spec.segmentation, layout, terms, questions, state.learned)

    def _choose_arms(self, state: TrialState) -> Ints:
        """Return the arm of each segment after the last round; the control before the first look."""
        if not state.evidence.looks:
            return np.zeros(self.spec.segment_count, np.int64)
        return TrialFindings.from_state(state, self.spec).segment_arms

    @override
    def has_stopped(self, state: TrialState) -> bool:
        return bool(state.stopped)

    @override
    def apply_spec_change(self, state: TrialState, old_spec: TrialSpec) -> TrialState:
        """Refuse a change: boundaries of all looks follow from the participants planned and the arms compared."""
        is_horizon_changed = old_spec.experiment.horizon != self.spec.experiment.horizon
        field = "experiment.horizon" if is_horizon_changed else "experiment.arms"
        detail = "intervals hold for the people and arms that were planned"
        raise SpecError(detail, field=field, remedy="let it end or stop it, and create another with the spec wanted")

    @override
    def start_from_state(self, state: TrialState, old_spec: TrialSpec) -> TrialState:
        """Refuse to continue another experiment: intervals hold for participants of a single experiment."""
        detail = f"a test cannot begin with what {old_spec.name} found: its looks are spent"
        raise SpecError(detail, field="algorithm.name", remedy="begin without it")

    @override
    def learn(self, state: TrialState, policy: TrialPolicy, release: CellHits) -> TrialState:
        new_state = state.add(policy, release)
        findings = TrialFindings.from_state(new_state, self.spec)
        averages = findings.average_intervals(self.spec.arm_count - 1)
        return replace(
            new_state,
            shares=self._allocate_arms(new_state),
            held=new_state.held or self._begin_holdout(new_state.evidence, findings),
            path=np.concatenate([state.path, findings.intervals[None]]),
            average_path=np.concatenate([state.average_path, averages[None]]),
            stopped=find_stopping_rule(findings, self.spec),
        )

    def _allocate_arms(self, state: TrialState) -> Array:
        """Return shares of the next epoch by segment, and of all segments together as a single segment."""
        rule, floor = self.spec.algorithm.allocation, self.spec.min_arm_share
        return np.concatenate([allocate_arms(rows, rule, floor) for rows in (state.evidence, *state.everybody[:1])])

    def _begin_holdout(self, evidence: TrialEvidence, findings: TrialFindings) -> Holdout | None:
        """Return a holdout of choosing by segment against a constant arm, if it is time and there are segments."""
        n_reports = float(evidence.people[-1])
        is_early = n_reports < CHOSEN_AFTER * self.design.people
        if is_early or self.spec.segment_count == 1:
            return None
        return Holdout.begin(self.design, n_reports, findings.segment_arms, findings.best_constant_arm)

    @override
    def answer(self, state: TrialState) -> Answer:
        """Return the findings of the last look; empty before the first."""
        if not state.evidence.looks:
            return Answer("learning", 0, 0, 1 - self.spec.algorithm.significance_level)
        findings = TrialFindings.from_state(state, self.spec)
        return build_answer(state, findings, self.spec, self.warnings(state), is_over=self.is_over(state))

    @override
    def build_expected_rewards(self, state: TrialState) -> ExpectedRewards | None:
        if not state.evidence.looks:
            return None
        return build_expected_rewards(state, TrialFindings.from_state(state, self.spec), self.spec)

    @override
    def measured_rate(self, state: TrialState) -> MeasuredRate | None:
        return control_rate(state.evidence)

    def build_forecast(self, waiting: float = 0.0, shares: Sequence[float] | None = None) -> tuple[Table, ...]:
        """Return the power analysis: detectable effects, sample sizes, and times until a decision.

        ``shares`` are those of segments among participants, by default as the spec declares; 0 for an empty segment.
        """
        return build_power_tables(self.spec, self.plans, waiting, shares)

    @override
    def figures(self, state: TrialState) -> dict[str, float]:
        """Return the looks used, the share of effects decided, and whether a rule ended the trial early."""
        looks, stopped_early, decided_share = state.evidence.looks, bool(state.stopped), 0.0
        if looks:
            decided_share = float(TrialFindings.from_state(state, self.spec).decisions.decided.mean())
        return {"looks": float(looks), "decided": decided_share, "stopped_early": float(stopped_early)}


learner = TrialLearner
