"""The single look of a finished test, also for rewards to minimize and for heavy tails."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self, cast

import numpy as np
from msgspec.structs import replace as replace_fields
from numpy.typing import NDArray

from privateer_core.algorithms import algorithm, parse_spec
from privateer_core.answer import Answer
from privateer_core.answer.estimates import MIN_EFFECTIVE_REWARDS, Effect, Reason, format_bounds
from privateer_core.answer.parts import AnswerPart, Figures
from privateer_core.errors import SpecError, printable
from privateer_core.policies.policy import Arms
from privateer_core.sampling.randomness import SecureNoise
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.analysis.columns import encode_segments
from privateer_lab.notebook.results import ExperimentResult, build_result
from privateer_lab.tables import TABLE_FIELD
from privateer_lab.tables.data_table import TableRows
from privateer_lab.tables.rewards import HIGHER_REMARK, LOWER_FIGURE_REMARK, RowOutcomes
from privateer_server.conclusions.conclusion import conclude
from privateer_server.conclusions.headlines import effects_headline
from privateer_server.conclusions.texts import AnswerFacts, format_difference
from privateer_server.rounds.schedule import Schedule

_MAX_SHOWN: Final = 5
"""Largest number of arms in a sentence."""


@dataclass(frozen=True)
class LowerRewards:
    """The name and kind of a reward to minimize: the algorithm learns from 1 - r if it is binary, else from -r."""

    name: str
    is_yes_or_no: bool

    def restate_bounds(self, answer: Answer, spec: ArmsSpec) -> Answer:
        """Return the answer with bounds of the original rewards."""
        if self.is_yes_or_no:
            return answer
        effects, parts = map(_negate_bounds, answer.effects), (_restate_facts(part, spec) for part in answer.parts)
        return replace_fields(answer, effects=tuple(effects), parts=tuple(parts))

    def describe(self, result: ExperimentResult) -> str:
        """Return a sentence about the reduction of rewards relative to the control."""
        conclusion = result.conclusion
        message = LOWER_FIGURE_REMARK.format(reward=self.name, figure="an effect")
        if conclusion.baseline is None:
            return message
        mean = float(self.is_yes_or_no) - conclusion.baseline.value
        effects = [effect for effect in conclusion.effects if effect.group is None and effect.value is not None]
        largest_effects = [(effect.arm, effect.value) for effect in effects[:_MAX_SHOWN] if effect.value]
        changes = [
            f"{option} {abs(lower):.3g} {'lower' if lower > 0 else 'higher'}"
            + (f" ({abs(lower) / mean:.0%})" if mean > 0 else "")
            for option, lower in largest_effects
        ]
        return f"{message} {conclusion.control}: mean {self.name} of about {mean:.3g}; {'; '.join(changes)}."

    def without_means(self, result: ExperimentResult, spec: ArmsSpec, bounds: tuple[float, float]) -> ExperimentResult:
        """Return the result without mean rewards, which are transformed; `describe` has the original means."""
        conclusion = result.conclusion
        headline = effects_headline(AnswerFacts(spec, result.answer), conclusion.rules, None)
        headline = replace_fields(headline, sentence=self._restate_headline(headline.sentence, result.answer.effects))
        (low, high), sentence = bounds, f"Effects say how much lower {self.name} is."
        unit = replace_fields(conclusion.reward, low=low, high=high, sentence=sentence)
        restated = replace_fields(conclusion, headline=headline, baseline=None, no_relative=None, reward=unit)
        return replace(result, conclusion=restated)

    def _restate_headline(self, sentence: str, effects: Sequence[Effect]) -> str:
        """Return a headline with the changes of the original rewards."""
        for effect in effects:
            if effect.value is None or effect.group is not None:
                continue
            low, high = (None if end is None else -end for end in (effect.high, effect.low))
            lower = format_difference(effect.value, effect.low, effect.high)
            outcome_change = format_difference(-effect.value, low, high)
            sentence = sentence.replace(f"changes rewards by {lower}", f"changes {self.name} by {outcome_change}")
            sentence = sentence.replace(f": {lower} against", f": {self.name} changes by {outcome_change} against")
        return sentence


def _negate_bounds(effect: Effect) -> Effect:
    """Negate and swap the effect's bounds, in its remark too; an effect without bounds is returned as it is."""
    if effect.bounds is None:
        return effect
    low, high = effect.bounds
    remark = effect.remark.replace(format_bounds(low, high), format_bounds(-high, -low))
    return replace_fields(effect, bounds=(-high, -low), remark=remark)


