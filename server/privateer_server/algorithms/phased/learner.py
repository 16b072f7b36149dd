"""Distributed phased elimination (Li, Zhou and Ji 2024): designs, estimates, widths, and what actions are left."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from typing_extensions import override

from privateer_core.algorithms.phased import PhasedPolicy, PhasedSpec
from privateer_core.answer import Answer, Ending
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.facts import Fact
from privateer_core.answer.parts import Figures, Ground
from privateer_core.errors import SpecError
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Draw
from privateer_core.primitives.questions import VectorSum
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.arms import PlannedRound
from privateer_server.algorithms import Bulk, Learner, NewRound, RoundsLearner, Step, must_agree
from privateer_server.algorithms.phased.design import near_optimal_design, span_of

Array = NDArray[np.float64]
_LEADERS: Final = 16
"""Actions of the highest estimates, against each of which every action is compared."""
_SURE: Final = 2.0
"""Standard deviations by which an average must be near the bound to count for clipped."""
_MORE: Final = 1.5
"""Actions that a later phase may play by those of the first: uploads of more are larger than what was admitted."""
_PLACES: Final = np.linspace(-8.0, 8.0, 1601)
_SHORTFALL: Final = np.exp(-(_PLACES**2) / 2) / math.sqrt(2 * math.pi) + _PLACES * ndtr(_PLACES)
"""Mean of (z - Z)_+ for a standard normal Z, at `_PLACES`: rising."""


@dataclass(frozen=True)
class PhasedState:
    """The state of phased elimination."""

    # phase, played: phases that were learned from, and rounds played in them
    phase: int
    played: int
    asked: int  # people asked so far, in repeated phases too
    active: NDArray[np.int64]  # shape (a,), int64: rows of the actions that may still be the best
    # estimates, widths: shape (a,): estimated rewards less the middle of their range, and how far an action's
    # difference to the leader may be off; infinite before the first phase
    estimates: Array
    widths: Array
    clipped: float  # at least this share of people's averages was clipped in the last phase, by what was released
    seed: int  # the seed of the public draw of people: the same for all phases
    radii: Array  # shape (a,): how far each of ``estimates`` may be off by itself
    failed: bool = False  # whether a phase came to no end, so that the best action so far is played
    reported: int = 0  # people whose reports opened, of phases that were learned from


@dataclass(frozen=True)
class PhaseEstimate:
    """Least squares on one phase's released averages, in coordinates of the span of the active actions."""

    theta: Array  # shape (rank,)
    weights: Array  # shape (rank, s): what multiplies the averages in ``theta``
    covariance: Array  # shape (rank, rank): sub-Gaussian variance of ``theta``
    scale: float  # the scale of the error beyond sub-Gaussian, see `GaussianVectors.spread`

    def width(self, differences: Array, log: float) -> Array:
        """Bound what each of ``differences`` (n, rank) is off by, with probability 1 - e^-log each; shape (n,)."""
        variance = ((differences @ self.covariance) * differences).sum(axis=1)
        linear = self.scale * np.linalg.norm(differences @ self.weights, axis=1) if self.scale else 0.0
        return np.asarray(np.sqrt(2 * log * np.maximum(variance, 0.0)) + linear * log)


