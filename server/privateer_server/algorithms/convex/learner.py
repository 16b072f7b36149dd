"""The learner on a convex set: gradient ascent with estimated gradients at points around a centre (Zheng et al. 2020).

Symbols of the papers: d is the dimension, T the horizon, rho the distance of points from the centre, eta the step for
one person, mu the strong convexity, G the Lipschitz constant, R the set's reach, V the mean square of one person's
estimated gradient, L the standard deviation of one person's released reward.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
from typing_extensions import override

from privateer_core.algorithms.convex.policy import ConvexPolicy
from privateer_core.algorithms.convex.spec import ConvexSpec, Domain
from privateer_core.answer import Answer
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.policy_view import Point
from privateer_core.arrays import Array
from privateer_core.mechanisms import AnyMechanism, GroupedBit, KeyedMechanism
from privateer_core.primitives.contributions import GroupSums, KeyedSums, KeyedValues
from privateer_core.privacy.terms import Terms
from privateer_core.spec.arms import PlannedRound
from privateer_server.algorithms import NewRound, RoundsLearner, require_equal
from privateer_server.algorithms.convex.pair_distance import CONFIDENCE, GradientSums, PairDistance

_N_BISECTIONS: Final = 60


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
    inherited_fields = ("domain", "reward", "algorithm")

    def __init__(self, spec: ConvexSpec) -> None:
        super().__init__(spec)
        self.domain, self.rule = spec.domain, spec.algorithm
        self.pairs = PairDistance.from_spec(spec)

    @override
    def start(self, seed: int) -> ConvexState:
        """Return the state before any report: the middle of the set."""
        return ConvexState(0, 0, np.zeros(self.domain.dimension), GradientSums.empty(self.domain.dimension), seed)

    @override
    def planned_round(self, state: ConvexState) -> PlannedRound:
        return PlannedRound("", state.reported, self.spec.batch_size(state.reported))

    @override
    def policy(self, state: ConvexState, next_round: NewRound) -> ConvexPolicy:
        """Return the points around a centre, or the centre alone if the round has no reports."""
        spec, rule, seed = self.spec, self.rule, next_round.seed
        terms = self.calibrate_terms(next_round, spec.make_question(seed))
        centre, axes = self._place_points(state, next_round, terms)
        span, in_key = spec.reward.span, spec.privacy.has_arm_in_key
        return ConvexPolicy(next_round.version, centre, axes, rule.points, span, rule.slope, seed, in_key, terms)

    def _place_points(self, state: ConvexState, next_round: NewRound, terms: Terms) -> tuple[Array, Array]:
        """Return the centre, and the offsets of participants' points from it."""
        if not next_round.batch_size:
            return state.point, np.zeros((self.domain.dimension, self.domain.dimension))
        frame = self._draw_frame(state, next_round.seed)
        if self.rule.has_ellipsoid:
            return state.point, self._ellipsoid_scale(terms) * frame @ self._ellipsoid(state, terms)
        rho = self._point_distance(state.learned, terms)
        return self.domain.project(state.point, rho), rho * frame

    def _draw_frame(self, state: ConvexState, _seed: int) -> Array:
        """Return the directions of a round; rows are vectors."""
        return draw_frame(state.frame, self.domain.dimension)

    @override
    def learn(self, state: ConvexState, policy: ConvexPolicy, release: KeyedSums | GroupSums) -> ConvexState:
        gradient, n_reports = self._estimate_gradient(policy, release), release.reports
        mu = self.rule.strong_convexity
        sums = state.course.with_round(n_reports, policy.gradient_point, gradient, mu)
        new_state = replace(state, reported=state.reported + n_reports, learned=state.learned + n_reports, course=sums)
        if self.rule.has_ellipsoid:
            return replace(new_state, point=self._find_regularized_leader(sums.pull, new_state.learned, policy))
        step = self._compute_step(state.learned, n_reports, policy)
        rho = _distance(policy)
        # A late gradient stands for the one that its bound has at this centre.
        gradient_at_centre = gradient + mu * (policy.gradient_point - policy.centre)
        return replace(new_state, point=self.domain.project(policy.centre + step * gradient_at_centre, rho))

    def _estimate_gradient(self, policy: ConvexPolicy, release: KeyedSums | GroupSums) -> Array:
        """Estimate the gradient: d times the mean, over participants, of score times direction, rescaled.

        A point is at axes[i] = u A from the centre with u of the frame, and A^-1 u is column i of the inverse of axes.
        A slope between two points is divided by what clipping leaves of it at their distance, whoever decided that.
        """
        scale = self.spec.reward.half_range
        if policy.points == 2:
            deciders = policy.weighted_deciders
            scale = self.rule.slope / sum(share * self.pairs.attenuation(_distance(each)) for each, share in deciders)
        return np.asarray(np.linalg.inv(policy.gradient_axes) @ (scale * self._mean_scores_by_axis(release)))

    def _mean_scores_by_axis(self, release: KeyedSums | GroupSums) -> Array:
        """Return the mean score along every axis, shape (axes,).

        Where the axis is in the coins, its people are counted, on both sides where sides are groups; in keys they are
        secret, and every axis has as many.
        """
        if isinstance(release, GroupSums):
            columns = (release.sums / release.gain, release.counts)
            sums, people = (values.reshape(-1, 2).sum(axis=1) for values in columns)
            return np.asarray(sums / np.maximum(people, 1))
        keys, groups = release.sums.shape
        people = np.maximum(release.counts, 1) if groups > 1 else release.counts / keys
        return np.asarray((release.sums / release.gain / people).ravel())

    def _mean_square_score(self, mechanism: AnyMechanism, n_reports: int) -> float:
        """Return the mean square of one participant's released score, of all axes together; 1 or more.

        The variance of noise is in any release, even in one of no reports.
        """
        if isinstance(mechanism, GroupedBit):
            return float(np.mean(1 / mechanism.gains**2))
        keyed_mechanism = cast(KeyedMechanism, mechanism)
        no_keys = np.zeros(0, np.int64)
        no_reports = KeyedValues(np.zeros(0, np.uint32), no_keys, no_keys, np.zeros(0))
        release = keyed_mechanism.simulate(no_reports, np.random.default_rng(0))
        expected_hits = release.hit_own + (keyed_mechanism.layout.keys - 1) * release.hit_other
        return (expected_hits + release.sums.size * release.noise / n_reports) / release.gain**2

    def _score_deviation(self, terms: Terms) -> float:
        """Return L, the standard deviation of one participant's released reward, in rewards."""
        return self.spec.reward.half_range * math.sqrt(self._mean_square_score(terms.mechanism, terms.batch_size))

    def _mean_square_slope(self, mechanism: AnyMechanism, n_reports: int) -> float:
        """Return the mean square of d times one participant's released slope between two points."""
        return (self.domain.dimension * self.rule.slope) ** 2 * self._mean_square_score(mechanism, n_reports)

    def _point_distance(self, learned: int, terms: Terms) -> float:
        """Return rho, the distance of points from the centre, at most half the set's radius."""
        if self.rule.points == 2:
            return self.pairs.distance_after(learned, self._mean_square_slope(terms.mechanism, terms.batch_size))
        d, horizon = self.domain.dimension, self.spec.experiment.horizon
        lipschitz, mu, max_norm = self.rule.slope, self.rule.strong_convexity, self.domain.max_norm
        if mu:
            mean_square = (d * self._score_deviation(terms)) ** 2
            rho = (mean_square * math.log(max(3, horizon)) / (mu * lipschitz * horizon)) ** (1 / 3)
        else:
            rho = math.sqrt(max_norm * d * self._score_deviation(terms) / (3 * lipschitz)) * horizon**-0.25
        return float(min(rho, self.domain.radius / 2))

    def _compute_step(self, learned: int, n_reports: int, policy: ConvexPolicy) -> float:
        """Return the step of a round along its gradient: eta, summed over its participants.

        Where losses are strongly convex that is 1 / (mu t), and the start counts for as many people as tell as little;
        else R / sqrt(V T).
        """
        d, mu, horizon = self.domain.dimension, self.rule.strong_convexity, self.spec.experiment.horizon
        distance, max_norm = _distance(policy), self.domain.max_norm
        if self.rule.points == 2:
            square = self._mean_square_slope(policy.terms.mechanism, n_reports) / self.pairs.attenuation(distance) ** 2
        else:
            square = (d * self._score_deviation(policy.terms) / distance) ** 2
        if mu:
            return n_reports / (mu * (learned + n_reports) + square / (mu * max_norm**2))
        # The gradients of all who have chosen and not yet reported point the same way.
        delay_term = 2 * policy.mean_age * n_reports * self.rule.slope**2
        return n_reports * max_norm / math.sqrt((square + delay_term) * horizon)

    def _ellipsoid_step(self, learned: int, terms: Terms) -> float:
        """Return eta, the step on the ellipsoid, with V = (d L)^2.

        Where losses are strongly convex that is Hazan and Levy's, the step at which, after t people, what the ellipsoid
        costs and what noise costs add up to the least: rho^2 = sqrt(2 V / 3) / (mu sqrt(t)). Otherwise it is Saha and
        Tewari's (`_ellipsoid_scale`).
        """
        horizon = self.spec.experiment.horizon
        mean_square = (self.domain.dimension * self._score_deviation(terms)) ** 2
        if self.rule.strong_convexity:
            return math.sqrt(3 / (2 * mean_square * max(1, learned)))
        return self._ellipsoid_scale(terms) * math.sqrt(2.0 / (mean_square * horizon))

    def _ellipsoid_scale(self, terms: Terms) -> float:
        """Return the ellipsoid's size relative to the Dikin ellipsoid: 1 if losses are strongly convex.

        Saha and Tewari's delta is least in what the barrier, noise and smoothness beta cost together. In the middle of
        the set these are 1 / eta, eta V T / (2 delta^2) and beta (R delta)^2 T / 4.
        """
        if self.rule.strong_convexity:
            return 1.0
        horizon, smoothness = self.spec.experiment.horizon, self.rule.smoothness
        variance_per_participant = (self.domain.dimension * self._score_deviation(terms)) ** 2 / horizon
        cubed_scale = math.sqrt(8 * variance_per_participant) / (smoothness * self.domain.radius**2)
        return float(min(1.0, cubed_scale ** (1 / 3)))

    def _ellipsoid(self, state: ConvexState, terms: Terms) -> Array:
        """Return A = (Hessian of the barrier + eta mu t)^(-1/2) at the centre; its ellipsoid is within the set."""
        hessian = _barrier_hessian(self.domain, state.point)
        curvature = self._ellipsoid_step(state.learned, terms) * self.rule.strong_convexity * state.learned
        values, vectors = np.linalg.eigh(hessian + curvature * np.eye(len(hessian)))
        return np.asarray((vectors / np.sqrt(values)) @ vectors.T)

    def _find_regularized_leader(self, pull: Array, learned: int, policy: ConvexPolicy) -> Array:
        """Return the maximizer of <pull, x> - mu t |x|^2 / 2 - barrier(x) / eta.

        Where losses are not strongly convex eta is at most 1 / (k beta R^2), with k the people between a choice and its
        report: with larger steps the centre swings from side to side.
        """
        curvature, weight = self.rule.strong_convexity * learned, 1 / self._ellipsoid_step(learned, policy.terms)
        n_delayed = policy.mean_age * policy.terms.batch_size
        weight = max(weight, n_delayed * self.rule.smoothness * self.domain.radius**2)
        if self.domain.shape == "ball":
            norm = max(float(np.linalg.norm(pull)), 1e-300)
            return np.asarray(pull * (_solve_radius(np.array([norm]), curvature, weight, self.domain.radius) / norm))
        return np.sign(pull) * _solve_radius(np.abs(pull), curvature, weight, self.domain.radius)

    @override
    def apply_spec_change(self, state: ConvexState, old_spec: ConvexSpec) -> ConvexState:
        """Return the state for a longer horizon, by which later steps and distances are computed."""
        require_equal(old_spec, self.spec, self.inherited_fields)
        return state

    @override
    def answer(self, state: ConvexState) -> Answer:
        """Return an upper bound on the reward lost at the mean of all centres, that mean, and the next centre.

        The centre is recommended when the experiment is over, since everybody gets it then.
        """
        is_over, has_rounds = self.is_over(state), state.course.rounds > 1
        return self.build_answer(
            state,
            rounds=state.course.rounds,
            confidence=CONFIDENCE,
            recommended="centre" if is_over and has_rounds else None,
            basis="everybody gets it from now on" if is_over and has_rounds else None,
            estimates=(self._build_shortfall(state),) if has_rounds else (),
            parts=(self._build_point(state),) if has_rounds else (),
        )

    def _build_shortfall(self, state: ConvexState) -> Estimate:
        value, high = state.course.estimate_shortfall(self.domain, self.rule.strong_convexity, state.learned)
        return Estimate("reward lost at the average point", value, 0.0, high)

    def _build_point(self, state: ConvexState) -> Point:
        centres = state.point, state.course.centres / state.learned
        centre, average = (dict(zip(self.spec.options, point.tolist(), strict=True)) for point in centres)
        return Point(centre, average)

    @override
    def figures(self, state: ConvexState) -> dict[str, float]:
        """Return the distance of the centre from the middle of the set, relative to its radius."""
        return {"centre_size": float(self.domain.gauge(state.point)) / self.domain.radius}


