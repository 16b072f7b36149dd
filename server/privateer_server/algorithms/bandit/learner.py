"""The learner of bandits without context (Zheng et al. 2020): rounds in which each arm has a share of the people."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.algorithms.bandit import BanditPolicy, BanditSpec, make_arm_layout
from privateer_core.answer import Answer
from privateer_core.answer.estimates import Estimate, MeasuredRate
from privateer_core.answer.facts import Table
from privateer_core.answer.parts import Basis
from privateer_core.arrays import Array, Bools
from privateer_core.primitives.contributions import CellHits, GroupSums, KeyedSums, TieredSums
from privateer_core.primitives.public_coins import UNIT
from privateer_core.privacy.trust import Crowd
from privateer_server.algorithms import NewRound, RoundsLearner
from privateer_server.algorithms.bandit import sampling_rules
from privateer_server.algorithms.bandit.posterior import (
    PRECISION_PER_REWARD,
    ArmPosterior,
    PairContrast,
    SuccessCounts,
    variance_proxy,
)
from privateer_server.algorithms.forgetting import Discounted, ForgettingRule, compute_trial_share
from privateer_server.algorithms.tier_account import TierAccount

_N_DRAWS: Final = 64
"""Draws of a batch's Thompson sampling: an arm has at least so small a share of a round, or none. A curator's noise is
the same for every share, so that a smaller one would tell nothing."""
_N_DRAWS_HIDDEN_ARM: Final = 16  # where reports hide the arm, what they say of a small share grows with its square
_LAPLACE_PROXY_FACTOR: Final = 2.0
"""Variance proxy of Laplace noise by its variance: bounds its moments as far as they matter."""


@dataclass(frozen=True)
class BanditState:
    """The state of a bandit's learner."""

    # rounds, reported: rounds that were learned from, and people who reported
    rounds: int
    reported: int
    posterior: ArmPosterior  # of the arms' mean rewards; where evidence is forgotten, that of the half-life in use
    stopped: bool = False  # whether the best arm is known
    discounted: Discounted[ArmPosterior] | None = None  # under each half-life; None where nothing is forgotten
    pair: PairContrast | None = None  # of the two arms of which the best one is looked for; None for others
    tiers: TierAccount | None = None  # what each tier has contributed; None without tiers


