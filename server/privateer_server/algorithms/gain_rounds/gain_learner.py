"""A learner that asks for what an algorithm learns from, and at the end for what choosing by context gains."""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.answer import Answer
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.measured_rate import MeasuredRate
from privateer_core.answer.parts import ABOVE_CHANCE, Gain, Intervals
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.policies.gain_policy import KEYS, NO_OPTION, GainPolicy
from privateer_core.policies.policy import Policy
from privateer_core.spec.arms import ArmsSpec, PlannedRound
from privateer_server.algorithms.gain_rounds.group_means import CONFIDENCE, GroupMeans, MeasuredMean
from privateer_server.algorithms.rounds_learner import Bulk, NewRound, RoundsLearner, Step

StateT = TypeVar("StateT")
_DIGITS = 6
ANY_OPTION = "any option by chance"
_EARLIER = "the gain was measured of an earlier policy, and the policy has changed since"


@dataclass(frozen=True)
class MeasuredGain:
    """What a round told of the gain, on the scale of rewards in [0, 1]."""

    single: int  # the arm that the policy was compared with, or `NO_OPTION`: with any
    people: int  # how many people reported
    # by_context, constant: mean rewards under the policy, and under that arm
    by_context: MeasuredMean
    constant: MeasuredMean
    # over_constant, over_any: by how much the policy earns more than that arm, and than any by coins
    over_constant: MeasuredMean
    over_any: MeasuredMean


@dataclass(frozen=True)
class GainState(Generic[StateT]):
    """The state of the algorithm's learner, and what was measured."""

    learner: StateT  # the state of the algorithm's learner
    asked: int = 0  # people whose reports on the gain opened
    measured: MeasuredGain | None = None  # what the last round of them told; None: there was none
    is_earlier: bool = False  # whether the policy has changed since: more was learned, or arms were added or retired


