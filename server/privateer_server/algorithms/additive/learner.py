"""The learner of additive bandits: Bayesian regression on sums of residuals by cell."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.additive.policy import STEP, AdditivePolicy
from privateer_core.algorithms.additive.spec import MOST_BELOW, AdditiveSpec
from privateer_core.answer.shapes import Shapes
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.contributions import CellHits
from privateer_core.privacy.terms import Terms
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.additive.arm_shares import ArmShares
from privateer_server.algorithms.additive.cell_masses import CellMasses
from privateer_server.algorithms.additive.latest import Latest
from privateer_server.algorithms.additive.long_levels import LevelTerms, LongCells, LongLevels
from privateer_server.algorithms.additive.made_up_people import contexts_of
from privateer_server.algorithms.additive.observed_round import ObservedRound, independent
from privateer_server.algorithms.additive.part_sums import PartSums, noise_of
from privateer_server.algorithms.additive.posterior import TermPosterior
from privateer_server.algorithms.additive.question_shares import ApartTerms, edges_of, even, least_doubt, one_each
from privateer_server.algorithms.additive.shape_functions import CellShares, shapes_of
from privateer_server.algorithms.additive.shared_terms import SHARED_FROM, shared_terms
from privateer_server.algorithms.additive.terms_learner import TermsLearner, in_steps

Array = NDArray[np.float64]
_DRAWS: Final = 32
"""Draws that coins choose from."""
_ROUNDS: Final = 8
"""How many rounds are read again when more is known of where people are."""
_COUNTED: Final = 0.1
"""Share of a vector's squared length that counts people by cell."""
_OF_LEVELS: Final = 0.2
"""Share of people who say nothing of features, where each answers one question and all features are long."""
_RARE: Final = 0.005
_LEAST_BELOW: Final = 1e-3
_NONE: Final = 1e-9


@dataclass(frozen=True)
class AdditiveState:
    """The state of the learner."""

    reported: int  # people whose reports opened
    # information, scores: shapes (arms, terms, terms) and (arms, terms): what rounds say of terms that are not kept
    information: Array
    scores: Array
    masses: CellMasses  # what is known of the shares of people by cell
    levels: LongLevels  # what is known of the levels of long features, which are in none of the others
    rounds: tuple[ObservedRound, ...] = ()  # the latest rounds, oldest first


