"""The learner of the partition bandit: one signed symbol a person, and bins that learn from their neighbours."""

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.partition import PartitionPolicy, PartitionSpec
from privateer_core.answer.measured_rate import MeasuredRate
from privateer_core.answer.parts import AnswerPart, BinMeans, Contradiction
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.primitives.contributions import CellHits, KeyedRelease
from privateer_server.algorithms import Learner, NewRound
from privateer_server.algorithms.partition.allocation import (
    Allocation,
    BinKinds,
    best_probabilities,
    only_best,
    thompson_draw,
)
from privateer_server.algorithms.partition.bin_tree import BinTree, Space
from privateer_server.algorithms.partition.change_detection import contradiction, windowed
from privateer_server.algorithms.partition.cohorts import CONFIDENCE, DEVIATIONS, CohortLearner, bin_means
from privateer_server.algorithms.partition.feature_selection import FeatureSelector, Selection
from privateer_server.algorithms.partition.forgetting import Forgetting
from privateer_server.algorithms.partition.gaussian_process import BinEvidence, BinPosterior, BinProcess
from privateer_server.algorithms.partition.kernel import (
    SPREADS,
    UNSCALED,
    Hyperparameters,
    Kernel,
    PriorScale,
    usual_lengths,
)
from privateer_server.algorithms.partition.round_estimates import Beliefs, Population, estimated
from privateer_server.algorithms.partition.splitting import Splitting, asked_parts, subdivided, undivided, wholes_of
from privateer_server.algorithms.partition.state import PartitionState

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

_FIRST_LEVELS: Final = 16
"""Bins that the tree begins with at most, of levels or sets of levels."""
_FIRST_BINS: Final = 32
"""Bins that the tree begins with after features were selected, at most."""
_USUAL_SPREAD: Final = 0.5
_NEWS: Final = 1.03
"""Posteriors are computed again when this many times as many people have reported."""
_FITTED: Final = 1.25
"""The kernel is fitted again when this many times as many people have reported."""
_FITTED_BINS: Final = 128