def _restate_facts(part: AnswerPart, spec: ArmsSpec) -> AnswerPart:
    """Return facts with bounds of the original rewards."""
    if not isinstance(part, Figures):
        return part
    ends = (spec.reward.low, spec.reward.high)
    names = {f"rewards of {end:g}, at most": f"rewards of {-end:z.6g}, at most" for end in ends}
    facts = tuple(replace_fields(fact, name=names.get(fact.name, fact.name)) for fact in part.facts)
    return replace_fields(part, facts=facts)


Array = NDArray[np.float64]
_UNCAPPED_SHARES: Final = (0.98, 0.95, 0.9)
"""Quantiles of caps to try, until every effect has a confidence interval."""
_FEW_SHARE: Final = 0.05
"""Largest share of an arm's rows that is described as few rows."""


@dataclass(frozen=True)
class TestRows:
    """The rows of a test."""

    # rewards, arms: shape (n,): rewards to maximize, and indices of arms
    rewards: Array
    arms: NDArray[np.int64]
    options: tuple[str, ...]  # names of the arms, the control's first
    name: str  # name of the reward
    sign: int  # -1 if rewards are the negative of the named reward

    def describe_capping(
        self, effects: Sequence[Effect], low: float, high: float, analyze: Callable[[float, float], tuple[Effect, ...]]
    ) -> list[str]:
        """Describe rows that decide effects with heavy tails, and effects of rewards that ``analyze`` clips."""
        heavy_tailed = [effect for effect in effects if effect.group is None and effect.reason is Reason.HEAVY_TAIL]
        is_upper = self.rewards.mean() - low <= high - self.rewards.mean()
        for share in _UNCAPPED_SHARES if heavy_tailed else ():
            cap = float(np.quantile(self.rewards, share if is_upper else 1 - share))
            ends = (low, cap) if is_upper else (cap, high)
            if ends[0] >= ends[1]:
                return []
            capped = {effect.arm: effect for effect in analyze(*ends) if effect.group is None}
            if all(capped[effect.arm].low is not None for effect in heavy_tailed):
                distances = self.rewards - ends[0] if is_upper else ends[1] - self.rewards
                return [self._describe_cap(effect, capped[effect.arm], ends, distances) for effect in heavy_tailed]
        return []

    def _describe_cap(self, effect: Effect, capped: Effect, ends: tuple[float, float], distances: Array) -> str:
        """Describe the rows of an arm or its control that decide an effect, and the effect with clipped rewards."""
        by_arm = {arm: np.sort(distances[self.arms == arm])[::-1] for arm in (self.options.index(effect.arm), 0)}
        arm = min(by_arm, key=lambda arm_index: _count_effective_rewards(by_arm[arm_index]))
        sorted_rows = by_arm[arm]
        counts = range(1, int(_FEW_SHARE * len(sorted_rows)))
        n_few = next((n for n in counts if _count_effective_rewards(sorted_rows[n:]) >= MIN_EFFECTIVE_REWARDS), 0)
        of_arm = f"{len(sorted_rows):,} rows of {printable(self.options[arm])}"
        cause = f"the {of_arm} are mostly near one bound"
        if n_few:
            share = float(sorted_rows[:n_few].sum() / sorted_rows.sum())
            cause = f"{n_few:,} of {of_arm} make {share:.0%} of its {printable(self.name)}"
        limits = sorted(self.sign * end for end in ends)
        bounds = ":".join(f"{end:z.4g}" if abs(end) < 1e4 else f"{end:z.0f}" for end in limits)
        n_capped = int((distances > ends[1] - ends[0]).sum())
        value, low, high = (0.0 if figure is None else figure for figure in (capped.value, capped.low, capped.high))
        return (
            f"{printable(effect.arm)} has no interval, since {effect.reason}: {cause}. With --bounds {bounds}, which "
            f"caps {n_capped:,} of {len(self.rewards):,} rows, "
            f"its effect is {value:+z.4g} ({low:+z.4g} to {high:+z.4g}): {capped.reason}."
        )


def _count_effective_rewards(distances: Array) -> float:
    """Return n times the squared mean over the variance of distances from a bound, (n,)."""
    variance = float(distances.var())
    return len(distances) * float(distances.mean()) ** 2 / variance if variance > 0 else float(len(distances))


