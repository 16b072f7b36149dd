"""Distributed phased elimination (paper 5, DP-DPE): designs, estimates, widths, and the actions that are left."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from privateer.algorithms.phased import PhasedPolicy
from privateer.contributions import VectorSums
from privateer.design import near_optimal_design, span_of
from privateer.mechanisms.vector_terms import VectorTerms, calibrate_vectors
from privateer.phased import PhasedSpec

Array = NDArray[np.float64]
_GAP: Final = {"tight": 1.5, "published": 2.0}
"""Worst leverage of a design by the rank; the paper's 2 has fewer actions, and 1.5 a twentieth less regret."""
_LEADERS: Final = 16
"""Actions of the highest estimates, against each of which every action is compared."""
_SURE: Final = 2.0
"""Deviations by which an average must be near the bound to count for clipped."""
_PLACES: Final = np.linspace(-8.0, 8.0, 1601)
_SHORTFALL: Final = np.exp(-(_PLACES**2) / 2) / math.sqrt(2 * math.pi) + _PLACES * ndtr(_PLACES)
"""Mean of (z - Z)_+ for a standard normal Z, at `_PLACES`: rising."""


@dataclass(frozen=True)
class PhasedState:
    """What the server knows of the actions.

    Attributes
    ----------
    phase, played
        Phases that were learned from, and rounds played in them.
    asked
        People asked so far, in repeated phases too.
    active
        Shape (a,), int64: rows of the actions that may still be the best.
    estimates, widths
        Shape (a,): estimated rewards less the middle of their range, and how far an action's difference to the leader
        may be off; infinite before the first phase.
    clipped
        At least this share of people's averages was clipped in the last phase, by what was released.
    failed
        Whether a phase came to no end, so that the best action so far is played.
    """

    phase: int
    played: int
    asked: int
    active: NDArray[np.int64]
    estimates: Array
    widths: Array
    clipped: float
    failed: bool = False


@dataclass(frozen=True)
class Estimate:
    """Least squares on one phase's released averages, in coordinates of the span of the active actions.

    Attributes
    ----------
    theta
        Shape (rank,).
    weights
        Shape (rank, s): what multiplies the averages in ``theta``.
    covariance
        Shape (rank, rank): sub-Gaussian variance of ``theta``.
    scale
        Of the error beyond sub-Gaussian, see `VectorTerms.spread`.
    """

    theta: Array
    weights: Array
    covariance: Array
    scale: float

    def width(self, differences: Array, log: float) -> Array:
        """What each of ``differences`` (n, rank) is off by at most, with chance 1 - e^-log each; shape (n,)."""
        variance = ((differences @ self.covariance) * differences).sum(axis=1)
        linear = self.scale * np.linalg.norm(differences @ self.weights, axis=1) if self.scale else 0.0
        return np.asarray(np.sqrt(2 * log * np.maximum(variance, 0.0)) + linear * log)


