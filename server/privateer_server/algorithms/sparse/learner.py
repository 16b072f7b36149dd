"""Learners of sparse high-dimensional bandits: by blocks of second moments with a curator, else by sums of products."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.sparse import SparsePolicy, SparseSpec
from privateer_core.answer import Answer
from privateer_core.answer.facts import Fact, Table
from privateer_core.answer.parts import Figures, Gain
from privateer_core.arrays import Array, Ints
from privateer_core.errors import SpecError
from privateer_core.primitives.bounded_vectors import SecondMomentSums, VectorSums
from privateer_core.primitives.questions import SecondMoments
from privateer_core.privacy.trust import Curator
from privateer_server.algorithms import Learner, NewRound, RoundsLearner
from privateer_server.algorithms.sparse.coefficients import (
    CONFIDENCE,
    UNIFORM,
    Estimates,
    FeatureFinding,
    RewardTotals,
    build_feature_findings,
    build_forecast_tables,
    check_first_round,
    compare_with_best_arm,
    compute_policy_moments,
    estimate_coefficients,
    features_table,
    has_clearer_residuals,
    has_correlated_features,
    shrink_to_range,
    threshold,
)

Places = Ints
StateT = TypeVar("StateT")


class SparseLearner(RoundsLearner[SparseSpec, StateT, SparsePolicy]):
    """A learner of coefficients of features, whose rounds the spec fixes."""

    inherited_fields = ("algorithm", "experiment.arms", "experiment.retired_arms", "context", "reward", "privacy.model")

    @override
    def start(self, seed: int) -> StateT:
        check_first_round(self.spec)
        return self.empty_state()

    @abstractmethod
    def empty_state(self) -> StateT:
        """Return the state before any report."""

    @abstractmethod
    def build_coefficients(self, state: StateT) -> Mapping[str, Any]:
        """Return a policy's fields from a state: ``places``, ``coefficients`` and ``intercepts``."""

    @abstractmethod
    def choose_question(self, state: StateT, next_round: NewRound) -> tuple[Places, SecondMoments]:
        """Return the features that the next round asks about, and the question."""

    @override
    def policy(self, state: StateT, next_round: NewRound) -> SparsePolicy:
        decision = self.build_coefficients(state)
        features, question = self.choose_question(state, next_round)
        return SparsePolicy(
            version=next_round.version,
            asked=features,
            playable=np.array(self.spec.playable),
            explores=not decision["coefficients"].any() and len(set(decision["intercepts"].tolist())) == 1,
            seed=next_round.seed,
            terms=self.calibrate_terms(next_round, question),
            **decision,
        )

    @override
    def find_best_single_option(self, state: StateT, policy: SparsePolicy) -> int | None:
        intercepts = np.where(policy.playable, policy.intercepts, -np.inf)
        return None if policy.explores or not policy.intercepts.any() else int(intercepts.argmax())

    @override
    def apply_arm_change(self, state: StateT, old_spec: SparseSpec) -> StateT:
        if self.spec.arm_count > old_spec.arm_count:
            detail = "nothing is known of the features of another arm"
            start = "which may begin with this one's coefficients in its application"
            raise SpecError(detail, field="experiment.arms", remedy=f"create another experiment with it, {start}")
        return state

    def build_feature_answer(
        self, state: StateT, findings: list[FeatureFinding], facts: tuple[Fact, ...], gain: Gain | None = None
    ) -> Answer:
        """Return the answer about the features that were found, with its basis."""
        return self.build_answer(
            state,
            confidence=CONFIDENCE,
            estimates=tuple(finding.estimate for finding in findings),
            parts=(features_table(findings), Figures("what it rests on", facts)),
            gain=gain,
        )

    def build_forecast(self, waiting: float = 0.0, shares: Sequence[float] | None = None) -> tuple[Table, ...]:
        """Return the detectable coefficients by the number of features."""
        del waiting, shares
        return build_forecast_tables(self.spec)


@dataclass(frozen=True)
class EpochState:
    """The state of a learner with a curator."""

    reported: int  # people whose reports opened
    places: Places  # shape (k,): features of the block, int64, in order
    people: int  # number of people in the block
    # moments, variances: shape (arms + k + 1, arms + k + 1): the block of second moments, value last, and the variances
    # of its noise
    moments: Array
    variances: Array
    correlated: bool  # whether features have shown to correlate, or to be off the middle of their bounds
    # explored, followed: what people had who got any arm, and those who got the best one since the block began
    explored: RewardTotals
    followed: RewardTotals


