"""A learner that runs an algorithm's learner, and then measures the policy's gain in a final round."""

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.answer import Answer
from privateer_core.answer.estimates import Estimate, MeasuredRate
from privateer_core.answer.parts import ABOVE_CHANCE, Gain, Intervals
from privateer_core.arrays import Array
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.policies.gain_policy import ANY, BY_CONTEXT, EITHER, N_KEYS, NO_OPTION, SINGLE, GainPolicy
from privateer_core.policies.policy import Policy
from privateer_core.primitives.contributions import CellHits
from privateer_core.spec.arms import ArmsSpec, PlannedRound
from privateer_server.algorithms.rounds_learner import NewRound, RoundsLearner, RoundVolume, Step

CONFIDENCE: Final = 0.95  # the probability with which each interval holds, about
_CONFIDENCE_QUANTILE: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_REWARD_MIDPOINT: Final = 0.5


@dataclass(frozen=True)
class MeasuredMean:
    """A mean or a difference of means, on the scale of rewards in [0, 1], and its standard error."""

    value: float
    deviation: float

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95 % confidence interval."""
        return self.value - _CONFIDENCE_QUANTILE * self.deviation, self.value + _CONFIDENCE_QUANTILE * self.deviation


class GroupMeans:
    """Estimates of the mean rewards of three groups from one release.

    shares: probability of the groups that follow the policy, get the single option, and get any, (3,).
    is_named: whether every key has symbols of its own; else reports are hits of several keys, with random signs.
    """

    def __init__(self, release: CellHits, shares: Array, *, is_named: bool) -> None:
        self._release, self._shares = release, shares
        self._centre = self._estimate_pooled_mean() if is_named else _REWARD_MIDPOINT

    def _estimate_pooled_mean(self) -> float:
        """Return the pooled mean of all values, clipped to their range; it is the centre of least noise."""
        release, other = self._release, self._release.other
        # The sum of all keys, less the random answers.
        total = float(release.positive.sum()) - N_KEYS * other * release.reports
        n_reports = float(release.hits.sum()) - 2 * N_KEYS * other * release.reports
        return min(1.0, max(0.0, total / n_reports)) if n_reports > 0 else _REWARD_MIDPOINT

    def estimate_mean(self, group: int) -> MeasuredMean:
        """Estimate the mean reward of a group: `BY_CONTEXT`, `SINGLE` or `ANY`."""
        excess = self._weighted_sum(self._key_weights(group))
        return MeasuredMean(self._centre + excess.value, excess.deviation)

    def estimate_gain(self, baseline: int) -> MeasuredMean:
        """Estimate the gain of the policy over `SINGLE` or `ANY`."""
        return self._weighted_sum(self._key_weights(BY_CONTEXT) - self._key_weights(baseline))

    def _key_weights(self, group: int) -> Array:
        """Return the weights of the keys' sums, (keys,), in the estimate of one group's mean: inverse shares."""
        policy_share, single_share, any_share = self._shares
        weights = np.zeros(N_KEYS)
        weights[group] = 1 / {BY_CONTEXT: policy_share, SINGLE: single_share, ANY: any_share}[group]
        if group != ANY:
            weights[EITHER] = 1 / (policy_share + single_share)
        return weights

    def _weighted_sum(self, weights: Array) -> MeasuredMean:
        """Return the weighted sum, with ``weights`` (keys,), of the mean excess over the centre at each key."""
        release, centre, n_reports = self._release, self._centre, self._release.reports
        positive, hits = release.positive[:, 0], release.hits[:, 0]
        squares = positive if release.squares is None else release.squares[:, 0]
        # Each level of a value is said at random as often as any other, so that half of these are above the middle.
        random_scores = 2 * release.other * n_reports * (_REWARD_MIDPOINT - centre)
        means = (positive - centre * hits - random_scores) / (release.gain * n_reports)
        second_moments = (squares - 2 * centre * positive + centre**2 * hits) / (release.gain**2 * n_reports)
        value = float(weights @ means)
        sampling_variance = max(0.0, float(np.square(weights) @ second_moments) - value**2) / n_reports
        noise = release.noise * float(release.parts.noise_about(np.array(centre))) / (release.gain * n_reports) ** 2
        return MeasuredMean(value, float(np.sqrt(sampling_variance + float(np.square(weights).sum()) * noise)))


StateT = TypeVar("StateT")
_DIGITS = 6
ANY_OPTION = "any option by chance"
_EARLIER_POLICY_WARNING = "the gain was measured of an earlier policy, and the policy has changed since"


@dataclass(frozen=True)
class GainMeasurement:
    """The measured gain of a round, on the scale of rewards in [0, 1]."""

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
    """The state of the algorithm's learner, and the measured gain."""

    learner: StateT  # the state of the algorithm's learner
    asked: int = 0  # reports on the gain that opened
    measured: GainMeasurement | None = None  # the measurement of the last such round, if any
    is_earlier: bool = False  # whether the policy has changed since: more was learned, or arms were added or retired


