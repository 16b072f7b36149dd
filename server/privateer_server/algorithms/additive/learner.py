"""The learner of additive bandits: Bayesian regression on sums of residuals by cell."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.additive.policy import TERM_UNIT, AdditivePolicy
from privateer_core.algorithms.additive.spec import AdditiveSpec
from privateer_core.arrays import Array, Ints
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.contributions import CellHits
from privateer_core.privacy.terms import Terms
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.additive.additive_state import AdditiveState, TermStatistics
from privateer_server.algorithms.additive.feature_products import RoundInformation, mean_variances, sum_information
from privateer_server.algorithms.additive.long_levels import LevelCounts, LevelStatistics, LevelTerms, LongCells
from privateer_server.algorithms.additive.observed_round import ObservedRound, PartSums, noise_variance
from privateer_server.algorithms.additive.participant_shares import ArmShares, CellMasses
from privateer_server.algorithms.additive.posterior import TermPosterior
from privateer_server.algorithms.additive.question_shares import (
    SeparateTerms,
    best_questions,
    compute_edges,
    even_shares,
    optimal_question_shares,
)
from privateer_server.algorithms.additive.resolution import Resolution, choose_bins, coarsest_bins, is_due
from privateer_server.algorithms.additive.shared_terms import MIN_ARMS_FOR_SHARED_TERMS, fit_shared_terms
from privateer_server.algorithms.additive.terms_learner import (
    LastValueCache,
    TermsLearner,
    build_contexts,
    build_indicators,
    quantize_terms,
)
from privateer_server.algorithms.forgetting import Discounted, compute_trial_share

_N_DRAWS: Final = 32  # draws that coins choose from
_MIN_TRIAL_PERIOD: Final = 3
"""Every how many rounds an arm is tried at most where rewards may move, so that a whole draw has the right share."""
_N_REVISITED_ROUNDS: Final = 8  # how many rounds are read again when more is known of where people are
_NO_FEATURE_SHARE: Final = 0.2
"""Share of people who say nothing of features, where each answers one question and all features are long."""
_MIN_LEVEL: Final = 0.005
_MIN_LOWER_BOUND: Final = 1e-3
_MIN_DIVISOR: Final = 1e-9


class AdditiveLearner(TermsLearner[AdditiveState]):
    """Learns terms from residuals, and asks the questions that reduce the variance of terms most."""

    state_type = AdditiveState

    def __init__(self, spec: AdditiveSpec) -> None:
        super().__init__(spec)
        self.all_questions = spec.questions
        self.long_cells = LongCells.from_questions(self.all_questions)
        self.questions = self.long_cells.build_short_questions(self.all_questions)
        self.cells = self.questions.cells
        self.shape_features = {
            name: feature
            for index, (name, feature) in enumerate(spec.features.items())
            if index not in self.long_cells.feature_indices
        }
        self._learned: LastValueCache[AdditiveState, TermPosterior] = LastValueCache(self._compute_posterior)
        self._posterior: LastValueCache[AdditiveState, TermPosterior] = LastValueCache(
            lambda state: self._resolution(state).expand(self._learned(state))
        )
        self._levels: LastValueCache[AdditiveState, LevelTerms] = LastValueCache(self._compute_level_terms)
        self._evidence: LastValueCache[AdditiveState, TermStatistics] = LastValueCache(
            lambda state: self._sum_statistics(state, self._by_round(state)), lambda state: state.discounted
        )
        self._by_round: LastValueCache[AdditiveState, list[tuple[RoundInformation, Array]]] = LastValueCache(
            lambda state: self._list_statistics(state, len(state.rounds)), lambda state: state.discounted
        )
        self._level_shares: LastValueCache[LevelCounts, Array] = LastValueCache(
            lambda counts: counts.estimate_shares(self.long_cells)
        )

    @override
    def start(self, seed: int) -> AdditiveState:
        n_arms, terms, n_levels = self.spec.arm_count, self.cells.count, len(self.long_cells.terms)
        levels = LevelStatistics(*np.zeros((2, n_arms, n_levels)))
        evidence = TermStatistics(np.zeros((n_arms, terms, terms)), np.zeros((n_arms, terms)), levels)
        masses, level_counts = CellMasses.unknown(self.cells), LevelCounts.unknown(n_levels)
        return AdditiveState(0, self.forgetting.start(evidence), masses, level_counts, coarsest_bins(self.cells))

    def _resolution(self, state: AdditiveState) -> Resolution:
        return Resolution(self.questions, state.bins)

    @override
    def posterior(self, state: AdditiveState) -> TermPosterior:
        """Return the posterior of all terms but those of long features."""
        return self._posterior(state)

    def _compute_posterior(self, state: AdditiveState) -> TermPosterior:
        """Return the posterior of short features' learned terms, with a part common to all arms if there are many."""
        declared = self.spec.reward.base_rate
        rate = None if declared is None else self.spec.reward.scale_and_clip(declared)[0]
        fit = fit_shared_terms if self.spec.arm_count >= MIN_ARMS_FOR_SHARED_TERMS else TermPosterior.from_statistics
        resolution, masses = self._resolution(state), self.shares(state.masses)
        return fit(*self._learned_statistics(state), resolution.merged.cells, resolution.merge(masses), rate)

    @override
    def statistics(self, state: AdditiveState) -> tuple[Array, Array]:
        """Return the statistics of all rounds under the half-life in use."""
        evidence, used = self._evidence(state), state.discounted.used
        return evidence.information[used], evidence.scores[used]

    def _learned_statistics(self, state: AdditiveState) -> tuple[Array, Array]:
        """Return the statistics of learned terms, of all rounds under the half-life in use."""
        resolution, used, evidence = self._resolution(state), state.discounted.used, state.discounted.current
        information, scores = resolution.merge_statistics(evidence.information, evidence.scores)
        if not state.rounds:
            return information, scores
        weights = self._weigh_rounds(state)[used]
        latest, latest_scores = zip(*self._by_round(state), strict=True)
        score_sum = np.tensordot(weights, np.stack(latest_scores), 1)
        return information + resolution.sum_information(latest, weights), scores + resolution.merge(score_sum)

    def _list_statistics(self, state: AdditiveState, n_rounds: int) -> list[tuple[RoundInformation, Array]]:
        """Return what each of the ``n_rounds`` oldest recent rounds says under the current masses."""
        masses = self.shares(state.masses)
        return [observed_round.statistics(self.questions, masses) for observed_round in state.rounds[:n_rounds]]

    def _weigh_rounds(self, state: AdditiveState) -> Array:
        """Return the share that each half-life retains of each recent round, (half-lives, rounds)."""
        n_reports = np.array([observed_round.people for observed_round in state.rounds], np.float64)
        later_reports = n_reports.sum() - n_reports.cumsum()
        return np.stack([self.forgetting.retention(n_later) for n_later in later_reports], axis=1)

    def _sum_statistics(
        self, state: AdditiveState, by_round: Sequence[tuple[RoundInformation, Array]]
    ) -> TermStatistics:
        """Return the evidence, under each half-life, of the oldest recent rounds and of all earlier ones."""
        evidence = state.discounted.evidence
        if not by_round:
            return evidence
        weights = self._weigh_rounds(state)[:, : len(by_round)]
        information, scores = zip(*by_round, strict=True)
        score_sums = np.tensordot(weights, np.stack(scores), 1)
        return evidence.add(sum_information(self.questions, information, weights), score_sums)

    @override
    def policy(self, state: AdditiveState, next_round: NewRound) -> AdditivePolicy:
        spec, posterior, levels = self.spec, self.posterior(state), self.levels(state)
        means = quantize_terms(self._join_terms(posterior.means, levels.means))
        edges = compute_edges(even_shares(self.all_questions))
        policy = AdditivePolicy(
            version=next_round.version,
            questions=self.all_questions,
            draws=self._draw_terms(state, posterior, levels, next_round) if next_round.batch_size else means[None],
            means=means,
            edges=edges,
            counts_arms=spec.counts_arms,
            playable=np.array(spec.playable),
            seed=next_round.seed,
            terms=self.calibrate_terms(next_round, spec.make_question(next_round.seed, edges)),
        )
        if not next_round.batch_size:
            return policy
        lower_bound, terms = self._tighten_lower_bound(state, policy, next_round)
        if spec.privacy.trust.promises:
            noise = noise_variance(terms, lower_bound)
            is_single = replace(policy, terms=terms).is_single_question
            shares = self._allocate_questions(state, next_round.batch_size, noise, is_single=is_single)
            edges = compute_edges(shares)
            terms = self.calibrate_terms(next_round, spec.make_question(next_round.seed, edges, lower_bound))
        return replace(policy, edges=edges, below=lower_bound, terms=terms)

    def _tighten_lower_bound(
        self, state: AdditiveState, policy: AdditivePolicy, next_round: NewRound
    ) -> tuple[float, Terms]:
        """Return the absolute lower bound of residuals, below 1 if expected rewards are low, and the terms for it.

        A symbol has to name keys for that: in a bucket of many keys nobody sees which values were below 0.
        """
        max_expected = max(ArmShares.upper_expected_reward(policy, self._all_shares(state)), _MIN_LOWER_BOUND)
        lower_bound = self.spec.lower_bound(max_expected)
        if lower_bound < 1:
            question = self.spec.make_question(next_round.seed, policy.edges, lower_bound)
            terms = self.calibrate_terms(next_round, question)
            if not isinstance(terms.mechanism, NamedSymbol) or terms.mechanism.is_named:
                return lower_bound, terms
        return 1.0, policy.terms

    def _all_shares(self, state: AdditiveState) -> Array:
        return self._join_terms(self.shares(state.masses), self._level_shares(state.level_counts))

    def levels(self, state: AdditiveState) -> LevelTerms:
        """Return the posterior of the terms of long features."""
        return self._levels(state)

    def _compute_level_terms(self, state: AdditiveState) -> LevelTerms:
        return self._estimate_level_terms(state, state.discounted.current.levels)

    def _estimate_level_terms(self, state: AdditiveState, levels: LevelStatistics) -> LevelTerms:
        level = min(max(self.posterior(state).level, _MIN_LEVEL), 1 - _MIN_LEVEL)
        return levels.estimate_terms(self.long_cells, 4 * level * (1 - level))

    def _join_terms(self, short: Array, long: Array) -> Array:
        """Return the values (..., terms) of all terms from those of short and of long features."""
        joined = np.zeros((*short.shape[:-1], self.all_questions.cells.count))
        joined[..., self.long_cells.short_terms], joined[..., self.long_cells.terms] = short, long
        return joined

    def _allocate_questions(self, state: AdditiveState, n_invited: int, noise: float, *, is_single: bool) -> Array:
        """Return the share of each question, if arms are given out as in the latest round.

        ``is_single``: whether everybody answers one question, with noise that does not depend on how many do.
        """
        resolution, factors = self._resolution(state), self._learned(state).factors
        masses, arms = resolution.merge(self.shares(state.masses)), self.spec.arm_count
        n_features, short_questions = len(self.spec.features), self.long_cells.short_questions
        all_shares = self._all_shares(state)
        weighted = np.full((arms, self.all_questions.cells.count), 2 / arms)
        if state.rounds and len(state.rounds[-1].arms.weighted) == arms:
            # People of each level are taken to get arms as everybody does.
            latest = state.rounds[-1].arms.weighted
            weighted = self._join_terms(latest, np.repeat(latest[:, :1], len(self.long_cells.terms), axis=1))
        weighted = n_invited * all_shares * weighted
        long, short = self.long_cells.terms, resolution.merge(weighted[:, self.long_cells.short_terms])
        long_questions = np.setdiff1d(np.arange(self.all_questions.count), short_questions)
        if is_single:
            spread = state.rounds[-1].arms.spread if state.rounds else np.ones(arms)
            arguments = noise, np.resize(spread, arms), masses, 1 / n_features
            best = short_questions[best_questions(resolution.merged, factors, short, *arguments)]
            shares = np.bincount(np.append(best, long_questions), minlength=self.all_questions.count) / n_features
            if len(best) == 0:
                # Terms of long features are less what all levels have in common, of which somebody has to tell.
                shares = (1 - _NO_FEATURE_SHARE) * shares
                shares[0] += _NO_FEATURE_SHARE
            return np.asarray(shares)
        n_levels = [levels.stop - levels.start for levels in self.long_cells.features]
        level_features = np.repeat(np.arange(len(n_levels)), n_levels)
        level_terms = SeparateTerms(level_features, self.levels(state).variances, weighted[:, long], all_shares[long])
        question_shares = optimal_question_shares(resolution.merged, factors, short, noise, masses, level_terms)
        shares = np.empty(self.all_questions.count)
        shares[short_questions] = question_shares[: self.questions.count]
        shares[long_questions] = question_shares[self.questions.count :]
        return shares

    def _draw_terms(
        self, state: AdditiveState, posterior: TermPosterior, levels: LevelTerms, next_round: NewRound
    ) -> NDArray[np.int16]:
        """Return draws from the posterior, shrunk to its mean; before any report each draw names one arm, in turn.

        Where rewards may move, a few of them name the arm that is remembered least.
        """
        if not state.reported:
            return self._name_arms(np.resize(np.flatnonzero(self.spec.playable), _N_DRAWS))
        rng = np.random.default_rng(next_round.seed)
        coins = rng.standard_normal((_N_DRAWS, *posterior.factors.shape[::2]))
        term_noise = np.einsum("kij,dkj->dki", posterior.factors, coins, optimize=True)
        level_noise = np.sqrt(levels.variances) * rng.standard_normal((_N_DRAWS, *levels.means.shape))
        share = self.spec.algorithm.exploration_scale
        terms = self._join_terms(posterior.means + share * term_noise, levels.means + share * level_noise)
        draws = quantize_terms(terms)
        if self.spec.has_half_life:
            trials = self._choose_trials(state, next_round)
            draws[: len(trials)] = self._name_arms(trials)
        return draws

    def _choose_trials(self, state: AdditiveState, next_round: NewRound) -> Ints:
        """Return the arm that is remembered least, once for each draw that is to name it."""
        size, promises = next_round.batch_size, self.spec.privacy.trust.promises
        share = compute_trial_share(next_round.version, size, has_equal_noise=promises, min_period=_MIN_TRIAL_PERIOD)
        precision = np.where(self.spec.playable, self._evidence(state).information[-1, :, 0, 0], np.inf)
        return np.repeat(np.argmin(precision), round(_N_DRAWS * share))

    def _name_arms(self, arms: Ints) -> NDArray[np.int16]:
        """Return draws, (draws,), in which every participant gets these arms."""
        draws = np.zeros((len(arms), self.spec.arm_count, self.all_questions.cells.count), np.int16)
        draws[np.arange(len(arms)), arms, 0] = 1
        return np.asarray(draws)

    @override
    def learn(self, state: AdditiveState, policy: AdditivePolicy, release: VectorSums | CellHits) -> AdditiveState:
        part_sums, n_reports = PartSums.from_release(policy, release), release.reports
        short_sums = part_sums.select_parts(self.long_cells.short_parts)
        prior_shares = self.shares(state.masses)
        counts = short_sums.counts.sum(axis=0)
        count_variances = short_sums.count_variances(self.questions.incidence_matrix @ prior_shares, n_reports)
        masses = state.masses.add_counts(self.questions, prior_shares, counts, count_variances, n_reports)
        long_sums, level_counts = part_sums.select_parts(self.long_cells.parts), state.level_counts
        level_variances = long_sums.count_variances(self._level_shares(level_counts), n_reports)
        summed_counts = long_sums.counts.sum(axis=0)
        level_counts = level_counts.with_counts(self.long_cells, summed_counts, level_variances, n_reports)
        shares = self._join_terms(self.shares(masses), self._level_shares(level_counts))
        arm_shares = ArmShares.from_deciders(policy, shares)
        means = TERM_UNIT * policy.means.astype(np.float64)
        # What is expected beyond what rare rewards have is in the means, and in no residual.
        cut = n_reports * (arm_shares.cut * shares) @ self.all_questions.incidence_matrix.T
        short_sums = replace(short_sums, sums=short_sums.sums - cut[:, self.long_cells.short_parts])
        long_sums = replace(long_sums, sums=long_sums.sums - cut[:, self.long_cells.parts])
        levels = self._build_level_statistics(long_sums, arm_shares, n_reports * shares, means)
        arms, shares = arm_shares.select_terms(self.long_cells.short_terms), shares[self.long_cells.short_terms]
        matrix, means = self.questions.incidence_matrix.T, means[:, self.long_cells.short_terms]
        spreads = arms.spread[:, None] * (n_reports * (arms.weighted * shares) @ matrix)
        variances = short_sums.variances((arms.shares * shares) @ matrix, spreads)
        exact = short_sums.counts @ self.questions.incidence_matrix if policy.counts_arms else np.zeros((0, 0))
        latest = ObservedRound(n_reports, short_sums.sums, variances, means, arms, short_sums.is_same_people, exact)
        reported = state.reported + n_reports
        discounted = self.forgetting.fade(state.discounted, reported)
        if self.forgetting.chooses:
            information, scores = latest.statistics(self.questions, self.shares(masses))
            [total] = sum_information(self.questions, [information], np.ones((1, 1)))
            new_evidence = TermStatistics(total, scores, levels)
            discounted = self._choose_half_life(state, discounted, new_evidence)
        evidence = replace(discounted.evidence, levels=discounted.evidence.levels.plus(levels))
        discounted = replace(discounted, evidence=evidence)
        rounds = (*state.rounds, latest)
        new_state = AdditiveState(reported, discounted, masses, level_counts, state.bins, state.reviewed, rounds)
        # Where people are counted by arm and cell, nothing more is learned of where they were.
        folded = self._fold_rounds(new_state, 0 if policy.counts_arms else _N_REVISITED_ROUNDS)
        return self._review_bins(folded, self._learned(state))

    def _review_bins(self, state: AdditiveState, posterior: TermPosterior) -> AdditiveState:
        """Return the state with the bins that evidence asks for, if they are due; ``posterior`` is that before it."""
        has_choice = coarsest_bins(self.cells) != tuple(feature.bins for feature in self.cells.features)
        if not (has_choice and is_due(state.reported, state.reviewed)):
            return state
        arguments = self._resolution(state), *self.statistics(state), self.shares(state.masses), posterior
        return replace(state, bins=choose_bins(*arguments), reviewed=state.reported)

    def _choose_half_life(
        self, state: AdditiveState, faded: Discounted[TermStatistics], new_evidence: TermStatistics
    ) -> Discounted[TermStatistics]:
        """Return faded evidence with the half-life that predicts rounds best in use.

        Half-lives are compared under the prior of the one in use: they differ in nothing but what they forget.
        """
        posterior, resolution = self._learned(state), self._resolution(state)
        new_statistics = resolution.merge_statistics(new_evidence.information, new_evidence.scores)

        def score(evidence: TermStatistics, _half_life: float, new_evidence: TermStatistics) -> float:
            statistics = resolution.merge_statistics(evidence.information, evidence.scores)
            refitted = TermPosterior.fit(*statistics, resolution.merged.cells, posterior.prior, posterior.level)
            levels = self._estimate_level_terms(state, evidence.levels)
            log_density = refitted.predictive_log_density(*new_statistics)
            return log_density + levels.predictive_log_density(new_evidence.levels)

        everything = replace(state.discounted, evidence=self._evidence(state))
        everything = self.forgetting.fade(everything, faded.n_own_reports)
        n_reports = faded.n_own_reports - state.discounted.n_own_reports
        chosen = self.forgetting.choose_half_life(everything, new_evidence, n_reports, score)
        return replace(chosen, evidence=faded.evidence)

    def _build_level_statistics(
        self, part_sums: PartSums, arms: ArmShares, n_participants: Array, means: Array
    ) -> LevelStatistics:
        """Return what a round says of levels; ``n_participants`` (terms,) are those of each cell."""
        columns = self.long_cells.terms
        slopes = (n_participants * arms.weighted)[:, columns]
        if len(part_sums.counts) == len(slopes):
            # They were counted.
            slopes = part_sums.counts * arms.weighted[:, columns] / np.maximum(arms.shares[:, columns], _MIN_DIVISOR)
        spreads = arms.spread[:, None] * np.maximum(slopes, 1.0)
        shares = arms.shares[:, columns] * n_participants[columns] / max(float(n_participants[0]), 1.0)
        variances = part_sums.variances(shares, spreads * (part_sums.times != 1)) + spreads
        return LevelStatistics.from_sums(self.long_cells, slopes, part_sums.sums, variances, means[:, columns])

    def _fold_rounds(self, state: AdditiveState, n_kept: int) -> AdditiveState:
        """Return the state with the latest ``n_kept`` rounds; the statistics of earlier rounds are added up."""
        n_folded = max(0, len(state.rounds) - n_kept)
        discounted = replace(
            state.discounted, evidence=self._sum_statistics(state, self._list_statistics(state, n_folded))
        )
        return replace(state, discounted=discounted, rounds=state.rounds[n_folded:])

    @override
    def apply_arm_change(self, state: AdditiveState, old_spec: AdditiveSpec) -> AdditiveState:
        folded, n_added = self._fold_rounds(state, 0), self.spec.arm_count - old_spec.arm_count
        return replace(folded, discounted=folded.discounted.with_arms(n_added))

    @override
    def figures(self, state: AdditiveState) -> dict[str, float]:
        """Return the standard error of a mean reward, averaged over arms and participants."""
        variances = mean_variances(self.cells, self.shares(state.masses), self.posterior(state).factors)
        variances += self.levels(state).variances @ self._level_shares(state.level_counts)
        return {"uncertainty": self.spec.reward.span * float(np.sqrt(variances).mean())}

    @override
    def build_expected_rewards(self, state: AdditiveState) -> ExpectedRewards | None:
        if not state.reported:
            return None
        posterior, levels, reward = self.posterior(state), self.levels(state), self.spec.reward
        covariances, means = posterior.covariances, self._join_terms(posterior.means, levels.means)

        def predict(contexts: Array) -> tuple[Array, Array]:
            rows = build_indicators(self.all_questions.cells, contexts)
            x = rows[:, self.long_cells.short_terms]
            variances = np.einsum("nd,kde,ne->nk", x, covariances, x, optimize=True)
            variances += rows[:, self.long_cells.terms] @ levels.variances.T
            deviations = reward.span * np.sqrt(np.maximum(variances, 0.0))
            return reward.unscaled(np.clip(rows @ means.T, 0.0, 1.0)), deviations

        def standard_error(contexts: Array, weights: Array) -> float:
            all_sums = weights.T @ build_indicators(self.all_questions.cells, contexts)
            sums = all_sums[:, self.long_cells.short_terms]
            variance = np.einsum("kd,kde,ke->", sums, covariances, sums)
            variance += (all_sums[:, self.long_cells.terms] ** 2 * levels.variances).sum()
            return reward.span * float(np.sqrt(max(0.0, variance)))

        masses = self._all_shares(state)

        def draw_contexts(coordinates: Array) -> Array:
            return build_contexts(self.all_questions.cells, masses, self.spec.dimension, coordinates)

        return ExpectedRewards.from_single_box(self.spec.dimension, predict, standard_error, draw_contexts)
