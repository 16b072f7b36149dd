"""The policy of a trial: which arm the coins give in each segment, and what a person then reports."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.trial.coin_questions import CoinQuestion, coin_layout
from privateer_core.algorithms.trial.learned_slopes import LearnedSlope, adjusted
from privateer_core.algorithms.trial.segments import Segmentation
from privateer_core.algorithms.trial.spec import TrialSpec
from privateer_core.answer.policy_view import ArmsOfGroup, GroupShares, PolicyView
from privateer_core.errors import InputError, Malformed
from privateer_core.mechanisms import HitsMechanism
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.policies.analyzers import ByChoices
from privateer_core.policies.decisions import Arms
from privateer_core.policies.policy import ArmsPolicy
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, SlotLayout
from privateer_core.privacy.terms import Terms
from privateer_core.spec.reward import YES

Array = NDArray[np.float64]
_ROUNDED: Final = 2 / UNIT
"""What rounding to units of coins may take from a share."""
_UNITS: Final = 2
"""Rounding may move an arm by so many of 65,536 parts between one question and another."""
_MEMBER: Final = -1
"""Where what people say of being in their own segment stands: after all that they know of the reward."""


@dataclass(frozen=True)
class TrialPolicy(ArmsPolicy):
    """Shares of the arms, segment by segment. One hash of the coins decides the arm in all segments."""

    version: int  # the policy's version, from 1
    segments: Segmentation  # how encoded contexts are in segments
    # what the coins of a choice mean: keys are segments, groups are arms, for each of the questions in order. A last
    # key is everybody, if any of them is about everybody.
    choice: SlotLayout
    # how reports of this version are randomized. Keys of its layout are segments, or segments by arms where reports
    # name the arm.
    terms: Terms
    questions: tuple[CoinQuestion, ...] = ()  # questions that coins choose from. None: everybody answers all there are.
    # slopes of the first of the numbers from before whose slopes the spec leaves open. Where some are missing, the
    # round learns the next.
    learned: tuple[LearnedSlope, ...] = ()

    @property
    def mechanism(self) -> HitsMechanism:
        """What randomizes, adds up and releases the round's reports."""
        return cast(HitsMechanism, self.terms.mechanism)

    @property
    def learns(self) -> bool:
        """Whether people report a number beside the reward, of which the round learns the slope."""
        return isinstance(self.mechanism, CellProducts)

    @property
    def arm_shares(self) -> Array:
        """Shares of the arms in each segment, whatever coins ask; shape (segments, arms)."""
        return np.asarray(self._coins.sum(axis=1)[: self.segments.count])

    @property
    def _coins(self) -> Array:
        """Shares of the coins by question and arm, (keys, questions, arms)."""
        return self.choice.shares.reshape(self.choice.keys, max(1, len(self.questions)), -1)

    @property
    def _arms(self) -> int:
        return self.choice.groups // max(1, len(self.questions))

    @property
    def _about_everybody(self) -> NDArray[np.bool_]:
        return np.array([question.everybody for question in self.questions], bool)

    def arms_asked(self, question: int) -> Array:
        """Return the shares of the arms among people who are asked one of the ``questions``, (segments, arms).

        Of a question about everybody it is one row.
        """
        about = self._coins[:, question]
        everybody = bool(self.questions) and self.questions[question].everybody
        rows = about[-1:] if everybody else about[: self.segments.count]
        return np.asarray(rows / rows.sum(axis=1, keepdims=True))

    @property
    @override
    def fresh_coins(self) -> bool:
        """Whether a report has coins of its own: where it names the arm."""
        return self.mechanism.layout.groups == 1

    @property
    @override
    def mixes(self) -> bool:
        return self.fresh_coins

    @override
    def analyzer_of(self, earlier: "TrialPolicy") -> ByChoices:
        repeated = np.repeat(earlier.choice.thresholds, self.answers, axis=0)
        return ByChoices(replace(earlier.choice, thresholds=repeated))

    @override
    def followed(self, decided: Sequence[tuple["TrialPolicy", float]]) -> "TrialPolicy":
        """Return the policy with the shares of arms that the people of a round had, whichever policies decided."""
        if all(policy.version == self.version for policy, _ in decided):
            return self
        shares = sum(weight * policy.choice.shares for policy, weight in decided) / sum(weight for _, weight in decided)
        edges = np.minimum(np.rint(np.cumsum(shares, axis=1)[:, :-1] * UNIT), UNIT).astype(np.uint32)
        return replace(self, choice=replace(self.choice, thresholds=edges))

    @override
    def check(self, spec: TrialSpec) -> None:
        typed = isinstance(self.mechanism, HitsMechanism) and isinstance(self.choice, SlotLayout)
        if not (
            typed
            and self.questions == (spec.questions if self.terms.batch else ())
            and self._parts_as(spec)
            and self._explores(spec)
            and self._adjusts(spec)
            and self._asks(spec)
        ):
            raise Malformed("not a trial policy", remedy="fetch the policy again")

    def _parts_as(self, spec: TrialSpec) -> bool:
        ours, theirs = self.segments.factors, spec.segmentation.factors
        return len(ours) == len(theirs) and all(
            (one.column, one.columns, one.flagged) == (other.column, other.columns, other.flagged)
            and np.array_equal(one.codes, other.codes)
            and np.array_equal(one.cuts, other.cuts)
            for one, other in zip(ours, theirs, strict=True)
        )

    def _explores(self, spec: TrialSpec) -> bool:
        """Whether every arm has its floor in every question, as long as anybody is asked; nobody gets a retired one."""
        thresholds, questions = self.choice.thresholds.astype(np.int64), max(1, len(self.questions))
        keys = spec.segment_count + bool(self._about_everybody.any())
        if thresholds.shape != (keys, questions * spec.arm_count - 1) or not (np.diff(thresholds, axis=1) >= 0).all():
            return False
        asked = self._coins
        if (thresholds > UNIT).any() or not (asked.sum(axis=2) > 0).all():
            return False
        gone = bool((asked[..., ~np.array(spec.playable)] > 0).any())
        least = [spec.floor * question.share for question in self.questions] or [spec.floor]
        return not gone and (self.terms.batch == 0 or bool((asked.min(axis=2) >= np.array(least) - _ROUNDED).all()))

    def _adjusts(self, spec: TrialSpec) -> bool:
        """Whether rewards are adjusted by numbers of the spec alone, and by no more than a learner does."""
        return len(self.learned) <= len(spec.learned) and all(one.is_possible for one in self.learned)

    def _asks(self, spec: TrialSpec) -> bool:
        """Whether a report is about what the spec says; coins that it carries mean what those of a choice do."""
        reported, expected = self.mechanism.layout, spec.asked(self.choice, len(self.learned))
        same = np.array_equal(reported.thresholds, expected.layout.thresholds) and reported.seed == self.choice.seed
        same = same and getattr(self.mechanism, "buckets", 1) <= reported.keys and self._asks_evenly()
        same = same and self.mechanism.fits(expected)
        return same or self.terms.batch == 0

    def _asks_evenly(self) -> bool:
        """Whether each question has the same coins in every segment, and all arms alike: else it would tell of both.

        A question about everybody gives each arm the same coins in every segment, so that the arm tells nothing of it.
        """
        if not self.questions:
            return True
        first = self._coins[:, 0] / self._coins[:, 0].sum(axis=1, keepdims=True)
        meant = coin_layout(self.choice.seed, first, self.questions).thresholds.astype(np.int64)
        told, groups = self.choice.thresholds.astype(np.int64), np.arange(meant.shape[1])
        ends, everybody = groups % self._arms == self._arms - 1, self._about_everybody[groups // self._arms]
        same = (told == told[:1])[:, everybody].all() and (told == meant)[:, ends].all()
        return bool(same and (np.abs(told - meant)[:, ~everybody] <= _UNITS).all())

    @override
    def decide(self, contexts: Array, coins: NDArray[np.uint32]) -> Arms:
        return Arms(self._group(self.segments.locate(contexts), coins) % self._arms)

    def _group(self, where: NDArray[np.int64], coins: NDArray[np.uint32]) -> NDArray[np.int64]:
        return self.choice.group(self.choice.hashes(coins, where), where)

    @override
    def contribute(self, contexts: Array, coins: NDArray[np.uint32], decisions: Arms, rewards: Array) -> KeyedValues:
        """Return people's segments, by arm where reports name it, and their rewards.

        By turns it is what their coins ask, of their segment or of everybody. With guardrails ``rewards`` has the shape
        (n, 1 + guardrails), answers after the reward; and after them the numbers whose slopes are learned
        (`privateer_core.spec.adjustment.with_numbers`).
        """
        where = self.segments.locate(contexts)
        groups, cells = decisions.arms, where
        if self.fresh_coins:
            groups, cells = np.zeros_like(where), where * self.choice.groups + decisions.arms
        elif self.questions:
            return self._asked(coins, where, rewards)
        values, answers, numbers = self._told(rewards)
        return KeyedValues(coins, cells * self.answers + answers, groups, values, numbers)

    @property
    def answers(self) -> int:
        """How many answers guardrails have together."""
        cells = self.choice.keys * (self.choice.groups if self.fresh_coins else 1)
        return self.mechanism.layout.keys // max(1, cells)

    def _asked(self, coins: NDArray[np.uint32], where: NDArray[np.int64], rewards: Array) -> KeyedValues:
        """Return what everybody tells of what their coins ask; ``where`` (n,) are their segments."""
        groups = self._group(where, coins)
        questions = groups // self._arms
        facts = np.array([_MEMBER if question.fact is None else question.fact for question in self.questions])
        columns = self._columns(rewards, int(facts.max()))
        told = np.column_stack([columns[:, 0], columns[:, 1:] >= YES, np.ones(len(columns))]).astype(np.float64)
        keys = np.where(self._about_everybody[questions], self.segments.count, where)
        return KeyedValues(coins, keys, groups, np.asarray(told[np.arange(len(told)), facts[questions]]))

    def _told(self, rewards: Array) -> tuple[Array, NDArray[np.int64], Array | None]:
        """Return everybody's adjusted reward, their answers to guardrails as a number, and the number to learn of.

        Each is (n,); the last is None where the round learns of none.
        """
        guardrails, known = max(1, self.answers).bit_length() - 1, len(self.learned)
        columns = self._columns(rewards, guardrails, known + self.learns)
        answers = (columns[:, 1 : 1 + guardrails] >= YES).astype(np.int64) @ (1 << np.arange(guardrails))
        numbers = columns[:, 1 + guardrails :]
        values = adjusted(columns[:, 0], numbers, self.learned)
        return values, answers, np.asarray(numbers[:, known]) if self.learns else None

    @staticmethod
    def _columns(rewards: Array, guardrails: int, numbers: int = 0) -> Array:
        """Return rewards as columns; ``numbers`` are those that the round needs, of which there may be more."""
        columns = rewards.reshape(len(rewards), -1)
        more = columns.shape[1] - 1 - guardrails
        if more < numbers or (more and not numbers):
            detail = f"must be a reward, {guardrails} answers and {numbers} numbers"
            remedy = "report what algorithm.guardrails and reward.adjust name"
            raise InputError(detail, field="rewards", remedy=remedy)
        return columns

    def groups(self, contexts: Array) -> NDArray[np.int64]:
        """Return the segment of each of n people, (n,)."""
        return self.segments.locate(contexts)

    def comparisons(self, spec: TrialSpec) -> Iterator[tuple[str, int | None, int, int]]:
        """Yield what is compared: every arm with the control, in every segment and on average."""
        for k, arm, name in spec.effects():
            yield name, k, arm, 0
        for arm, name in spec.average_effects():
            yield name, None, arm, 0

    @override
    def view(self, spec: TrialSpec) -> PolicyView:
        groups = tuple(
            ArmsOfGroup(name, {arm: round(float(share), 4) for arm, share in zip(spec.options, row, strict=True)})
            for name, row in zip(spec.segment_names, self.arm_shares, strict=True)
        )
        return PolicyView(spec.algorithm.name, self.version, GroupShares(groups))
