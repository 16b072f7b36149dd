"""The policy of a trial: probabilities of arms in each segment, and the contributions of participants."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
from typing_extensions import override

from privateer_core.algorithms.trial.coin_questions import CoinQuestion, make_coin_layout
from privateer_core.algorithms.trial.learned_slopes import LearnedSlope, adjust_values
from privateer_core.algorithms.trial.sections import Segmentation
from privateer_core.algorithms.trial.spec import TrialSpec
from privateer_core.answer.policy_view import ArmsOfGroup, GroupShares, PolicyView
from privateer_core.arrays import Array, Bools, Coins, Ints
from privateer_core.errors import InputError, Malformed
from privateer_core.mechanisms import HitsMechanism
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.policies.policy import Arms, ArmsPolicy, ChoiceAnalyzer
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, SlotLayout
from privateer_core.privacy.terms import Terms
from privateer_core.spec.reward import YES

_TOLERANCE: Final = 2 / UNIT  # maximum rounding error of a share in units of coins
_MAX_ROUNDING_UNITS: Final = 2
"""Maximum difference between an arm's thresholds in two questions, by rounding, of 65,536."""
_MEMBERSHIP_FACT: Final = -1  # index of the fact of being in one's own segment: after the reward and the guardrails


@dataclass(frozen=True)
class TrialPolicy(ArmsPolicy):
    """Probabilities of arms by segment. One hash of the coins chooses the arm in all segments."""

    version: int  # the policy's version, from 1
    segments: Segmentation  # the segments of encoded contexts
    # the layout of the choice's coins: keys are segments, groups are arms, for each of the questions in order. The last
    # key is all participants, if a question is about them.
    choice: SlotLayout
    # how reports of this version are randomized. Keys of its layout are segments, or segments by arms if reports
    # contain the arm.
    terms: Terms
    questions: tuple[CoinQuestion, ...] = ()  # questions that coins choose from; empty: participants answer all
    # slopes of the first of the spec's `learned_adjustments`; if any are missing, the round learns the next
    # slope
    learned: tuple[LearnedSlope, ...] = ()

    @property
    def mechanism(self) -> HitsMechanism:
        """The mechanism that randomizes, sums and releases the round's reports."""
        return cast(HitsMechanism, self.terms.mechanism)

    @property
    def learns_slope(self) -> bool:
        """Whether reports contain a number with the reward, so that the round learns its slope."""
        return isinstance(self.mechanism, CellProducts)

    @property
    def arm_shares(self) -> Array:
        """Shares of the arms in each segment, over all questions; shape (segments, arms)."""
        return np.asarray(self._coins.sum(axis=1)[: self.segments.count])

    @property
    def _coins(self) -> Array:
        """Shares of the coins by question and arm, (keys, questions, arms)."""
        return self.choice.shares.reshape(self.choice.keys, max(1, len(self.questions)), -1)

    @property
    def _arms(self) -> int:
        return self.choice.groups // max(1, len(self.questions))

    @property
    def _is_about_everybody(self) -> Bools:
        return np.array([question.everybody for question in self.questions], bool)

    def asked_arm_shares(self, question: int) -> Array:
        """Return the shares of the arms among participants with one of the ``questions``, (segments, arms).

        A question about all participants has a single row.
        """
        arm_coins = self._coins[:, question]
        is_about_everybody = bool(self.questions) and self.questions[question].everybody
        rows = arm_coins[-1:] if is_about_everybody else arm_coins[: self.segments.count]
        return np.asarray(rows / rows.sum(axis=1, keepdims=True))

    @property
    @override
    def has_fresh_coins(self) -> bool:
        """Whether a report has coins of its own, as when it contains the arm."""
        return self.mechanism.layout.groups == 1

    is_mixture = has_fresh_coins

    @override
    def make_earlier_analyzer(self, earlier: "TrialPolicy") -> ChoiceAnalyzer:
        repeated = np.repeat(earlier.choice.thresholds, self.n_answers, axis=0)
        return ChoiceAnalyzer(replace(earlier.choice, thresholds=repeated))

    @override
    def with_decision_policies(self, decisions: Sequence[tuple["TrialPolicy", float]]) -> "TrialPolicy":
        """Return the policy with the mean shares of arms of the round's participants, over the deciding policies."""
        if all(policy.version == self.version for policy, _ in decisions):
            return self
        total = sum(weight for _, weight in decisions)
        shares = sum(weight * policy.choice.shares for policy, weight in decisions) / total
        edges = np.minimum(np.rint(np.cumsum(shares, axis=1)[:, :-1] * UNIT), UNIT).astype(np.uint32)
        return replace(self, choice=replace(self.choice, thresholds=edges))

    @override
    def check(self, spec: TrialSpec) -> None:
        """Refuse a policy whose segments, shares, slopes, questions or mechanism are not the spec's."""
        is_valid = isinstance(self.mechanism, HitsMechanism) and isinstance(self.choice, SlotLayout)
        is_valid = is_valid and self.questions == (spec.questions if self.terms.batch_size else ())
        is_valid = is_valid and self._has_spec_segments(spec) and self._has_floor_shares(spec)
        is_valid = is_valid and len(self.learned) <= len(spec.learned_adjustments)
        is_valid = is_valid and all(slope.is_possible for slope in self.learned)
        if not (is_valid and self._has_mechanism(spec)):
            raise Malformed("not a trial policy", remedy="fetch the policy again")

    def _has_spec_segments(self, spec: TrialSpec) -> bool:
        """Whether the segments are those of the spec."""
        factors, spec_factors = self.segments.factors, spec.segmentation.factors
        return len(factors) == len(spec_factors) and all(
            (factor.column, factor.columns, factor.flagged) == (other.column, other.columns, other.flagged)
            and np.array_equal(factor.codes, other.codes)
            and np.array_equal(factor.cuts, other.cuts)
            for factor, other in zip(factors, spec_factors, strict=True)
        )

    def _has_floor_shares(self, spec: TrialSpec) -> bool:
        """Whether every arm has its floor in every question of a round with reports, and retired arms have no share."""
        thresholds, count = self.choice.thresholds.astype(np.int64), max(1, len(self.questions))
        n_keys = spec.segment_count + bool(self._is_about_everybody.any())
        if thresholds.shape != (n_keys, count * spec.arm_count - 1) or not (np.diff(thresholds, axis=1) >= 0).all():
            return False
        shares = self._coins
        if (thresholds > UNIT).any() or not (shares.sum(axis=2) > 0).all():
            return False
        has_retired = bool((shares[..., ~np.array(spec.playable)] > 0).any())
        minima = np.array([spec.min_arm_share * question.share for question in self.questions] or [spec.min_arm_share])
        has_floor = self.terms.batch_size == 0 or bool((shares.min(axis=2) >= minima - _TOLERANCE).all())
        return has_floor and not has_retired

    def _has_mechanism(self, spec: TrialSpec) -> bool:
        """Whether the mechanism and its layout are those of the spec's question, with the coins of the choice."""
        layout, question = self.mechanism.layout, spec.make_question(self.choice, len(self.learned))
        is_same = np.array_equal(layout.thresholds, question.layout.thresholds) and layout.seed == self.choice.seed
        is_same = is_same and getattr(self.mechanism, "buckets", 1) <= layout.keys and self._has_even_questions()
        is_same = is_same and self.mechanism.can_answer(question)
        return is_same or self.terms.batch_size == 0

    def _has_even_questions(self) -> bool:
        """Whether each question has the same coins in every segment and arm, and so reveals neither.

        A question about all participants has the same coins of each arm in every segment, so that the arm reveals none.
        """
        if not self.questions:
            return True
        shares = self._coins[:, 0] / self._coins[:, 0].sum(axis=1, keepdims=True)
        expected = make_coin_layout(self.choice.seed, shares, self.questions).thresholds.astype(np.int64)
        thresholds, groups = self.choice.thresholds.astype(np.int64), np.arange(expected.shape[1])
        is_last, is_overall = (groups % self._arms == self._arms - 1, self._is_about_everybody[groups // self._arms])
        is_same = (thresholds == thresholds[:1])[:, is_overall].all() and (thresholds == expected)[:, is_last].all()
        return bool(is_same and (np.abs(thresholds - expected)[:, ~is_overall] <= _MAX_ROUNDING_UNITS).all())

    @override
    def decide(self, contexts: Array, coins: Coins) -> Arms:
        return Arms(self._group(self.segments.locate(contexts), coins) % self._arms)

    def _group(self, segments: Ints, coins: Coins) -> Ints:
        return self.choice.find_groups(self.choice.hashes(coins, segments), segments)

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array) -> KeyedValues:
        """Return participants' segments, with the arm if reports contain it, and their rewards.

        With questions, it is the answer to the question of their coins. With guardrails ``rewards`` has the shape
        (n, 1 + guardrails), answers after the reward, and after them the numbers whose slopes are learned
        (`privateer_core.spec.reward.append_numbers`).
        """
        segments = self.segments.locate(contexts)
        groups, cells = decisions.arms, segments
        if self.has_fresh_coins:
            groups, cells = np.zeros_like(segments), segments * self.choice.groups + decisions.arms
        elif self.questions:
            return self._encode_answers(coins, segments, rewards)
        values, answers, numbers = self._split_rewards(rewards)
        return KeyedValues(coins, cells * self.n_answers + answers, groups, values, numbers)

    @property
    def n_answers(self) -> int:
        """Number of combined answers to all guardrails."""
        cells = self.choice.keys * (self.choice.groups if self.has_fresh_coins else 1)
        return self.mechanism.layout.keys // max(1, cells)

    def _encode_answers(self, coins: Coins, segments: Ints, rewards: Array) -> KeyedValues:
        """Return the answers of participants in ``segments`` (n,) to the questions of their coins."""
        groups = self._group(segments, coins)
        questions = groups // self._arms
        facts = np.array([_MEMBERSHIP_FACT if question.fact is None else question.fact for question in self.questions])
        columns = self._reward_columns(rewards, int(facts.max()))
        table = np.column_stack([columns[:, 0], columns[:, 1:] >= YES, np.ones(len(columns))]).astype(np.float64)
        keys = np.where(self._is_about_everybody[questions], self.segments.count, segments)
        return KeyedValues(coins, keys, groups, np.asarray(table[np.arange(len(table)), facts[questions]]))

    def _split_rewards(self, rewards: Array) -> tuple[Array, Ints, Array | None]:
        """Return adjusted rewards, combined answers to guardrails, and the numbers whose slope the round learns.

        Each is (n,); the last is None if the round learns no slope.
        """
        n_guardrails, n_learned = max(1, self.n_answers).bit_length() - 1, len(self.learned)
        columns = self._reward_columns(rewards, n_guardrails, n_learned + self.learns_slope)
        answers = (columns[:, 1 : 1 + n_guardrails] >= YES).astype(np.int64) @ (1 << np.arange(n_guardrails))
        numbers = columns[:, 1 + n_guardrails :]
        values = adjust_values(columns[:, 0], numbers, self.learned)
        return values, answers, np.asarray(numbers[:, n_learned]) if self.learns_slope else None

    @staticmethod
    def _reward_columns(rewards: Array, n_guardrails: int, n_numbers: int = 0) -> Array:
        """Return rewards as a matrix: reward, ``n_guardrails`` answers, then numbers; refuse another width."""
        columns = rewards.reshape(len(rewards), -1)
        n_further = columns.shape[1] - 1 - n_guardrails
        if n_further < n_numbers or (n_further and not n_numbers):
            detail = f"must be a reward, {n_guardrails} answers and {n_numbers} numbers"
            remedy = "report what algorithm.guardrails and reward.covariates name"
            raise InputError(detail, field="rewards", remedy=remedy)
        return columns

    def groups(self, contexts: Array) -> Ints:
        """Return the segment of each of n participants, (n,)."""
        return self.segments.locate(contexts)

    def comparisons(self, spec: TrialSpec) -> Iterator[tuple[str, int | None, int, int]]:
        """Yield the comparisons of every arm with the control, in every segment and on average."""
        for k, arm, name in spec.effects():
            yield name, k, arm, 0
        for arm, name in spec.average_effects():
            yield name, None, arm, 0

    @override
    def view(self, spec: TrialSpec) -> PolicyView:
        """Return the view with the share of every arm in each segment."""
        groups = tuple(
            ArmsOfGroup(name, {arm: round(float(share), 4) for arm, share in zip(spec.options, row, strict=True)})
            for name, row in zip(spec.segment_names, self.arm_shares, strict=True)
        )
        return PolicyView(spec.algorithm.name, self.version, GroupShares(groups))
