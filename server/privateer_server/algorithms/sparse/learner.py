"""Learners of high-dimensional bandits: by blocks of second moments with a curator, else by sums of products."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.sparse import SparsePolicy, SparseSpec
from privateer_core.answer import Answer
from privateer_core.answer.facts import Fact, Table
from privateer_core.answer.parts import Figures, Gain
from privateer_core.errors import SpecError
from privateer_core.primitives.bounded_vectors import SecondMomentSums, VectorSums
from privateer_core.primitives.questions import SecondMoments
from privateer_server.algorithms import Learner, NewRound, RoundsLearner
from privateer_server.algorithms.sparse.coefficients import (
    CONFIDENCE,
    UNIFORM,
    Estimates,
    FoundFeature,
    Played,
    coefficients,
    correlate,
    estimates,
    features_table,
    gain,
    in_ball,
    is_clearer,
    moments_by_policy,
    threshold,
)
from privateer_server.algorithms.sparse.power_analysis import check_first_round, foreseen

Array = NDArray[np.float64]
Places = NDArray[np.int64]
StateT = TypeVar("StateT")


class SparseLearner(RoundsLearner[SparseSpec, StateT, SparsePolicy]):
    """The schedule, which the spec fixes."""

    same = ("algorithm", "experiment.arms", "experiment.retired", "context", "reward", "privacy.model")

    @override
    def start(self, seed: int) -> StateT:
        check_first_round(self.spec)
        return self.blank()

    @abstractmethod
    def blank(self) -> StateT:
        """Return the state before any report."""

    @abstractmethod
    def decided(self, state: StateT) -> Mapping[str, Any]:
        """Return what a policy has of a state: ``places``, ``coefficients`` and ``intercepts``."""

    @abstractmethod
    def asked(self, state: StateT, ahead: NewRound) -> tuple[Places, SecondMoments]:
        """Return the features that the next round asks about, and the question."""

    @override
    def policy(self, state: StateT, ahead: NewRound) -> SparsePolicy:
        known = self.decided(state)
        asked, question = self.asked(state, ahead)
        return SparsePolicy(
            version=ahead.version,
            asked=asked,
            playable=np.array(self.spec.playable),
            explores=not known["coefficients"].any() and len(set(known["intercepts"].tolist())) == 1,
            seed=ahead.seed,
            terms=self.terms(ahead, question),
            **known,
        )

    @override
    def single_option(self, state: StateT, policy: SparsePolicy) -> int | None:
        known = np.where(policy.playable, policy.intercepts, -np.inf)
        return None if policy.explores or not policy.intercepts.any() else int(known.argmax())

    @override
    def rearmed(self, state: StateT, before: SparseSpec) -> StateT:
        if self.spec.arm_count > before.arm_count:
            detail = "nothing is known of the features of another arm"
            remedy = (
                "create another experiment with it, which may begin with this one's coefficients in its application"
            )
            raise SpecError(detail, field="experiment.arms", remedy=remedy)
        return state

    def answer_about(
        self, state: StateT, found: list[FoundFeature], facts: tuple[Fact, ...], gain: Gain | None = None
    ) -> Answer:
        """Return the answer about the features that were found, and what it rests on."""
        return self.answered(
            state,
            confidence=CONFIDENCE,
            estimates=tuple(one.estimate for one in found),
            parts=(features_table(found), Figures("what it rests on", facts)),
            gain=gain,
        )

    def foreseen(self, waiting: float = 0.0, shares: Sequence[float] | None = None) -> tuple[Table, ...]:
        """Return how small coefficients may be to be found, by the number of features."""
        del waiting, shares
        return foreseen(self.spec)


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
    explored: Played
    followed: Played


class EpochLearner(SparseLearner[EpochState]):
    """Epochs of `privateer_core.mechanisms.screened_moments`, each of people of its own.

    Features whose coefficients are beyond chance are kept, ``sparsity`` of them at most. As long as there are fewer, an
    epoch chooses as many more by their products with the reward; where features correlate, by products with what is
    left of the reward (as where that is clearer), and one more even if there are enough: noisy hard thresholding.
    """

    state_type = EpochState

    @override
    def blank(self) -> EpochState:
        arms = self.spec.arm_count
        nobody = Played(0, np.zeros(arms), np.zeros(arms), 0.0)
        size, none = (arms + 1, arms + 1), np.zeros(0, np.int64)
        return EpochState(0, none, 0, np.zeros(size), np.zeros(size), False, nobody, nobody)

    def estimates(self, state: EpochState) -> Estimates | None:
        """Return coefficients of arms and the block's features; None before any report."""
        if not state.people:
            return None
        return estimates(state.people, state.moments, state.variances, state.explored.expected)

    @override
    def decided(self, state: EpochState) -> dict[str, Any]:
        found, arms = self.estimates(state), self.spec.arm_count
        shrunk = np.zeros(arms) if found is None else found.shrunk
        values, intercepts = in_ball(shrunk[arms:], shrunk[:arms])
        used = values != 0
        return {"places": state.places[used], "coefficients": values[used], "intercepts": intercepts}

    def kept(self, state: EpochState) -> Places:
        """Return the features that matter beyond chance, in order; ``sparsity`` of them at most."""
        found = self.estimates(state)
        if found is None:
            return state.places
        ratios = found.ratios[self.spec.arm_count :]
        best = np.argsort(-ratios, kind="stable")[: self.spec.kept_most]
        beyond = best[ratios[best] > threshold(self.spec.arm_features)]
        return np.sort(state.places[beyond])

    @override
    def asked(self, state: EpochState, ahead: NewRound) -> tuple[Places, SecondMoments]:
        """Return the features that records have, and the question; those kept alone, once there are enough."""
        spec, kept = self.spec, self.kept(state)
        screened = min(spec.arm_features - len(kept), max(spec.kept_most - len(kept), int(state.correlated)))
        if not screened:
            places = tuple(range(len(kept)))
            return kept, replace(spec.question_about(len(kept), 0), kept=places)
        question = replace(spec.question_about(spec.arm_features, 0), kept=tuple(kept.tolist()), screened=screened)
        found, by_features = self.estimates(state), len(self.decided(state)["places"]) > 0
        predicted = self._predicted(found, np.searchsorted(state.places, kept)) if found else ()
        if predicted and not state.correlated:
            mechanism: Any = self.terms(ahead, question).mechanism
            level = state.explored.level if by_features else 0.0
            if not is_clearer(ahead.batch, predicted, spec.arm_count, mechanism.score_scale, level):
                predicted = ()
        return np.arange(spec.arm_features), replace(question, predicted=predicted)

    def _predicted(self, found: Estimates, kept: Places) -> tuple[float, ...]:
        """Return what is predicted of rewards by arms and by features that are kept, at these places of a block."""
        arms = self.spec.arm_count
        values, intercepts = in_ball(found.shrunk[arms:][kept], found.shrunk[:arms])
        return (*intercepts.tolist(), *values.tolist())

    @override
    def learn(self, state: EpochState, policy: SparsePolicy, release: SecondMomentSums) -> EpochState:
        """Return the state after an epoch: blocks add up as long as they have the same features.

        A block says the same of coefficients whoever decided. What people had who got any arm, and those who got the
        best one, only an epoch tells whose people all did.
        """
        places, order = self._block(policy, release)
        moments, variances = (one[np.ix_(order, order)] for one in (release.moments, release.variances))
        people = release.reports
        shares = people * policy.playable / policy.playable.sum()
        had = Played(people, shares, moments[: self.spec.arm_count, -1], float(variances[0, -1]))
        explore = [one.explores for one, _ in policy.decided]
        correlated = state.correlated or (all(explore) and correlate(self.spec.arm_count, people, moments, variances))
        new = EpochState(
            reported=state.reported + people,
            places=places,
            people=people,
            moments=moments,
            variances=variances,
            correlated=correlated,
            explored=state.explored.merged(had) if all(explore) else state.explored,
            followed=state.followed if any(explore) else had,
        )
        return self._added(state, new, any(explore))

    def _added(self, state: EpochState, new: EpochState, explored: bool) -> EpochState:
        """Return the new state with the earlier block added, as far as its features are the same.

        A smaller round that has found nothing beyond chance among other features adds to those that were kept.
        """
        common = np.intersect1d(new.places, state.places)
        goes_on = state.people > 0 and len(common) == len(new.places)
        if not goes_on and not (len(common) and new.people < state.people and self._shows_nothing_new(new, common)):
            return new
        mine, theirs = (self._inside(one.places, common) for one in (new, state))
        return replace(
            new,
            places=common,
            people=state.people + new.people,
            moments=new.moments[mine] + state.moments[theirs],
            variances=new.variances[mine] + state.variances[theirs],
            followed=new.followed if explored else state.followed.merged(new.followed),
        )

    def _shows_nothing_new(self, new: EpochState, known: Places) -> bool:
        return bool(np.isin(self.kept(new), known).all())

    def _inside(self, places: Places, some: Places) -> tuple[NDArray[np.intp], ...]:
        """Return where in a block of ``places`` the block of ``some`` of them is."""
        coordinates = self._coordinates(np.searchsorted(places, some), len(places))
        return np.ix_(coordinates, coordinates)

    def _block(self, policy: SparsePolicy, release: SecondMomentSums) -> tuple[Places, list[int]]:
        """Return the features of a release in order, and where they and all other coordinates are in its block."""
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
        """Return which features were found, their coefficients, and what the policy gains."""
        known, arms = self.estimates(state), self.spec.arm_count
        if known is None:
            return self.answered(state, confidence=CONFIDENCE)
        features = Estimates(known.values[arms:], known.deviations[arms:])
        facts = (
            Fact("features kept", len(self.kept(state)), "count"),
            Fact("features correlate", state.correlated, "yes or no"),
        )
        found = coefficients(self.spec, state.places, features)
        return self.answer_about(state, found, facts, gain=gain(self.spec, state.explored, state.followed))

    @override
    def figures(self, state: EpochState) -> dict[str, float]:
        return {"kept": float(len(self.kept(state)))}


