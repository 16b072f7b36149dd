"""Learns from sums of products of features and rewards, where there is no curator: the features asked about shrink."""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.sparse.policy import SparsePolicy
from privateer_core.answer import Answer
from privateer_core.answer.facts import Fact
from privateer_core.primitives.contributions import VectorSums
from privateer_core.primitives.questions import ScreenedSum
from privateer_server.algorithms.sparse.estimates import UNIFORM, Estimates, threshold
from privateer_server.algorithms.sparse.findings import answered, coefficients
from privateer_server.algorithms.sparse.rounds import SparseLearner, in_ball

Array = NDArray[np.float64]
Places = NDArray[np.int64]
_PEOPLE: Final = 1 << 14
"""People drawn to learn what features those have who get the best arm."""


@dataclass(frozen=True)
class SumState:
    """What the server knows.

    Attributes
    ----------
    heard
        People whose reports opened.
    precisions, weighted
        Shape (d,): of every feature's coefficient the sum of precisions, and of estimates times these.
    """

    heard: int
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
    def asked(self, state: SumState, seed: int) -> tuple[Places, ScreenedSum]:
        """Return the features that may still be among the largest, and the question."""
        found, reach = self.estimates(state), threshold(self.spec.arm_features)
        sizes = np.abs(found.values)
        surely = np.sort(sizes - reach * found.deviations)[-self.spec.kept_most]
        places = np.flatnonzero(sizes + reach * found.deviations >= surely)
        return places, self.spec.question_about(len(places), seed)

    @override
    def learn(self, state: SumState, policy: SparsePolicy, release: VectorSums) -> SumState:
        """Return the state after a round: an estimate of each coefficient, less what the policy says of the others."""
        asked, classes = policy.asked, getattr(policy.mechanism, "classes", 1)
        told = release.reports / classes
        means = release.sums / told
        variance = release.noise / told**2 + UNIFORM / told
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
        return replace(state, heard=state.heard + release.reports, precisions=precisions, weighted=weighted)

    def _matrix(self, policy: SparsePolicy) -> tuple[Places, Array, Array]:
        """Return features (k,), their second moments (k, k) among those who report, and what is known of coefficients.

        The features are those of all policies by which these people decided; of the others, decisions say nothing.
        """
        decided = [(one, share) for one, share in policy.decided if not one.explores]
        explored = 1 - sum(share for _, share in decided)
        places = np.unique(np.concatenate([policy.places, *(one.places for one, _ in decided)]))
        matrix = explored * UNIFORM * np.eye(len(places))
        for one, share in decided:
            matrix += share * _moments(one, places)
        known = np.zeros(len(places))
        known[np.searchsorted(places, policy.places)] = policy.coefficients
        return places, matrix, known

    @override
    def answer(self, state: SumState) -> Answer:
        """Return which features were found, and their coefficients."""
        if not state.heard:
            return answered(0, over=self.over(state))
        found, places = self.estimates(state), self.kept(state)
        of_places = Estimates(found.values[places], found.deviations[places])
        facts = (Fact("features kept", len(places), "count"),)
        return answered(
            state.heard, over=self.over(state), found=coefficients(self.spec, places, of_places), facts=facts
        )

    @override
    def figures(self, state: SumState) -> dict[str, float]:
        """Return how many features decide."""
        return {"kept": float(len(self.kept(state)))}


def _moments(policy: SparsePolicy, places: Places) -> Array:
    """Return second moments of some features, a policy's own among them, among those who get what it decides."""
    rng = np.random.default_rng([policy.seed, policy.version])
    people = rng.uniform(-1.0, 1.0, (_PEOPLE, len(policy.playable), len(policy.places)))
    scores = policy.intercepts + people @ policy.coefficients
    played = people[np.arange(_PEOPLE), np.where(policy.playable, scores, -np.inf).argmax(axis=1)]
    matrix = UNIFORM * np.eye(len(places))
    mine = np.searchsorted(places, policy.places)
    matrix[np.ix_(mine, mine)] = played.T @ played / _PEOPLE
    return np.asarray(matrix)