def replace_next_steps(result: ExperimentResult, sentences: tuple[str, ...]) -> ExperimentResult:
    """Return the result with these sentences in place of the conclusion's own about heavy tails."""
    if not sentences:
        return result
    remarks = [entry.remark for entry in result.answer.effects if entry.reason is Reason.HEAVY_TAIL]
    next_steps = [entry for entry in result.conclusion.next_steps if not any(remark in entry for remark in remarks)]
    conclusion = replace_fields(result.conclusion, next_steps=(*sentences, *next_steps))
    return replace(result, conclusion=conclusion)


_NO_NOISE_SENTENCE: Final = "No privacy is promised to the people of these rows: figures have no noise."
_NOISE_SENTENCE: Final = "It costs epsilon {:g} against readers of the answer: noise is in its sums."
_UNIT_SENTENCE: Final = "{} counts from {:g} to {:g}, and more counts as better; effects are differences of means."
_RATIO: Final = "sample ratio"
_CONFIDENCE_DEVIATIONS: Final = 1.96
"""Half-width of a 95 % confidence interval in standard deviations."""


@dataclass(frozen=True)
class RowCount:
    """The number of rows behind an answer, and the standard deviation of its noise."""

    count: float
    standard_deviation: float

    def describe(self, unit: str, total: int) -> str:
        """Return a sentence with the number of rows that count, with its margin of noise."""
        radius = math.ceil(_CONFIDENCE_DEVIATIONS * self.standard_deviation)
        if not self.standard_deviation:
            others = f" of {total:,}" if unit == "rows" and round(self.count) < total else ""
            return f"It rests on {round(self.count):,}{others} {unit}."
        n_left_out = total - self.count
        if n_left_out <= radius:
            max_left_out = max(0, math.ceil(n_left_out)) + radius
            return f"It rests on {total:,} {unit}, less {max_left_out:,} at most, as far as noise tells."
        rows = f"about {max(0, round(self.count)):,} of {total:,} {unit}, give or take {radius:,}"
        return f"It rests on {rows}: the others have no named option, or no outcome that counts."


def _drop_ratio_checks(answer: Answer) -> Answer:
    """Return the answer without sample ratio checks, for tests whose intended shares are unknown."""
    figures = [part for part in answer.parts if isinstance(part, Figures)]
    others = [part for part in answer.parts if not isinstance(part, Figures)]
    facts = [tuple(fact for fact in part.facts if _RATIO not in fact.name) for part in figures]
    parts = [replace_fields(part, facts=other_facts) for part, other_facts in zip(figures, facts, strict=True)]
    warnings = tuple(warning for warning in answer.warnings if not warning.startswith(_RATIO))
    return replace_fields(answer, warnings=warnings, parts=(*parts, *others))


@dataclass(frozen=True)
class LookResult:
    """The result of one look, and the experiment that the rows are analyzed as."""

    spec: ArmsSpec
    result: ExperimentResult
    direction: str  # sentence about whether more or less is better, and the sign of effects
    row_count: RowCount  # number of rows behind the result