@dataclass(frozen=True)
class SumState:
    """The state of a learner without a curator."""

    reported: int  # people whose reports opened
    # precisions, weighted: shape (d,): of every feature's coefficient the sum of precisions, and of estimates times
    # these
    precisions: Array
    weighted: Array


class SumLearner(SparseLearner[SumState]):
    """Coefficients one by one, from what products with rewards are on average.

    Features are taken to be uniform within their bounds and independent of each other: then the product with an arm at
    random is a third of the coefficient, and with the best arm what people say who are drawn so. A round asks about the
    features that may still be among the ``sparsity`` largest.
    """

    state_type = SumState

    @override
    def blank(self) -> SumState:
        features = self.spec.arm_features
        return SumState(0, np.zeros(features), np.zeros(features))

    def estimates(self, state: SumState) -> Estimates:
        """Return coefficients of all features; of those that nobody was asked about, 0 and the range of rewards."""
        known = state.precisions > 0
        values = np.where(known, state.weighted / np.where(known, state.precisions, 1.0), 0.0)
        return Estimates(values, np.where(known, 1 / np.sqrt(np.where(known, state.precisions, 1.0)), 1.0))

    def kept(self, state: SumState) -> Places:
        """Return the features with the largest coefficients that decide, ``sparsity`` of them at most, in order."""
        shrunk = np.abs(self.estimates(state).shrunk)
        best = np.argsort(-shrunk, kind="stable")[: self.spec.kept_most]
        return np.sort(best[shrunk[best] > 0])

    @override
    def decided(self, state: SumState) -> dict[str, Any]:
        places = self.kept(state)
        values, intercepts = in_ball(self.estimates(state).shrunk[places], np.zeros(self.spec.arm_count))
        return {"places": places, "coefficients": values, "intercepts": intercepts}

    @override
    def asked(self, state: SumState, ahead: NewRound) -> tuple[Places, SecondMoments]:
        """Return the features that may still be among the largest, and the question."""
        found, reach = self.estimates(state), threshold(self.spec.arm_features)
        sizes = np.abs(found.values)
        surely = np.sort(sizes - reach * found.deviations)[-self.spec.kept_most]
        places = np.flatnonzero(sizes + reach * found.deviations >= surely)
        return places, self.spec.question_about(len(places), ahead.seed)

    @override
    def learn(self, state: SumState, policy: SparsePolicy, release: VectorSums) -> SumState:
        """Return the state after a round: an estimate of each coefficient, less what the policy says of the others."""
        asked, classes = policy.asked, getattr(policy.mechanism, "classes", 1)
        people = release.reports / classes
        means = release.sums / people
        variance = release.noise / people**2 + UNIFORM / people
        places, matrix, known = self._matrix(policy)
        own = np.full(len(asked), UNIFORM)
        inside = np.isin(asked, places)
        mine = np.searchsorted(places, asked[inside])
        diagonal = np.diag(matrix)
        own[inside] = diagonal[mine]
        means[inside] -= (matrix @ known - diagonal * known)[mine]
        precisions, weighted = state.precisions.copy(), state.weighted.copy()
        precisions[asked] += own**2 / variance
        weighted[asked] += own * means / variance
        return replace(state, reported=state.reported + release.reports, precisions=precisions, weighted=weighted)

    def _matrix(self, policy: SparsePolicy) -> tuple[Places, Array, Array]:
        """Return features (k,), their second moments (k, k) among those who report, and what is known of coefficients.

        The features are those of all policies by which these people decided; of the others, decisions say nothing.
        """
        decided = [(one, share) for one, share in policy.decided if not one.explores]
        explored = 1 - sum(share for _, share in decided)
        places = np.unique(np.concatenate([policy.places, *(one.places for one, _ in decided)]))
        matrix = explored * UNIFORM * np.eye(len(places))
        for one, share in decided:
            matrix += share * moments_by_policy(one, places)
        known = np.zeros(len(places))
        known[np.searchsorted(places, policy.places)] = policy.coefficients
        return places, matrix, known

    @override
    def answer(self, state: SumState) -> Answer:
        if not state.reported:
            return self.answered(state, confidence=CONFIDENCE)
        found, places = self.estimates(state), self.kept(state)
        of_places = Estimates(found.values[places], found.deviations[places])
        facts = (Fact("features kept", len(places), "count"),)
        return self.answer_about(state, coefficients(self.spec, places, of_places), facts)

    @override
    def figures(self, state: SumState) -> dict[str, float]:
        return {"kept": float(len(self.kept(state)))}


def learner(spec: SparseSpec) -> Learner:
    """Return the learner of a spec."""
    return EpochLearner(spec) if spec.privacy.trust.curated else SumLearner(spec)
