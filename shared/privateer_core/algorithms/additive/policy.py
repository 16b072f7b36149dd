"""The additive bandit's policy of one round: posterior draws of the arms' shape functions."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from typing_extensions import override

from privateer_core.algorithms.additive.cells import Questions
from privateer_core.algorithms.additive.coin_arms import CoinArms, hash_groups
from privateer_core.algorithms.additive.spec import AdditiveSpec
from privateer_core.answer.facts import Fact
from privateer_core.answer.policy_view import INTERCEPT, Coefficients, PolicyView, name_terms
from privateer_core.arrays import Array, Bools, Coins, Ints, NDArray
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.feature_sums import FeatureSums
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.policies.policy import Arms, ArmsPolicy
from privateer_core.primitives.contributions import FeatureValues, KeyedValues
from privateer_core.primitives.public_coins import UNIT, SlotLayout, coin_classes
from privateer_core.privacy.terms import Terms

TERM_UNIT: Final = 2.0**-13
"""The unit of terms in a policy, in expected reward: integer sums are equal in every language."""
DRAWS_MAX: Final = 64
_BLOCK_SIZE: Final = 1 << 16  # maximum number of draws' numbers in a chunk
_MIN_OUTCOME_PROBABILITY: Final = 0.02  # minimum probability of the rarer outcome, for the variance of rewards


@dataclass(frozen=True)
class AdditivePolicy(ArmsPolicy):
    """Thompson sampling by public coins: they select a draw, and the arm with the largest sum of its terms is given."""

    version: int
    questions: Questions  # the questions of reports, and the cells of features
    draws: NDArray[np.int16]  # shape (draws, arms, terms), int16, in units of `TERM_UNIT`: draws that coins select
    # shape (arms, terms), int16: the terms of the mean reward that residuals are measured from
    means: NDArray[np.int16]
    edges: NDArray[np.uint32]  # shape (questions - 1,), uint32, ascending: the thresholds of coins between questions
    counts_arms: bool  # whether a curator counts participants by arm, too
    playable: Bools  # shape (arms,): which arms are not retired
    seed: int  # the seed of the choices' coins
    terms: Terms
    # the plan of random arms and questions, if reports are locally private; None otherwise
    plan: CoinArms | None = None
    below: float = 1.0  # the absolute lower bound of residuals: below 1 where rewards are rare (`Residuals`)

    is_mixture = True
    tells_age = False
    is_policy_independent = True

    @property
    def has_fresh_coins(self) -> bool:
        """Whether a report has coins of its own; with a plan, it has the coins of the choice."""
        return self.plan is None

    @property
    def residuals(self) -> "Residuals":
        """The scale of residuals, which reports have in place of rewards."""
        return Residuals(self.below)

    @property
    def is_single_question(self) -> bool:
        """Whether a participant answers a single question, chosen by coins, to a curator."""
        return type(self.terms.mechanism) is CellPairs

    @cached_property
    def shares(self) -> Array:
        """Share of each question, (questions,)."""
        return np.diff(self.edges, prepend=0, append=UNIT) / UNIT

    @override
    def is_compatible(self, spec: AdditiveSpec) -> bool:
        return (
            self._is_shaped(spec)
            and self._is_of_spec(spec)
            and (self.terms.batch_size == 0 or self._has_mechanism(spec))
        )

    def _is_shaped(self, spec: AdditiveSpec) -> bool:
        """Whether arrays have the types and shapes of the spec, and thresholds do not fall."""
        size = (spec.arm_count, self.questions.cells.count)
        has_types = self.draws.dtype == self.means.dtype == np.int16 and self.edges.dtype == np.uint32
        has_types = has_types and self.draws.ndim == 3 and 1 <= len(self.draws) <= DRAWS_MAX
        has_shapes = self.draws.shape[1:] == self.means.shape == size
        has_shapes = has_shapes and self.edges.shape == (self.questions.count - 1,)
        steps = np.diff(self.edges.astype(np.int64), prepend=0, append=UNIT)
        return has_types and has_shapes and bool((steps >= 0).all())

    def _is_of_spec(self, spec: AdditiveSpec) -> bool:
        """Whether questions, arms, plan and bounds are those of the spec."""
        is_same = self.questions == spec.questions and self.playable.tolist() == list(spec.playable)
        is_same = is_same and self.counts_arms == spec.counts_arms
        is_same = is_same and (self.plan is not None) == spec.has_coin_plan
        is_same = is_same and (self.plan is None or self.plan.is_compatible(self.questions, self.playable))
        # A round without reports has no groups of coins.
        is_same = is_same and (self.terms.batch_size > 0 or self.plan is None or not self.plan.given)
        is_bounded = 0 < self.below <= 1 and (self.plan is None or self.below == 1)
        return is_same and is_bounded and 0 <= self.seed < 1 << 63

    def _has_mechanism(self, spec: AdditiveSpec) -> bool:
        """Whether the mechanism is the spec's, and coins choose questions by their shares."""
        mechanism = self.terms.mechanism
        if isinstance(mechanism, FeatureSums):
            is_same = mechanism.arms == len(self.means) and mechanism.sizes == spec.answer_counts
            return is_same and mechanism.counts_arms == self.counts_arms and mechanism.below == self.below
        if self.is_single_question:
            n_keys = len(self.means) * int(self.questions.starts[-1])
            return not self.counts_arms and mechanism.layout.keys == n_keys  # type: ignore[union-attr]
        if not isinstance(mechanism, NamedSymbol) or mechanism.levels != 2:
            return False
        layout = self.plan.layout(self.questions) if self.plan else spec.make_question(0, self.edges).layout
        return bool(np.array_equal(mechanism.layout.thresholds, layout.thresholds))

    @override
    def decide(self, contexts: Array, coins: Coins) -> Arms:
        arms = self.choose_arms(self.questions.cells.locate(contexts), self.select_draws(coins))
        return Arms(self.plan.choose_arms(self._layout, coins, arms) if self.plan and self.plan.given else arms)

    @property
    def _layout(self) -> SlotLayout:
        mechanism = self.terms.mechanism
        assert isinstance(mechanism, NamedSymbol)
        return mechanism.layout

    def select_draws(self, coins: Coins) -> Ints:
        """Return the index (n,) of the draw that coins select."""
        return coin_classes(coins, self.seed, len(self.draws))

    def choose_arms(self, terms: Ints, draw_indices: Ints) -> Ints:
        """Return the best arms (n,) of participants with these terms (n, features), by draws (n,)."""
        table, arms = self._draws_by_term, np.empty(len(terms), np.int64)
        step = max(1, _BLOCK_SIZE // (terms.shape[1] * table.shape[2]))
        for start in range(0, len(terms), step):
            chunk_draws, chunk_terms = draw_indices[start : start + step], terms[start : start + step]
            scores = table[chunk_draws[:, None], chunk_terms].sum(axis=1, dtype=np.int32) + table[chunk_draws, 0]
            scores[:, ~self.playable] = np.iinfo(np.int32).min
            arms[start : start + step] = scores.argmax(axis=1)
        return arms

    @cached_property
    def _draws_by_term(self) -> NDArray[np.int16]:
        """The draws, (draws, terms, arms), so that a term's values for all arms are contiguous."""
        return np.ascontiguousarray(self.draws.transpose(0, 2, 1))

    def predict(self, terms: Ints, arms: Ints) -> Array:
        """Return the expected rewards (n,) of arms for participants with these terms; they may be beyond 0 and 1."""
        sums = self.means[arms, 0].astype(np.int64)
        for feature_terms in terms.T:
            sums += self.means[arms, feature_terms]
        return np.asarray(TERM_UNIT * sums)

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array) -> KeyedValues | FeatureValues:
        """Return residuals of rewards, with each participant's arm and cells, which the mechanism hides."""
        arms, terms = decisions.arms, self.questions.cells.locate(contexts)
        residuals, answers = (self.residuals.compute(self.predict(terms, arms), rewards), self.questions.locate(terms))
        mechanism, values = self.terms.mechanism, (self.below + residuals) / (1 + self.below)
        if self.plan:
            return self.plan.encode_answers(self.questions, self._layout, terms, coins, arms, rewards, residuals)
        if isinstance(mechanism, NamedSymbol):
            indices = hash_groups(mechanism.layout, coins)
            keys = answers[np.arange(len(coins)), indices] * len(self.means) + arms
            return KeyedValues(coins, keys, indices, values)
        if self.is_single_question:
            layout = SlotLayout(mechanism.layout.seed, self.edges[None])  # type: ignore[union-attr]
            parts = answers + self.questions.starts[:-1]
            keys = parts[np.arange(len(coins)), hash_groups(layout, coins)] * len(self.means) + arms
            return KeyedValues.ungrouped(coins, keys, values)
        return FeatureValues(coins, arms, answers, residuals)

    @override
    def view(self, spec: AdditiveSpec) -> PolicyView:
        """Return the view with the terms of every arm's mean reward, and the number of draws."""
        unit = "the mean reward, from 0 at its lower bound to 1 at its upper one"
        arms = name_terms(spec.options, [INTERCEPT, *spec.cell_names], TERM_UNIT * self.means)
        facts = (Fact("draws that coins choose from", len(self.draws), "count"),)
        return PolicyView(spec.algorithm.name, self.version, Coefficients("identity", unit, {}, arms), facts)


