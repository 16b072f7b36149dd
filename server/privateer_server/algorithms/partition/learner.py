"""The learner of the partition bandit: one signed symbol a person, and bins that learn from their neighbours."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from typing_extensions import override

from privateer_core.algorithms.partition import PartitionPolicy, PartitionSpec
from privateer_core.answer.estimates import MeasuredRate
from privateer_core.answer.parts import AnswerPart, BinMeans, DriftTest
from privateer_core.arrays import Array, Bools
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.primitives.contributions import CellHits, KeyedRelease, TieredSums
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.forgetting import ForgettingRule
from privateer_server.algorithms.partition.allocation import (
    Allocation,
    BinKinds,
    best_probabilities,
    select_best_arm,
    thompson_draw,
)
from privateer_server.algorithms.partition.bin_tree import BinTree, Space
from privateer_server.algorithms.partition.change_detection import advance_window, detect_change
from privateer_server.algorithms.partition.clipped_weights import ClippedWeights, KeptWeights, build_clipping_table
from privateer_server.algorithms.partition.cohorts import CONFIDENCE, DEVIATIONS, CohortLearner, build_bin_means
from privateer_server.algorithms.partition.feature_selection import FeatureSelector, Selection
from privateer_server.algorithms.partition.gaussian_process import BinEvidence, BinPosterior, BinProcess
from privateer_server.algorithms.partition.kernel import (
    SPREADS,
    UNSCALED,
    Hyperparameters,
    Kernel,
    PriorScale,
    usual_lengths,
)
from privateer_server.algorithms.partition.round_estimates import Beliefs, CohortShares, add_round_estimates
from privateer_server.algorithms.partition.splitting import (
    SplittingRule,
    keep_whole,
    locate_asked_parts,
    number_parents,
    split_undecided_bins,
)
from privateer_server.algorithms.partition.state import PartitionState
from privateer_server.algorithms.tier_account import TierAccount

_MAX_FIRST_LEVEL_BINS: Final = 16  # bins that the tree begins with at most, of levels or sets of levels
_MAX_FIRST_BINS: Final = 32  # bins that the tree begins with after features were selected, at most
_USUAL_SPREAD: Final = 0.5
_RECOMPUTE_GROWTH: Final = 1.03  # posteriors are computed again when this many times as many people have reported
_REFIT_GROWTH: Final = 1.25  # the kernel is fitted again when this many times as many people have reported
_MAX_FITTED_BINS: Final = 128


class PartitionLearner(CohortLearner[PartitionState]):
    """Algorithm 2 of Ma et al. 2025 with public arms and one signed symbol; docs/learning.md explains departures."""

    state_type = PartitionState

    def __init__(self, spec: PartitionSpec) -> None:
        super().__init__(spec)
        section, self.space = spec.algorithm, Space(spec.blocks)
        # selection, forgetting, splitting, allocation: its parts, which are rules: each has a record of its own in the
        # state, or decides from those of others
        self.selection = FeatureSelector(spec)
        self.forgetting = ForgettingRule(section.half_lives, chooses=section.half_life == "auto")
        self.splitting = SplittingRule(spec, self.space)
        self._first_columns = [] if self.selection.selects else self.space.select_level_columns(_MAX_FIRST_LEVEL_BINS)
        self.allocation = Allocation(spec, by_levels=bool(self._first_columns))
        self._weighs = any(source.min_propensities is not None for source in spec.sources)

    @override
    def start(self, seed: int) -> PartitionState:
        """Return a state with all arms active, of one bin or of a bin for each level."""
        n_arms = self.spec.arm_count
        usual_spread = int(np.argmin(np.abs(SPREADS - _USUAL_SPREAD)))
        state = PartitionState(
            rounds=0,
            seen=0,
            n_own_reports=0,
            cohort=self.spec.cohorts[0],
            reported=0,
            tree=BinTree.root(),
            active=self.playable[None, :],
            evidence=BinEvidence.empty(1, n_arms),
            population=CohortShares.from_one_bin(len(self.cohorts)),
            hyperparameters=Hyperparameters(usual_lengths(self.space.parts), usual_spread),
            posterior=BinPosterior(np.zeros((1, n_arms)), np.ones((1, n_arms)), 0),
            discounted=self.forgetting.start(BinEvidence.empty(1, n_arms)) if self.forgetting.half_lives else None,
            selection=self.selection.start(),
            prior=self._declared_prior(),
            kept_weights=KeptWeights.empty(len(self.cohorts)) if self._weighs else None,
            tiers=TierAccount.start(self.spec, has_single_key=False),
        )
        for level, column in enumerate(self._first_columns):
            is_split = self.build_process(state).half_difference_variances(state.tree)[:, column] > 0
            state = self.cut_bins(state, state.tree.with_level(column), is_split & (state.tree.depths == level))
        return self.compute_posterior(state)

    def _declared_prior(self) -> PriorScale:
        reward, people = self.spec.reward, self.spec.experiment.round_size
        if reward.base_rate is None:
            return UNSCALED
        return PriorScale.from_declared(2 * reward.scale_and_clip(reward.base_rate)[0] - 1, people)

    def build_process(
        self, state: PartitionState, evidence: BinEvidence | None = None, half_life: float | None = None
    ) -> BinProcess:
        """Return the Gaussian process of a state, or of other evidence on its bins, and of another half-life."""
        blocks, parameters = self.selection.blocks(state.selection), state.hyperparameters
        space, columns = self.space.select_blocks(blocks)
        other_observations = None
        if selection := state.selection:
            life = self.forgetting.half_life(state.discounted) if half_life is None else half_life
            other_observations = self.selection.build_observations(
                selection, columns, state.prior, state.n_own_reports, life
            )
        return BinProcess(
            tree=state.tree,
            evidence=evidence or state.evidence,
            people=state.population.shares[0],
            kernel=Kernel(parameters.lengths[blocks], parameters.spread, space, parameters.common),
            space=space,
            columns=columns,
            dimension=self.spec.dimension,
            other_observations=other_observations,
            prior=state.prior,
        )

    @override
    def apply_arm_change(self, state: PartitionState, old_spec: PartitionSpec) -> PartitionState:
        n_added = self.spec.arm_count - old_spec.arm_count
        active = np.pad(state.active, ((0, 0), (0, n_added)), constant_values=True)
        playable_active = active & self.playable
        # Where only retired arms were left, all others are tried again.
        active = np.where(playable_active.any(axis=1, keepdims=True), playable_active, self.playable)
        state = replace(
            state,
            active=active,
            evidence=state.evidence.with_arms(n_added),
            discounted=state.discounted.with_arms(n_added) if state.discounted else None,
            window=state.window.with_arms(n_added) if state.window else None,
            selection=state.selection.with_arms(n_added) if state.selection else None,
        )
        return self.update_arms(self.compute_posterior(state))

    @override
    def select_cohorts(self, state: PartitionState, rows: list[int]) -> PartitionState:
        selection = state.selection.select_cohorts(rows) if state.selection else None
        population = state.population.select_cohorts(rows)
        kept_weights = state.kept_weights or KeptWeights.empty(len(state.population.shares))
        selected_weights = kept_weights.select_cohorts(rows) if self._weighs else None
        return replace(state, population=population, selection=selection, kept_weights=selected_weights)

    @override
    def keep_evidence_only(self, state: PartitionState) -> PartitionState:
        """Return the state with its discounted evidence, but without counts and the window that compares rounds."""
        selection = state.selection
        return replace(
            super().keep_evidence_only(state),
            n_own_reports=0,
            hyperparameters=replace(state.hyperparameters, fitted=0),
            discounted=self.forgetting.restart(state.discounted),
            window=None,
            selection=replace(selection, ended=selection.ended - state.n_own_reports) if selection else None,
            tiers=TierAccount.start(self.spec, has_single_key=False),
        )

    @override
    def policy(self, state: PartitionState, next_round: NewRound) -> PartitionPolicy:
        """Return the policy of a round that asks the bins with several active arms, shared by Thompson sampling.

        Where the arm is in the key people are told apart by parts of bins, which reports are not, and rounds may play
        one arm each: an arm that has a whole round tells more than one that has the same share of several.

        At the end (``batch`` 0) every bin plays its best arm. While features are selected the bins are those of one.
        """
        if next_round.batch_size and state.selection and state.selection.open:
            return self._ask_about_feature(state, state.selection, next_round)
        in_key, process = self.spec.privacy.has_arm_in_key, self.build_process(state)
        if in_key:
            parts = split_undecided_bins(process, state.active, self.space, self.splitting)
        else:
            parts = keep_whole(state.tree, state.means(is_asking=next_round.batch_size > 0))
        rows = parts.rows
        active = state.active[rows]
        if not next_round.batch_size:
            active = select_best_arm(active, state.is_tried, parts.mean)
        # What may move is watched: with forgetting bins with one active arm ask their people too.
        bins = np.flatnonzero(active.sum(axis=1) > (0 if next_round.batch_size and state.discounted else 1))
        kinds = self._classify_bins(state, process)
        standard_deviation = self._exploration(state, kinds)[rows, None] * np.sqrt(state.posterior.variance[rows])
        beliefs = (parts.mean[bins], standard_deviation[bins], active[bins])
        shares = best_probabilities(*beliefs)
        if in_key:
            one_arm = kinds.one_arm[rows[bins], None]
            shares = np.where(one_arm, thompson_draw(*beliefs, rows[bins], next_round.seed), shares)
        people = (state.population.shares[self.cohorts.index(next_round.cohort), rows] * parts.shares)[bins]
        tree: dict[str, Any] = {"axes": parts.tree.all_axes(self.spec.dimension), "depths": parts.tree.depths}
        tree |= {"paths": parts.tree.paths, "active": active, "bins": bins}
        tree["wholes"] = number_parents(rows[bins]) if in_key else None
        return self.build_policy_from_shares(next_round, shares, people, state.prior.rate, **tree)

    def _ask_about_feature(self, state: PartitionState, selection: Selection, next_round: NewRound) -> PartitionPolicy:
        """Return a policy that asks about the cells of the next feature, with all arms in play."""
        cells, rows = self.selection.cells[selection.feature], self.selection.rows(selection.feature)
        process = self.build_process(state)
        means, variances = (moment[rows] for moment in process.posterior_of_other_boxes())
        active = np.tile(self.playable, (len(cells), 1))
        exploration = self.allocation.selection_factor * self._exploration(state, self._classify_bins(state, process))
        shares = best_probabilities(means, exploration * np.sqrt(variances), active)
        people = selection.population.shares[self.cohorts.index(next_round.cohort), rows]
        tree = {"axes": cells.axes, "depths": cells.depths, "paths": cells.paths, "active": active}
        tree["bins"] = np.arange(len(cells))
        return self.build_policy_from_shares(next_round, shares, people, state.prior.rate, **tree)

    def _classify_bins(self, state: PartitionState, process: BinProcess) -> BinKinds:
        selected = state.selection is not None
        return self.allocation.classify_bins(process, state.active, state.posterior.variance, selected=selected)

    def _exploration(self, state: PartitionState, kinds: BinKinds) -> Array:
        half_life, rare_share = self.forgetting.half_life(state.discounted), state.prior.rare_outcome_share
        return self.allocation.exploration_factors(kinds, state.n_own_reports, half_life, rare_share)

    @override
    def learn(self, state: PartitionState, policy: PartitionPolicy, release: KeyedRelease | CellHits) -> PartitionState:
        """Return the state after a round; if there are enough new reports, arms are dropped and bins are split."""
        release = release.keyed_sums if isinstance(release, CellHits) else release
        n_own_reports = state.n_own_reports + (0 if policy.cohort else release.reports)
        state = self.count_round(replace(state, n_own_reports=n_own_reports), policy, release.reports)
        if state.tiers and isinstance(release, TieredSums):
            state = replace(state, tiers=state.tiers.add(release))
        if state.kept_weights:
            state = replace(state, kept_weights=state.kept_weights.add(self.spec, policy, release))
        if state.selection and state.selection.open:
            return self._learn_about_feature(state, state.selection, policy, release)
        parts = locate_asked_parts(policy, self.space, self.build_process(state)) if policy.wholes is not None else None
        rows = np.unique(parts.rows) if parts else policy.bins
        prior = Beliefs(state.posterior.mean[rows], state.prior)
        updated = add_round_estimates(state.population, state.evidence, self.spec, policy, release, rows, prior, parts)
        state = replace(state, population=updated[0], evidence=updated[1])
        n_computed = state.posterior.computed
        if not (state.is_news(n_computed, _RECOMPUTE_GROWTH) or self.forgetting.is_due(state.seen - n_computed)):
            return state
        state = self.rescale_prior(self.fade_evidence(state))
        if state.is_news(state.hyperparameters.fitted, _REFIT_GROWTH) and len(state.tree) <= _MAX_FITTED_BINS:
            state = self._fit_kernel(state)
        state = self.split_bins(self.update_arms(self.compute_posterior(state)))
        window = advance_window(state.window, state.tree, state.endless, state.n_own_reports, self._likelihood(state))
        return replace(state, window=window)

    def _learn_about_feature(
        self, state: PartitionState, selection: Selection, policy: PartitionPolicy, release: KeyedRelease
    ) -> PartitionState:
        """Return the state after a round about one feature; the last such round builds the tree of bins."""
        means = self.build_process(state).posterior_of_other_boxes()[0][self.selection.rows(selection.feature)]
        selection = self.selection.add_round(selection, policy, release, Beliefs(means, state.prior))
        state = self.rescale_prior(replace(state, selection=selection))
        spread, n_own_reports = state.hyperparameters.spread, state.n_own_reports
        selection = self.selection.end_if_enough_asked(selection, spread, state.prior, n_own_reports)
        state = replace(state, selection=selection)
        if selection.open:
            is_news = state.is_news(state.hyperparameters.fitted, _REFIT_GROWTH)
            return self.compute_posterior(self._fit_kernel(state) if is_news else state)
        state = self.compute_posterior(self._fit_kernel(state))
        while len(state.tree) < len((new_state := self.split_bins(self.update_arms(state))).tree) <= _MAX_FIRST_BINS:
            state = new_state
        return state

    def fade_evidence(self, state: PartitionState) -> PartitionState:
        """Return the state with evidence discounted under every half-life, and the best half-life in use."""
        if state.discounted is None:
            return state

        def score(evidence: BinEvidence, half_life: float, new_evidence: BinEvidence) -> float:
            return self.build_process(state, evidence, half_life).predictive_log_density(new_evidence)

        previous = state.discounted.current
        zeros = np.zeros_like(previous.past_precision)
        precision, moment = state.evidence.precision - previous.precision, state.evidence.moment - previous.moment
        new_evidence = BinEvidence(precision, moment, zeros, zeros)
        faded = self.forgetting.add_evidence(state.discounted, new_evidence, state.n_own_reports, score)
        return replace(state, discounted=faded, evidence=faded.current)

    def detect_change(self, state: PartitionState) -> DriftTest | None:
        """Return the test of whether rounds contradict earlier ones; None before the first window opens."""
        if state.window is None:
            return None
        return detect_change(state.window, state.tree, state.endless, self._likelihood(state))

    def _likelihood(self, state: PartitionState) -> Callable[[BinEvidence], float]:
        return lambda evidence: self.build_process(state, evidence, math.inf).log_density()

    def _fit_kernel(self, state: PartitionState) -> PartitionState:
        kernel = self.build_process(state).fit_kernel()
        lengths = state.hyperparameters.lengths.copy()
        lengths[self.selection.blocks(state.selection)] = kernel.lengths
        return replace(state, hyperparameters=Hyperparameters(lengths, kernel.spread, state.seen, kernel.common))

    def rescale_prior(self, state: PartitionState) -> PartitionState:
        """Return the state with the prior's level at the mean of observed values."""
        precision, moment = state.observed_cells
        if not precision.any():
            return state
        spread = float(SPREADS[state.hyperparameters.spread])
        return replace(state, prior=PriorScale.from_observations(precision, moment, spread))

    @override
    def measured_rate(self, state: PartitionState) -> MeasuredRate | None:
        precision, moment = (float(values.sum()) for values in state.observed_cells)
        return MeasuredRate.normal((1 + moment / precision) / 2, 0.5 / math.sqrt(precision)) if precision else None

    @override
    def warnings(self, state: PartitionState) -> tuple[str, ...]:
        clipping = (warning for clipped in self._list_clipped_weights(state) for warning in clipped.warnings())
        warnings = (*super().warnings(state), *clipping)
        return (*warnings, *state.constant.warnings()) if state.constant and self.is_over(state) else warnings

    def compute_posterior(self, state: PartitionState) -> PartitionState:
        """Return the state with a new posterior, and the model of constant differences where coins choose arms."""
        process = self.build_process(state)
        constant = None if self.spec.privacy.has_arm_in_key else process.fit_context_free_arms()
        return replace(state, posterior=BinPosterior(*process.posterior(), state.seen), constant=constant)

    def update_arms(self, state: PartitionState) -> PartitionState:
        """Return the state without arms that are behind, and with arms that may be the best again."""
        process, posterior = self.build_process(state), state.posterior
        kinds = self._classify_bins(state, process)
        active = self.allocation.surviving_arms(process, kinds, state.active, posterior.mean, posterior.variance)
        return replace(state, active=active)

    def split_bins(self, state: PartitionState) -> PartitionState:
        """Return the state with the bins split whose values are known precisely enough."""
        process, posterior = self.build_process(state), state.posterior
        differences = process.half_difference_variances(state.tree)
        beliefs = state.active, posterior.mean, posterior.variance
        ready = self.splitting.is_ready(state.tree, *beliefs, differences, process.space.depth)
        if not ready.any():
            return state
        tree = self.splitting.add_level(state.tree, ready, differences, process.columns)
        return self.compute_posterior(self.cut_bins(state, tree, ready))

    def cut_bins(self, state: PartitionState, tree: BinTree, ready: Bools) -> PartitionState:
        """Return the state with bins split, before the posterior is computed; ``tree`` has the level for it."""
        (new_tree, split), discounted = tree.split(ready), state.discounted
        share_ratios = new_tree.expected_shares(self.space) / state.tree.expected_shares(self.space)[split.copies]
        return replace(
            state,
            tree=new_tree,
            active=state.active[split.copies],
            evidence=state.evidence.split(split),
            population=state.population.split(split, share_ratios),
            discounted=replace(discounted, evidence=discounted.evidence.split(split)) if discounted else None,
        )

    @override
    def edges(self, state: PartitionState) -> tuple[Array, Array]:
        return state.tree.corners(self.spec.dimension)

    @override
    def has_evidence(self, state: PartitionState) -> bool:
        return bool(state.seen or state.evidence.precision.any())

    @override
    def build_expected_rewards(self, state: PartitionState) -> ExpectedRewards | None:
        return state.build_expected_rewards(self.spec, self.build_process(state)) if self.has_evidence(state) else None

    @override
    def bin_means(self, state: PartitionState) -> BinMeans:
        """Return mean rewards by bin, with the intervals of their posteriors."""
        means, errors = self._scale_to_rewards(state)
        return build_bin_means(state.active, self.edges(state), means, DEVIATIONS * errors, self.spec, CONFIDENCE)

    @override
    def findings(self, state: PartitionState) -> tuple[AnswerPart, ...]:
        """Return the test for change, the half-life, the selected features, clipped weights, and what tiers gave."""
        half_lives = self.forgetting.build_result(state.discounted) if state.discounted else None
        selection = self.selection.build_result(state.selection) if state.selection else None
        clipped = self._list_clipped_weights(state)
        clipping = build_clipping_table(clipped, self.spec.reward.span) if clipped else None
        parts = self.detect_change(state), half_lives, selection, clipping
        tiers = state.tiers.build_tables(self.spec) if state.tiers else ()
        return tuple(part for part in (*parts, *tiers) if part is not None)

    def _list_clipped_weights(self, state: PartitionState) -> list[ClippedWeights]:
        return state.kept_weights.list_clipped(self.spec, state.cohort) if state.kept_weights and state.rounds else []

    def _scale_to_rewards(self, state: PartitionState) -> tuple[Array, Array]:
        low, high = self.spec.reward.low, self.spec.reward.high
        means = low + (high - low) * (state.posterior.mean + 1) / 2
        common = state.hyperparameters.common
        variance = self.build_process(state).variances_with_common_part() if common else state.posterior.variance
        return means, (high - low) * np.sqrt(variance) / 2


learner = PartitionLearner