class EpochLearner(SparseLearner[EpochState]):
    """Epochs of `privateer_core.mechanisms.screened_moments`, each of people of its own.

    Features whose coefficients are beyond chance are kept, ``sparsity`` of them at most. As long as there are fewer, an
    epoch chooses as many more by their products with the reward; where features correlate, by products with what is
    left of the reward (as where that is clearer), and one more even if there are enough: noisy hard thresholding.
    """

    state_type = EpochState

    @override
    def empty_state(self) -> EpochState:
        n_arms = self.spec.arm_count
        no_rewards = RewardTotals(0, np.zeros(n_arms), np.zeros(n_arms), 0.0)
        size, no_features = (n_arms + 1, n_arms + 1), np.zeros(0, np.int64)
        return EpochState(0, no_features, 0, np.zeros(size), np.zeros(size), False, no_rewards, no_rewards)

    def estimates(self, state: EpochState) -> Estimates | None:
        """Return coefficients of arms and the block's features; None before any report."""
        if not state.people:
            return None
        return estimate_coefficients(state.people, state.moments, state.variances, state.explored.shrunk_means)

    @override
    def build_coefficients(self, state: EpochState) -> dict[str, Any]:
        estimates, n_arms = self.estimates(state), self.spec.arm_count
        shrunk = np.zeros(n_arms) if estimates is None else estimates.shrunk
        values, intercepts = shrink_to_range(shrunk[n_arms:], shrunk[:n_arms])
        is_used = values != 0
        return {"places": state.places[is_used], "coefficients": values[is_used], "intercepts": intercepts}

    def select_features(self, state: EpochState) -> Places:
        """Return the significant features, in order; ``sparsity`` of them at most."""
        estimates = self.estimates(state)
        if estimates is None:
            return state.places
        ratios = estimates.ratios[self.spec.arm_count :]
        best = np.argsort(-ratios, kind="stable")[: self.spec.max_kept]
        significant = best[ratios[best] > threshold(self.spec.arm_features)]
        return np.sort(state.places[significant])

    @override
    def choose_question(self, state: EpochState, next_round: NewRound) -> tuple[Places, SecondMoments]:
        """Return the features in records, and the question; only selected features if there are enough."""
        spec, features = self.spec, self.select_features(state)
        n_screened = min(spec.arm_features - len(features), max(spec.max_kept - len(features), int(state.correlated)))
        if not n_screened:
            places = tuple(range(len(features)))
            return features, msgspec.structs.replace(spec.make_question(len(features), 0), kept_features=places)
        question = spec.make_question(spec.arm_features, 0)
        question = msgspec.structs.replace(question, kept_features=tuple(features.tolist()), screened=n_screened)
        estimates, has_features = self.estimates(state), len(self.build_coefficients(state)["places"]) > 0
        predicted = self._predict_rewards(estimates, np.searchsorted(state.places, features)) if estimates else ()
        if predicted and not state.correlated:
            mechanism: Any = self.calibrate_terms(next_round, question).mechanism
            level = state.explored.level if has_features else 0.0
            if not has_clearer_residuals(
                next_round.batch_size, predicted, spec.arm_count, mechanism.score_scale, level
            ):
                predicted = ()
        return np.arange(spec.arm_features), msgspec.structs.replace(question, predicted=predicted)

    def _predict_rewards(self, estimates: Estimates, indices: Places) -> tuple[float, ...]:
        """Return the predicted rewards by arms and by the features at these indices of a block."""
        n_arms = self.spec.arm_count
        values, intercepts = shrink_to_range(estimates.shrunk[n_arms:][indices], estimates.shrunk[:n_arms])
        return (*intercepts.tolist(), *values.tolist())

    @override
    def learn(self, state: EpochState, policy: SparsePolicy, release: SecondMomentSums) -> EpochState:
        """Return the state after an epoch: blocks add up if they have the same features.

        A block says the same of coefficients whoever decided. The rewards of participants who got any arm, and of those
        who got the best one, follow only from an epoch in which all did.
        """
        places, order = self._order_block(policy, release)
        moments, variances = (decider[np.ix_(order, order)] for decider in (release.moments, release.variances))
        people = release.reports
        shares = people * policy.playable / policy.playable.sum()
        rewards = RewardTotals(people, shares, moments[: self.spec.arm_count, -1], float(variances[0, -1]))
        explores = [decider.explores for decider, _ in policy.weighted_deciders]
        correlated = state.correlated
        if all(explores) and not correlated:
            correlated = has_correlated_features(self.spec.arm_count, people, moments, variances)
        new_state = EpochState(
            reported=state.reported + people,
            places=places,
            people=people,
            moments=moments,
            variances=variances,
            correlated=correlated,
            explored=state.explored.merge(rewards) if all(explores) else state.explored,
            followed=state.followed if any(explores) else rewards,
        )
        return self._add_block(state, new_state, any(explores))

    def _add_block(self, state: EpochState, new_state: EpochState, has_explored: bool) -> EpochState:
        """Return the new state with the earlier block added for features that both have.

        A smaller round that has found nothing beyond chance among other features adds to those that were kept.
        """
        common = np.intersect1d(new_state.places, state.places)
        is_continued = state.people > 0 and len(common) == len(new_state.places)
        is_smaller = len(common) > 0 and new_state.people < state.people
        if not is_continued and not (is_smaller and np.isin(self.select_features(new_state), common).all()):
            return new_state
        new_index, old_index = (self._block_index(block.places, common) for block in (new_state, state))
        return replace(
            new_state,
            places=common,
            people=state.people + new_state.people,
            moments=new_state.moments[new_index] + state.moments[old_index],
            variances=new_state.variances[new_index] + state.variances[old_index],
            followed=new_state.followed if has_explored else state.followed.merge(new_state.followed),
        )

    def _block_index(self, places: Places, features: Places) -> tuple[NDArray[np.intp], ...]:
        coordinates = self._coordinates(np.searchsorted(places, features), len(places))
        return np.ix_(coordinates, coordinates)

    def _order_block(self, policy: SparsePolicy, release: SecondMomentSums) -> tuple[Places, list[int]]:
        """Return the features of a release in order, and the coordinates of its block in that order."""
        mechanism: Any = policy.mechanism
        places = policy.asked[np.concatenate([np.array(mechanism.kept, np.int64), release.chosen])]
        order = np.argsort(places)
        return places[order], self._coordinates(order, len(places))

    def _coordinates(self, order: NDArray[np.intp], features: int) -> list[int]:
        """Return the coordinates of a block: arms, features in an order, and the value."""
        arms = self.spec.arm_count
        return [*range(arms), *(arms + order).tolist(), arms + features]

    @override
    def answer(self, state: EpochState) -> Answer:
        """Return the features found, their coefficients, and the policy's gain."""
        estimates, n_arms = self.estimates(state), self.spec.arm_count
        if estimates is None:
            return self.build_answer(state, confidence=CONFIDENCE)
        feature_estimates = Estimates(estimates.values[n_arms:], estimates.deviations[n_arms:])
        kept = Fact("features kept", len(self.select_features(state)), "count")
        correlate = Fact("features correlate", state.correlated, "yes or no")
        findings = build_feature_findings(self.spec, state.places, feature_estimates)
        gain = compare_with_best_arm(self.spec, state.explored, state.followed)
        return self.build_feature_answer(state, findings, (kept, correlate), gain)

    @override
    def figures(self, state: EpochState) -> dict[str, float]:
        return {"kept": float(len(self.select_features(state)))}


