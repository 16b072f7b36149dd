"""The policy of one round: draws of the arms' shape functions, and what a device does with them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.additive.cells import Questions
from privateer_core.algorithms.additive.coin_arms import CoinArms
from privateer_core.algorithms.additive.spec import AdditiveSpec
from privateer_core.answer.facts import Fact
from privateer_core.answer.policy_view import INTERCEPT, Coefficients, PolicyView
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors
from privateer_core.policies.decisions import Arms
from privateer_core.policies.policy import ArmsPolicy
from privateer_core.primitives.bounded_vectors import BoundedVectors, SparseVectors
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, SlotLayout, classes_of
from privateer_core.privacy.terms import Terms

Array = NDArray[np.float64]
Coins = NDArray[np.uint32]
Ints = NDArray[np.int64]
STEP: Final = 2.0**-13
"""The unit of terms in a policy, in expected reward: sums of whole numbers are the same in every language."""
DRAWS_MAX: Final = 64
_BLOCK: Final = 1 << 16
"""Numbers of draws that are looked at together."""
_SURE: Final = 0.02
"""Rewards are taken to vary as a coin that falls on its rarer side at least so often."""


@dataclass(frozen=True)
class AdditivePolicy(ArmsPolicy):
    """Thompson sampling by public coins: they name a draw, and the arm with the largest sum of terms there is given."""

    version: int
    questions: Questions  # what people may be asked, and the cells of features
    draws: NDArray[np.int16]  # shape (draws, arms, terms), int16, in units of `STEP`: what coins may name
    # shape (arms, terms), int16: the terms of the mean reward that residuals are measured from
    means: NDArray[np.int16]
    # shape (questions - 1,), uint32, rising: where the share of one question among coins ends and the next begins
    edges: NDArray[np.uint32]
    counted: float  # share of a vector's squared length that says in which cells a person is, whatever came of it
    counts_arms: bool  # whether it says so by arm
    playable: NDArray[np.bool_]  # shape (arms,): which arms are not retired
    seed: int  # what the coins of a choice mean
    terms: Terms
    # whom coins give an arm, and what people are asked, where no crowd hides a report; None elsewhere
    plan: CoinArms | None = None
    # what residuals are never below, as a positive number: below 1 where rewards are rare (`Residuals`)
    below: float = 1.0

    mixes = True

    @property
    def fresh_coins(self) -> bool:
        """Whether a report has coins of its own; those that may give an arm go with the report."""
        return self.plan is None

    @property
    @override
    def tells_age(self) -> bool:
        return False

    @property
    @override
    def timeless(self) -> bool:
        return True

    @property
    def residuals(self) -> "Residuals":
        """What people say of their rewards."""
        return Residuals(self.below)

    @property
    def asks_one(self) -> bool:
        """Whether coins choose one question for a person, whose answer a curator gets."""
        return type(self.terms.mechanism) is CellPairs

    @cached_property
    def shares(self) -> Array:
        """Share of each question, (questions,)."""
        return np.diff(self.edges, prepend=0, append=UNIT) / UNIT

    @override
    def fits(self, spec: AdditiveSpec) -> bool:
        return self._is_shaped(spec) and self._agrees(spec) and (self.terms.batch == 0 or self._asks(spec))

    def _is_shaped(self, spec: AdditiveSpec) -> bool:
        shape = (spec.arm_count, self.questions.cells.count)
        typed = self.draws.dtype == self.means.dtype == np.int16 and self.edges.dtype == np.uint32
        typed = typed and self.draws.ndim == 3 and 1 <= len(self.draws) <= DRAWS_MAX
        shaped = self.draws.shape[1:] == self.means.shape == shape and self.edges.shape == (self.questions.count - 1,)
        steps = np.diff(self.edges.astype(np.int64), prepend=0, append=UNIT)
        return typed and shaped and bool((steps >= 0).all())

    def _agrees(self, spec: AdditiveSpec) -> bool:
        same = self.questions == spec.questions and self.playable.tolist() == list(spec.playable)
        same = same and self.counts_arms == spec.counts_arms and 0 <= self.counted < 1
        same = same and (self.plan is not None) == spec.starts_from_levels
        same = same and (self.plan is None or self.plan.fits(self.questions, self.playable))
        # Where nobody is asked there are no groups that coins could name.
        same = same and (self.terms.batch > 0 or self.plan is None or not self.plan.given)
        bounded = 0 < self.below <= 1 and (self.plan is None or self.below == 1)
        return same and bounded and 0 <= self.seed < 1 << 63

    def _asks(self, spec: AdditiveSpec) -> bool:
        """Whether reports are about what the spec says, and coins choose questions by their shares."""
        mechanism = self.terms.mechanism
        if isinstance(mechanism, CentralVectors):
            return mechanism.ball == spec.ball_of(self.below)
        if self.asks_one:
            keys = len(self.means) * int(self.questions.starts[-1])
            return not self.counts_arms and mechanism.layout.keys == keys  # type: ignore[union-attr]
        if not isinstance(mechanism, NamedSymbol) or mechanism.levels != 2:
            return False
        layout = self.plan.layout(self.questions) if self.plan else spec.asked(0, self.edges).layout
        return bool(np.array_equal(mechanism.layout.thresholds, layout.thresholds))

    @override
    def decide(self, contexts: Array, coins: Coins) -> Arms:
        chosen = self.chosen(self.questions.cells.locate(contexts), self.drawn(coins))
        return Arms(self.plan.arms(self._layout, coins, chosen) if self.plan and self.plan.given else chosen)

    @property
    def _layout(self) -> SlotLayout:
        mechanism = self.terms.mechanism
        assert isinstance(mechanism, NamedSymbol)
        return mechanism.layout

    @cached_property
    def _questions(self) -> SlotLayout:
        return SlotLayout(self.terms.mechanism.layout.seed, self.edges[None])  # type: ignore[union-attr]

    def drawn(self, coins: Coins) -> Ints:
        """Return the draw (n,) that coins name."""
        return classes_of(coins, self.seed, len(self.draws))

    def chosen(self, terms: Ints, drawn: Ints) -> Ints:
        """Return the arms (n,) of people with these terms (n, features) by draws (n,)."""
        table, found = self._by_term, np.empty(len(terms), np.int64)
        step = max(1, _BLOCK // (terms.shape[1] * table.shape[2]))
        for start in range(0, len(terms), step):
            some, own = drawn[start : start + step], terms[start : start + step]
            scores = table[some[:, None], own].sum(axis=1, dtype=np.int32) + table[some, 0]
            if self._retires:
                scores[:, ~self.playable] = np.iinfo(np.int32).min
            found[start : start + step] = scores.argmax(axis=1)
        return found

    @cached_property
    def _by_term(self) -> NDArray[np.int16]:
        """The draws, (draws, terms, arms): what a person's cell says of all arms is in one place."""
        return np.ascontiguousarray(self.draws.transpose(0, 2, 1))

    @cached_property
    def _retires(self) -> bool:
        return not bool(self.playable.all())

    def expected(self, terms: Ints, arms: Ints) -> Array:
        """Return the expected rewards (n,) of arms for people with these terms; they may be beyond 0 and 1."""
        sums = self.means[arms, 0].astype(np.int64)
        for own in terms.T:
            sums += self.means[arms, own]
        return np.asarray(STEP * sums)

    @override
    def contribute(
        self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array
    ) -> KeyedValues | BoundedVectors:
        """Return residuals of rewards, with the place of everybody's arm and cells, which the mechanism hides."""
        arms, terms = decisions.arms, self.questions.cells.locate(contexts)
        values, answers = self.residuals.of(self.expected(terms, arms), rewards), self.questions.answers(terms)
        mechanism = self.terms.mechanism
        if self.plan:
            return self.plan.told(self.questions, self._layout, terms, coins, arms, rewards, values)
        if isinstance(mechanism, NamedSymbol):
            nothing = np.zeros(len(coins), np.int64)
            asked = mechanism.layout.group(mechanism.layout.hashes(coins, nothing), nothing)
            keys = answers[np.arange(len(coins)), asked] * len(self.means) + arms
            return KeyedValues(coins, keys, asked, (self.below + values) / (1 + self.below))
        parts = answers + self.questions.starts[:-1]
        if self.asks_one:
            asked = self._questions.group(self._questions.hashes(coins, np.zeros(1, np.int64)), np.zeros(1, np.int64))
            keys = parts[np.arange(len(coins)), asked] * len(self.means) + arms
            return KeyedValues.ungrouped(coins, keys, (self.below + values) / (1 + self.below))
        lengths, (size, count) = np.sqrt(self.shares), (int(self.questions.starts[-1]), len(self.means))
        told = np.sqrt(1 - self.counted) * values[:, None] * lengths
        beside = np.broadcast_to(np.sqrt(self.counted) * lengths, told.shape)
        own = arms[:, None] * size
        places = np.concatenate([own + parts, count * size + parts + own * self.counts_arms], axis=1)
        whole = size * (count + (count if self.counts_arms else 1))
        return SparseVectors(coins, np.concatenate([told, beside], axis=1), places, whole)

    @override
    def view(self, spec: AdditiveSpec) -> PolicyView:
        names = [INTERCEPT, *spec.cell_names]
        arms = {
            arm: {name: round(float(value), 4) for name, value in zip(names, STEP * mean, strict=True)}
            for arm, mean in zip(spec.options, self.means, strict=True)
        }
        unit = "the mean reward, from 0 at its lower bound to 1 at its upper one"
        facts = (Fact("draws that coins choose from", len(self.draws), "count"),)
        return PolicyView(spec.algorithm.name, self.version, Coefficients("identity", unit, {}, arms), facts)


