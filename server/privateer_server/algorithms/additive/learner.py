"""The learner of additive bandits: Bayesian regression on sums of residuals by cell."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.additive.policy import STEP, AdditivePolicy
from privateer_core.algorithms.additive.spec import AdditiveSpec
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.contributions import CellHits
from privateer_server.algorithms import LearnerState, NewRound
from privateer_server.algorithms.additive.arm_shares import ArmShares
from privateer_server.algorithms.additive.cell_masses import CellMasses
from privateer_server.algorithms.additive.observed_round import ObservedRound
from privateer_server.algorithms.additive.part_sums import PartSums, noise_of
from privateer_server.algorithms.additive.posterior import TermPosterior
from privateer_server.algorithms.additive.question_shares import edges_of, even, least_doubt
from privateer_server.algorithms.additive.terms_learner import TermsLearner, in_steps

Array = NDArray[np.float64]
_DRAWS: Final = 32
"""Draws that coins choose from."""
_ROUNDS: Final = 8
"""How many rounds are read again when more is known of where people are."""
_COUNTED: Final = 0.1
"""Share of a vector's squared length that counts people by cell."""


@dataclass(frozen=True)
class AdditiveState(LearnerState):
    """The state of the learner.

    Attributes
    ----------
    reported
        People whose reports opened.
    information, scores
        Shapes (arms, terms, terms) and (arms, terms): what rounds say of terms that are not kept.
    masses
        What is known of the shares of people by cell.
    rounds
        The latest rounds, oldest first.
    """

    reported: int
    information: Array
    scores: Array
    masses: CellMasses
    rounds: tuple[ObservedRound, ...] = ()


class AdditiveLearner(TermsLearner[AdditiveState]):
    """Learns terms from residuals, and asks what leaves least doubt."""

    state_type = AdditiveState

    @override
    def start(self, seed: int) -> AdditiveState:
        arms, terms = self.spec.arm_count, self.cells.count
        nothing = np.zeros((arms, terms, terms)), np.zeros((arms, terms))
        return AdditiveState(0, *nothing, CellMasses.unknown(self.cells))

    @override
    def posterior(self, state: AdditiveState) -> TermPosterior:
        declared = self.spec.reward.base_rate
        rate = None if declared is None else self.spec.reward.scaled(declared)[0]
        return TermPosterior.of(*self.statistics(state), self.cells, state.masses.means(self.cells), rate)

    @override
    def statistics(self, state: AdditiveState) -> tuple[Array, Array]:
        """Return what all rounds say; those that are kept count by what is known of masses now."""
        masses = state.masses.means(self.cells)
        information, scores = state.information, state.scores
        for one in state.rounds:
            more, told = one.statistics(self.questions, masses)
            information, scores = information + more, scores + told
        return information, scores

    @override
    def policy(self, state: AdditiveState, ahead: NewRound) -> AdditivePolicy:
        spec, known = self.spec, self.posterior(state)
        asked = even(self.questions)
        terms = self.terms(ahead, spec.asked(ahead.seed, edges_of(asked)))
        if ahead.batch and spec.privacy.trust.promises:
            asked = self._asked(state, known, ahead.batch, noise_of(terms, _COUNTED))
            terms = self.terms(ahead, spec.asked(ahead.seed, edges_of(asked)))
        means = in_steps(known.means)
        return AdditivePolicy(
            version=ahead.version,
            questions=self.questions,
            draws=self._draws(state, known, ahead) if ahead.batch else means[None],
            means=means,
            edges=edges_of(asked),
            counted=_COUNTED,
            counts_arms=spec.counts_arms,
            playable=np.array(spec.playable),
            seed=ahead.seed,
            terms=terms,
        )

    def _asked(self, state: AdditiveState, known: TermPosterior, people: int, noise: float) -> Array:
        """Return the share of each question, for arms to be given about as they were in the latest round."""
        masses, arms = state.masses.means(self.cells), self.spec.arm_count
        weighted = np.full((arms, self.cells.count), 2 / arms)
        if state.rounds and len(state.rounds[-1].arms.weighted) == arms:
            weighted = state.rounds[-1].arms.weighted
        return least_doubt(self.questions, known.covariances, people * masses * weighted, noise, masses)

    def _draws(self, state: AdditiveState, known: TermPosterior, ahead: NewRound) -> NDArray[np.int16]:
        """Return draws from the posterior, nearer to its mean; before any report each names an arm, in turn."""
        if not state.reported:
            draws = np.zeros((_DRAWS, *known.means.shape), np.int16)
            arms = np.flatnonzero(self.spec.playable)
            draws[np.arange(_DRAWS), arms[np.arange(_DRAWS) % len(arms)], 0] = 1
            return np.asarray(draws)
        coins = np.random.default_rng(ahead.seed).standard_normal((_DRAWS, *known.means.shape))
        moved = np.einsum("kij,dkj->dki", known.factors, coins, optimize=True)
        return in_steps(known.means + self.spec.algorithm.exploration * moved)

    @override
    def learn(self, state: AdditiveState, policy: AdditivePolicy, release: VectorSums | CellHits) -> AdditiveState:
        told = PartSums.of(policy, release)
        people = release.reports
        before = self.questions.matrix @ state.masses.means(self.cells)
        masses = state.masses.learned(self.questions, told.counts.sum(axis=0), told.doubts(before), people)
        shares = masses.means(self.cells)
        arms = ArmShares.mixed([(ArmShares.of(one, shares), share) for one, share in policy.decided])
        variances = told.variances((arms.shares * shares) @ self.questions.matrix.T)
        exact = told.counts @ self.questions.matrix if policy.counts_arms else np.zeros((0, 0))
        means = STEP * policy.means.astype(np.float64)
        latest = ObservedRound(people, told.sums, variances, means, arms, told.together, exact)
        rounds = (*state.rounds, latest)
        after = replace(state, reported=state.reported + people, masses=masses, rounds=rounds)
        return self._folded(after, _ROUNDS)

    def _folded(self, state: AdditiveState, kept: int) -> AdditiveState:
        """Return the state with so many rounds, the others counted in for good."""
        gone = state.rounds[: max(0, len(state.rounds) - kept)]
        information, scores = self.statistics(replace(state, rounds=gone))
        return replace(state, information=information, scores=scores, rounds=state.rounds[len(gone) :])

    @override
    def rearmed(self, state: AdditiveState, before: AdditiveSpec) -> AdditiveState:
        folded, added = self._folded(state, 0), self.spec.arm_count - before.arm_count
        information, scores = (
            np.concatenate([one, np.zeros((added, *one.shape[1:]))]) for one in (folded.information, folded.scores)
        )
        return replace(folded, information=information, scores=scores)
