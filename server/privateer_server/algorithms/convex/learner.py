"""The learner on a convex set: it steps along estimated gradients, and asks about points around it (Zheng et al. 2020).

Symbols of the papers: d is the dimension, T the horizon, rho the distance of points from the centre, eta the step for
one person, mu the strong convexity, G the Lipschitz constant, R the set's reach, V the mean square of one person's
estimated gradient, L the standard deviation of one person's released reward.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.convex.policy import ConvexPolicy
from privateer_core.algorithms.convex.spec import ConvexSpec, Domain
from privateer_core.answer import Answer
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.policy_view import Point
from privateer_core.mechanisms import AnyMechanism, GroupedBit, KeyedMechanism
from privateer_core.primitives.contributions import GroupSums, KeyedSums, KeyedValues
from privateer_core.privacy.terms import Terms
from privateer_core.spec.arms import PlannedRound
from privateer_server.algorithms import Learner, NewRound, RoundsLearner, must_agree
from privateer_server.algorithms.convex.pair_distance import PairDistance
from privateer_server.algorithms.convex.regret_bound import CONFIDENCE, GradientSums

Array = NDArray[np.float64]
_HALVINGS: Final = 60


@dataclass(frozen=True)
class ConvexState:
    """The state of a convex learner: a centre, and sums of gradients."""

    # reported, learned: people who reported to this experiment, and all from whom it has learned, in the one that it
    # began with, too
    reported: int
    learned: int
    point: Array  # shape (d,): the centre of the next round
    course: GradientSums  # sums over rounds
    # public seed of the directions, the same in all rounds: people may report to a later one than they chose by
    frame: int = 0


class ConvexLearner(RoundsLearner[ConvexSpec, ConvexState, ConvexPolicy]):
    """Gradient ascent by one or two points (Flaxman et al. 2005; Agarwal et al. 2010), or Hazan and Levy's ellipsoid.

    Directions are an orthonormal frame turned at random, so each person's is uniform, as in the papers, and together
    they span the space.

    Where people report later than they chose, gradients are delayed. What is learned of one is the bound of rewards
    that it and strong convexity give, and the next centre follows the bounds of all, as it does without delays.
    """

    state_type = ConvexState
    same = ("domain", "reward", "algorithm")

    def __init__(self, spec: ConvexSpec) -> None:
        super().__init__(spec)
        self.domain, self.rule = spec.domain, spec.algorithm
        self.pairs = PairDistance.of(spec)

    @override
    def start(self, seed: int) -> ConvexState:
        """Return the state before any report: the middle of the set."""
        return ConvexState(0, 0, np.zeros(self.domain.dimension), GradientSums.none(self.domain.dimension), seed)

    @override
    def planned_round(self, state: ConvexState) -> PlannedRound:
        return PlannedRound("", state.reported, self.spec.batch(state.reported))

    @override
    def policy(self, state: ConvexState, ahead: NewRound) -> ConvexPolicy:
        """Return points around a centre; where nobody is asked everybody gets the centre."""
        spec, rule, terms = self.spec, self.rule, self.terms(ahead, self.spec.asked(ahead.seed))
        centre, axes = self._around(state, ahead, terms)
        slope, seed, apart = rule.slope, ahead.seed, spec.privacy.arm_in_key
        return ConvexPolicy(ahead.version, centre, axes, rule.points, spec.reward.span, slope, seed, apart, terms)

    def _around(self, state: ConvexState, ahead: NewRound, terms: Terms) -> tuple[Array, Array]:
        """Return the centre, and the ways from it to people's points."""
        if not ahead.batch:
            return state.point, np.zeros((self.domain.dimension, self.domain.dimension))
        frame = self._frame(state, ahead.seed)
        if self.rule.estimator == "ellipsoid":
            return state.point, self._size(terms) * frame @ self._ellipsoid(state, terms)
        rho = self._rho(state.learned, terms)
        return self.domain.projected(state.point, rho), rho * frame

    def _frame(self, state: ConvexState, _seed: int) -> Array:
        """Return the directions of a round; rows are vectors."""
        return drawn_frame(state.frame, self.domain.dimension)

    @override
    def learn(self, state: ConvexState, policy: ConvexPolicy, release: KeyedSums | GroupSums) -> ConvexState:
        gradient, people, mu = self._gradient(policy, release), release.reports, self.rule.strong_convexity
        course = state.course.with_round(people, policy.asked_at, gradient, mu)
        after = replace(state, reported=state.reported + people, learned=state.learned + people, course=course)
        if self.rule.estimator == "ellipsoid":
            return replace(after, point=self._leader(course.pull, after.learned, policy))
        step = self._step(state.learned, people, policy)
        rho = _distance(policy)
        # A late gradient stands for the one that its bound has at this centre.
        here = gradient + mu * (policy.asked_at - policy.centre)
        return replace(after, point=self.domain.projected(policy.centre + step * here, rho))

    def _gradient(self, policy: ConvexPolicy, release: KeyedSums | GroupSums) -> Array:
        """Estimate the gradient: d times the mean, over people, of score times direction, by their scale.

        A point is at axes[i] = u A from the centre with u of the frame, and A^-1 u is column i of the inverse of axes.
        A slope between two points is divided by what clipping leaves of it at their distance, whoever decided that.
        """
        if policy.points == 2:
            scale = self.rule.slope / sum(share * self.pairs.kept(_distance(one)) for one, share in policy.decided)
        else:
            scale = self.spec.reward.half_range
        means = self._means(release) * scale
        return np.asarray(np.linalg.inv(policy.measured) @ means)

    def _means(self, release: KeyedSums | GroupSums) -> Array:
        """Return the mean score along every axis, shape (axes,).

        Where the axis is in the coins, its people are counted, on both sides where sides are groups; in keys they are
        secret, and every axis has as many.
        """
        if isinstance(release, GroupSums):
            sides = (release.sums / release.gain, release.counts)
            sums, people = (values.reshape(-1, 2).sum(axis=1) for values in sides)
            return np.asarray(sums / np.maximum(people, 1))
        keys, groups = release.sums.shape
        people = np.maximum(release.counts, 1) if groups > 1 else release.counts / keys
        return np.asarray((release.sums / release.gain / people).ravel())

    def _power(self, mechanism: AnyMechanism, people: int) -> float:
        """Return the mean square of one person's released score, of all axes together; 1 or more.

        What noise there is stands in any release, even in one of nobody.
        """
        if isinstance(mechanism, GroupedBit):
            return float(np.mean(1 / mechanism.gains**2))
        keyed = cast(KeyedMechanism, mechanism)
        none = np.zeros(0, np.int64)
        nobody = KeyedValues(np.zeros(0, np.uint32), none, none, np.zeros(0))
        release = keyed.simulate(nobody, np.random.default_rng(0))
        hits = release.hit_own + (keyed.layout.keys - 1) * release.hit_other
        return (hits + release.sums.size * release.noise / people) / release.gain**2

    def _deviation(self, terms: Terms) -> float:
        """Return L, the standard deviation of what one person's reward is released as, in rewards."""
        return self.spec.reward.half_range * math.sqrt(self._power(terms.mechanism, terms.batch))

    def _square(self, mechanism: AnyMechanism, people: int) -> float:
        """Return the mean square of d times the slope that one person's score is released as, of two points."""
        return (self.domain.dimension * self.rule.slope) ** 2 * self._power(mechanism, people)

    def _rho(self, learned: int, terms: Terms) -> float:
        """Return the distance of points from the centre after so many people, at most half the set's radius."""
        if self.rule.points == 2:
            return self.pairs.after(learned, self._square(terms.mechanism, terms.batch))
        d, horizon = self.domain.dimension, self.spec.experiment.horizon
        lipschitz, mu, reach = self.rule.slope, self.rule.strong_convexity, self.domain.reach
        if mu:
            square = (d * self._deviation(terms)) ** 2
            rho = (square * math.log(max(3, horizon)) / (mu * lipschitz * horizon)) ** (1 / 3)
        else:
            rho = math.sqrt(reach * d * self._deviation(terms) / (3 * lipschitz)) * horizon**-0.25
        return float(min(rho, self.domain.radius / 2))

    def _step(self, learned: int, people: int, policy: ConvexPolicy) -> float:
        """Return how far a round of ``people`` goes along its gradient: eta, for all of them.

        Where losses are strongly convex that is 1 / (mu t), and the start counts for as many people as tell as little;
        else R / sqrt(V T).
        """
        d, mu, horizon = self.domain.dimension, self.rule.strong_convexity, self.spec.experiment.horizon
        distance, reach = _distance(policy), self.domain.reach
        if self.rule.points == 2:
            square = self._square(policy.terms.mechanism, people) / self.pairs.kept(distance) ** 2
        else:
            square = (d * self._deviation(policy.terms) / distance) ** 2
        if mu:
            return people / (mu * (learned + people) + square / (mu * reach**2))
        # The gradients of all who have chosen and not yet reported point the same way.
        ahead = 2 * policy.lag * people * self.rule.slope**2
        return people * reach / math.sqrt((square + ahead) * horizon)

    def _eta(self, learned: int, terms: Terms) -> float:
        """Return the step on the ellipsoid, with V = (d L)^2.

        Where losses are strongly convex that is Hazan and Levy's, the step at which, after t people, what the ellipsoid
        costs and what noise costs add up to the least: rho^2 = sqrt(2 V / 3) / (mu sqrt(t)). Otherwise it is Saha and
        Tewari's (`_size`).
        """
        horizon = self.spec.experiment.horizon
        square = (self.domain.dimension * self._deviation(terms)) ** 2
        if self.rule.strong_convexity:
            return math.sqrt(3 / (2 * square * max(1, learned)))
        return self._size(terms) * math.sqrt(2.0 / (square * horizon))

    def _size(self, terms: Terms) -> float:
        """Return the ellipsoid's size by that of the one that fits the set: 1 where it shrinks by itself.

        Saha and Tewari's delta is least in what the barrier, noise and smoothness beta cost together. In the middle of
        the set these are 1 / eta, eta V T / (2 delta^2) and beta (R delta)^2 T / 4.
        """
        if self.rule.strong_convexity:
            return 1.0
        horizon, bent = self.spec.experiment.horizon, self.rule.smoothness
        each = (self.domain.dimension * self._deviation(terms)) ** 2 / horizon
        cube = math.sqrt(8 * each) / (bent * self.domain.radius**2)
        return float(min(1.0, cube ** (1 / 3)))

    def _ellipsoid(self, state: ConvexState, terms: Terms) -> Array:
        """Return A = (Hessian of the barrier + eta mu t)^(-1/2) at the centre; its ellipsoid is within the set."""
        hessian = _barrier_hessian(self.domain, state.point)
        curved = self._eta(state.learned, terms) * self.rule.strong_convexity * state.learned
        values, vectors = np.linalg.eigh(hessian + curved * np.eye(len(hessian)))
        return np.asarray((vectors / np.sqrt(values)) @ vectors.T)

    def _leader(self, pull: Array, learned: int, policy: ConvexPolicy) -> Array:
        """Return the maximizer of <pull, x> - mu t |x|^2 / 2 - barrier(x) / eta.

        Where losses are not strongly convex eta is at most 1 / (k beta R^2), with k the people between a choice and its
        report: with larger steps the centre swings from side to side.
        """
        curved, weight = self.rule.strong_convexity * learned, 1 / self._eta(learned, policy.terms)
        ahead = policy.lag * policy.terms.batch
        weight = max(weight, ahead * self.rule.smoothness * self.domain.radius**2)
        if self.domain.shape == "ball":
            length = max(float(np.linalg.norm(pull)), 1e-300)
            return np.asarray(pull * (_radial(np.array([length]), curved, weight, self.domain.radius) / length))
        return np.sign(pull) * _radial(np.abs(pull), curved, weight, self.domain.radius)

    @override
    def changed(self, state: ConvexState, before: ConvexSpec) -> ConvexState:
        """Take a longer horizon: steps and distances are those for it from now on."""
        must_agree(before, self.spec, self.same)
        return state

    @override
    def answer(self, state: ConvexState) -> Answer:
        """Return how much reward the mean of all centres loses at most, and both it and the centre of the next round.

        The centre is recommended when the experiment is over, since everybody gets it then.
        """
        over, is_known = self.over(state), state.course.rounds > 1
        return self.answered(
            state,
            rounds=state.course.rounds,
            confidence=CONFIDENCE,
            recommended="centre" if over and is_known else None,
            ground="everybody gets it from now on" if over and is_known else None,
            estimates=(self._shortfall(state),) if is_known else (),
            parts=(self._centres(state),) if is_known else (),
        )

    def _shortfall(self, state: ConvexState) -> Estimate:
        value, high = state.course.shortfall(self.domain, self.rule.strong_convexity, state.learned)
        return Estimate("reward lost at the average point", value, 0.0, high)

    def _centres(self, state: ConvexState) -> Point:
        centres = state.point, state.course.centres / state.learned
        centre, average = (dict(zip(self.spec.options, one.tolist(), strict=True)) for one in centres)
        return Point(centre, average)

    @override
    def figures(self, state: ConvexState) -> dict[str, float]:
        """Return how far the centre is from the middle of the set, in its radii."""
        return {"centre_size": float(self.domain.sizes(state.point)) / self.domain.radius}