@dataclass(frozen=True)
class OneLook:
    """The rows of a test, or one row of each cluster."""

    tables: Mapping[str, Any]  # tables of the spec, without the reward
    # rows, parts: columns of segments, with their values or cuts
    rows: TableRows
    parts: Mapping[str, list[str] | list[float]]
    chosen: NDArray[np.int64]  # shape (n,): indices of arms
    # shape (n,): mask of rows that contribute, with a promise; None without a promise
    is_counted: NDArray[np.bool_] | None
    # name, is_lower_better: name of the reward, and whether it is to be minimized
    name: str
    is_lower_better: bool
    has_shares: bool  # whether the intended shares of arms are known
    warnings: tuple[str, ...] = ()  # warnings about the rows

    def select_rows(self, first_rows: NDArray[np.int64]) -> Self:
        """Return a look at the rows with these indices, (m,)."""
        size = {"horizon": len(first_rows), "round_size": len(first_rows)}
        tables = {**self.tables, "experiment": {**self.tables["experiment"], **size}}
        return replace(self, tables=tables, rows=self.rows.select(first_rows), chosen=self.chosen[first_rows])

    def analyze_outcomes(self, outcomes: RowOutcomes) -> LookResult:
        """Analyze outcomes in one look, and describe the rows that decide heavy tails."""
        lower = LowerRewards(self.name, outcomes.is_yes_or_no) if self.is_lower_better else None
        values = outcomes.reverse() if lower else outcomes
        spec, result, row_count = self._analyze(values, values.ends, lower)
        if self.is_counted is None and not outcomes.is_derived:

            def find_capped(low: float, high: float) -> tuple[Effect, ...]:
                return self._analyze(values, (low, high), lower)[1].answer.effects

            test_rows = TestRows(values.values, self.chosen, spec.options, self.name, -1 if lower else 1)
            sentences = test_rows.describe_capping(result.answer.effects, *values.ends, find_capped)
            result = replace_next_steps(result, tuple(sentences))
        low, high = outcomes.bounds.low, outcomes.bounds.high
        if lower:
            direction, result = lower.describe(result), lower.without_means(result, spec, (low, high))
            return LookResult(spec, result, direction, row_count)
        if outcomes.is_derived:
            sentence = _UNIT_SENTENCE.format(self.name, low, high)
            unit = replace_fields(result.conclusion.reward, low=low, high=high, sentence=sentence)
            result = replace(result, conclusion=replace_fields(result.conclusion, reward=unit))
        return LookResult(spec, result, HIGHER_REMARK, row_count)

    def find_segments(self, outcomes: RowOutcomes) -> NDArray[np.int64]:
        """Return the index of each row's segment, (n,)."""
        spec = self._parse_spec(outcomes, outcomes.ends)
        policy: Any = Schedule(spec).open(0).policy
        contexts = encode_segments(self.rows, spec, self.parts, is_private=self.is_counted is not None)
        return np.asarray(policy.groups(contexts))

    def _parse_spec(self, outcomes: RowOutcomes, ends: tuple[float, float]) -> ArmsSpec:
        """Parse the spec of the experiment that the rows are analyzed as; refuse too few rows."""
        reward = {"low": ends[0], "high": ends[1], "kind": "numeric" if outcomes.is_numeric else "binary"}
        try:
            return cast(ArmsSpec, parse_spec({**self.tables, "reward": reward}))
        except SpecError as error:
            if error.field != "experiment.round_size":
                raise
            spec_class: Any = algorithm(self.tables["algorithm"]["name"]).spec
            min_rows = spec_class.min_cell_participants[self.is_counted is not None]
            detail = f"has {len(self.chosen):,} rows, too few for so many segments and arms: {min_rows} of each"
            raise SpecError(detail, field=TABLE_FIELD, remedy="name fewer segments, or leave rare arms out") from None

    def _analyze(
        self, outcomes: RowOutcomes, ends: tuple[float, float], lower: LowerRewards | None
    ) -> tuple[ArmsSpec, ExperimentResult, RowCount]:
        """Analyze outcomes clipped to these bounds; return the spec, the result and the number of rows."""
        spec = self._parse_spec(outcomes, ends)
        contexts = encode_segments(self.rows, spec, self.parts, is_private=self.is_counted is not None)
        step = (schedule := Schedule(spec)).open(0)
        policy: Any = step.policy
        coins, scaled_rewards = np.zeros(len(self.chosen), np.uint32), spec.reward.scaled_all(outcomes.values)
        reports = policy.contribute(contexts, coins, Arms(self.chosen), scaled_rewards)
        mechanism: Any = policy.terms.mechanism
        if self.is_counted is None:
            release = mechanism.moments(reports)
        else:
            reports, noise = (
                replace_fields(reports, keys=np.where(self.is_counted, reports.keys, -1)),
                SecureNoise(),
            )
            release = mechanism.release(mechanism.add(mechanism.empty(), mechanism.randomize(reports, noise)), noise)
        closed_step = schedule.advance(step, release, 0)
        answer = schedule.answer(closed_step) if self.has_shares else _drop_ratio_checks(schedule.answer(closed_step))
        answer = replace_fields(answer, stop_reason="its rows", warnings=(*self.warnings, *answer.warnings))
        answer = lower.restate_bounds(answer, spec) if lower else answer
        conclusion = conclude(schedule, closed_step, answer)
        sentence = _NO_NOISE_SENTENCE if self.is_counted is None else _NOISE_SENTENCE.format(spec.privacy.bound)
        cost = replace_fields(conclusion.privacy, sentence=sentence)
        standard_deviation = math.sqrt(release.hits.size * release.parts.count * release.noise)
        row_count = RowCount(float(release.hits.sum()), standard_deviation)
        return spec, build_result("test", answer, replace_fields(conclusion, privacy=cost)), row_count