@dataclass(frozen=True)
class SumState:
    """The state of a learner without a curator."""

    reported: int  # people whose reports opened
    # precisions, weighted: shape (d,): of every feature's coefficient the sum of precisions, and of estimates times
    # these
    precisions: Array
    weighted: Array


class SparseSumLearner(SparseLearner[SumState]):
    """A learner of each coefficient separately, from means of products with rewards.

    Features are taken to be uniform within their bounds and independent of each other: then the product with an arm at
    random is a third of the coefficient, and with the best arm what people say who are drawn so. A round asks about the
    features that may still be among the ``sparsity`` largest.
    """

    state_type = SumState

    @override
    def empty_state(self) -> SumState:
        n_features = self.spec.arm_features
        return SumState(0, np.zeros(n_features), np.zeros(n_features))

    def estimates(self, state: SumState) -> Estimates:
        """Return coefficients of all features; 0 with the range of rewards for features without reports."""
        is_known = state.precisions > 0
        values = np.where(is_known, state.weighted / np.where(is_known, state.precisions, 1.0), 0.0)
        return Estimates(values, np.where(is_known, 1 / np.sqrt(np.where(is_known, state.precisions, 1.0)), 1.0))

    def select_features(self, state: SumState) -> Places:
        """Return the features with the largest shrunk coefficients, in order; ``sparsity`` at most."""
        shrunk = np.abs(self.estimates(state).shrunk)
        best = np.argsort(-shrunk, kind="stable")[: self.spec.max_kept]
        return np.sort(best[shrunk[best] > 0])

    @override
    def build_coefficients(self, state: SumState) -> dict[str, Any]:
        features = self.select_features(state)
        values, intercepts = shrink_to_range(self.estimates(state).shrunk[features], np.zeros(self.spec.arm_count))
        return {"places": features, "coefficients": values, "intercepts": intercepts}

    @override
    def choose_question(self, state: SumState, next_round: NewRound) -> tuple[Places, SecondMoments]:
        """Return the features that may still be among the largest, and the question."""
        estimates, z = self.estimates(state), threshold(self.spec.arm_features)
        sizes = np.abs(estimates.values)
        lower_ends = np.sort(sizes - z * estimates.deviations)[-self.spec.max_kept]
        places = np.flatnonzero(sizes + z * estimates.deviations >= lower_ends)
        return places, self.spec.make_question(len(places), next_round.seed)

    @override
    def learn(self, state: SumState, policy: SparsePolicy, release: VectorSums) -> SumState:
        """Return the state after a round; estimates are corrected for the policy's other features."""
        features, classes = policy.asked, getattr(policy.mechanism, "classes", 1)
        n_reports = release.reports / classes
        means = release.sums / n_reports
        variance = release.noise / n_reports**2 + UNIFORM / n_reports
        places, matrix, coefficients = self._estimate_policy_moments(policy)
        own_moments = np.full(len(features), UNIFORM)
        is_decided = np.isin(features, places)
        indices = np.searchsorted(places, features[is_decided])
        diagonal = np.diag(matrix)
        own_moments[is_decided] = diagonal[indices]
        means[is_decided] -= (matrix @ coefficients - diagonal * coefficients)[indices]
        precisions, weighted = state.precisions.copy(), state.weighted.copy()
        precisions[features] += own_moments**2 / variance
        weighted[features] += own_moments * means / variance
        return replace(state, reported=state.reported + release.reports, precisions=precisions, weighted=weighted)

    def _estimate_policy_moments(self, policy: SparsePolicy) -> tuple[Places, Array, Array]:
        """Return features (k,), their second moments (k, k) among reporting participants, and their coefficients.

        The features are those of all policies by which these people decided; of the others, decisions say nothing.
        """
        decided = [(decider, share) for decider, share in policy.weighted_deciders if not decider.explores]
        explored_share = 1 - sum(share for _, share in decided)
        places = np.unique(np.concatenate([policy.places, *(decider.places for decider, _ in decided)]))
        matrix = explored_share * UNIFORM * np.eye(len(places))
        for decider, share in decided:
            matrix += share * compute_policy_moments(decider, places)
        coefficients = np.zeros(len(places))
        coefficients[np.searchsorted(places, policy.places)] = policy.coefficients
        return places, matrix, coefficients

    @override
    def answer(self, state: SumState) -> Answer:
        if not state.reported:
            return self.build_answer(state, confidence=CONFIDENCE)
        estimates, places = self.estimates(state), self.select_features(state)
        kept_estimates = Estimates(estimates.values[places], estimates.deviations[places])
        facts = (Fact("features kept", len(places), "count"),)
        return self.build_feature_answer(state, build_feature_findings(self.spec, places, kept_estimates), facts)

    @override
    def figures(self, state: SumState) -> dict[str, float]:
        return {"kept": float(len(self.select_features(state)))}


def learner(spec: SparseSpec) -> Learner:
    """Return the learner of a spec."""
    return SparseSumLearner(spec) if spec.privacy.trust.curator is Curator.NOBODY else EpochLearner(spec)
