"""The learner of additive bandits for reports without a crowd: it learns levels of arms first, then features."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.additive.coin_arms import LEVEL_QUESTION, CoinArms, find_unmerged_questions
from privateer_core.algorithms.additive.policy import TERM_UNIT, AdditivePolicy
from privateer_core.algorithms.additive.spec import AdditiveSpec
from privateer_core.arrays import Array, Bools
from privateer_core.primitives.contributions import CellHits
from privateer_core.primitives.public_coins import UNIT
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.additive.observed_round import hit_rates
from privateer_server.algorithms.additive.participant_shares import ArmShares, CellMasses
from privateer_server.algorithms.additive.posterior import TermPosterior
from privateer_server.algorithms.additive.shared_terms import SpikedTerms, fit_features
from privateer_server.algorithms.additive.terms_learner import LastValueCache, TermsLearner, quantize_terms
from privateer_server.algorithms.forgetting import Discounted, SufficientStatistics

_COMMON_DEVIATION: Final = 0.5
_ARM_DEVIATION: Final = 0.15
"""Standard deviations of what all arms have in common, and of each beside it, before any report."""
_N_DRAWS: Final = 1024


@dataclass(frozen=True)
class LevelEvidence(SufficientStatistics):
    """Normal evidence of levels in natural parameters, (arms,) each; arms are apart."""

    information: Array
    scores: Array

    @classmethod
    def unknown(cls, arms: int) -> "LevelEvidence":
        """Return the evidence before any report."""
        return cls(np.zeros(arms), np.zeros(arms))

    def add_sums(self, slopes: Array, sums: Array, variances: Array) -> "LevelEvidence":
        """Return the evidence after ``sums`` with the means slopes * level and the ``variances``, (arms,) each."""
        weights = slopes / variances
        return LevelEvidence(self.information + weights * slopes, self.scores + weights * sums)

    def posterior(self, prior_mean: float) -> tuple[Array, Array]:
        """Return the mean (arms,) and covariance (arms, arms); ``prior_mean`` is the mean before any report."""
        n_arms = len(self.scores)
        precision = np.linalg.inv(np.full((n_arms, n_arms), _COMMON_DEVIATION**2) + _ARM_DEVIATION**2 * np.eye(n_arms))
        covariance = np.linalg.inv(precision + np.diag(self.information))
        return covariance @ (self.scores + precision @ np.full(n_arms, prior_mean)), covariance

    def expected_regret(self, prior_mean: float, playable: Bools) -> float:
        """Return the expected regret of the arm with the largest posterior mean."""
        mean, covariance = self.posterior(prior_mean)
        noise = np.random.default_rng(0).standard_normal((_N_DRAWS, len(mean)))
        levels = np.where(playable, mean + noise @ np.linalg.cholesky(covariance).T, -np.inf)
        leader = int(np.where(playable, mean, -np.inf).argmax())
        return float((levels.max(axis=1) - levels[:, leader]).mean())


@dataclass(frozen=True)
class QuestionSums:
    """Sums of the reports on one question."""

    arm: int  # the arm that coins gave all of them; -1: everybody got their best one
    topic: int  # `LEVEL_QUESTION`, or 1 + the feature
    people: int  # how many there are
    sums: Array  # shape (arms or 1, parts): of values from -1 to 1, of everybody with the arm and the part
    # variance of each sum, if everybody's report was noise, and what is added to it if everybody has the part
    noise: tuple[float, float]

    def variances(self, shares: Array) -> Array:
        """Return the variance of each sum, where these are the shares of people."""
        return self.noise[0] + self.noise[1] * shares


@dataclass(frozen=True)
class SymbolGroups:
    """The released symbols by question."""

    question_sums: tuple[QuestionSums, ...]  # the sums of rewards by question
    # counts, doubts: shape (parts,): how many people have each part of each question, and the variance of that,
    # infinite where nobody said
    counts: Array
    doubts: Array

    @classmethod
    def from_release(cls, policy: AdditivePolicy, plan: CoinArms, release: CellHits) -> "SymbolGroups":
        """Return the sums and counts of a release."""
        (own_rate, rate), questions = hit_rates(policy.terms), policy.questions
        counts = np.zeros(int(questions.starts[-1]))
        doubts = np.full(len(counts), np.inf)
        for index, question in enumerate(plan.resolutions):
            group = int(np.flatnonzero(plan.groups.is_cell_report & (plan.groups.questions == 1 + index))[0])
            n_asked, size = int(release.counts[0, group]), int(questions.sizes[question])
            if n_asked:
                columns = slice(int(questions.starts[question]), int(questions.starts[question + 1]))
                scale = release.reports / n_asked
                counts[columns] = scale * release.sums[:size, group] / release.gain
                doubts[columns] = scale**2 * n_asked * rate / release.gain**2
        return cls(tuple(_sum_by_question(policy, plan, release, (rate, own_rate - rate))), counts, doubts)


def _sum_by_question(
    policy: AdditivePolicy, plan: CoinArms, release: CellHits, rates: tuple[float, float]
) -> Iterator[QuestionSums]:
    """Yield the sums of every question that participants were asked, by the arm that coins gave them."""
    groups, arms = plan.groups, len(plan.playable)
    for arm in (*np.flatnonzero(plan.playable).tolist(), -1):
        for topic in range(1 + len(plan.resolutions)):
            group_numbers = np.flatnonzero((groups.arms == arm) & (groups.questions == topic) & ~groups.is_cell_report)
            n_asked = int(release.counts[0, group_numbers].sum())
            if not n_asked:
                continue
            size = 1 if topic == LEVEL_QUESTION else int(policy.questions.sizes[plan.resolutions[topic - 1]])
            n_columns = arms if arm < 0 else 1
            sums = release.sums[: size * n_columns, group_numbers].sum(axis=1) / release.gain
            noise = (n_asked / release.gain**2 * rates[0], n_asked / release.gain**2 * rates[1])
            yield QuestionSums(arm, topic, n_asked, sums.reshape(size, n_columns).T, noise)


_N_COIN_ARM_PEOPLE: Final = 1000  # about as many people of every doubling of all get an arm by coins
_MIN_COIN_ARM_SHARE: Final = 0.03  # least share of people who get an arm by coins
_MIN_COIN_HALF_LIFE: Final = 10_000.0
"""Half-lives that are shorter for a while give no more people an arm by coins: that would cost more than it tells."""
_COIN_LEVEL_SHARES: Final = (0.3, 0.8)
_OTHER_LEVEL_SHARES: Final = (0.1, 0.1)
"""Least and largest share of people asked about levels, of those who get an arm by coins, and of the others."""
_FULL_SHARE_REGRET: Final = 0.01
"""Expected loss by the arm that leads from which on the largest share is asked about levels."""
_MIN_RELATIVE_QUESTION_SHARE: Final = 0.15  # what every feature is asked about at least, by the one that does most
_MAX_CHANGED_ARM_SHARE: Final = 0.01
"""Share of people who chose by a plan that gave other arms, up to which all who seem to have an arm by coins count."""
_FINEST_ROUND_PERIOD: Final = 5  # every so many rounds all features are asked about in their own cells


@dataclass(frozen=True)
class LevelsFirstStatistics(SufficientStatistics):
    """Normal evidence of the arms' levels and of terms, in natural parameters."""

    levels: LevelEvidence  # of the mean rewards of arms
    # information, scores: shapes (arms, terms, terms) and (arms, terms): of terms; nothing of two features together
    information: Array
    scores: Array

    arm_axis = 1

    def join_levels(self) -> tuple[Array, Array]:
        """Return information and scores of all terms, with the arms' levels as intercepts."""
        information, scores = self.information.copy(), self.scores.copy()
        information[:, 0, 0], scores[:, 0] = self.levels.information, self.levels.scores
        return information, scores