class BanditLearner(RoundsLearner[BanditSpec, BanditState, BanditPolicy]):
    """Rounds in which each arm is played by a share of the participants."""

    state_type = BanditState
    inherited_fields = ("algorithm", "experiment.arms", "experiment.retired_arms", "reward")

    def __init__(self, spec: BanditSpec) -> None:
        super().__init__(spec)
        self.playable = np.array(spec.playable)
        self.finds_set = spec.algorithm.objective == "best-arms"
        self.finds_best = self.finds_set or spec.algorithm.objective == "best-arm"
        self.forgetting = ForgettingRule(spec.algorithm.half_lives, chooses=spec.algorithm.half_life == "auto")

    @override
    def start(self, seed: int) -> BanditState:
        posterior = ArmPosterior.empty(self.spec.arm_count)
        # A report that hides its arm counts for both: their errors are not independent.
        is_pair = self.finds_best and not self.finds_set and self.playable.sum() == 2
        pair = PairContrast(0.0, 0.0) if is_pair and not self.spec.privacy.has_arm_in_key else None
        discounted = self.forgetting.start(posterior) if self.forgetting.half_lives else None
        tiers = TierAccount.start(self.spec, has_single_key=True)
        return BanditState(0, 0, posterior, discounted=discounted, pair=pair, tiers=tiers)

    @override
    def has_stopped(self, state: BanditState) -> bool:
        return state.stopped

    @override
    def policy(self, state: BanditState, next_round: NewRound) -> BanditPolicy:
        """Return the shares of arms, or the arm of the highest estimate for all if the round has no reports."""
        is_asking = next_round.batch_size > 0
        shares = self.shares(state, next_round) if is_asking else np.eye(self.spec.arm_count)[self.leader(state)]
        coins = make_arm_layout(next_round.seed, shares)
        choice_layout = coins if self.spec.privacy.has_arm_in_key or not is_asking else None
        terms = self.calibrate_terms(next_round, self.spec.make_question(coins))
        return BanditPolicy(next_round.version, terms, choice_layout)

    def leader(self, state: BanditState) -> int:
        """Return the arm of the highest estimate, by guaranteed estimates if the objective is the best arm."""
        if state.pair and state.pair.precision:
            return int(np.flatnonzero(self.playable)[int(state.pair.weighted < 0)])
        means = state.posterior.interval_centres if self.finds_best else state.posterior.means
        return int(np.argmax(np.where(self.playable, means, -np.inf)))

    def find_best_arms(self, state: BanditState) -> Bools:
        """Return a mask of the arms that are taken for the best ones, as many as the spec asks for."""
        return state.posterior.find_best_arms(self.playable, self.spec.algorithm.best_count)

    def shares(self, state: BanditState, next_round: NewRound) -> Array:
        """Return the share of a round's participants who play each arm; where rewards may move, some try another."""
        shares, discounted, privacy = self._choose_shares(state, next_round), state.discounted, self.spec.privacy
        if discounted is None:
            return shares
        has_equal_noise = privacy.has_arm_in_key or (privacy.trust.promises and privacy.trust.crowd is Crowd.RELEASE)
        share = compute_trial_share(state.rounds + 1, next_round.batch_size, has_equal_noise=has_equal_noise)
        recent_people = np.where(self.playable, discounted.evidence.people[-1], np.inf)
        return np.asarray((1 - share) * shares + share * np.eye(len(shares))[int(np.argmin(recent_people))])

    def _choose_shares(self, state: BanditState, next_round: NewRound) -> Array:
        """Return the share of a round's participants who play each arm; uniform before the first report on each."""
        posterior = state.posterior
        if not posterior.precision[self.playable].all():
            return np.asarray(self.playable / self.playable.sum())
        if self.finds_best:
            return self._identification_shares(state, next_round.batch_size)
        if self.spec.algorithm.objective == "moving":
            return sampling_rules.kl_ucb(posterior, self.playable, state.reported, next_round.batch_size)
        if self.spec.algorithm.objective == "adversarial":
            return self._tsallis_shares(state, next_round.batch_size)
        n_draws = _N_DRAWS_HIDDEN_ARM if self.spec.privacy.has_arm_in_key else _N_DRAWS
        horizon = self.spec.experiment.horizon
        # What is learned now is of use until it is forgotten.
        n_remaining = min(horizon - state.reported, self.forgetting.half_life(state.discounted))
        if sampling_rules.has_enough_to_fit_prior(posterior, self.playable, horizon):
            return sampling_rules.thompson_fitted_prior(posterior, self.playable, n_draws, n_remaining, next_round.seed)
        return sampling_rules.thompson(posterior, self.playable, n_draws, n_remaining, next_round.seed)

    def _identification_shares(self, state: BanditState, batch: int) -> Array:
        """Return the shares of an identification objective: of the best arm, or of a set of best arms."""
        if self.finds_set:
            return sampling_rules.track_boundary(state.posterior, self.playable, self.find_best_arms(state), batch)
        return sampling_rules.track_and_stop(state.posterior, self.playable, self.leader(state), batch)

    def _tsallis_shares(self, state: BanditState, batch: int) -> Array:
        """Return Tsallis-INF's shares, at the learning rate 2 / (c sqrt(t)) for the attenuation c of reports."""
        posterior, n_participants = state.posterior, state.reported + batch
        attenuation = math.sqrt(PRECISION_PER_REWARD * posterior.people.sum() / posterior.precision.sum())
        is_arm_hidden = self.spec.privacy.has_arm_in_key
        min_share = 1 / (self.playable.sum() * n_participants ** (1 / 3)) if is_arm_hidden else 1 / UNIT
        return sampling_rules.tsallis(
            posterior.losses, self.playable, 2 / (attenuation * math.sqrt(n_participants)), min_share
        )

    @override
    def learn(self, state: BanditState, policy: BanditPolicy, release: KeyedSums | GroupSums | CellHits) -> BanditState:
        shares = policy.active_shares
        people, sums, trials, hit_rates = (
            _read_keys(policy, release) if policy.has_fresh_coins else _read_groups(release)
        )
        scores = release.gain * np.maximum(people, 1.0)
        proxies = trials * np.array([variance_proxy(math.ceil(1000 * hit) / 1000) for hit in hit_rates.tolist()])
        variance_proxies = np.maximum(proxies + _noise_proxy(policy, release), 1.0)
        precision = np.where(people > 0, PRECISION_PER_REWARD * scores**2 / variance_proxies, 0.0)
        losses = -sums / (2 * release.gain * np.maximum(shares, 1 / UNIT))
        counts = _count_successes(policy, release, people, sums, trials, hit_rates)
        if policy.has_fresh_coins:
            counts = counts.weigh_by_information(state.posterior.counts.pooled_success_rate[0])
        latest = ArmPosterior.from_round(people, precision, (1 + sums / scores) / 2, losses, counts)
        if state.tiers and isinstance(release, TieredSums):
            state = replace(state, tiers=state.tiers.add(release))
        return self._add_round(state, latest, release.reports)

    def _add_round(self, state: BanditState, latest: ArmPosterior, reports: int) -> BanditState:
        """Return the state after one more round, stopped if its objective is the best arm and that is known."""
        rounds, reported, discounted = state.rounds + 1, state.reported + reports, state.discounted
        if discounted:
            discounted = self.forgetting.add_evidence(discounted, latest, reported, _score_prediction)
        posterior = discounted.current if discounted else state.posterior.plus(latest)
        pair = state.pair.add(latest, self.playable) if state.pair else None
        new_state = BanditState(rounds, reported, posterior, discounted=discounted, pair=pair, tiers=state.tiers)
        stopped = self.finds_best and not self.finds_set and self.is_best_arm_known(new_state)
        return replace(new_state, stopped=stopped)

    def is_best_arm_known(self, state: BanditState) -> bool:
        """Whether the best arm is known with the failure probability that the spec allows."""
        failure_probability = self.spec.algorithm.failure_probability
        if state.pair:
            return state.pair.log_evidence > -math.log(failure_probability)
        _, margins = state.posterior.compare_with_leader(self.playable, failure_probability)
        return bool((margins > 0).all())

    @override
    def apply_arm_change(self, state: BanditState, old_spec: BanditSpec) -> BanditState:
        """Return the state with other arms; refuse if the objective is a guarantee over all arms together."""
        if self.finds_best or self.spec.algorithm.objective == "adversarial":
            return super().apply_arm_change(state, old_spec)
        n_added, discounted = self.spec.arm_count - old_spec.arm_count, state.discounted
        return replace(
            state,
            posterior=state.posterior.with_arms(n_added),
            discounted=discounted.with_arms(n_added) if discounted else None,
            tiers=state.tiers.with_arms(n_added) if state.tiers else None,
        )

    @override
    def keep_evidence_only(self, state: BanditState) -> BanditState:
        discounted = self.forgetting.restart(state.discounted)
        tiers = TierAccount.start(self.spec, has_single_key=True)
        return replace(state, rounds=0, reported=0, discounted=discounted, tiers=tiers)

    @override
    def answer(self, state: BanditState) -> Answer:
        """Return every arm's mean reward with an anytime-valid interval, and the best arm once it is known.

        Where evidence is forgotten, means are by its weights, and intervals hold at each look by itself: precision
        fades by less than its variance does, and each half-life that may be in use has its share of failures.
        Where regret counts, and with a budget, the leader is recommended when the experiment is over.
        """
        names_leader = self.is_over(state) and (self.finds_set or not self.finds_best)
        best = self.leader(state) if state.reported and (state.stopped or names_leader) else None
        parts = (self._list_best_arms(state),) if self.finds_set and state.reported else ()
        forgetting = (self.forgetting.build_result(state.discounted),) if state.discounted else parts
        tiers = state.tiers.build_tables(self.spec) if state.tiers and state.reported else ()
        return self.build_answer(
            state,
            rounds=state.rounds,
            confidence=1 - self.spec.algorithm.failure_probability,
            recommended=None if best is None else self.spec.options[best],
            basis=None if best is None else self._choose_basis(best, state),
            estimates=self._build_estimates(state) if state.posterior.people.any() else (),
            parts=(*forgetting, *tiers),
        )

    def _list_best_arms(self, state: BanditState) -> Table:
        """Return the set of best arms with their estimated means, and the bound of its error in the title."""
        is_best, means = self.find_best_arms(state), self.spec.reward.unscaled(state.posterior.means)
        error = state.posterior.bound_set_error(is_best, self.playable)
        arms = sorted(np.flatnonzero(is_best).tolist(), key=lambda arm: -means[arm])
        title = f"best {len(arms)} of {int(self.playable.sum())} options, wrong with probability {error:.2g} at most"
        rows = tuple((self.spec.options[arm], float(means[arm])) for arm in arms)
        return Table.of(title, {"option": "words", "mean reward": "reward"}, rows)

    def _build_estimates(self, state: BanditState) -> tuple[Estimate, ...]:
        low, width, posterior = self.spec.reward.low, 2 * self.spec.reward.half_range, state.posterior
        means, radii = low + width * posterior.interval_centres, width * self._radii(posterior)
        # Pooled reports are counted by their weights, of which readers want to know no more than the number of people.
        people = state.tiers.people_by_arm.sum(axis=0) if state.tiers else posterior.people
        rows = zip(self.spec.options, means.tolist(), radii.tolist(), people.tolist(), strict=True)
        bounds = (low, self.spec.reward.high)
        estimates = (Estimate.within(name, mean, radius, bounds, round(n, 1)) for name, mean, radius, n in rows)
        return tuple(map(_recentre, estimates, (low + width * posterior.means).tolist()))

    def _radii(self, posterior: ArmPosterior) -> Array:
        return posterior.radii(self.spec.algorithm.failure_probability / max(1, len(self.forgetting.half_lives)))

    def _choose_basis(self, best: int, state: BanditState) -> Basis:
        """Return the basis of a recommendation: the arm is decided if its interval is above all others."""
        means, radii = state.posterior.interval_centres, self._radii(state.posterior)
        is_rival = self.playable & (np.arange(len(means)) != best)
        is_above_rivals = bool((means - radii)[best] > (means + radii)[is_rival].max(initial=-np.inf))
        return "decided against all other options" if state.stopped or is_above_rivals else "ahead, and not decided"

    @override
    def measured_rate(self, state: BanditState) -> MeasuredRate | None:
        mean, deviation = state.posterior.counts.pooled_success_rate
        return MeasuredRate.normal(mean, deviation) if math.isfinite(deviation) else None

    @override
    def figures(self, state: BanditState) -> dict[str, float]:
        """Return the number of reports, whether the best arm is known, and the bound of the set's error."""
        figures = {"samples": state.reported, "stopped": float(state.stopped)}
        if self.finds_set:
            figures["set_error_bound"] = state.posterior.bound_set_error(self.find_best_arms(state), self.playable)
        return figures