class GainLearner(RoundsLearner[ArmsSpec, GainState[Any], Any]):
    """The rounds of an algorithm's learner, and then one that measures what its policy gains.

    Nothing is learned from that round, so that it measures the policy that everybody gets afterwards.

    spec: the experiment's spec, whose people measure the gain, too.
    learner: the learner of what the algorithm learns, for the spec without these people.
    """

    def __init__(self, spec: ArmsSpec, learner: RoundsLearner[Any, Any, Any]) -> None:
        super().__init__(spec)
        self._learner = learner
        self.state_type = cast(Any, GainState)[learner.state_type]
        self.repeats, self.publishes_result = learner.repeats, learner.publishes_result
        self.growth = learner.growth

    @override
    def start(self, seed: int) -> GainState[Any]:
        return GainState(self._learner.start(seed))

    @override
    def policy(self, state: GainState[Any], ahead: NewRound) -> Any:
        return self._learner.policy(state.learner, ahead)

    @override
    def learn(self, state: GainState[Any], policy: Policy, release: Any) -> GainState[Any]:
        if not isinstance(policy, GainPolicy):
            learned = self._learner.learn(state.learner, policy, release)
            return replace(state, learner=learned, is_earlier=state.measured is not None)
        named = getattr(policy.terms.mechanism, "named", True)
        found = GroupMeans(release, policy.shares, named=named)
        is_known = policy.single != NO_OPTION
        measured = MeasuredGain(
            policy.single,
            found.people,
            found.by_context,
            found.single if is_known else found.any,
            found.over_single if is_known else found.over_any,
            found.over_any,
        )
        return replace(state, asked=state.asked + found.people, measured=measured, is_earlier=False)

    @override
    def next(self, state: GainState[Any], version: int, seed: int) -> Step:
        step = self._learner.next(state.learner, version, seed)
        people = self._left(state)
        if step.batch or not people or self._learner.failed(state.learner):
            return replace(step, state=state, seen=step.seen + state.asked)
        ahead = NewRound(version, seed, people)
        known = self._learner.single_option(state.learner, step.policy)
        policy = GainPolicy(
            version=version,
            single=NO_OPTION if known is None else known,
            seed=seed,
            playable=np.array(self.spec.playable),
            by_context=step.policy,
            terms=self.terms(ahead, self.spec.gain_question(KEYS, seed)),
        )
        return Step(state, policy, people, step.seen + state.asked)

    def _left(self, state: GainState[Any]) -> int:
        """Return how many people are still to be asked for the gain; 0 where they are too few."""
        left = self.spec.gain_people - state.asked
        return left if left >= self.spec.measuring_least else 0

    @override
    def last(self, state: GainState[Any], version: int, seed: int) -> Step:
        return replace(self._learner.last(state.learner, version, seed), state=state)

    @override
    def planned_round(self, state: GainState[Any]) -> PlannedRound:
        planned = self._learner.planned_round(state.learner)
        return planned if planned.batch else replace(planned, batch=self._left(state))

    @override
    def out_of_reach(self, state: GainState[Any]) -> int:
        unmeasured = self.spec.gain_people - state.asked - self._left(state)
        return self._learner.out_of_reach(state.learner) + unmeasured

    @override
    def stopped(self, state: GainState[Any]) -> bool:
        return self._learner.stopped(state.learner)

    @override
    def over(self, state: GainState[Any]) -> bool:
        return self._learner.over(state.learner) and not self._left(state)

    @override
    def miss(self, state: GainState[Any], policy: Policy, *, again: bool) -> GainState[Any]:
        if isinstance(policy, GainPolicy):
            return state
        return replace(state, learner=self._learner.miss(state.learner, policy, again=again))

    @override
    def failed(self, state: GainState[Any]) -> bool:
        return self._learner.failed(state.learner)

    @override
    def changed(self, state: GainState[Any], before: ArmsSpec) -> GainState[Any]:
        learned = self._learner.changed(state.learner, before.learning)
        same = (before.options, before.retired) == (self.spec.options, self.spec.retired)
        is_earlier = state.is_earlier or (state.measured is not None and not same)
        return replace(state, learner=learned, is_earlier=is_earlier)

    @override
    def begun(self, state: Any, before: ArmsSpec) -> GainState[Any]:
        return GainState(self._learner.begun(state, before.learning))

    @override
    def learned(self, state: GainState[Any]) -> Any:
        return state.learner

    @override
    def relearned(self, state: GainState[Any], learned: Any) -> GainState[Any]:
        return replace(state, learner=learned)

    @override
    def bulk(self, first: Step) -> list[Bulk]:
        terms = self.terms(NewRound(1, 0, self.spec.gain_people), self.spec.gain_question(KEYS, 0))
        gain = Bulk(self.spec.gain_people, terms.messages, terms.mechanism.report_size)
        return [*self._learner.bulk(replace(first, state=first.state.learner)), gain]

    @override
    def figures(self, state: GainState[Any]) -> dict[str, float]:
        return self._learner.figures(state.learner)

    @override
    def expected(self, state: GainState[Any]) -> ExpectedRewards | None:
        return self._learner.expected(state.learner)

    @override
    def measured_rate(self, state: GainState[Any]) -> MeasuredRate | None:
        return self._learner.measured_rate(state.learner)

    @override
    def answer(self, state: GainState[Any]) -> Answer:
        """Return the answer of the algorithm's learner, with the gain as far as it was measured."""
        found, measured = self._learner.answer(state.learner), state.measured
        is_over = self.over(state)
        told = {
            "status": "failed" if found.status == "failed" else "ended" if is_over else "learning",
            "ended": found.ended if is_over else None,
            "people": None if found.people is None else found.people + state.asked,
            "rounds": None if found.rounds is None else found.rounds + (measured is not None),
        }
        if measured is None:
            return msgspec.structs.replace(found, **told)
        return msgspec.structs.replace(
            found,
            **told,
            confidence=CONFIDENCE if found.confidence is None else found.confidence,
            warnings=(*found.warnings, *([_EARLIER] if state.is_earlier else [])),
            gain=self._gain(measured),
            parts=(*found.parts, self._differences(measured)),
        )

    def _option(self, measured: MeasuredGain) -> str:
        return ANY_OPTION if measured.single == NO_OPTION else self.spec.options[measured.single]

    def _gain(self, measured: MeasuredGain) -> Gain:
        reward, gain = self.spec.reward, measured.over_constant
        low, high = (round(reward.span * end, _DIGITS) for end in gain.interval)
        option = self._option(measured)
        means = (self._mean("by context", measured.by_context), self._mean(option, measured.constant))
        return Gain(option, round(reward.span * gain.value, _DIGITS), low, high, measured.people, means)

    def _mean(self, name: str, found: MeasuredMean) -> Estimate:
        reward = self.spec.reward
        # What noise leaves beyond the bounds of rewards is not a mean.
        value, low, high = (
            round(float(reward.unscaled(np.clip(one, 0.0, 1.0))), _DIGITS) for one in (found.value, *found.interval)
        )
        return Estimate(name, value, low, high)

    def _differences(self, measured: MeasuredGain) -> Intervals:
        """Return the gain over each of what the policy was compared with, as measured."""
        span = self.spec.reward.span
        above = {f"above {self._option(measured)}": measured.over_constant, ABOVE_CHANCE: measured.over_any}
        shown = []
        for name, found in above.items():
            value, low, high = (round(span * one, _DIGITS) for one in (found.value, *found.interval))
            shown.append(Estimate(name, value, low, high))
        people = f"measured with {measured.people:,} people who were asked for nothing else"
        return Intervals(f"what choosing by context gains, {people}", "difference", tuple(shown))