@dataclass(frozen=True)
class LevelsFirstState:
    """The state of the learner."""

    reported: int  # people whose reports opened
    discounted: Discounted[LevelsFirstStatistics]  # what rounds say of levels and terms, under each half-life
    masses: CellMasses  # what is known of the shares of people by cell


class LevelsFirstLearner(TermsLearner[LevelsFirstState]):
    """Learns levels of arms from participants whose arm is random, and terms of features from all participants."""

    state_type = LevelsFirstState

    def __init__(self, spec: AdditiveSpec) -> None:
        super().__init__(spec)
        self._features: LastValueCache[LevelsFirstState, list[SpikedTerms]] = LastValueCache(self._compute_features)

    @override
    def start(self, seed: int) -> LevelsFirstState:
        return LevelsFirstState(0, self.forgetting.start(self._no_evidence), CellMasses.unknown(self.cells))

    @property
    def _no_evidence(self) -> LevelsFirstStatistics:
        n_arms, terms = self.spec.arm_count, self.cells.count
        zeros = np.zeros((n_arms, terms, terms)), np.zeros((n_arms, terms))
        return LevelsFirstStatistics(LevelEvidence.unknown(n_arms), *zeros)

    @property
    def _prior_mean(self) -> float:
        declared = self.spec.reward.base_rate
        return 0.5 if declared is None else float(self.spec.reward.scale_and_clip(declared)[0])

    @override
    def posterior(self, state: LevelsFirstState) -> TermPosterior:
        return self._build_posterior(state.discounted.current.levels, self._features(state))

    @override
    def statistics(self, state: LevelsFirstState) -> tuple[Array, Array]:
        return state.discounted.current.join_levels()

    def _compute_features(self, state: LevelsFirstState) -> list[SpikedTerms]:
        return self._fit_features(state, state.discounted.current)

    def _fit_features(self, state: LevelsFirstState, evidence: LevelsFirstStatistics) -> list[SpikedTerms]:
        return fit_features(self.cells, self.shares(state.masses), evidence.information, evidence.scores)

    def _build_posterior(self, levels_evidence: LevelEvidence, features: list[SpikedTerms]) -> TermPosterior:
        """Return the posterior of all terms, from that of the arms' levels and those of the features."""
        means = np.zeros((self.spec.arm_count, self.cells.count))
        factors = np.zeros((*means.shape, self.cells.count))
        levels, covariance = levels_evidence.posterior(self._prior_mean)
        means[:, 0], factors[:, 0, 0] = levels, np.sqrt(np.diag(covariance))
        for index, terms in enumerate(features):
            columns = self.cells.feature_slice(index)
            means[:, columns] = terms.means
            values, vectors = np.linalg.eigh(terms.covariances)
            factors[:, columns, columns] = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        return TermPosterior(means, factors, float(levels.mean()), ())

    @override
    def policy(self, state: LevelsFirstState, next_round: NewRound) -> AdditivePolicy:
        features = self._features(state)
        means = quantize_terms(self._build_posterior(state.discounted.current.levels, features).means)
        plan = self._build_plan(state, features, next_round)
        return AdditivePolicy(
            version=next_round.version,
            questions=self.questions,
            draws=means[None],
            means=means,
            edges=np.zeros(self.questions.count - 1, np.uint32),
            counts_arms=self.spec.counts_arms,
            playable=np.array(self.spec.playable),
            seed=next_round.seed,
            terms=self.calibrate_terms(next_round, self.spec.make_plan_question(plan)),
            plan=plan,
        )

    def _build_plan(self, state: LevelsFirstState, features: list[SpikedTerms], next_round: NewRound) -> CoinArms:
        """Return which participants of a round get an arm by coins, and what each is asked about."""
        plan = CoinArms.uniform(self.questions, np.array(self.spec.playable))
        if not next_round.batch_size:
            return replace(plan, given=0)
        # A half-life bounds how many people count: the sum of what it leaves of each.
        min_half_life = _MIN_COIN_HALF_LIFE if self.forgetting.chooses else 0.0
        half_life = max(self.forgetting.half_life(state.discounted), min_half_life)
        n_effective = min(max(1, state.reported), half_life / np.log(2))
        coin_threshold = int(UNIT * min(1.0, max(_MIN_COIN_ARM_SHARE, _N_COIN_ARM_PEOPLE / n_effective)))
        if not state.reported:
            return plan
        masses = self.shares(state.masses)
        regret = state.discounted.current.levels.expected_regret(self._prior_mean, plan.playable)
        level_factor = min(1.0, regret / _FULL_SHARE_REGRET)
        feature_masses = [masses[self.cells.feature_slice(index)] for index in range(len(features))]
        sizes = np.array([terms.root_mean_square(m) for terms, m in zip(features, feature_masses, strict=True)])
        shares = _MIN_RELATIVE_QUESTION_SHARE + sizes / max(float(sizes.max()), 1e-9)
        shares /= shares.sum()
        level_shares = [low + (high - low) * level_factor for low, high in (_COIN_LEVEL_SHARES, _OTHER_LEVEL_SHARES)]
        edges = np.stack([_build_edges(level_share, shares) for level_share in level_shares])
        resolutions = find_unmerged_questions(self.questions)
        if next_round.version % _FINEST_ROUND_PERIOD:
            n_asked = shares * next_round.batch_size
            choices = (self._choose_resolution(masses, n, terms, n_asked[n]) for n, terms in enumerate(features))
            resolutions = np.array(list(choices))
        return replace(plan, given=coin_threshold, edges=edges, resolutions=resolutions)

    def _choose_resolution(self, masses: Array, index: int, terms: SpikedTerms, n_asked: float) -> int:
        """Return the question about a feature that leaves the least variance of its terms, over participants."""
        columns, noise = self.cells.feature_slice(index), self._noise_per_participant * n_asked
        remaining_variances = {}
        for question, (feature, parts) in enumerate(self.questions.partitions):
            if feature != index:
                continue
            is_in_part = parts == np.arange(int(parts.max()) + 1)[:, None]
            rows = is_in_part * masses[columns] * n_asked * 2 / self.spec.arm_count
            variances = (_remaining_variance(each, rows, noise, masses[columns]) for each in terms.covariances)
            remaining_variances[question] = sum(variances)
        return min(remaining_variances, key=remaining_variances.__getitem__)

    @property
    def _noise_per_participant(self) -> float:
        """Variance of noise in a sum, by person who is asked."""
        terms = self.calibrate_terms(NewRound(1, 0, self.spec.experiment.round_size), self.spec.typical_question())
        return hit_rates(terms)[1] / terms.mechanism.response.gain**2  # type: ignore[union-attr]

    @override
    def learn(self, state: LevelsFirstState, policy: AdditivePolicy, release: CellHits) -> LevelsFirstState:
        assert policy.plan is not None
        groups, n_reports = SymbolGroups.from_release(policy, policy.plan, release), release.reports
        prior_shares = self.shares(state.masses)
        masses = state.masses.add_counts(self.questions, prior_shares, groups.counts, groups.doubts, n_reports)
        shares = self.shares(masses)
        best_shares, coin_shares = ArmShares.from_deciders(policy, shares), _coin_arm_shares(policy, shares)
        latest = self._no_evidence
        levels, information, scores = latest.levels, latest.information, latest.scores
        means = TERM_UNIT * policy.means.astype(np.float64)
        # People who chose before arms were added, or in a pause, may have had another arm than coins name now.
        deciders = policy.weighted_deciders
        changed = sum(share for decider, share in deciders if not policy.plan.gives_same_arms_as(decider.plan))
        for question_sums in groups.question_sums:
            if question_sums.arm >= 0 and changed > _MAX_CHANGED_ARM_SHARE:
                continue
            if question_sums.topic == LEVEL_QUESTION:
                levels = _update_levels(levels, question_sums, best_shares, means[:, 0])
            else:
                is_best_arm = question_sums.arm < 0
                arm_shares = best_shares if is_best_arm else coin_shares
                rows_sums_variances = self._build_rows(policy.plan, question_sums, shares, arm_shares)
                columns = self.cells.feature_slice(question_sums.topic - 1)
                arms = range(len(means)) if is_best_arm else [question_sums.arm]
                for arm, row, total, variance in zip(arms, *rows_sums_variances, strict=True):
                    added_information = (row / variance[:, None]).T @ row
                    information[arm, columns, columns] += added_information
                    scores[arm, columns] += row.T @ (total / variance) + added_information @ means[arm, columns]
        reported, latest = state.reported + n_reports, replace(latest, levels=levels)

        def score(evidence: LevelsFirstStatistics, _half_life: float, latest: LevelsFirstStatistics) -> float:
            posterior = self._build_posterior(evidence.levels, self._fit_features(state, evidence))
            return posterior.predictive_log_density(*latest.join_levels())

        discounted = self.forgetting.add_evidence(state.discounted, latest, reported, score)
        return LevelsFirstState(reported, discounted, masses)

    def _build_rows(
        self, plan: CoinArms, total: QuestionSums, masses: Array, arms: ArmShares
    ) -> tuple[Array, Array, Array]:
        """Return how sums follow from terms, (arms, parts, cells); the sums, and their variances, (arms, parts)."""
        index = total.topic - 1
        columns, (_, parts) = self.cells.feature_slice(index), self.questions.partitions[plan.resolutions[index]]
        merge_matrix = (parts == np.arange(int(parts.max()) + 1)[:, None]).astype(np.float64)
        arm_rows = slice(None) if total.arm < 0 else slice(total.arm, total.arm + 1)
        weighted = arms.weighted[arm_rows, columns] * masses[columns]
        shares = arms.shares[arm_rows, columns] * masses[columns]
        if total.arm >= 0:  # all of them have the arm
            weighted, shares = weighted / np.maximum(arms.shares[arm_rows, :1], 1e-9), masses[None, columns]
        return total.people * merge_matrix * weighted[:, None, :], total.sums, total.variances(shares @ merge_matrix.T)

    @override
    def apply_arm_change(self, state: LevelsFirstState, old_spec: AdditiveSpec) -> LevelsFirstState:
        return replace(state, discounted=state.discounted.with_arms(self.spec.arm_count - old_spec.arm_count))