def _score_prediction(posterior: ArmPosterior, _half_life: float, latest: ArmPosterior) -> float:
    """Return the log density that a posterior predicted for a round."""
    return posterior.counts.predictive_log_density(latest.counts)


def _recentre(bounded: Estimate, mean: float) -> Estimate:
    """Return an interval with an estimate of lower variance than its midpoint."""
    return msgspec.structs.replace(bounded, value=min(max(mean, bounded.low), bounded.high))


def _read_groups(release: Any) -> tuple[Array, ...]:
    """Return each arm's reports, sums, trials and probabilities of a score, if coins chose the arm."""
    people = release.counts[0].astype(np.float64)
    return people, release.sums[0], people, np.ones(len(people))


def _read_keys(policy: BanditPolicy, release: Any) -> tuple[Array, ...]:
    """Return each arm's reports, sums, trials and probabilities of a score, if the arm is the report's key."""
    shares = policy.active_shares
    is_played = shares[policy.cells] > 0
    arms = policy.cells[is_played]
    people, sums = np.zeros((2, len(shares)))
    people[arms], sums[arms] = shares[arms] * release.reports, release.sums[is_played, 0]
    hit_rates = shares * release.hit_own + (1 - shares) * release.hit_other
    return people, sums, np.full(len(shares), float(release.reports)), hit_rates


def _noise_proxy(policy: BanditPolicy, release: KeyedSums | GroupSums | CellHits) -> float:
    """Return the variance proxy of a curator's noise in a sum of scores; Laplace noise has heavier tails."""
    if isinstance(release, CellHits):
        return _LAPLACE_PROXY_FACTOR * 2 * release.noise
    return release.noise if policy.terms.delta else _LAPLACE_PROXY_FACTOR * release.noise


def _count_successes(
    policy: BanditPolicy, release: Any, people: Array, sums: Array, trials: Array, hit_rates: Array
) -> SuccessCounts:
    """Return the successes and trials of a release, by counts of arms if it has them, else by scores."""
    if not isinstance(release, CellHits):
        return SuccessCounts.from_scores(people, sums, trials, hit_rates, release)
    positive, arm_hits = np.zeros((2, len(policy.active_shares)))
    positive[policy.cells], arm_hits[policy.cells] = release.positive[:, 0], release.hits[:, 0]
    return SuccessCounts.from_hits(people, positive, arm_hits, release)


learner = BanditLearner
