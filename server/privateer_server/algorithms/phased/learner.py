"""Distributed phased elimination (Li, Zhou and Ji 2024): designs, estimates, widths, and elimination of actions."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from scipy.special import ndtr
from typing_extensions import override

from privateer_core.algorithms.phased import PhasedPolicy, PhasedSpec
from privateer_core.answer import Answer, Ending
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.facts import Fact, Table
from privateer_core.answer.parts import Basis, Figures
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.errors import SpecError
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Draw
from privateer_core.primitives.questions import VectorSum
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.arms import PlannedRound
from privateer_server.algorithms import NewRound, RoundsLearner, RoundVolume, Step, require_equal
from privateer_server.algorithms.phased.design import Design, compute_span, near_optimal_design
from privateer_server.algorithms.phased.lack_of_fit import LackOfFit, weight_departures

_N_LEADERS: Final = 16  # actions of the highest estimates, against each of which every action is compared
_CLIPPING_DEVIATIONS: Final = 2.0  # standard deviations by which an average must be near the bound to count for clipped
_MAX_SUPPORT_GROWTH: Final = 1.5
"""Actions that a later phase may play by those of the first: uploads of more are larger than what was admitted."""
_MAX_REFINED_POINTS: Final = 1_000  # points of a box up to which a cover is refined
_Z_GRID: Final = np.linspace(-8.0, 8.0, 1601)
_MEAN_SHORTFALLS: Final = np.exp(-(_Z_GRID**2) / 2) / math.sqrt(2 * math.pi) + _Z_GRID * ndtr(_Z_GRID)
"""Mean of (z - Z)_+ for a standard normal Z, at `_PLACES`: rising."""


@dataclass(frozen=True)
class PhasedState:
    """The state of phased elimination."""

    # phase, played: phases that were learned from, and rounds played in them
    phase: int
    played: int
    asked: int  # people asked so far, in repeated phases too
    active: Ints  # shape (a,), int64: rows of the actions that may still be the best
    # estimates, widths: shape (a,): estimated rewards less the middle of their range, and how far an action's
    # difference to the leader may be off; infinite before the first phase
    estimates: Array
    widths: Array
    clipped: float  # at least this share of people's averages was clipped in the last phase, by what was released
    seed: int  # the seed of the public draw of people: the same for all phases
    radii: Array  # shape (a,): how far each of ``estimates`` may be off by itself
    failed: bool = False  # whether a phase came to no end, so that the best action so far is played
    reported: int = 0  # people whose reports opened, of phases that were learned from
    level: int = 0  # of the cover of a box that has ``active``
    lack_of_fit: LackOfFit | None = None  # of a box


@dataclass(frozen=True)
class PhaseEstimate:
    """Least squares on one phase's released averages, in coordinates of the span of the active actions."""

    theta: Array  # shape (rank,)
    weights: Array  # shape (rank, s): what multiplies the averages in ``theta``
    covariance: Array  # shape (rank, rank): sub-Gaussian variance of ``theta``
    scale: float  # the scale of the error beyond sub-Gaussian, see `GaussianVectors.spread`
    slack: float = 0.0  # how much better than an action those may be for which it stands

    def width(self, differences: Array, log_inverse_failure: float) -> Array:
        """Return bounds on the errors of ``differences`` (n, rank), each of this failure probability; shape (n,)."""
        variance = ((differences @ self.covariance) * differences).sum(axis=1)
        linear = self.scale * np.linalg.norm(differences @ self.weights, axis=1) if self.scale else 0.0
        return np.asarray(np.sqrt(2 * log_inverse_failure * np.maximum(variance, 0.0)) + linear * log_inverse_failure)