class PartitionLearner(CohortLearner[PartitionState]):
    """Algorithm 2 of Ma et al. 2025 with public arms and one signed symbol; docs/learning.md explains departures."""

    state_type = PartitionState

    def __init__(self, spec: PartitionSpec) -> None:
        super().__init__(spec)
        section, self.space = spec.algorithm, Space(spec.blocks)
        # selection, forgetting, splitting, allocation: its parts, which are rules: each has a record of its own in the
        # state, or decides from those of others
        self.selection = FeatureSelector(spec)
        self.forgetting = Forgetting(section.half_lives, chooses=section.memory == "auto")
        self.splitting = Splitting(spec, self.space)
        self._first_columns = [] if self.selection.selects else self.space.columns_of_levels(_FIRST_LEVELS)
        self.allocation = Allocation(spec, by_levels=bool(self._first_columns))

    @override
    def start(self, seed: int) -> PartitionState:
        """Return a state of one bin, or of one for each level, in which all arms are played."""
        arms = self.spec.arm_count
        state = PartitionState(
            rounds=0,
            seen=0,
            own=0,
            cohort=self.spec.cohorts[0],
            reported=0,
            tree=BinTree.root(),
            active=self.playable[None, :],
            evidence=BinEvidence.nothing(1, arms),
            population=Population.in_one_bin(len(self.cohorts)),
            hyperparameters=Hyperparameters(
                usual_lengths(self.space.parts), int(np.argmin(np.abs(SPREADS - _USUAL_SPREAD)))
            ),
            posterior=BinPosterior(np.zeros((1, arms)), np.ones((1, arms)), 0),
            discounted=self.forgetting.start(arms),
            selection=self.selection.start(),
            prior=self._declared(),
        )
        for level, column in enumerate(self._first_columns):
            parts_levels = self.process(state).differences(state.tree)[:, column] > 0
            state = self.cut(state, state.tree.with_level(column), parts_levels & (state.tree.depths == level))
        return self.computed(state)

    def _declared(self) -> PriorScale:
        """Return where values are expected before anybody reported."""
        reward, people = self.spec.reward, self.spec.experiment.round_size
        if reward.base_rate is None:
            return UNSCALED
        return PriorScale.declared(2 * reward.scaled(reward.base_rate)[0] - 1, people)

    def process(
        self, state: PartitionState, evidence: BinEvidence | None = None, half_life: float | None = None
    ) -> BinProcess:
        """Return the Gaussian process of a state, or of other evidence on its bins, and of another half-life."""
        blocks = self.selection.blocks(state.selection)
        space, columns = self.space.only(blocks)
        beside = None
        if state.selection:
            life = self.forgetting.half_life(state.discounted) if half_life is None else half_life
            beside = self.selection.observations(state.selection, columns, state.prior, state.own, life)
        return BinProcess(
            tree=state.tree,
            evidence=evidence or state.evidence,
            people=state.population.shares[0],
            kernel=Kernel(
                state.hyperparameters.lengths[blocks], state.hyperparameters.spread, space, state.hyperparameters.common
            ),
            space=space,
            columns=columns,
            dimension=self.spec.dimension,
            beside=beside,
            prior=state.prior,
        )

    @override
    def rearmed(self, state: PartitionState, before: PartitionSpec) -> PartitionState:
        added = self.spec.arm_count - before.arm_count
        active = np.pad(state.active, ((0, 0), (0, added)), constant_values=True)
        left = active & self.playable
        # Where only retired arms were left, all others are tried again.
        active = np.where(left.any(axis=1, keepdims=True), left, self.playable)
        state = replace(
            state,
            active=active,
            evidence=state.evidence.with_arms(added),
            discounted=state.discounted.with_arms(added) if state.discounted else None,
            window=state.window.with_arms(added) if state.window else None,
            selection=state.selection.with_arms(added) if state.selection else None,
        )
        return self.sifted(self.computed(state))

    @override
    def of_cohorts(self, state: PartitionState, rows: list[int]) -> PartitionState:
        selection = state.selection.of_cohorts(rows) if state.selection else None
        return replace(state, population=state.population.of_cohorts(rows), selection=selection)

    @override
    def anew(self, state: PartitionState) -> PartitionState:
        """Return the state; evidence has faded as much as it has, and rounds are compared with each other alone."""
        discounted, selection = state.discounted, state.selection
        return replace(
            super().anew(state),
            own=0,
            hyperparameters=replace(state.hyperparameters, fitted=0),
            discounted=replace(discounted, own=0) if discounted else None,
            window=None,
            selection=replace(selection, ended=selection.ended - state.own) if selection else None,
        )

    @override
    def policy(self, state: PartitionState, ahead: NewRound) -> PartitionPolicy:
        """Bins with several active arms ask their people; coins are shared out by Thompson sampling.

        Where the arm is in the key people are told apart by parts of bins, which reports are not, and rounds may play
        one arm each: an arm that has a whole round tells more than one that has the same share of several.

        At the end (``batch`` 0) every bin plays its best arm. While features are selected the bins are those of one.
        """
        if ahead.batch and state.selection and state.selection.open:
            return self._about_one_feature(state, state.selection, ahead)
        in_key, process = self.spec.privacy.arm_in_key, self.process(state)
        if in_key:
            parts = subdivided(process, state.active, self.space, self.splitting)
        else:
            parts = undivided(state.tree, state.means(asks=ahead.batch > 0))
        rows = parts.rows
        active = state.active[rows] if ahead.batch else only_best(state.active[rows], self._tried(state), parts.mean)
        # What may move is watched: with forgetting bins with one active arm ask their people too.
        bins = np.flatnonzero(active.sum(axis=1) > (0 if ahead.batch and state.discounted else 1))
        kinds = self._kinds(state, process)
        standard_deviation = self._exploration(state, kinds)[rows, None] * np.sqrt(state.posterior.variance[rows])
        beliefs = (parts.mean[bins], standard_deviation[bins], active[bins])
        shares = best_probabilities(*beliefs)
        if in_key:
            one_arm = kinds.one_arm[rows[bins], None]
            shares = np.where(one_arm, thompson_draw(*beliefs, rows[bins], ahead.seed), shares)
        people = (state.population.shares[self.cohorts.index(ahead.cohort), rows] * parts.shares)[bins]
        tree: dict[str, Any] = {"axes": parts.tree.all_axes(self.spec.dimension), "depths": parts.tree.depths}
        tree |= {"paths": parts.tree.paths, "active": active, "bins": bins}
        tree["wholes"] = wholes_of(rows[bins]) if in_key else None
        return self.policy_of_shares(ahead, shares, people, state.prior.rate, **tree)

    def _about_one_feature(self, state: PartitionState, selection: Selection, ahead: NewRound) -> PartitionPolicy:
        """Ask about the cells of the feature whose turn it is, with all arms in play."""
        one, rows = self.selection.cells[selection.feature], self.selection.rows(selection.feature)
        process = self.process(state)
        means, variances = (found[rows] for found in process.posterior_beside())
        active = np.tile(self.playable, (len(one), 1))
        exploration = self.allocation.selecting * self._exploration(state, self._kinds(state, process))
        shares = best_probabilities(means, exploration * np.sqrt(variances), active)
        people = selection.population.shares[self.cohorts.index(ahead.cohort), rows]
        tree = {"axes": one.axes, "depths": one.depths, "paths": one.paths, "active": active}
        tree["bins"] = np.arange(len(one))
        return self.policy_of_shares(ahead, shares, people, state.prior.rate, **tree)

    def _kinds(self, state: PartitionState, process: BinProcess) -> BinKinds:
        selected = state.selection is not None
        return self.allocation.kinds(process, state.active, state.posterior.variance, selected=selected)

    def _exploration(self, state: PartitionState, kinds: BinKinds) -> Array:
        half_life = self.forgetting.half_life(state.discounted)
        return self.allocation.exploration(kinds, state.own, half_life, state.prior.rarity)

    @staticmethod
    def _tried(state: PartitionState) -> Bools:
        """Return which arms were played anywhere: one that was added since is nobody's best."""
        return state.evidence.tried | state.selection.evidence.tried if state.selection else state.evidence.tried

    @override
    def learn(self, state: PartitionState, policy: PartitionPolicy, release: KeyedRelease | CellHits) -> PartitionState:
        """Add what a round says of people and values; then, if there is news enough, drop arms and split bins."""
        release = release.keyed if isinstance(release, CellHits) else release
        own = state.own + (0 if policy.cohort else release.reports)
        state = self.counted(replace(state, own=own), policy, release.reports)
        if state.selection and state.selection.open:
            return self._selected(state, state.selection, policy, release)
        parts = asked_parts(policy, self.space, self.process(state)) if policy.wholes is not None else None
        rows = np.unique(parts.rows) if parts else policy.bins
        before = Beliefs(state.posterior.mean[rows], state.prior)
        known = estimated(state.population, state.evidence, self.spec, policy, release, rows, before, parts)
        state = replace(state, population=known[0], evidence=known[1])
        since = state.posterior.computed
        if not (state.is_news(since, _NEWS) or self.forgetting.is_due(state.seen - since)):
            return state
        state = self.rescaled(self.discounted(state))
        if state.is_news(state.hyperparameters.fitted, _FITTED) and len(state.tree) <= _FITTED_BINS:
            state = self._fitted(state)
        return self._windowed(self.split(self.sifted(self.computed(state))))

    def _selected(
        self, state: PartitionState, selection: Selection, policy: PartitionPolicy, release: KeyedRelease
    ) -> PartitionState:
        """Add what a round says of one feature; when enough people were asked, begin the tree with what matters."""
        before = self.process(state).posterior_beside()[0][self.selection.rows(selection.feature)]
        selection = self.selection.learned(selection, policy, release, Beliefs(before, state.prior))
        state = self.rescaled(replace(state, selection=selection))
        selection = self.selection.decided(selection, state.hyperparameters.spread, state.prior, state.own)
        state = replace(state, selection=selection)
        if selection.open:
            is_news = state.is_news(state.hyperparameters.fitted, _FITTED)
            return self.computed(self._fitted(state) if is_news else state)
        state = self.computed(self._fitted(state))
        while len(state.tree) < len((after := self.split(self.sifted(state))).tree) <= _FIRST_BINS:
            state = after
        return state

    def discounted(self, state: PartitionState) -> PartitionState:
        """Have evidence fade under every half-life, and use that of the half-life that predicts best."""
        if state.discounted is None:
            return state

        def score(known: BinEvidence, half_life: float, came: BinEvidence) -> float:
            return self.process(state, known, half_life).predicted(came)

        discounted = self.forgetting.updated(state.discounted, state.evidence, state.own, score)
        return replace(state, discounted=discounted, evidence=discounted.current)

    def _windowed(self, state: PartitionState) -> PartitionState:
        window = windowed(state.window, state.tree, state.endless, state.own, self._likelihood(state))
        return replace(state, window=window)

    def contradiction(self, state: PartitionState) -> Contradiction | None:
        """Whether rounds since a window opened contradict those before; None before the first window opens."""
        if state.window is None:
            return None
        return contradiction(state.window, state.tree, state.endless, self._likelihood(state))

    def _likelihood(self, state: PartitionState) -> Any:
        return lambda known: self.process(state, known, math.inf).likelihood()

    def _fitted(self, state: PartitionState) -> PartitionState:
        found = self.process(state).fitted()
        lengths = state.hyperparameters.lengths.copy()
        lengths[self.selection.blocks(state.selection)] = found.lengths
        return replace(state, hyperparameters=Hyperparameters(lengths, found.spread, state.seen, found.common))

    def rescaled(self, state: PartitionState) -> PartitionState:
        """Expect values where those that were observed are on average."""
        precision, moment = state.observed
        if not precision.any():
            return state
        return replace(
            state, prior=PriorScale.observed(precision, moment, float(SPREADS[state.hyperparameters.spread]))
        )

    @override
    def measured_rate(self, state: PartitionState) -> MeasuredRate | None:
        precision, moment = (float(values.sum()) for values in state.observed)
        return MeasuredRate.normal((1 + moment / precision) / 2, 0.5 / math.sqrt(precision)) if precision else None

    @override
    def warnings(self, state: PartitionState) -> tuple[str, ...]:
        found = super().warnings(state)
        return (*found, *state.constant.warnings()) if state.constant and self.over(state) else found

    def computed(self, state: PartitionState) -> PartitionState:
        """Compute the posterior, and where coins choose arms that of arms that differ by the same everywhere."""
        process = self.process(state)
        constant = None if self.spec.privacy.arm_in_key else process.constant_arms()
        return replace(state, posterior=BinPosterior(*process.posterior(), state.seen), constant=constant)

    def sifted(self, state: PartitionState) -> PartitionState:
        """Drop arms that are behind, and take back those that may be the best again."""
        process, posterior = self.process(state), state.posterior
        kinds = self._kinds(state, process)
        active = self.allocation.surviving(process, kinds, state.active, posterior.mean, posterior.variance)
        return replace(state, active=active)

    def split(self, state: PartitionState) -> PartitionState:
        """Split the bins that are known well enough."""
        process, posterior = self.process(state), state.posterior
        differences, beliefs = process.differences(state.tree), (state.active, posterior.mean, posterior.variance)
        ready = self.splitting.ready(state.tree, *beliefs, differences, process.space.depth)
        if not ready.any():
            return state
        tree = self.splitting.deeper(state.tree, ready, differences, process.columns)
        return self.computed(self.cut(state, tree, ready))

    def cut(self, state: PartitionState, tree: BinTree, ready: Bools) -> PartitionState:
        """Split bins, of which the posterior then knows nothing yet; ``tree`` has the level for it."""
        below, split = tree.split(ready)
        halves = below.expected(self.space) / state.tree.expected(self.space)[split.copies]
        return replace(
            state,
            tree=below,
            active=state.active[split.copies],
            evidence=state.evidence.split(split),
            population=state.population.split(split, halves),
            discounted=state.discounted.split(split) if state.discounted else None,
        )

    @override
    def edges(self, state: PartitionState) -> tuple[Array, Array]:
        return state.tree.corners(self.spec.dimension)

    @override
    def has_evidence(self, state: PartitionState) -> bool:
        return bool(state.seen or state.evidence.precision.any())

    @override
    def expected(self, state: PartitionState) -> ExpectedRewards | None:
        return state.expected(self.spec, self.process(state)) if self.has_evidence(state) else None

    @override
    def bin_means(self, state: PartitionState) -> BinMeans:
        """Return mean rewards by bin, with the intervals of their posteriors."""
        means, errors = self._scaled(state)
        return bin_means(state.active, self.edges(state), means, DEVIATIONS * errors, self.spec, CONFIDENCE)

    @override
    def findings(self, state: PartitionState) -> tuple[AnswerPart, ...]:
        """Return whether rounds contradict each other, how fast evidence is forgotten, and which features matter."""
        found = (
            self.contradiction(state),
            self.forgetting.found(state.discounted) if state.discounted else None,
            self.selection.found(state.selection) if state.selection else None,
        )
        return tuple(one for one in found if one is not None)

    def _scaled(self, state: PartitionState) -> tuple[Array, Array]:
        """Return posterior means and standard errors in the unit of rewards, (bins, arms) each."""
        low, high = self.spec.reward.low, self.spec.reward.high
        means = low + (high - low) * (state.posterior.mean + 1) / 2
        common = state.hyperparameters.common
        variance = self.process(state).variances() if common else state.posterior.variance
        return means, (high - low) * np.sqrt(variance) / 2


def learner(spec: PartitionSpec) -> Learner:
    """Return the learner of a spec."""
    return PartitionLearner(spec)