def drawn_frame(seed: int, dimension: int) -> Array:
    """Draw an orthonormal frame, uniformly; rows are its vectors."""
    q, r = np.linalg.qr(np.random.default_rng(seed).normal(size=(dimension, dimension)))
    return np.asarray((q * np.sign(np.diag(r))).T)


def _distance(policy: ConvexPolicy) -> float:
    """Return rho, the distance of a policy's points from its centre, in every direction the same."""
    return float(np.linalg.norm(policy.axes[0]))


def _barrier_hessian(domain: Domain, point: Array) -> Array:
    """Return the Hessian at a point of -log(radius^2 - |x|^2), or of the sum of that over a box's coordinates."""
    if domain.shape == "box":
        left = domain.radius**2 - point**2
        return np.asarray(np.diag(2 / left + 4 * point**2 / left**2))
    inside = domain.radius**2 - float(point @ point)
    return np.asarray(2 / inside * np.eye(len(point)) + 4 / inside**2 * np.outer(point, point))


def _radial(pulls: Array, curved: float, weight: float, radius: float) -> Array:
    """Solve pull = curved r + weight 2 r / (radius^2 - r^2) for r in [0, radius), by halving; shape of ``pulls``."""
    low, high = np.zeros_like(pulls), np.full_like(pulls, radius * (1 - 1e-9))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        short = curved * middle + weight * 2 * middle / (radius**2 - middle**2) < pulls
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return low


def learner(spec: ConvexSpec) -> Learner:
    """Return the learner of a spec."""
    return ConvexLearner(spec)