def draw_frame(seed: int, dimension: int) -> Array:
    """Draw a uniformly random orthonormal frame; rows are its vectors."""
    q, r = np.linalg.qr(np.random.default_rng(seed).normal(size=(dimension, dimension)))
    return np.asarray((q * np.sign(np.diag(r))).T)


def _distance(policy: ConvexPolicy) -> float:
    """Return rho, the distance of a policy's points from its centre."""
    return float(np.linalg.norm(policy.axes[0]))


def _barrier_hessian(domain: Domain, point: Array) -> Array:
    """Return the Hessian of the barrier -log(radius^2 - |x|^2), or of its sum over a box's coordinates."""
    if domain.shape == "box":
        gaps = domain.radius**2 - point**2
        return np.asarray(np.diag(2 / gaps + 4 * point**2 / gaps**2))
    gap = domain.radius**2 - float(point @ point)
    return np.asarray(2 / gap * np.eye(len(point)) + 4 / gap**2 * np.outer(point, point))


def _solve_radius(pulls: Array, curvature: float, weight: float, radius: float) -> Array:
    """Solve pull = curved r + weight 2 r / (radius^2 - r^2) for r in [0, radius), by halving; shape of ``pulls``."""
    low, high = np.zeros_like(pulls), np.full_like(pulls, radius * (1 - 1e-9))
    for _ in range(_N_BISECTIONS):
        middle = (low + high) / 2
        is_below = curvature * middle + weight * 2 * middle / (radius**2 - middle**2) < pulls
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return low


learner = ConvexLearner