class PhasedLearner(RoundsLearner[PhasedSpec, PhasedState, PhasedPolicy]):
    """Algorithm 1, with phases drawn without replacement and exact widths (docs/phased.md has the departures).

    Pairs of actions are compared by the exact width of their difference.
    """

    state_type = PhasedState
    gap = 1.5
    """Worst leverage of a design by the rank; the paper's 2 has fewer actions, and 1.5 a twentieth less regret."""
    repeats = True
    growth = ("algorithm.alpha", "algorithm.clients or experiment.horizon")

    def __init__(self, spec: PhasedSpec) -> None:
        super().__init__(spec)
        self.actions = spec.actions.matrix
        self.log = math.log(1 / spec.beta)

    @cached_property
    def _largest_support(self) -> tuple[int, int]:
        """The most actions of the first phase, and of any other: known before there is a seed."""
        played = len(near_optimal_design(self.actions, self.gap).support)
        return played, min(len(self.actions), math.ceil(_MORE * played))

    @override
    def start(self, seed: int) -> PhasedState:
        """Return the state with all actions; refuse a horizon that has no room for the first phase."""
        every = len(self.actions)
        unknown = np.full(every, np.inf)
        state = PhasedState(0, 0, 0, np.arange(every), np.zeros(every), unknown, 0.0, seed, unknown)
        if (least := self.rounds(state)) > self.spec.experiment.horizon:
            raise SpecError(
                f"the first phase takes {least} rounds", field="experiment.horizon", remedy=f"raise it to {least}"
            )
        return state

    @override
    def planned_round(self, state: PhasedState) -> PlannedRound:
        return PlannedRound("", state.reported, self.batch(state))

    @override
    def changed(self, state: PhasedState, before: PhasedSpec) -> PhasedState:
        """Refuse: phases, people and failure probability are fixed by the spec of the start."""
        field = "experiment.horizon" if before.experiment != self.spec.experiment else "actions"
        detail = "the lengths of all phases, and the failure of each comparison, follow from the spec of the start"
        raise SpecError(detail, field=field, remedy="stop it, and create another experiment with the spec wanted")

    @override
    def begun(self, state: PhasedState, before: PhasedSpec) -> PhasedState:
        """Go on where another experiment of the same spec is, with the people whom it has not asked."""
        alike = [name for name in type(before).model_fields if name != "population"]
        renamed = before.experiment.model_copy(update={"name": self.spec.name})
        must_agree(before.model_copy(update={"experiment": renamed}), self.spec, tuple(alike))
        return state

    def batch(self, state: PhasedState) -> int:
        """Return people from whom the next phase learns; 0 if nothing is left to learn."""
        done = state.failed or len(state.active) == 1 or state.phase >= self.spec.phases
        return 0 if done else self.spec.clients(state.phase + 1)

    @override
    def miss(self, state: PhasedState, policy: PhasedPolicy, *, again: bool) -> PhasedState:
        """Return the state after a phase of which nothing is released.

        Either the same phase asks the next people of the order (``again``), or the experiment has failed: too few came
        in time.
        """
        if not again:
            return self._failed(state)
        return self._with_people(replace(state, asked=state.asked + policy.draw.places))

    def _with_people(self, state: PhasedState) -> PhasedState:
        """Return the state, failed if repeated phases used up so many people that too few are left."""
        needed = self.spec.asked(self.batch(state))
        if state.asked + needed <= self.spec.experiment.people:
            return state
        no_room = self.rounds(state) > self.spec.experiment.horizon - state.played
        return state if no_room else self._failed(state)

    def rounds(self, state: PhasedState) -> int:
        """Return what the next phase plays in all if the horizon has room: plays are whole, so more than its length."""
        return int(self._design(state)[1].sum())

    @override
    def policy(self, state: PhasedState, ahead: NewRound) -> PhasedPolicy:
        """Return the policy of the next phase; all phases draw their people from one order, whose seed the state has.

        A phase that the horizon has no room for asks nobody, nor does the last one: the best action is played to the
        end.
        """
        left = self.spec.experiment.horizon - state.played
        support, plays = self._design(state)
        if ahead.batch == 0 or plays.sum() > left:
            support, plays = self._ending(state, support, plays, left)
            ahead = replace(ahead, batch=0)
        terms = self.terms(ahead, self._question(len(support), state.seed))
        draw = Draw(state.seed, self.spec.experiment.people, state.asked, self.spec.asked(terms.batch))
        return PhasedPolicy(ahead.version, state.active, support, plays, draw, self.spec.reward.middle, terms)

    def _question(self, coordinates: int, seed: int) -> VectorSum:
        return VectorSum(Ball("max", self.spec.reward.half_range, coordinates), seed)

    def _failed(self, state: PhasedState) -> PhasedState:
        return replace(state, failed=True)

    @override
    def failed(self, state: PhasedState) -> bool:
        """Whether too few people came to a phase in time, or nobody is left to ask."""
        return state.failed

    def _design(self, state: PhasedState) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Actions to play and how often: T(x) = ceil(h pi(x))."""
        design = near_optimal_design(self.actions[state.active], self.gap, self._largest_support[1])
        length = self.spec.first_length * 2.0**state.phase
        return state.active[design.support], np.ceil(length * design.weights).astype(np.int64)

    def _ending(
        self, state: PhasedState, _support: NDArray[np.int64], _plays: NDArray[np.int64], left: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what is played when nobody is asked any more, and how often, where a phase would play so much."""
        return state.active[[int(np.argmax(state.estimates))]], np.array([left])

    @override
    def learn(self, state: PhasedState, policy: PhasedPolicy, release: VectorSums) -> PhasedState:
        """Estimate rewards (PhaseEstimate), and drop the actions that another one beats by more than the width.

        The release may be of fewer people than were asked: averages and widths are of those who reported.
        """
        averages = release.sums / release.reports
        basis = span_of(self.actions[state.active])
        estimate = self._estimate(policy, averages, release.reports, basis)
        points = self.actions[state.active] @ basis.T
        values = points @ estimate.theta
        keep = self._keep(state.phase, policy, release.reports, points, values, estimate)
        leader = int(np.argmax(values))
        after = replace(
            state,
            phase=state.phase + 1,
            played=state.played + policy.rounds,
            asked=state.asked + policy.draw.places,
            active=state.active[keep],
            estimates=values[keep],
            widths=estimate.width(points - points[leader], self.log)[keep],
            clipped=self._clipped(policy, averages, release.reports),
            radii=estimate.width(points, self.log)[keep],
            reported=state.reported + release.reports,
        )
        return self._with_people(after)

    def _estimate(self, policy: PhasedPolicy, averages: Array, people: int, basis: Array) -> PhaseEstimate:
        """Return theta = V^-1 X^T diag(T) y (line 17), and how far it may be off by rewards, people and noise.

        A reward in a range of 2 B is B-sub-Gaussian (Hoeffding), so everybody's average of T(x) of them has variance
        B^2 / T(x) at most; people's parameters have sigma^2 in every direction.
        """
        points = self.actions[policy.support] @ basis.T
        gram = (points * policy.plays[:, None]).T @ points
        weights = np.linalg.solve(gram, points.T * policy.plays)
        variance, scale = policy.mechanism.spread(people)
        rewards = self.spec.reward.half_range**2 / (policy.plays * people)
        sampled = np.eye(len(basis)) * self.spec.algorithm.client_deviation**2 / people
        covariance: Array = (weights * (rewards + variance)) @ weights.T + sampled
        return PhaseEstimate(weights @ averages, np.asarray(weights, np.float64), covariance, scale)

    def _keep(
        self, _closed: int, _policy: PhasedPolicy, _people: int, points: Array, values: Array, estimate: PhaseEstimate
    ) -> NDArray[np.bool_]:
        """Actions that no leader beats by more than the exact width of the difference.

        The best action is dropped only if its own difference to some other one is off by more than its width: a union
        over actions and phases, not over pairs, so beta = 1 / (k T) serves as it does the paper.
        """
        keep = np.ones(len(values), bool)
        for leader in np.argsort(-values, kind="stable")[:_LEADERS]:
            beaten = values[leader] - values > estimate.width(points - points[leader], self.log)
            beaten[leader] = False
            keep &= ~beaten
        return keep

    def _clipped(self, policy: PhasedPolicy, averages: Array, people: int) -> float:
        """Return the share of people's averages that must have been clipped, a function of what was released alone.

        Normal people of standard deviation sigma |x|, clipped at B, are on average so much below B as a shortfall says;
        their own noise of rewards would clip more. Averages are taken to be farther from B than they seem, by their
        error.
        """
        bound = self.spec.reward.half_range
        standard_deviation = self.spec.algorithm.client_deviation * np.linalg.norm(self.actions[policy.support], axis=1)
        error = policy.mechanism.spread(people)[0] + (standard_deviation**2 + bound**2 / policy.plays) / people
        below = bound - (np.abs(averages) - _SURE * np.sqrt(error))
        place = np.interp(np.maximum(below, 0.0) / np.maximum(standard_deviation, 1e-12), _SHORTFALL, _PLACES)
        return float(np.mean(ndtr(-place)))

    @override
    def answer(self, state: PhasedState) -> Answer:
        """Return the estimates of the actions that are left, and how far the experiment is.

        Each interval misses with probability 2 beta at most (`PhaseEstimate.width`), so together they hold with the
        confidence that is stated.
        """
        over = self.over(state)
        found = self._means(state) if state.phase else ()
        best = int(np.argmax(state.estimates)) if found else None
        ending: Ending = "its rule" if len(state.active) == 1 else "its horizon"
        return Answer(
            status="failed" if state.failed else "ended" if over else "learning",
            people=None if state.asked else 0,
            rounds=state.phase,
            confidence=max(0.0, 1 - 2 * len(found) * self.spec.beta),
            recommended=None if best is None else str(state.active[best]),
            ground=None if best is None else self._ground(best, state),
            ended=ending if over and not state.failed else None,
            estimates=found,
            parts=(self._progress(state),) if found else (),
        )

    def _means(self, state: PhasedState) -> tuple[Estimate, ...]:
        bounds = (self.spec.reward.low, self.spec.reward.high)
        values = (state.estimates + self.spec.reward.middle).tolist()
        rows = zip(state.active.tolist(), values, state.radii.tolist(), strict=True)
        return tuple(Estimate.within(str(row), value, radius, bounds) for row, value, radius in rows)

    def _ground(self, best: int, state: PhasedState) -> Ground:
        """Return what it rests on that an action is the best; the only one left has no rival."""
        highest = np.delete(state.estimates + state.radii, best).max(initial=-np.inf)
        apart = bool(highest < (state.estimates - state.radii)[best])
        return "decided against all other options" if apart else "ahead, and not decided"

    def _progress(self, state: PhasedState) -> Figures:
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
    def bulk(self, first: Step) -> list[Bulk]:
        """Return all phases, each but the first with the most actions that it may play."""
        spec, made = self.spec, []
        played, later = self._largest_support
        for phase in range(1, spec.phases + 1):
            people = spec.clients(phase)
            question = self._question(played if phase == 1 else later, 0)
            mechanism = calibrate(spec.privacy, people, question, spec.fewest(people)).mechanism
            made.append(Bulk(people, mechanism.messages, mechanism.report_size))
        return made

    @override
    def figures(self, state: PhasedState) -> dict[str, float]:
        """Return the actions left, the share of averages that were clipped at least, and the widest interval."""
        widest = {"widest_interval": 2 * float(state.radii.max())} if state.phase else {}
        return {"active": len(state.active), "clipped_share": state.clipped, **widest}


def learner(spec: PhasedSpec) -> Learner:
    """Return the learner of a spec."""
    return PhasedLearner(spec)
