"""What learns in a trial: epochs are rounds, and every round ends with a look."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.trial import TrialPolicy, TrialSpec
from privateer.contributions import CellHits
from privateer.errors import SpecError
from privateer.mechanisms.named_symbol import NamedSymbol
from privateer.result import Result, Table
from privateer.terms import calibrate, nobody_asked
from privateer_server.algorithms import Bulk, Step
from privateer_server.algorithms.trial.allocation import allocated
from privateer_server.algorithms.trial.design import Design
from privateer_server.algorithms.trial.evidence import Evidence, begin
from privateer_server.algorithms.trial.findings import Findings
from privateer_server.algorithms.trial.foresight import check_effect, foreseen
from privateer_server.algorithms.trial.gain import CHOSEN_AFTER, Held, hold
from privateer_server.algorithms.trial.line import draw_line
from privateer_server.algorithms.trial.ratio import count
from privateer_server.algorithms.trial.release import epoch_of, excess_of
from privateer_server.algorithms.trial.report import described, reported
from privateer_server.algorithms.trial.state import TrialState
from privateer_server.algorithms.trial.stopping import stops

Array = NDArray[np.float64]


class TrialLearner:
    """Adds up releases, and looks at them at times that the spec fixes."""

    state_type = TrialState
    repeats: ClassVar[bool] = False
    growth: ClassVar[tuple[str, str]] = ("algorithm.looks", "the people in all")

    def __init__(self, spec: TrialSpec) -> None:
        self.spec = spec
        planned = spec.planned("")
        mechanism = planned.mechanism if planned else None
        counted = mechanism.named if isinstance(mechanism, NamedSymbol) else True
        arms = np.array(spec.arm_shares)
        people = spec.experiment.horizon / spec.questions
        self.design = Design(spec.algorithm.level, people, arms, spec.segment_shares, counted)

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
        check_effect(self.spec, self.design)
        shares = np.tile(self.design.arms, (self.spec.segment_count, 1))
        size, treatments = self.spec.segment_count, self.spec.arm_count - 1
        return TrialState(
            seed,
            0,
            begin(self.design),
            shares,
            np.zeros(shares.shape, bool),
            count(float(self.spec.experiment.horizon), self.spec.arm_count),
            draw_line(self.design) if self.spec.algorithm.intervals == "strict" else None,
            (begin(self.design),) * len(self.spec.algorithm.guardrails),
            None,
            np.zeros((0, size, treatments, 3)),
            np.zeros((0, treatments, 3)),
        )

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
        best = self._found(state).best
        shares = (np.arange(self.spec.arm_count) == best[:, None]).astype(np.float64)
        choice = self.spec.layout(state.seed, shares)
        terms = nobody_asked(self.spec.privacy, self.spec.named_cells(choice))
        return Step(
            state, TrialPolicy(version, self.spec.segmentation, choice, terms, self.spec.questions), 0, state.heard
        )

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
        raise SpecError(detail, field=field, remedy="let it end, and create another experiment with the spec wanted")

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
        epoch = epoch_of(policy, release)
        evidence, line = state.evidence.add(epoch), state.line.add(epoch) if state.line else None
        found = Findings.of(evidence, line, self.spec)
        dropped, shares = allocated(evidence, state.dropped, self.spec)
        return replace(
            state,
            heard=state.heard + release.reports,
            evidence=evidence,
            shares=shares,
            dropped=dropped,
            ratio=state.ratio.extended(float(release.reports), *excess_of(policy, release)),
            line=line,
            guardrails=tuple(one.add(epoch_of(policy, release, k)) for k, one in enumerate(state.guardrails)),
            held=state.held.add(epoch) if state.held else self._held(evidence, found),
            path=np.concatenate([state.path, found.intervals[None]]),
            average_path=np.concatenate([state.average_path, found.average_intervals[None]]),
            stopped=stops(found, self.spec),
        )

    def _held(self, evidence: Evidence, found: Findings) -> Held | None:
        """Choose what to hold choosing by segment against, if it is time and there are segments."""
        people = float(evidence.people[-1])
        early = people < CHOSEN_AFTER * self.design.people
        return None if early or self.spec.segment_count == 1 else hold(self.design, people, found.best, found.constant)

    def _found(self, state: TrialState) -> Findings:
        return Findings.of(state.evidence, state.line, self.spec)

    def miss(self, state: TrialState, _policy: TrialPolicy, *, again: bool) -> TrialState:
        """Return the state as it is: other people report in the next round."""
        del again
        return state

    def failed(self, _state: TrialState) -> bool:
        """Whether a round came to no end: rounds wait for their people."""
        return False

    def result(self, state: TrialState) -> Result | None:
        """Return the effects at the last look; None before the first."""
        if not state.evidence.looks:
            return None
        return reported(state, self._found(state), self.spec, over=self._over(state))

    def _over(self, state: TrialState) -> bool:
        return bool(state.stopped) or not self.spec.turn("", state.heard).batch

    def describe(self, state: TrialState) -> dict[str, Any]:
        """Describe a state as JSON, for people."""
        return described(state, self._found(state), self.spec)

    def bulk(self, first: Step) -> list[Bulk]:
        """Return the largest epoch."""
        return [Bulk(self.spec.largest_batch(), 1, first.policy.terms.mechanism.report_size)]

    def foreseen(self) -> tuple[Table, ...]:
        """Return what can be found, with how many people, and when."""
        return foreseen(self.spec, self.design)

    def figures(self, state: TrialState) -> dict[str, float]:
        """Return the looks used, the share of effects decided, and whether a rule ended the trial early."""
        found = self._found(state)
        return {
            "looks": float(state.evidence.looks),
            "decided": float(found.decided.mean()),
            "stopped_early": float(bool(state.stopped)),
        }