class AdditiveLearner(TermsLearner[AdditiveState]):
    """Learns terms from residuals, and asks what leaves least doubt."""

    state_type = AdditiveState

    def __init__(self, spec: AdditiveSpec) -> None:
        super().__init__(spec)
        self.asked = spec.questions
        self.long = LongCells.of(self.asked)
        self.questions = self.long.short(self.asked)
        self.cells = self.questions.cells
        self._posterior: Latest[AdditiveState, TermPosterior] = Latest(self._found)
        self._levels: Latest[AdditiveState, LevelTerms] = Latest(self._found_levels)
        self._level_shares: Latest[LongLevels, Array] = Latest(lambda levels: levels.shares(self.long))

    @override
    def start(self, seed: int) -> AdditiveState:
        arms, terms = self.spec.arm_count, self.cells.count
        nothing = np.zeros((arms, terms, terms)), np.zeros((arms, terms))
        levels = LongLevels.unknown(arms, len(self.long.terms))
        return AdditiveState(0, *nothing, CellMasses.unknown(self.cells), levels)

    @override
    def posterior(self, state: AdditiveState) -> TermPosterior:
        """Return what is known of terms, but for those of long features."""
        return self._posterior(state)

    def _found(self, state: AdditiveState) -> TermPosterior:
        declared = self.spec.reward.base_rate
        rate = None if declared is None else self.spec.reward.scaled(declared)[0]
        told = (*self.statistics(state), self.cells, self.shares(state.masses), rate)
        return shared_terms(*told) if self.spec.arm_count >= SHARED_FROM else TermPosterior.of(*told)

    @override
    def statistics(self, state: AdditiveState) -> tuple[Array, Array]:
        """Return what all rounds say; those that are kept count by what is known of masses now."""
        return self._counted(state, len(state.rounds))

    def _counted(self, state: AdditiveState, first: int) -> tuple[Array, Array]:
        """Return what is left of what the first of the kept rounds say, and those that are not kept."""
        masses = self.shares(state.masses)
        information, scores = state.information, state.scores
        people = np.array([one.people for one in state.rounds], np.float64)
        since = people.sum() - people.cumsum()
        for one, later in zip(state.rounds[:first], since, strict=False):
            more, told = one.statistics(self.questions, masses)
            information, scores = information + self.left(later) * more, scores + self.left(later) * told
        return information, scores

    @override
    def policy(self, state: AdditiveState, ahead: NewRound) -> AdditivePolicy:
        spec, known, levels = self.spec, self.posterior(state), self.levels(state)
        means = in_steps(self._joined(known.means, levels.means))
        edges = edges_of(even(self.asked))
        policy = AdditivePolicy(
            version=ahead.version,
            questions=self.asked,
            draws=self._draws(state, known, levels, ahead) if ahead.batch else means[None],
            means=means,
            edges=edges,
            counted=_COUNTED,
            counts_arms=spec.counts_arms,
            playable=np.array(spec.playable),
            seed=ahead.seed,
            terms=self.terms(ahead, spec.asked(ahead.seed, edges)),
        )
        if not ahead.batch:
            return policy
        below, terms = self._bounded(state, policy, ahead)
        if spec.privacy.trust.promises:
            noise = noise_of(terms, _COUNTED, below)
            one = replace(policy, terms=terms).asks_one
            edges = edges_of(self._asked(state, known, ahead.batch, noise, one=one))
            terms = self.terms(ahead, spec.asked(ahead.seed, edges, below))
        return replace(policy, edges=edges, below=below, terms=terms)

    def _bounded(self, state: AdditiveState, policy: AdditivePolicy, ahead: NewRound) -> tuple[float, Terms]:
        """Return how far residuals are below 0 at most, and the terms: little, where nearly nobody has much expected.

        A symbol has to name keys for that: in a bucket of many keys nobody sees which values were below 0.
        """
        most = max(ArmShares.most_expected(policy, self._all_shares(state)), _LEAST_BELOW)
        if most < MOST_BELOW:
            below = most / (1 - most)
            terms = self.terms(ahead, self.spec.asked(ahead.seed, policy.edges, below))
            if not isinstance(terms.mechanism, NamedSymbol) or terms.mechanism.named:
                return below, terms
        return 1.0, policy.terms

    def _all_shares(self, state: AdditiveState) -> Array:
        """Return the shares of people by cell, of all features."""
        return self._joined(self.shares(state.masses), self._level_shares(state.levels))

    def levels(self, state: AdditiveState) -> LevelTerms:
        """Return what is known of the terms of long features."""
        return self._levels(state)

    def _found_levels(self, state: AdditiveState) -> LevelTerms:
        level = min(max(self.posterior(state).level, _RARE), 1 - _RARE)
        return state.levels.terms(self.long, 4 * level * (1 - level))

    def _joined(self, short: Array, long: Array) -> Array:
        """Return values of all terms, (..., terms), of those that are not of long features and those that are."""
        found = np.zeros((*short.shape[:-1], self.asked.cells.count))
        found[..., self.long.short_terms], found[..., self.long.terms] = short, long
        return found

    def _asked(self, state: AdditiveState, known: TermPosterior, people: int, noise: float, *, one: bool) -> Array:
        """Return the share of each question, for arms to be given about as they were in the latest round.

        ``one`` says whether everybody answers one of them, with noise that does not depend on how many do.
        """
        masses, arms = self.shares(state.masses), self.spec.arm_count
        whole = self._all_shares(state)
        weighted = np.full((arms, self.asked.cells.count), 2 / arms)
        if state.rounds and len(state.rounds[-1].arms.weighted) == arms:
            # People of each level are taken to get arms as everybody does.
            weighted = self._joined(
                state.rounds[-1].arms.weighted,
                np.repeat(state.rounds[-1].arms.weighted[:, :1], len(self.long.terms), axis=1),
            )
        weighted = people * whole * weighted
        long, short, others = self.long.terms, weighted[:, self.long.short_terms], self._long_questions
        if one:
            spread = state.rounds[-1].arms.spread if state.rounds else np.ones(arms)
            told = noise, np.resize(spread, arms), masses, 1 / len(self.spec.features)
            best = self.long.short_questions[one_each(self.questions, known.factors, short, *told)]
            found = np.bincount(np.append(best, others), minlength=self.asked.count) / len(self.spec.features)
            # Terms of long features are less what all levels have in common, of which somebody has to tell.
            return found if len(best) else _OF_LEVELS * (np.arange(len(found)) == 0) + (1 - _OF_LEVELS) * found
        places = np.repeat(np.arange(len(self.long.features)), [one.stop - one.start for one in self.long.features])
        apart = ApartTerms(places, self.levels(state).variances, weighted[:, long], whole[long])
        found = least_doubt(self.questions, known.factors, short, noise, masses, apart)
        shares = np.empty(self.asked.count)
        shares[self.long.short_questions] = found[: self.questions.count]
        shares[others] = found[self.questions.count :]
        return shares

    @property
    def _long_questions(self) -> NDArray[np.int64]:
        return np.setdiff1d(np.arange(self.asked.count), self.long.short_questions)

    def _draws(
        self, state: AdditiveState, known: TermPosterior, levels: LevelTerms, ahead: NewRound
    ) -> NDArray[np.int16]:
        """Return draws from the posterior, nearer to its mean; before any report each names an arm, in turn."""
        if not state.reported:
            draws = np.zeros((_DRAWS, self.spec.arm_count, self.asked.cells.count), np.int16)
            arms = np.flatnonzero(self.spec.playable)
            draws[np.arange(_DRAWS), arms[np.arange(_DRAWS) % len(arms)], 0] = 1
            return np.asarray(draws)
        rng = np.random.default_rng(ahead.seed)
        coins = rng.standard_normal((_DRAWS, *known.means.shape))
        moved = np.einsum("kij,dkj->dki", known.factors, coins, optimize=True)
        apart = np.sqrt(levels.variances) * rng.standard_normal((_DRAWS, *levels.means.shape))
        share = self.spec.algorithm.exploration
        return in_steps(self._joined(known.means + share * moved, levels.means + share * apart))

    @override
    def learn(self, state: AdditiveState, policy: AdditivePolicy, release: VectorSums | CellHits) -> AdditiveState:
        whole, people = PartSums.of(policy, release), release.reports
        told = whole.at(self.long.short_parts)
        before = self.shares(state.masses)
        seen = told.counts.sum(axis=0), told.doubts(self.questions.matrix @ before, people)
        masses = state.masses.learned(self.questions, before, *seen, people)
        apart, long = whole.at(self.long.parts), state.levels.faded(self.left(people))
        long = long.with_counts(
            self.long, apart.counts.sum(axis=0), apart.doubts(self._level_shares(long), people), people
        )
        shares = self._joined(self.shares(masses), self._level_shares(long))
        decided = [(ArmShares.of(one, shares), share) for one, share in policy.decided]
        everybody = ArmShares.mixed(decided, len(policy.means))
        means = STEP * policy.means.astype(np.float64)
        # What is expected beyond what rare rewards have is in the means, and in no residual.
        cut = people * (everybody.cut * shares) @ self.asked.matrix.T
        told = replace(told, sums=told.sums - cut[:, self.long.short_parts])
        apart = replace(apart, sums=apart.sums - cut[:, self.long.parts])
        long = self._with_sums(long, apart, everybody, people * shares, means)
        arms, shares = everybody.at(self.long.short_terms), shares[self.long.short_terms]
        matrix = self.questions.matrix.T
        spreads = arms.spread[:, None] * (people * (arms.weighted * shares) @ matrix)
        variances = told.variances((arms.shares * shares) @ matrix, spreads)
        exact = told.counts @ self.questions.matrix if policy.counts_arms else np.zeros((0, 0))
        latest = ObservedRound(
            people, told.sums, variances, means[:, self.long.short_terms], arms, told.together, exact
        )
        left, reported = self.left(people), state.reported + people
        information, scores = left * state.information, left * state.scores
        after = AdditiveState(reported, information, scores, masses, long, (*state.rounds, latest))
        return self._folded(after, _ROUNDS)

    def _with_sums(
        self, before: LongLevels, told: PartSums, arms: ArmShares, people: Array, means: Array
    ) -> LongLevels:
        """Return what is known of levels after a round; ``people`` (terms,) are how many there are of each cell."""
        own = self.long.terms
        slopes = (people * arms.weighted)[:, own]
        if len(told.counts) == len(slopes):
            # They were counted.
            slopes = told.counts * arms.weighted[:, own] / np.maximum(arms.shares[:, own], _NONE)
        spreads = arms.spread[:, None] * np.maximum(slopes, 1.0)
        shares = arms.shares[:, own] * people[own] / max(float(people[0]), 1.0)
        variances = told.variances(shares, spreads * (told.times != 1)) + spreads
        return before.with_sums(self.long, slopes, told.sums, variances, means[:, own])

    def _folded(self, state: AdditiveState, kept: int) -> AdditiveState:
        """Return the state with so many rounds, the others counted in for good."""
        gone = max(0, len(state.rounds) - kept)
        information, scores = self._counted(state, gone)
        return replace(state, information=information, scores=scores, rounds=state.rounds[gone:])

    @override
    def rearmed(self, state: AdditiveState, before: AdditiveSpec) -> AdditiveState:
        folded, added = self._folded(state, 0), self.spec.arm_count - before.arm_count
        information, scores = (
            np.concatenate([one, np.zeros((added, *one.shape[1:]))]) for one in (folded.information, folded.scores)
        )
        return replace(folded, information=information, scores=scores, levels=folded.levels.with_arms(added))

    @override
    def figures(self, state: AdditiveState) -> dict[str, float]:
        """Return how far a mean reward may be off: standard deviation, averaged over arms and people."""
        people = independent(self.cells, self.shares(state.masses))
        spread = np.einsum("kij,ij->k", self.posterior(state).covariances, people)
        spread += self.levels(state).variances @ self._level_shares(state.levels)
        return {"uncertainty": float(np.sqrt(spread).mean())}

    @override
    def _shapes(self, state: AdditiveState) -> Shapes:
        known, masses = self.posterior(state), self.shares(state.masses)
        features = {
            name: one for place, (name, one) in enumerate(self.spec.features.items()) if place not in self.long.places
        }
        people = CellShares(self.cells, features, masses)
        told = known.unshrunk(*self.statistics(state), self.cells, masses)
        playable = np.array(self.spec.playable)
        return shapes_of(known, told, people, self.spec.options, playable, self.spec.reward.span)

    @override
    def expected(self, state: AdditiveState) -> ExpectedRewards | None:
        if not state.reported:
            return None
        known, levels, reward = self.posterior(state), self.levels(state), self.spec.reward
        covariances, means = known.covariances, self._joined(known.means, levels.means)

        def rows(contexts: Array) -> Array:
            found = np.zeros((len(contexts), self.asked.cells.count))
            found[:, 0] = 1.0
            np.put_along_axis(found, self.asked.cells.locate(contexts), 1.0, axis=1)
            return found

        def at(contexts: Array) -> tuple[Array, Array]:
            all_rows = rows(contexts)
            x = all_rows[:, self.long.short_terms]
            spreads = np.einsum("nd,kde,ne->nk", x, covariances, x, optimize=True)
            spreads += all_rows[:, self.long.terms] @ levels.variances.T
            deviations = reward.span * np.sqrt(np.maximum(spreads, 0.0))
            return reward.unscaled(np.clip(all_rows @ means.T, 0.0, 1.0)), deviations

        def deviation(contexts: Array, weights: Array) -> float:
            all_sums = weights.T @ rows(contexts)
            sums = all_sums[:, self.long.short_terms]
            spread = np.einsum("kd,kde,ke->", sums, covariances, sums)
            spread += (all_sums[:, self.long.terms] ** 2 * levels.variances).sum()
            return reward.span * float(np.sqrt(max(0.0, spread)))

        masses = self._all_shares(state)

        def draw(places: Array) -> Array:
            return contexts_of(self.asked.cells, masses, self.spec.dimension, places)

        return ExpectedRewards.everywhere(self.spec.dimension, at, deviation, draw)