def _build_edges(level: float, shares: Array) -> NDArray[np.uint32]:
    """Return where the question about levels ends, and where the question about each feature begins, of `UNIT`."""
    lower_ends = np.cumsum(shares) - shares
    return np.asarray(np.rint(UNIT * np.minimum(1.0, level + (1 - level) * lower_ends)), np.uint32)


def _remaining_variance(covariance: Array, rows: Array, noise: float, masses: Array) -> float:
    """Return the variance of an arm's terms after observations ``rows`` with noise, averaged over participants."""
    sum_covariances = covariance @ rows.T
    inner = rows @ sum_covariances + max(noise, 1e-9) * np.eye(len(rows))
    posterior_covariance = covariance - sum_covariances @ np.linalg.solve(inner, sum_covariances.T)
    return float(np.diag(posterior_covariance) @ masses)


def _coin_arm_shares(policy: AdditivePolicy, masses: Array) -> ArmShares:
    """Return the shares and weights of arms that are given at random with equal probability."""
    arms = np.flatnonzero(policy.playable)
    draws = np.zeros((len(arms), *policy.means.shape), np.int16)
    draws[np.arange(len(arms)), arms, 0] = 1
    return ArmShares.from_policy(replace(policy, draws=draws), masses)


def _update_levels(levels: LevelEvidence, total: QuestionSums, best_shares: ArmShares, means: Array) -> LevelEvidence:
    """Return the evidence of levels after rewards under a random arm, or residuals under the best arms."""
    if total.arm >= 0:
        slopes, sums, variances = np.zeros(len(means)), np.zeros(len(means)), np.full(len(means), np.inf)
        slopes[total.arm], sums[total.arm] = 2.0 * total.people, float(total.sums[0, 0]) + total.people
        variances[total.arm] = float(total.variances(np.ones(1))[0])
        return levels.add_sums(slopes, sums, variances)
    slopes = total.people * best_shares.weighted[:, 0]
    return levels.add_sums(slopes, total.sums[:, 0] + slopes * means, total.variances(best_shares.shares[:, 0]))
