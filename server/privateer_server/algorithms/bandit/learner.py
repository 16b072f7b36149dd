"""The learner of bandits without context (Zheng et al. 2020): rounds in which each arm has a share of the people."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.bandit import BanditPolicy, BanditSpec, layout
from privateer_core.answer import Answer
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.measured_rate import MeasuredRate
from privateer_core.answer.parts import Ground
from privateer_core.primitives.contributions import CellHits, GroupSums, KeyedSums
from privateer_core.primitives.public_coins import UNIT
from privateer_server.algorithms import Learner, NewRound, RoundsLearner
from privateer_server.algorithms.bandit.posterior import PER_REWARD, ArmPosterior, proxy
from privateer_server.algorithms.bandit.sampling_rules import (
    fitted_thompson,
    kl_ucb,
    tells_apart,
    thompson,
    track,
    tsallis,
)
from privateer_server.algorithms.bandit.success_counts import SuccessCounts

Array = NDArray[np.float64]
_DRAWS: Final = 64
"""Draws of a batch's Thompson sampling: an arm has at least so small a share of a round, or none. A curator's noise is
the same for every share, so that a smaller one would tell nothing."""
_DRAWS_HIDDEN: Final = 16
"""Where reports hide the arm, what they say of a small share grows with its square."""
_HEAVY: Final = 2.0
"""Variance proxy of Laplace noise by its variance: bounds its moments as far as they matter."""


@dataclass(frozen=True)
class BanditState:
    """The state of a bandit's learner."""

    # rounds, reported: rounds that were learned from, and people who reported
    rounds: int
    reported: int
    posterior: ArmPosterior  # of the arms' mean rewards
    stopped: bool = False  # whether the best arm is known


class BanditLearner(RoundsLearner[BanditSpec, BanditState, BanditPolicy]):
    """Rounds of whose people a share plays each arm."""

    state_type = BanditState
    same = ("algorithm", "experiment.arms", "experiment.retired", "reward")

    def __init__(self, spec: BanditSpec) -> None:
        super().__init__(spec)
        self.playable = np.array(spec.playable)
        self.finds_best = spec.algorithm.objective == "best-arm"

    @override
    def start(self, seed: int) -> BanditState:
        return BanditState(0, 0, ArmPosterior.none(self.spec.arm_count))

    @override
    def stopped(self, state: BanditState) -> bool:
        return state.stopped

    @override
    def policy(self, state: BanditState, ahead: NewRound) -> BanditPolicy:
        """Return shares of arms; where nobody is asked everybody gets the arm of the highest estimate."""
        asks = ahead.batch > 0
        shares = self.shares(state, ahead) if asks else np.eye(self.spec.arm_count)[self.leader(state)]
        choice = layout(ahead.seed, shares)
        own = choice if self.spec.privacy.arm_in_key or not asks else None
        return BanditPolicy(ahead.version, self.terms(ahead, self.spec.asked(choice)), own)

    def leader(self, state: BanditState) -> int:
        """Return the arm of the highest estimate: where the best one is to be guaranteed, of that which is bounded."""
        means = state.posterior.bounded if self.finds_best else state.posterior.means
        return int(np.argmax(np.where(self.playable, means, -np.inf)))

    def shares(self, state: BanditState, ahead: NewRound) -> Array:
        """Return the share of a round's people who play each arm; alike before anything is known of one."""
        posterior = state.posterior
        if not posterior.precision[self.playable].all():
            return np.asarray(self.playable / self.playable.sum())
        if self.finds_best:
            return track(posterior, self.playable, self.leader(state), ahead.batch)
        if self.spec.algorithm.host == "kl-ucb":
            return kl_ucb(posterior, self.playable, state.reported, ahead.batch)
        if self.spec.algorithm.host == "tsallis-inf":
            return self._tsallis(state, ahead.batch)
        draws = _DRAWS_HIDDEN if self.spec.privacy.arm_in_key else _DRAWS
        horizon = self.spec.experiment.horizon
        left = horizon - state.reported
        if tells_apart(posterior, self.playable, horizon):
            return fitted_thompson(posterior, self.playable, draws, left, ahead.seed)
        return thompson(posterior, self.playable, draws, left, ahead.seed)

    def _tsallis(self, state: BanditState, batch: int) -> Array:
        """Return Tsallis-INF's shares, at the learning rate 2 / (c sqrt(t)) for losses as faint as their reports."""
        posterior, people = state.posterior, state.reported + batch
        faint = math.sqrt(PER_REWARD * posterior.people.sum() / posterior.precision.sum())
        hidden = self.spec.privacy.arm_in_key
        least = 1 / (self.playable.sum() * people ** (1 / 3)) if hidden else 1 / UNIT
        return tsallis(posterior.losses, self.playable, 2 / (faint * math.sqrt(people)), least)

    @override
    def learn(self, state: BanditState, policy: BanditPolicy, release: KeyedSums | GroupSums | CellHits) -> BanditState:
        shares = policy.played
        people, sums, asked, hits = _of_keys(policy, release) if policy.fresh_coins else _of_groups(release)
        scores = release.gain * np.maximum(people, 1.0)
        proxies = asked * np.array([proxy(math.ceil(1000 * hit) / 1000) for hit in hits.tolist()])
        precision = np.where(
            people > 0, PER_REWARD * scores**2 / np.maximum(proxies + _noise_proxy(policy, release), 1.0), 0.0
        )
        losses = -sums / (2 * release.gain * np.maximum(shares, 1 / UNIT))
        counts = _counts(policy, release, people, sums, asked, hits)
        if policy.fresh_coins:
            counts = counts.weighted(state.posterior.counts.level[0])
        posterior = state.posterior.updated(people, precision, (1 + sums / scores) / 2, losses, counts)
        return self._after(state, posterior, release.reports)

    def _after(self, state: BanditState, posterior: ArmPosterior, reports: int) -> BanditState:
        stopped = self.finds_best and self.sure(posterior)
        return replace(
            state, rounds=state.rounds + 1, reported=state.reported + reports, posterior=posterior, stopped=stopped
        )

    def sure(self, posterior: ArmPosterior) -> bool:
        """Whether the best arm is known but for the failure that the spec allows."""
        return bool((posterior.lead(self.playable, self.spec.algorithm.failure)[1] > 0).all())

    @override
    def rearmed(self, state: BanditState, before: BanditSpec) -> BanditState:
        """Return the state with other arms where regret counts; else what is known is about all of them together."""
        if self.finds_best or self.spec.algorithm.host == "tsallis-inf":
            return super().rearmed(state, before)
        return replace(state, posterior=state.posterior.with_arms(self.spec.arm_count - before.arm_count))

    @override
    def anew(self, state: BanditState) -> BanditState:
        return replace(state, rounds=0, reported=0)

    @override
    def answer(self, state: BanditState) -> Answer:
        """Return every arm's mean reward with an interval that holds at all times, and the best one once it is known.

        Where regret counts the leader is recommended when the experiment is over.
        """
        over = self.over(state)
        best = self.leader(state) if state.reported and (state.stopped or (over and not self.finds_best)) else None
        return self.answered(
            state,
            rounds=state.rounds,
            confidence=1 - self.spec.algorithm.failure,
            recommended=None if best is None else self.spec.options[best],
            ground=None if best is None else self._ground(best, state),
            estimates=self._estimates(state) if state.posterior.people.any() else (),
        )

    def _estimates(self, state: BanditState) -> tuple[Estimate, ...]:
        low, width, posterior = self.spec.reward.low, 2 * self.spec.reward.half_range, state.posterior
        means, radii = low + width * posterior.bounded, width * posterior.radii(self.spec.algorithm.failure)
        rows = zip(self.spec.options, means.tolist(), radii.tolist(), posterior.people.tolist(), strict=True)
        bounds = (low, self.spec.reward.high)
        within = (Estimate.within(name, mean, radius, bounds, round(people, 1)) for name, mean, radius, people in rows)
        return tuple(map(_centred, within, (low + width * posterior.means).tolist()))

    def _ground(self, best: int, state: BanditState) -> Ground:
        """Return what it rests on that an arm is best; intervals hold together, so one above all others is decided."""
        means, radii = state.posterior.bounded, state.posterior.radii(self.spec.algorithm.failure)
        others = self.playable & (np.arange(len(means)) != best)
        above = bool((means - radii)[best] > (means + radii)[others].max(initial=-np.inf))
        return "decided against all other options" if state.stopped or above else "ahead, and not decided"

    @override
    def measured_rate(self, state: BanditState) -> MeasuredRate | None:
        level, deviation = state.posterior.counts.level
        return MeasuredRate.normal(level, deviation) if math.isfinite(deviation) else None

    @override
    def figures(self, state: BanditState) -> dict[str, float]:
        """Return the people who reported, and whether the best arm is known."""
        return {"samples": state.reported, "stopped": float(state.stopped)}