@dataclass(frozen=True)
class Residuals:
    """How far rewards are from what is expected, on a scale on which no device says more than 1.

    They are (reward - expected) / max(expected, 1 - expected), which is in [-1, 1] even where a sum is beyond 0 and 1.
    Nothing else is clipped: the mean of a residual is linear in the expected reward, so that sums which went too far
    are corrected by the next residuals.
    """

    # 1; or less, where rewards are rare: no residual is then below minus this, as none is measured from more than below
    # / (1 + below)
    below: float

    def of(self, expected: Array, rewards: Array) -> Array:
        """Return the residuals (n,) of rewards from 0 to 1, where so much is expected."""
        expected = np.minimum(expected, self._most)
        # Floating point must not leave less than the bound.
        return np.maximum((rewards - expected) / np.maximum(expected, 1 - expected), -self.below)

    def weights(self, expected: Array) -> Array:
        """Return what differences of rewards are multiplied by, of the shape of ``expected``."""
        expected = np.minimum(expected, self._most)
        return np.asarray(1 / np.maximum(expected, 1 - expected))

    def variances(self, expected: Array) -> Array:
        """Return the variances of residuals of rewards that are 0 or 1, of the shape of ``expected``."""
        least = min(_SURE, self.below / 2)
        likely = np.clip(expected, least, 1 - least)
        return np.asarray(self.weights(expected) ** 2 * likely * (1 - likely))

    def cut(self, expected: Array) -> Array:
        """Return how much of what is expected no residual is measured from, as it is more than rare rewards have."""
        return np.maximum(expected - self._most, 0.0)

    @property
    def _most(self) -> float:
        """The most that residuals are measured from."""
        return self.below / (1 + self.below) if self.below < 1 else np.inf