class PhasedLearner:
    """Algorithm 1, with phases drawn without replacement and exact widths (docs/phased.md has the departures).

    ``tight`` compares pairs of actions by the exact width of their difference; ``published`` all of them by eq. (3).
    """

    state_type = PhasedState

    def __init__(self, spec: PhasedSpec) -> None:
        self.spec = spec
        self.actions = spec.actions.matrix
        self.published = spec.privacy.calibration == "published"
        self.log = math.log(1 / spec.beta)

    def start(self) -> PhasedState:
        """All actions."""
        every = len(self.actions)
        return PhasedState(0, 0, 0, np.arange(every), np.zeros(every), np.full(every, np.inf), 0.0)

    def batch(self, state: PhasedState) -> int:
        """People from whom the next phase learns; 0 if nothing is left to learn."""
        done = state.failed or len(state.active) == 1 or state.phase >= self.spec.phases
        return 0 if done else self.spec.clients(state.phase + 1)

    def repeat(self, state: PhasedState, policy: PhasedPolicy) -> PhasedState:
        """The state after a phase of which too few reports opened: the same phase asks the next people of the order."""
        return self._with_people(replace(state, asked=state.asked + policy.places))

    def _with_people(self, state: PhasedState) -> PhasedState:
        """``state``, failed if the population has too few people left, since repeated phases used them up."""
        needed = self.spec.asked(self.batch(state))
        if state.asked + needed <= self.spec.experiment.people:
            return state
        no_room = self.rounds(state) > self.spec.experiment.horizon - state.played
        return state if no_room else self.fail(state)

    def rounds(self, state: PhasedState) -> int:
        """What the next phase plays in all, if the horizon has room: plays are whole, so more than its length."""
        return int(self._design(state)[1].sum())

    def policy(self, state: PhasedState, version: int, batch: int, seed: int) -> PhasedPolicy:
        """The next phase, which learns from ``batch`` people; ``seed`` is public and the same for all phases.

        A phase that the horizon has no room for asks nobody (``batch`` 0), nor does the last one: the best action is
        played to the end, or, as published, as much of the phase as fits.
        """
        left = self.spec.experiment.horizon - state.played
        support, plays = self._design(state)
        if batch == 0 or plays.sum() > left:
            support, plays = self._ending(state, support, plays, left)
            terms = VectorTerms.nobody(self.spec.privacy, len(support), self.spec.half_range)
        else:
            least = self.spec.least(batch)
            terms = calibrate_vectors(self.spec.privacy, batch, len(support), self.spec.half_range, seed, least)
        places = self.spec.asked(terms.batch)
        return PhasedPolicy(version, state.active, support, plays, seed, state.asked, self.spec.middle, terms, places)

    def fail(self, state: PhasedState) -> PhasedState:
        """The state after a phase to which too few people came in time, or for which nobody is left to ask."""
        return replace(state, failed=True)

    def _design(self, state: PhasedState) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Actions to play and how often: T(x) = ceil(h pi(x))."""
        design = near_optimal_design(self.actions[state.active], _GAP[self.spec.privacy.calibration])
        length = self.spec.first_length * 2.0**state.phase
        return state.active[design.support], np.ceil(length * design.weights).astype(np.int64)

    def _ending(
        self, state: PhasedState, support: NDArray[np.int64], plays: NDArray[np.int64], left: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if not self.published or len(state.active) == 1:
            return state.active[[int(np.argmax(state.estimates))]], np.array([left])
        cut = np.diff(np.cumsum(plays) * left // plays.sum(), prepend=0)
        return support[cut > 0], cut[cut > 0]

    def learn(self, state: PhasedState, policy: PhasedPolicy, release: VectorSums) -> PhasedState:
        """Estimate, and drop the actions that another one beats by more than the width.

        The release may be of fewer people than were asked: averages and widths are of those who reported.
        """
        averages = release.sums / release.reports
        basis = span_of(self.actions[state.active])
        estimate = self._estimate(policy, averages, release.reports, basis)
        points = self.actions[state.active] @ basis.T
        values = points @ estimate.theta
        keep = (
            self._keep_published(state.phase, policy, release.reports, values)
            if self.published
            else self._keep(points, values, estimate)
        )
        leader = int(np.argmax(values))
        after = replace(
            state,
            phase=state.phase + 1,
            played=state.played + policy.rounds,
            asked=state.asked + policy.places,
            active=state.active[keep],
            estimates=values[keep],
            widths=estimate.width(points - points[leader], self.log)[keep],
            clipped=self._clipped(policy, averages, release.reports),
        )
        return self._with_people(after)

    def _estimate(self, policy: PhasedPolicy, averages: Array, people: int, basis: Array) -> Estimate:
        """Theta = V^-1 X^T diag(T) y (line 17), and how far it may be off: rewards, people, and what protects them.

        A reward in a range of 2 B is B-sub-Gaussian (Hoeffding), so everybody's average of T(x) of them has variance
        B^2 / T(x) at most; people's parameters have sigma^2 in every direction.
        """
        points = self.actions[policy.support] @ basis.T
        gram = (points * policy.plays[:, None]).T @ points
        weights = np.linalg.solve(gram, points.T * policy.plays)
        variance, scale = policy.terms.spread(people)
        rewards = self.spec.half_range**2 / (policy.plays * people)
        sampled = np.eye(len(basis)) * self.spec.algorithm.client_deviation**2 / people
        covariance: Array = (weights * (rewards + variance)) @ weights.T + sampled
        return Estimate(weights @ averages, np.asarray(weights, np.float64), covariance, scale)

    def _keep(self, points: Array, values: Array, estimate: Estimate) -> NDArray[np.bool_]:
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

    def _keep_published(self, closed: int, policy: PhasedPolicy, people: int, values: Array) -> NDArray[np.bool_]:
        """Line 18 with W of eq. (3), sigma_n = 2 sigma_noise sqrt(d) as its proofs have it (not by sqrt |V|)."""
        dimension = self.actions.shape[1]
        length = self.spec.first_length * 2.0**closed
        rewards = self.spec.half_range * math.sqrt(2 * dimension / (people * length))
        sampled = self.spec.algorithm.client_deviation / math.sqrt(people)
        noise = 2 * math.sqrt(policy.terms.spread(people)[0] * dimension)
        width = (rewards + sampled + noise) * math.sqrt(2 * self.log)
        return np.asarray(np.max(values) - values <= 2 * width)

    def _clipped(self, policy: PhasedPolicy, averages: Array, people: int) -> float:
        """Share of people's averages that must have been clipped, a function of what was released alone.

        Normal people of deviation sigma |x|, clipped at B, are on average so much below B as a shortfall says; their
        own noise of rewards would clip more. Averages are taken to be farther from B than they seem, by their error.
        """
        bound = self.spec.half_range
        standard_deviation = self.spec.algorithm.client_deviation * np.linalg.norm(self.actions[policy.support], axis=1)
        error = policy.terms.spread(people)[0] + (standard_deviation**2 + bound**2 / policy.plays) / people
        below = bound - (np.abs(averages) - _SURE * np.sqrt(error))
        place = np.interp(np.maximum(below, 0.0) / np.maximum(standard_deviation, 1e-12), _SHORTFALL, _PLACES)
        return float(np.mean(ndtr(-place)))

    def describe(self, state: PhasedState) -> dict[str, Any]:
        """The state for people: actions left with estimates and widths, and how far the experiment is."""
        rows = [
            {"action": int(row), "estimate": round(float(value) + self.spec.middle, 6), "width": _rounded(width)}
            for row, value, width in zip(state.active, state.estimates, state.widths, strict=True)
        ]
        return {
            "phase": state.phase,
            "phases": self.spec.phases,
            "played": state.played,
            "asked": state.asked,
            "clipped_share": round(state.clipped, 4),
            "failed": state.failed,
            "active": rows,
        }


def _rounded(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None