def _centred(bounded: Estimate, mean: float) -> Estimate:
    """Return an interval with an estimate that varies less than its middle."""
    return msgspec.structs.replace(bounded, value=min(max(mean, bounded.low), bounded.high))


def _of_groups(release: Any) -> tuple[Array, ...]:
    """Return people, sums, reports asked and the probability of a score in them, of each arm that coins chose."""
    people = release.counts[0].astype(np.float64)
    return people, release.sums[0], people, np.ones(len(people))


def _of_keys(policy: BanditPolicy, release: Any) -> tuple[Array, ...]:
    """Return the same where the arm is the key: everybody was asked about every arm, and most had nothing to say."""
    shares = policy.played
    played = shares[policy.cells] > 0
    people, sums = np.zeros((2, len(shares)))
    people[policy.cells[played]] = shares[policy.cells[played]] * release.reports
    sums[policy.cells[played]] = release.sums[played, 0]
    hits = shares * release.hit_own + (1 - shares) * release.hit_other
    return people, sums, np.full(len(shares), float(release.reports)), hits


def _noise_proxy(policy: BanditPolicy, release: KeyedSums | GroupSums | CellHits) -> float:
    """Return the variance proxy of a curator's noise in a sum of scores; Laplace noise has heavier tails."""
    if isinstance(release, CellHits):
        return _HEAVY * 2 * release.noise
    return release.noise if policy.terms.delta else _HEAVY * release.noise


def _counts(
    policy: BanditPolicy,
    release: KeyedSums | GroupSums | CellHits,
    people: Array,
    sums: Array,
    asked: Array,
    hits: Array,
) -> SuccessCounts:
    """Return the successes and trials that a release tells: it counts how many had each arm, or has scores alone."""
    if not isinstance(release, CellHits):
        return SuccessCounts.of_scores(people, sums, asked, hits, release)
    positive, named = np.zeros((2, len(policy.played)))
    positive[policy.cells], named[policy.cells] = release.positive[:, 0], release.hits[:, 0]
    return SuccessCounts.of_hits(people, positive, named, release)


def learner(spec: BanditSpec) -> Learner:
    """Return the learner that a spec names."""
    return BanditLearner(spec)