class PhasedLearner(RoundsLearner[PhasedSpec, PhasedState, PhasedPolicy]):
    """Algorithm 1, with phases drawn without replacement and exact widths (docs/phased.md has the departures).

    Pairs of actions are compared by the exact width of their difference.
    """

    state_type = PhasedState
    gap = 1.5
    """Worst leverage of a design by the rank; the paper's 2 has fewer actions, and 1.5 a twentieth less regret."""
    repeats = True
    growth = ("algorithm.alpha", "algorithm.participants_factor or experiment.horizon")

    def __init__(self, spec: PhasedSpec) -> None:
        super().__init__(spec)
        self.actions, self.box = spec.actions.matrix, spec.actions.box
        self.log = math.log(1 / spec.comparison_failure_probability)

    @cached_property
    def _largest_support(self) -> tuple[int, int]:
        """The most actions of the first phase, and of any other: known before there is a seed."""
        n_first_actions = len(self._choose_design(self._first_rows, None).support)
        return n_first_actions, min(len(self.actions), math.ceil(_MAX_SUPPORT_GROWTH * n_first_actions))

    @cached_property
    def _first_rows(self) -> Ints:
        """The actions of the first phase."""
        return self.box.list_rows(self.box.first_level) if self.box else np.arange(len(self.actions))

    def _choose_cover(self, state: PhasedState) -> tuple[Ints, int]:
        """Return the next phase's actions: the remaining ones, or the points of a finer cover of a box."""
        if self.box and state.phase and state.level < self.box.last_level:
            rows = self.box.refine(state.active, state.level)
            if len(rows) <= _MAX_REFINED_POINTS:
                return rows, state.level + 1
        return state.active, state.level

    def _choose_design(self, rows: Ints, max_support: int | None) -> Design:
        """Return a near-optimal design, which in a box tells also the powers that the polynomial lacks."""
        points = self.actions[rows]
        if self.box:
            points = np.hstack([points, self.box.compute_powers(self.box.locate(rows))])
        return near_optimal_design(points, self.gap, max_support)

    @override
    def start(self, seed: int) -> PhasedState:
        """Return the state with all actions; refuse a horizon that has no room for the first phase."""
        unknown = np.full(len(self._first_rows), np.inf)
        state = PhasedState(0, 0, 0, self._first_rows, np.zeros(len(unknown)), unknown, 0.0, seed, unknown)
        if self.box:
            lack_of_fit = LackOfFit.without_phases(len(self.box.low))
            state = replace(state, level=self.box.first_level, lack_of_fit=lack_of_fit)
        n_rounds = self.rounds(state)
        if n_rounds > self.spec.experiment.horizon:
            detail, remedy = f"the first phase takes {n_rounds} rounds", f"raise it to {n_rounds}"
            raise SpecError(detail, field="experiment.horizon", remedy=remedy)
        return state

    @override
    def planned_round(self, state: PhasedState) -> PlannedRound:
        return PlannedRound("", state.reported, self.batch_size(state))

    @override
    def apply_spec_change(self, state: PhasedState, old_spec: PhasedSpec) -> PhasedState:
        """Refuse: phases, people and failure probability are fixed by the spec of the start."""
        field = "experiment.horizon" if old_spec.experiment != self.spec.experiment else "actions"
        detail = "the lengths of all phases, and the failure of each comparison, follow from the spec of the start"
        raise SpecError(detail, field=field, remedy="stop it, and create another experiment with the spec wanted")

    @override
    def start_from_state(self, state: PhasedState, old_spec: PhasedSpec) -> PhasedState:
        """Return the state of another experiment of the same spec, to continue with participants it has not asked."""
        common_fields = [name for name in type(old_spec).model_fields if name != "population"]
        renamed_experiment = old_spec.experiment.model_copy(update={"name": self.spec.name})
        require_equal(old_spec.model_copy(update={"experiment": renamed_experiment}), self.spec, tuple(common_fields))
        return state

    def batch_size(self, state: PhasedState) -> int:
        """Return the number of participants of the next phase; 0 after the last phase, or a failure."""
        is_done = state.failed or self._has_one_action(state) or state.phase >= self.spec.phases
        return 0 if is_done else self.spec.phase_size(state.phase + 1)

    def _has_one_action(self, state: PhasedState) -> bool:
        """Whether a single action remains, and the cover is the finest."""
        return len(state.active) == 1 and (self.box is None or state.level == self.box.last_level)

    @override
    def learn_without_release(self, state: PhasedState, policy: PhasedPolicy, *, is_repeated: bool) -> PhasedState:
        """Return the state after a phase of which nothing is released.

        Either the same phase asks the next participants (``is_repeated``), or the experiment has failed: too few came
        in time.
        """
        if not is_repeated:
            return replace(state, failed=True)
        return self._check_remaining_people(replace(state, asked=state.asked + policy.draw.places))

    def _check_remaining_people(self, state: PhasedState) -> PhasedState:
        """Return the state, failed if too few participants remain after repeated phases."""
        n_required = self.spec.count_invited(self.batch_size(state))
        if state.asked + n_required <= self.spec.experiment.participants:
            return state
        has_no_room = self.rounds(state) > self.spec.experiment.horizon - state.played
        return state if has_no_room else replace(state, failed=True)

    def rounds(self, state: PhasedState) -> int:
        """Return the number of plays of the next phase if the horizon has room, with each rounded up."""
        return int(self._plan_plays(state)[1].sum())

    @override
    def policy(self, state: PhasedState, next_round: NewRound) -> PhasedPolicy:
        """Return the policy of the next phase; all phases draw participants from one order by the state's seed.

        A phase that the horizon has no room for asks nobody, nor does the last one: the best action is played to the
        end.
        """
        n_rounds_left = self.spec.experiment.horizon - state.played
        support, plays = self._plan_plays(state)
        if next_round.batch_size == 0 or plays.sum() > n_rounds_left:
            support, plays = self._final_plays(state, support, plays, n_rounds_left)
            next_round = replace(next_round, batch_size=0)
        terms = self.calibrate_terms(next_round, self._question(len(support), state.seed))
        draw = Draw(
            state.seed, self.spec.experiment.participants, state.asked, self.spec.count_invited(terms.batch_size)
        )
        rows, _ = self._choose_cover(state)
        return PhasedPolicy(next_round.version, rows, support, plays, draw, self.spec.reward.middle, terms)

    def _question(self, coordinates: int, seed: int) -> VectorSum:
        return VectorSum(Ball("max", self.spec.reward.half_range, coordinates), seed)

    @override
    def has_failed(self, state: PhasedState) -> bool:
        """Whether a phase had too few participants in time, or none remain to ask."""
        return state.failed

    def _plan_plays(self, state: PhasedState) -> tuple[Ints, Ints]:
        """Return the actions to play and how often: T(x) = ceil(h pi(x))."""
        rows, _ = self._choose_cover(state)
        design = self._choose_design(rows, self._largest_support[1])
        length = self.spec.first_phase_length * 2.0**state.phase
        return rows[design.support], np.ceil(length * design.weights).astype(np.int64)

    def _final_plays(self, state: PhasedState, _support: Ints, _plays: Ints, n_rounds_left: int) -> tuple[Ints, Ints]:
        """Return the best action for the remaining rounds, after the last phase."""
        return state.active[[int(np.argmax(state.estimates))]], np.array([n_rounds_left])

    @override
    def learn(self, state: PhasedState, policy: PhasedPolicy, release: VectorSums) -> PhasedState:
        """Return the state after least squares (PhaseEstimate) and elimination of actions beaten by the width.

        The release may be of fewer people than were asked: averages and widths are of those who reported.
        """
        averages = release.sums / release.reports
        rows, level = self._choose_cover(state)
        basis = compute_span(self.actions[rows])
        estimate = self._estimate_parameters(policy, averages, release.reports, basis)
        points = self.actions[rows] @ basis.T
        values = points @ estimate.theta
        if self.box and level < self.box.last_level:
            estimate = replace(estimate, slack=self._bound_curvature(estimate, basis, level))
        is_kept = self._select_active(state.phase, policy, release.reports, points, values, estimate)
        leader = int(np.argmax(values))
        new_state = replace(
            state,
            phase=state.phase + 1,
            played=state.played + policy.rounds,
            asked=state.asked + policy.draw.places,
            active=rows[is_kept],
            estimates=values[is_kept],
            widths=estimate.width(points - points[leader], self.log)[is_kept],
            clipped=self._clipped_share(policy, averages, release.reports),
            radii=estimate.width(points, self.log)[is_kept],
            reported=state.reported + release.reports,
        )
        if state.lack_of_fit:
            lack_of_fit = state.lack_of_fit.take_clearer(self._test_fit(policy, averages, release.reports))
            new_state = replace(new_state, level=level, lack_of_fit=lack_of_fit)
        return self._check_remaining_people(new_state)

    def _estimate_parameters(self, policy: PhasedPolicy, averages: Array, people: int, basis: Array) -> PhaseEstimate:
        """Return theta = V^-1 X^T diag(T) y (line 17), and how far it may be off by rewards, people and noise.

        A reward in a range of 2 B is B-sub-Gaussian (Hoeffding), so everybody's average of T(x) of them has variance
        B^2 / T(x) at most; people's parameters have sigma^2 in every direction.
        """
        points = self.actions[policy.support] @ basis.T
        gram = (points * policy.plays[:, None]).T @ points
        weights = np.linalg.solve(gram, points.T * policy.plays)
        estimate = self._weigh(policy, averages, people, np.asarray(weights, np.float64))
        sampled = np.eye(len(basis)) * self.spec.algorithm.participant_standard_deviation**2 / people
        return replace(estimate, covariance=estimate.covariance + sampled)

    def _weigh(self, policy: PhasedPolicy, averages: Array, people: int, weights: Array) -> PhaseEstimate:
        """Return weighted sums of averages, with their errors by rewards and noise."""
        variance, scale = policy.mechanism.error_bounds(people)
        rewards = self.spec.reward.half_range**2 / (policy.plays * people)
        return PhaseEstimate(weights @ averages, weights, (weights * (rewards + variance)) @ weights.T, scale)

    def _test_fit(self, policy: PhasedPolicy, averages: Array, people: int) -> LackOfFit:
        """Return how far averages depart from the polynomial, of which people's own parameters are others."""
        assert self.box is not None
        powers = self.box.compute_powers(self.box.locate(policy.support))
        weights, is_tested = weight_departures(self.actions[policy.support], powers, policy.plays)
        estimate = self._weigh(policy, averages, people, weights)
        radii = estimate.width(np.eye(len(weights)), self.log)
        return LackOfFit(estimate.theta, np.where(is_tested, radii, np.inf))

    def _bound_curvature(self, estimate: PhaseEstimate, basis: Array, level: int) -> float:
        """Bound what a better point of the box may have over the nearest of a level's cover."""
        assert self.box is not None
        terms = basis.T[self.box.quadratic_terms]
        sizes = np.abs(terms @ estimate.theta) + estimate.width(terms, self.log)
        return self.box.bound_loss(sizes, level)

    def _select_active(
        self, _closed: int, _policy: PhasedPolicy, _people: int, points: Array, values: Array, estimate: PhaseEstimate
    ) -> Bools:
        """Return the actions that no leader beats by more than the exact width of the difference.

        The best action is dropped only if its own difference to some other one is off by more than its width: a union
        over actions and phases, not over pairs, so beta = 1 / (k T) serves as it does the paper.
        """
        is_kept = np.ones(len(values), bool)
        for leader in np.argsort(-values, kind="stable")[:_N_LEADERS]:
            is_beaten = values[leader] - values > estimate.width(points - points[leader], self.log) + estimate.slack
            is_beaten[leader] = False
            is_kept &= ~is_beaten
        return is_kept

    def _clipped_share(self, policy: PhasedPolicy, averages: Array, people: int) -> float:
        """Return a lower bound on the share of participants' averages that were clipped, from the release alone.

        Normal people of standard deviation sigma |x|, clipped at B, are on average so much below B as a shortfall says;
        their own noise of rewards would clip more. Averages are taken to be farther from B than they seem, by their
        error.
        """
        bound = self.spec.reward.half_range
        lengths = np.linalg.norm(self.actions[policy.support], axis=1)
        standard_deviation = self.spec.algorithm.participant_standard_deviation * lengths
        error = policy.mechanism.error_bounds(people)[0] + (standard_deviation**2 + bound**2 / policy.plays) / people
        shortfall = bound - (np.abs(averages) - _CLIPPING_DEVIATIONS * np.sqrt(error))
        z = np.interp(np.maximum(shortfall, 0.0) / np.maximum(standard_deviation, 1e-12), _MEAN_SHORTFALLS, _Z_GRID)
        return float(np.mean(ndtr(-z)))

    @override
    def answer(self, state: PhasedState) -> Answer:
        """Return the estimates of the remaining actions, and the progress of the experiment.

        Each interval misses with probability 2 beta at most (`PhaseEstimate.width`), so together they hold with the
        confidence that is stated.
        """
        is_over = self.is_over(state)
        estimates = self._build_estimates(state) if state.phase else ()
        best = int(np.argmax(state.estimates)) if estimates else None
        ending: Ending = "its rule" if self._has_one_action(state) else "its horizon"
        return Answer(
            stage="failed" if state.failed else "ended" if is_over else "learning",
            people=None if state.asked else 0,
            rounds=state.phase,
            confidence=max(0.0, 1 - 2 * len(state.active) * self.spec.comparison_failure_probability),
            recommended=None if best is None else self.spec.options[state.active[best]],
            basis=None if best is None else self._choose_basis(best, state),
            stop_reason=ending if is_over and not state.failed else None,
            estimates=estimates,
            parts=self._build_parts(state) if estimates else (),
        )

    def _build_parts(self, state: PhasedState) -> tuple[Figures | Table, ...]:
        progress = self._build_progress(state)
        if self.box is None or state.lack_of_fit is None:
            return (progress,)
        points = self.box.list_points(state.active)
        return progress, state.lack_of_fit.build_table(points, points[int(np.argmax(state.estimates))])

    def _build_estimates(self, state: PhasedState) -> tuple[Estimate, ...]:
        bounds = (self.spec.reward.low, self.spec.reward.high)
        values = (state.estimates + self.spec.reward.middle).tolist()
        names = self.spec.options
        rows = zip(state.active.tolist(), values, state.radii.tolist(), strict=True)
        return tuple(Estimate.within(names[row], value, radius, bounds) for row, value, radius in rows)

    def _choose_basis(self, best: int, state: PhasedState) -> Basis:
        """Return the basis on which an action is the best; the only remaining action has no rival.

        Where a box's rewards are no polynomial, nothing is decided by it.
        """
        if state.lack_of_fit and state.lack_of_fit.is_detected:
            return "ahead, and not decided"
        highest = np.delete(state.estimates + state.radii, best).max(initial=-np.inf)
        is_separate = bool(highest < (state.estimates - state.radii)[best])
        return "decided against all other options" if is_separate else "ahead, and not decided"

    def _build_progress(self, state: PhasedState) -> Figures:
        facts = (
            Fact("phases", state.phase, "count"),
            Fact("phases planned", self.spec.phases, "count"),
            Fact("rounds played", state.played, "count"),
            Fact("people asked", state.asked, "count"),
            Fact("least share of averages that were clipped", round(state.clipped, 4), "share"),
            Fact("actions left", len(state.active), "count"),
        )
        return Figures("how far it is", facts)

    @override
    def list_round_volumes(self, first: Step) -> list[RoundVolume]:
        """Return the sizes of all phases, each but the first with the maximum number of actions."""
        spec, sizes = self.spec, []
        n_first_actions, n_later_actions = self._largest_support
        for phase in range(1, spec.phases + 1):
            n_participants = spec.phase_size(phase)
            question = self._question(n_first_actions if phase == 1 else n_later_actions, 0)
            mechanism = calibrate(spec.privacy, n_participants, question, spec.min_reports(n_participants)).mechanism
            sizes.append(RoundVolume(n_participants, mechanism.messages, mechanism.sealed_size))
        return sizes

    @override
    def figures(self, state: PhasedState) -> dict[str, float]:
        """Return the number of active actions, the minimum share of clipped averages, and the widest interval."""
        widest_interval = {"widest_interval": 2 * float(state.radii.max())} if state.phase else {}
        return {"active": len(state.active), "clipped_share": state.clipped, **widest_interval}


learner = PhasedLearner