class GainLearner(RoundsLearner[ArmsSpec, GainState[Any], Any]):
    """The rounds of an algorithm's learner, and a final round that measures the gain of its policy.

    Nothing is learned from that round, so that it measures the policy that everybody gets afterwards. ``learner`` is
    the algorithm's, for the spec without the participants of that round.
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
    def policy(self, state: GainState[Any], next_round: NewRound) -> Any:
        return self._learner.policy(state.learner, next_round)

    @override
    def learn(self, state: GainState[Any], policy: Policy, release: Any) -> GainState[Any]:
        if not isinstance(policy, GainPolicy):
            inner_state = self._learner.learn(state.learner, policy, release)
            return replace(state, learner=inner_state, is_earlier=state.measured is not None)
        means = GroupMeans(release, policy.shares, is_named=getattr(policy.terms.mechanism, "is_named", True))
        baseline = ANY if policy.single == NO_OPTION else SINGLE
        group_means = means.estimate_mean(BY_CONTEXT), means.estimate_mean(baseline)
        gains = means.estimate_gain(baseline), means.estimate_gain(ANY)
        measured = GainMeasurement(policy.single, release.reports, *group_means, *gains)
        return replace(state, asked=state.asked + release.reports, measured=measured, is_earlier=False)

    @override
    def open_next_round(self, state: GainState[Any], version: int, seed: int) -> Step:
        step = self._learner.open_next_round(state.learner, version, seed)
        n_invited = self._count_remaining(state)
        if step.batch_size or not n_invited or self._learner.has_failed(state.learner):
            return replace(step, state=state, n_reported=step.n_reported + state.asked)
        next_round = NewRound(version, seed, n_invited)
        single_option = self._learner.find_best_single_option(state.learner, step.policy)
        policy = GainPolicy(
            version=version,
            single=NO_OPTION if single_option is None else single_option,
            seed=seed,
            playable=np.array(self.spec.playable),
            by_context=step.policy,
            terms=self.calibrate_terms(next_round, self.spec.gain_question(N_KEYS, seed)),
        )
        return Step(state, policy, n_invited, step.n_reported + state.asked)

    def _count_remaining(self, state: GainState[Any]) -> int:
        """Return the number of participants still to be asked for the gain; 0 if below the minimum."""
        n_remaining = self.spec.gain_people - state.asked
        return n_remaining if n_remaining >= self.spec.min_gain_participants else 0

    @override
    def open_idle_round(self, state: GainState[Any], version: int, seed: int) -> Step:
        return replace(self._learner.open_idle_round(state.learner, version, seed), state=state)

    @override
    def planned_round(self, state: GainState[Any]) -> PlannedRound:
        planned = self._learner.planned_round(state.learner)
        return (
            planned if planned.batch_size else msgspec.structs.replace(planned, batch_size=self._count_remaining(state))
        )

    @override
    def count_unreachable(self, state: GainState[Any]) -> int:
        unmeasured = self.spec.gain_people - state.asked - self._count_remaining(state)
        return self._learner.count_unreachable(state.learner) + unmeasured

    @override
    def has_stopped(self, state: GainState[Any]) -> bool:
        return self._learner.has_stopped(state.learner)

    @override
    def is_over(self, state: GainState[Any]) -> bool:
        return self._learner.is_over(state.learner) and not self._count_remaining(state)

    @override
    def learn_without_release(self, state: GainState[Any], policy: Policy, *, is_repeated: bool) -> GainState[Any]:
        if isinstance(policy, GainPolicy):
            return state
        return replace(
            state, learner=self._learner.learn_without_release(state.learner, policy, is_repeated=is_repeated)
        )

    @override
    def has_failed(self, state: GainState[Any]) -> bool:
        return self._learner.has_failed(state.learner)

    @override
    def apply_spec_change(self, state: GainState[Any], old_spec: ArmsSpec) -> GainState[Any]:
        inner_state = self._learner.apply_spec_change(state.learner, old_spec.learning)
        has_same_arms = (old_spec.options, old_spec.retired) == (self.spec.options, self.spec.retired)
        is_earlier = state.is_earlier or (state.measured is not None and not has_same_arms)
        return replace(state, learner=inner_state, is_earlier=is_earlier)

    @override
    def start_from_state(self, state: Any, old_spec: ArmsSpec) -> GainState[Any]:
        return GainState(self._learner.start_from_state(state, old_spec.learning))

    @override
    def extract_learned_state(self, state: GainState[Any]) -> Any:
        return state.learner

    @override
    def replace_learned_state(self, state: GainState[Any], learned_state: Any) -> GainState[Any]:
        return replace(state, learner=learned_state)

    @override
    def list_round_volumes(self, first: Step) -> list[RoundVolume]:
        terms = self.calibrate_terms(NewRound(1, 0, self.spec.gain_people), self.spec.gain_question(N_KEYS, 0))
        gain_round = RoundVolume(self.spec.gain_people, terms.messages, terms.mechanism.sealed_size)
        return [*self._learner.list_round_volumes(replace(first, state=first.state.learner)), gain_round]

    @override
    def figures(self, state: GainState[Any]) -> dict[str, float]:
        return self._learner.figures(state.learner)

    @override
    def build_expected_rewards(self, state: GainState[Any]) -> ExpectedRewards | None:
        return self._learner.build_expected_rewards(state.learner)

    @override
    def measured_rate(self, state: GainState[Any]) -> MeasuredRate | None:
        return self._learner.measured_rate(state.learner)

    @override
    def answer(self, state: GainState[Any]) -> Answer:
        """Return the answer of the algorithm's learner, with the measured gain."""
        inner_answer, measured = self._learner.answer(state.learner), state.measured
        is_over = self.is_over(state)
        progress = {
            "stage": "failed" if inner_answer.stage == "failed" else "ended" if is_over else "learning",
            "stop_reason": inner_answer.stop_reason if is_over else None,
            "people": None if inner_answer.people is None else inner_answer.people + state.asked,
            "rounds": None if inner_answer.rounds is None else inner_answer.rounds + (measured is not None),
        }
        if measured is None:
            return msgspec.structs.replace(inner_answer, **progress)
        return msgspec.structs.replace(
            inner_answer,
            **progress,
            confidence=CONFIDENCE if inner_answer.confidence is None else inner_answer.confidence,
            warnings=(*inner_answer.warnings, *([_EARLIER_POLICY_WARNING] if state.is_earlier else [])),
            gain=self._build_gain(measured),
            parts=(*inner_answer.parts, self._build_intervals(measured)),
        )

    def _name_comparator(self, measured: GainMeasurement) -> str:
        return ANY_OPTION if measured.single == NO_OPTION else self.spec.options[measured.single]

    def _build_gain(self, measured: GainMeasurement) -> Gain:
        reward, gain = self.spec.reward, measured.over_constant
        lower, upper = (round(reward.span * end, _DIGITS) for end in gain.interval)
        option = self._name_comparator(measured)
        means = self._build_estimate("by context", measured.by_context), self._build_estimate(option, measured.constant)
        return Gain(option, round(reward.span * gain.value, _DIGITS), lower, upper, measured.people, means)

    def _build_estimate(self, name: str, mean: MeasuredMean) -> Estimate:
        rewards = self.spec.reward.unscaled(np.clip([mean.value, *mean.interval], 0.0, 1.0))
        value, low, high = (round(float(reward), _DIGITS) for reward in rewards)
        return Estimate(name, value, low, high)

    def _build_intervals(self, measured: GainMeasurement) -> Intervals:
        span = self.spec.reward.span
        gains = {f"above {self._name_comparator(measured)}": measured.over_constant, ABOVE_CHANCE: measured.over_any}
        estimates = []
        for name, gain in gains.items():
            value, low, high = (round(span * figure, _DIGITS) for figure in (gain.value, *gain.interval))
            estimates.append(Estimate(name, value, low, high))
        sample_note = f"measured with {measured.people:,} people who were asked for nothing else"
        return Intervals(f"what choosing by context gains, {sample_note}", "difference", tuple(estimates))