@dataclass(frozen=True)
class Residuals:
    """Residuals of rewards, scaled to [-1, 1].

    They are (reward - expected) / max(expected, 1 - expected), which is in [-1, 1] even where a sum is beyond 0 and 1.
    Nothing else is clipped: the mean of a residual is linear in the expected reward, so that later residuals correct
    sums that are too large.
    """

    # 1, or less where rewards are rare: then residuals are at least minus this, since expected rewards are clipped to
    # below / (1 + below)
    below: float

    def compute(self, expected: Array, rewards: Array) -> Array:
        """Return the residuals (n,) of rewards in [0, 1] from expected rewards."""
        expected = np.minimum(expected, self._max_expected)
        # Rounding errors must not cross the bound.
        return np.maximum((rewards - expected) / np.maximum(expected, 1 - expected), -self.below)

    def weights(self, expected: Array) -> Array:
        """Return the factors of differences of rewards, of the shape of ``expected``."""
        expected = np.minimum(expected, self._max_expected)
        return np.asarray(1 / np.maximum(expected, 1 - expected))

    def variances(self, expected: Array) -> Array:
        """Return the variances of residuals of rewards that are 0 or 1, of the shape of ``expected``."""
        min_rate = min(_MIN_OUTCOME_PROBABILITY, self.below / 2)
        rates = np.clip(expected, min_rate, 1 - min_rate)
        return np.asarray(self.weights(expected) ** 2 * rates * (1 - rates))

    def clipped_excess(self, expected: Array) -> Array:
        """Return the part of expected rewards above the maximum that residuals are measured from."""
        return np.maximum(expected - self._max_expected, 0.0)

    @property
    def _max_expected(self) -> float:
        """The maximum expected reward that residuals are measured from."""
        return self.below / (1 + self.below) if self.below < 1 else np.inf
