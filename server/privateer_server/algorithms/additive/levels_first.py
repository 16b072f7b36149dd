"""The learner of additive bandits where no crowd hides a report: levels of arms come first, then features."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.additive.coin_arms import LEVEL, CoinArms, finest
from privateer_core.algorithms.additive.policy import STEP, AdditivePolicy
from privateer_core.algorithms.additive.spec import AdditiveSpec
from privateer_core.primitives.contributions import CellHits
from privateer_core.primitives.public_coins import UNIT
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.additive.arm_shares import ArmShares
from privateer_server.algorithms.additive.cell_masses import CellMasses
from privateer_server.algorithms.additive.latest import Latest
from privateer_server.algorithms.additive.level_evidence import LevelEvidence
from privateer_server.algorithms.additive.part_sums import hit_rates
from privateer_server.algorithms.additive.posterior import TermPosterior
from privateer_server.algorithms.additive.spiked_terms import SpikedTerms, all_features
from privateer_server.algorithms.additive.symbol_groups import SymbolGroups, ToldSums
from privateer_server.algorithms.additive.terms_learner import TermsLearner, in_steps

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_FIRST: Final = 1000
"""About as many people of every doubling of all get an arm by coins."""
_LEAST: Final = 0.03
"""Least share of people who get an arm by coins."""
_OF_COINS: Final = (0.3, 0.8)
_OF_OTHERS: Final = (0.1, 0.1)
"""Least and largest share of people asked about levels, of those who get an arm by coins, and of the others."""
_LOSS: Final = 0.01
"""Expected loss by the arm that leads from which on the largest share is asked about levels."""
_EVEN: Final = 0.15
"""What every feature is asked about at least, by the one that does most."""
_MOVED: Final = 0.01
"""Share of people who chose by a plan that gave other arms, up to which all who seem to have an arm by coins count."""
_ALL: Final = 5
"""Every so many rounds all features are asked about in their own cells."""


@dataclass(frozen=True)
class LevelsFirstState:
    """The state of the learner."""

    reported: int  # people whose reports opened
    levels: LevelEvidence  # what is known of the mean rewards of arms
    # information, scores: shapes (arms, terms, terms) and (arms, terms): what rounds say of terms; nothing of two
    # features together
    information: Array
    scores: Array
    masses: CellMasses  # what is known of the shares of people by cell


class LevelsFirstLearner(TermsLearner[LevelsFirstState]):
    """Learns levels of arms from people who get them by coins, and terms of features from everybody."""

    state_type = LevelsFirstState

    def __init__(self, spec: AdditiveSpec) -> None:
        super().__init__(spec)
        self._features: Latest[LevelsFirstState, list[SpikedTerms]] = Latest(self._found)

    @override
    def start(self, seed: int) -> LevelsFirstState:
        arms, terms = self.spec.arm_count, self.cells.count
        nothing = np.zeros((arms, terms, terms)), np.zeros((arms, terms))
        return LevelsFirstState(0, LevelEvidence.unknown(arms), *nothing, CellMasses.unknown(self.cells))

    @property
    def _middle(self) -> float:
        declared = self.spec.reward.base_rate
        return 0.5 if declared is None else float(self.spec.reward.scaled(declared)[0])

    @override
    def posterior(self, state: LevelsFirstState) -> TermPosterior:
        return self._posterior(state, self._features(state))

    @override
    def statistics(self, state: LevelsFirstState) -> tuple[Array, Array]:
        information, scores = state.information.copy(), state.scores.copy()
        information[:, 0, 0], scores[:, 0] = state.levels.information, state.levels.scores
        return information, scores

    def _found(self, state: LevelsFirstState) -> list[SpikedTerms]:
        return all_features(self.cells, self.shares(state.masses), state.information, state.scores)

    def _posterior(self, state: LevelsFirstState, features: list[SpikedTerms]) -> TermPosterior:
        means = np.zeros((self.spec.arm_count, self.cells.count))
        factors = np.zeros((*means.shape, self.cells.count))
        levels, covariance = state.levels.law(self._middle)
        means[:, 0], factors[:, 0, 0] = levels, np.sqrt(np.diag(covariance))
        for place, known in enumerate(features):
            own = self.cells.of_feature(place)
            means[:, own] = known.means
            values, vectors = np.linalg.eigh(known.covariances)
            factors[:, own, own] = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        return TermPosterior(means, factors, float(levels.mean()))

    @override
    def policy(self, state: LevelsFirstState, ahead: NewRound) -> AdditivePolicy:
        features = self._features(state)
        means = in_steps(self._posterior(state, features).means)
        plan = self._plan(state, features, ahead)
        return AdditivePolicy(
            version=ahead.version,
            questions=self.questions,
            draws=means[None],
            means=means,
            edges=np.zeros(self.questions.count - 1, np.uint32),
            counted=0.0,
            counts_arms=self.spec.counts_arms,
            playable=np.array(self.spec.playable),
            seed=ahead.seed,
            terms=self.terms(ahead, self.spec.asked_by(plan)),
            plan=plan,
        )

    def _plan(self, state: LevelsFirstState, features: list[SpikedTerms], ahead: NewRound) -> CoinArms:
        plan = CoinArms.even(self.questions, np.array(self.spec.playable))
        if not ahead.batch:
            return replace(plan, given=0)
        # A half-life bounds how many people count: the sum of what it leaves of each.
        counted = min(max(1, state.reported), self.spec.algorithm.half_life / np.log(2))
        given = int(UNIT * min(1.0, max(_LEAST, _FIRST / counted)))
        if not state.reported:
            return plan
        masses = self.shares(state.masses)
        doubt = min(1.0, state.levels.doubt(self._middle, plan.playable) / _LOSS)
        sizes = np.array([known.size(masses[self.cells.of_feature(one)]) for one, known in enumerate(features)])
        shares = _EVEN + sizes / max(float(sizes.max()), 1e-9)
        shares /= shares.sum()
        edges = np.stack([_edges(low + (high - low) * doubt, shares) for low, high in (_OF_COINS, _OF_OTHERS)])
        asked = finest(self.questions)
        if ahead.version % _ALL:
            asked = np.array(
                [self._resolution(masses, one, known, shares[one] * ahead.batch) for one, known in enumerate(features)]
            )
        return replace(plan, given=given, edges=edges, resolutions=asked)

    def _resolution(self, masses: Array, place: int, known: SpikedTerms, people: float) -> int:
        """Return the question about a feature after which the variance of its terms is least, over people."""
        own, noise = self.cells.of_feature(place), self._noise * people
        left = {}
        for question, (feature, parts) in enumerate(self.questions.parts):
            if feature != place:
                continue
            rows = (parts == np.arange(int(parts.max()) + 1)[:, None]) * masses[own] * people * 2 / self.spec.arm_count
            left[question] = sum(_doubt(covariance, rows, noise, masses[own]) for covariance in known.covariances)
        return min(left, key=lambda one: left[one])

    @property
    def _noise(self) -> float:
        """Variance of noise in a sum, by person who is asked."""
        terms = self.terms(NewRound(1, 0, self.spec.experiment.round_size), self.spec.usual_question())
        return hit_rates(terms)[1] / terms.mechanism.response.gain**2  # type: ignore[union-attr]

    @override
    def learn(self, state: LevelsFirstState, policy: AdditivePolicy, release: CellHits) -> LevelsFirstState:
        assert policy.plan is not None
        found, people = SymbolGroups.of(policy, policy.plan, release), release.reports
        before = self.shares(state.masses)
        masses = state.masses.learned(self.questions, before, found.counts, found.doubts, people)
        shares = self.shares(masses)
        decided = [(ArmShares.of(one, shares), share) for one, share in policy.decided]
        best = ArmShares.mixed(decided, len(policy.means))
        given = _by_coins(policy, shares)
        left = self.left(people)
        levels, information, scores = state.levels.faded(left), left * state.information, left * state.scores
        means = STEP * policy.means.astype(np.float64)
        # People who chose before arms were added, or in a pause, may have had another arm than coins name now.
        moved = sum(share for one, share in policy.decided if not policy.plan.agrees(one.plan))
        for told in found.told:
            if told.arm >= 0 and moved > _MOVED:
                continue
            if told.place == LEVEL:
                levels = _of_levels(levels, told, best, means[:, 0])
            else:
                rows, sums, variances = self._rows(policy.plan, told, shares, best if told.arm < 0 else given)
                own = self.cells.of_feature(told.place - 1)
                for arm, (row, one, variance) in zip(
                    range(len(means)) if told.arm < 0 else [told.arm],
                    zip(rows, sums, variances, strict=True),
                    strict=True,
                ):
                    more = (row / variance[:, None]).T @ row
                    information[arm, own, own] += more
                    scores[arm, own] += row.T @ (one / variance) + more @ means[arm, own]
        return LevelsFirstState(state.reported + people, levels, information, scores, masses)

    def _rows(self, plan: CoinArms, told: ToldSums, masses: Array, arms: ArmShares) -> tuple[Array, Array, Array]:
        """Return how sums follow from terms, (arms, parts, cells); the sums, and their variances, (arms, parts)."""
        place = told.place - 1
        own, (_, parts) = self.cells.of_feature(place), self.questions.parts[plan.resolutions[place]]
        merged = (parts == np.arange(int(parts.max()) + 1)[:, None]).astype(np.float64)
        chosen = slice(None) if told.arm < 0 else slice(told.arm, told.arm + 1)
        weighted, shares = arms.weighted[chosen, own] * masses[own], arms.shares[chosen, own] * masses[own]
        if told.arm >= 0:  # all of them have the arm
            weighted, shares = weighted / np.maximum(arms.shares[chosen, :1], 1e-9), masses[None, own]
        return told.people * merged * weighted[:, None, :], told.sums, told.variances(shares @ merged.T)

    @override
    def rearmed(self, state: LevelsFirstState, before: AdditiveSpec) -> LevelsFirstState:
        added = self.spec.arm_count - before.arm_count
        information, scores = (
            np.concatenate([one, np.zeros((added, *one.shape[1:]))]) for one in (state.information, state.scores)
        )
        return replace(state, levels=state.levels.with_arms(added), information=information, scores=scores)


def _edges(level: float, shares: Array) -> NDArray[np.uint32]:
    """Return where the question about levels ends, and where that about each feature begins, of `UNIT`."""
    before = np.cumsum(shares) - shares
    return np.asarray(np.rint(UNIT * np.minimum(1.0, level + (1 - level) * before)), np.uint32)


def _doubt(covariance: Array, rows: Array, noise: float, masses: Array) -> float:
    spread = covariance @ rows.T
    inner = rows @ spread + max(noise, 1e-9) * np.eye(len(rows))
    after = covariance - spread @ np.linalg.solve(inner, spread.T)
    return float(np.diag(after) @ masses)


def _by_coins(policy: AdditivePolicy, masses: Array) -> ArmShares:
    """Return the shares and weights of arms that coins give alike."""
    arms = np.flatnonzero(policy.playable)
    draws = np.zeros((len(arms), *policy.means.shape), np.int16)
    draws[np.arange(len(arms)), arms, 0] = 1
    return ArmShares.of(replace(policy, draws=draws), masses)


def _of_levels(known: LevelEvidence, told: ToldSums, best: ArmShares, means: Array) -> LevelEvidence:
    """Return what is known of levels after rewards under an arm of coins, or residuals under the best arms."""
    if told.arm >= 0:
        slopes, sums, variances = np.zeros(len(means)), np.zeros(len(means)), np.full(len(means), np.inf)
        slopes[told.arm], sums[told.arm] = 2.0 * told.people, float(told.sums[0, 0]) + told.people
        variances[told.arm] = float(told.variances(np.ones(1))[0])
        return known.learned(slopes, sums, variances)
    slopes = told.people * best.weighted[:, 0]
    return known.learned(slopes, told.sums[:, 0] + slopes * means, told.variances(best.shares[:, 0]))
