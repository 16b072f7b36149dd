"""Expected results of an experiment: a row for the spec, and a row for each variant."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from scipy.special import stdtrit

from privateer_core.answer.people import People
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.spec import Spec
from privateer_lab.environments.own_people import OWN
from privateer_lab.environments.rows import OF_ARM
from privateer_lab.pages.templates import render_paragraphs
from privateer_lab.planning.expectation.choices import Kind, VariedSpec, find_least_effect
from privateer_lab.planning.expectation.partial_runs import PartialRun
from privateer_lab.planning.other_algorithms import is_effect_spec
from privateer_lab.planning.plans import count_until_gain_share, median_count
from privateer_server.rounds.schedule import Schedule, count_participants

_MIN_RUNS_FOR_OWN_VARIANCE: Final = 3
"""Fewest runs of a row with which its own variance counts beside that of all rows."""
_ROUNDING_ERROR: Final = 1e-9
CUT_SHORT: Final = "cut short"
"""The verdict on a difference that more time for the runs of the lower figure may turn."""


class ExpectedRow(msgspec.Struct, frozen=True):
    """The expected results of a spec, over all choices of its runs; rewards are in their own unit."""

    # the kind of the change of the spec, and its description
    kind: Kind
    change: str
    # the trust model, epsilon (None: nothing is promised), the names of the features, and choices
    model: str
    epsilon: float | None
    features: tuple[str, ...]
    people: int
    # mean reward of a choice, and the half-width of its 95 % interval; None with a single run, or if all are equal
    value: float
    margin: float | None
    gain: float  # mean reward of a choice above that of the best single arm
    value_at_the_end: float  # mean reward of a choice under the last policy
    # number of choices from which on the policy earns more than the best single arm, the median of runs; None: never,
    # or the lead at the end is within its own error
    pays_after: int | None
    # without a gain: the minimum detectable effect of a plain test of two arms with as many participants
    detectable: float | None
    # runs; mean number of participants whose reports were learned from in a run, and in a run that is not cut short
    runs: int
    learned_from: int
    reach: int
    margin_at_the_end: float | None = None  # half-width of the 95 % interval of the value at the end
    # half-width of the interval of the gain with which all compared rows hold together in 95 %; None with a single run
    margin_compared: float | None = None

    @property
    def gains(self) -> bool:
        """Whether it earns significantly more than the best single arm."""
        return self.gain > (self.margin or 0.0)

    @property
    def is_cut_short(self) -> bool:
        """Whether runs ended before their rounds did."""
        return self.learned_from < 0.9 * self.reach


class Expectation(msgspec.Struct, frozen=True):
    """The expected results of an experiment, from which all words are made."""

    # its name, and the counted unit: people, or choices for all of them
    experiment: str
    counts: str
    # whether arms are compared with a control, so that rewards during the experiment matter less
    is_test: bool
    # whether rewards are binary, and their name; empty if unknown
    is_rate: bool
    reward: str
    # the best single arm; mean rewards of it, of the worst one, of random arms, and of each participant's best arm
    single_option: str
    single: float
    worst: float
    random: float
    best: float
    # whether the population is synthetic, and its name
    is_made_up: bool
    population: str
    people: People  # the account of the spec's participants before the first round
    rows: tuple[ExpectedRow, ...]  # the spec itself, and its variants
    left_out: tuple[str, ...] = ()  # variants without a run, for lack of time
    is_contextual: bool = True  # whether its algorithm chooses by features

    @property
    def own_row(self) -> ExpectedRow:
        """The row of the spec itself."""
        return self.rows[0]

    def compare_with_spec(self, row: ExpectedRow) -> str:
        """Say if a variant is "better", "worse" or "level", or its runs too short; empty for itself or a single run."""
        own_row = self.own_row
        if row is own_row or row.margin_compared is None or own_row.margin_compared is None:
            return ""
        difference = row.value - own_row.value
        if abs(difference) <= math.hypot(row.margin_compared, own_row.margin_compared):
            return "level"
        lower_row = own_row if difference > 0 else row
        return CUT_SHORT if lower_row.is_cut_short else "better" if difference > 0 else "worse"

    @property
    def has_gaining_change(self) -> bool:
        """Whether choosing by context gains with fewer features, or with another algorithm or other rounds."""
        rows = [row for row in self.rows if row.kind in ("features", "algorithm", "rounds")]
        gaining = [row for row in rows if row.gains and row.gain > self.own_row.gain]
        return any(self.compare_with_spec(row) in ("better", CUT_SHORT) for row in gaining)

    @property
    def is_context_dependent(self) -> bool:
        """Whether the best arm depends on the context."""
        return self.best - self.single > _ROUNDING_ERROR * max(abs(self.best), 1.0)

    @property
    def is_tie(self) -> bool:
        """Whether all arms are as good as the best one."""
        return not self.is_context_dependent and self.single - self.random <= _ROUNDING_ERROR * max(abs(self.best), 1.0)

    def gains_late(self, row: ExpectedRow) -> bool:
        """Whether a spec earns significantly more than the best single arm at the end, but not over its run."""
        excess, margin = row.value_at_the_end - self.single, row.margin_at_the_end
        return not row.gains and margin is not None and excess > margin


def summarize_runs(spec: Spec, choices: Sequence[VariedSpec], runs: Mapping[int, Sequence[PartialRun]]) -> Expectation:
    """Summarize the runs of a spec and its variants; ``runs`` are by the index of the choice, the spec's own first.

    The gain above the best single arm varies less between runs than rewards: values are that arm's mean over all runs
    plus the gain.
    """
    all_runs = [run for choice_runs in runs.values() for run in choice_runs]
    own_runs = runs[0]
    single = float(np.mean([run.single for run in all_runs]))
    best_options = [run.arm for run in all_runs]
    singles = [run.single for run in own_runs]
    gains = {index: [run.gain for run in choice_runs] for index, choice_runs in runs.items()}
    final_gains = {index: [run.gain_at_the_end for run in choice_runs] for index, choice_runs in runs.items()}
    spreads = _GainVariance(gains, singles), _GainVariance(final_gains, singles)
    population = spec.population or {}
    per_choice = [(run.run.best_constant_regret, run.run.uniform_regret, run.run.choices) for run in own_runs]
    potential_gain = float(np.mean([constant / count for constant, _, count in per_choice]))
    random_loss = float(np.mean([(uniform - constant) / count for constant, uniform, count in per_choice]))
    rows = [_make_row(choices[index], choice_runs, single, spreads) for index, choice_runs in sorted(runs.items())]
    schedule = Schedule(spec)
    return Expectation(
        experiment=spec.name,
        counts="people" if spec.people_key == "horizon" else "choices",
        is_test=is_effect_spec(type(spec)),
        is_rate=spec.reward.is_rate,
        reward=_find_reward_name(spec),
        left_out=tuple(choice.change for index, choice in enumerate(choices) if index not in runs),
        single_option=spec.options[max(set(best_options), key=best_options.count)],
        single=single,
        worst=single - float(np.mean([run.single - run.worst for run in all_runs])),
        random=single - random_loss,
        best=single + potential_gain,
        is_made_up="path" not in population and population.get("name") != OWN,
        population=str(population.get("name", "")),
        people=count_participants(schedule, schedule.open(0), 0),
        rows=tuple(rows),
        is_contextual=choices[0].is_contextual,
    )


def _find_reward_name(spec: Spec) -> str:
    """Return the name of the reward in the population's file; empty if there is none."""
    table = spec.population or {}
    observed, rewards = table.get("observed"), table.get("rewards")
    if isinstance(observed, Mapping):
        return str(observed.get("got", ""))
    first, suffix = str(rewards[0]) if isinstance(rewards, Sequence) and rewards else "", f"{OF_ARM}{spec.options[0]}"
    return first.removesuffix(suffix) if first.endswith(suffix) else ""


class _GainVariance:
    """The variance of gains between runs, by the index of the choice, and of the best single arm's means.

    Few runs' variance is uncertain: a choice has the pooled one or its own, whichever is larger, and the degrees of
    freedom of that. What is compared has a Bonferroni correction for the number of choices with several runs.
    """

    def __init__(self, by_choice: Mapping[int, Sequence[float]], singles: Sequence[float]) -> None:
        self._degrees_of_freedom = sum(len(gains) - 1 for gains in by_choice.values())
        sum_of_squares = sum(float(np.square(np.array(gains) - np.mean(gains)).sum()) for gains in by_choice.values())
        self._pooled_variance = sum_of_squares / self._degrees_of_freedom if self._degrees_of_freedom else 0.0
        self._single_variance = float(np.var(singles, ddof=1)) / len(singles) if len(singles) > 1 else 0.0
        self._n_compared = max(1, sum(len(gains) > 1 for gains in by_choice.values()) - 1)
        self._rounding_error = _ROUNDING_ERROR * max(map(abs, singles))

    def margin(self, gains: Sequence[float]) -> float | None:
        """Return the half-width of the 95 % interval of a mean reward by Student's t; None if runs are equal or few."""
        if not self._degrees_of_freedom:
            return None
        variance, degrees_of_freedom = self._estimate_variance(gains)
        standard_error = np.sqrt(variance / len(gains) + self._single_variance)
        half_width = float(stdtrit(degrees_of_freedom, 0.975) * standard_error)
        return half_width if half_width > self._rounding_error else None

    def margin_compared(self, gains: Sequence[float]) -> float | None:
        """Return the half-width of a mean gain's simultaneous interval, by Bonferroni; None with a single run."""
        if len(gains) < 2:
            return None
        variance, degrees_of_freedom = self._estimate_variance(gains)
        return float(stdtrit(degrees_of_freedom, 1 - 0.025 / self._n_compared) * np.sqrt(variance / len(gains)))

    def _estimate_variance(self, gains: Sequence[float]) -> tuple[float, int]:
        """Return the variance of a choice's gains, and its degrees of freedom."""
        own_variance = float(np.var(gains, ddof=1)) if len(gains) >= _MIN_RUNS_FOR_OWN_VARIANCE else 0.0
        if own_variance > self._pooled_variance:
            return own_variance, len(gains) - 1
        return self._pooled_variance, self._degrees_of_freedom


def _make_row(
    choice: VariedSpec, runs: Sequence[PartialRun], single: float, spreads: tuple[_GainVariance, _GainVariance]
) -> ExpectedRow:
    """Average a variant's runs into its row."""
    gains, final_gains = [run.gain for run in runs], [run.gain_at_the_end for run in runs]
    variant, n_participants = choice.variant, runs[0].run.choices
    gain, margin = float(np.mean(gains)), spreads[0].margin(gains)
    final_gain, final_margin = float(np.mean(final_gains)), spreads[1].margin(final_gains)
    is_ahead = final_margin is not None and final_gain > final_margin
    return ExpectedRow(
        kind=choice.kind,
        change=choice.change,
        model=variant.model,
        epsilon=variant.epsilon if np.isfinite(variant.epsilon) else None,
        features=tuple(choice.spec.features),
        people=n_participants,
        value=single + gain,
        margin=margin,
        gain=gain,
        value_at_the_end=single + final_gain,
        pays_after=median_count([count_until_gain_share(run.run, 0.0) for run in runs]) if is_ahead else None,
        detectable=None if gain > (margin or 0.0) else _find_detectable_effect(choice, n_participants, single),
        runs=len(runs),
        learned_from=int(np.mean([run.run.account.counted for run in runs])),
        reach=int(np.mean([run.reach for run in runs])),
        margin_at_the_end=final_margin,
        margin_compared=spreads[0].margin_compared(gains),
    )


def _find_detectable_effect(choice: VariedSpec, n_participants: int, single: float) -> float | None:
    """Return the minimum detectable effect of a plain test; None for numeric rewards, whose variance is unknown."""
    reward = choice.spec.reward
    rate = (single - reward.low) / reward.span
    if reward.kind != "binary" or not 0 < rate < 1:
        return None
    effect = find_least_effect(n_participants, 2, rate, choice.variant)
    return None if effect is None else effect * reward.span


def write_sentences(expected: Expectation) -> list[str]:
    """Write the main expected results of an experiment, and the basis of the figures."""
    unit = choose_unit(expected)
    min_runs, max_runs = min(row.runs for row in expected.rows), max(row.runs for row in expected.rows)
    cut_rows = [row for row in expected.rows if row.is_cut_short]
    return render_paragraphs(
        "plan.txt",
        {"reward": unit.write},
        found=expected,
        unit=unit,
        trust=TRUST[expected.own_row.model],
        differ=expected.single - expected.worst > _ROUNDING_ERROR * abs(expected.best),
        runs=f"{max_runs} run{'s' * (max_runs > 1)}" if min_runs == max_runs else f"{min_runs} to {max_runs} runs",
        n_cut=len(cut_rows),
        shortest=min(cut_rows, key=lambda row: row.learned_from / row.reach, default=None),
    )


def choose_unit(summary: Expectation) -> "Unit":
    """Return the unit that shows the differences between an experiment's rewards."""
    gains = [abs(row.gain) for row in summary.rows] + [summary.best - summary.single, summary.single - summary.random]
    return Unit(summary.is_rate, max(gains))


@dataclass(frozen=True)
class Unit:
    """The format of rewards: rates in percent, others unscaled, with enough digits for ``differences``."""

    is_rate: bool
    differences: float

    def write(self, value: float) -> str:
        """Format a mean reward."""
        return f"{self._format_reward(value)} %" if self.is_rate else self._format_reward(value)

    def margin(self, half_width: float | None) -> str:
        """Format the half-width of an interval; empty for None."""
        return "" if half_width is None else f"± {self.points(half_width)}"

    def points(self, difference: float) -> str:
        """Format a difference."""
        return f"{self._format_reward(difference)} points" if self.is_rate else self._format_reward(difference)

    def _format_reward(self, value: float) -> str:
        """Format a reward, with digits that its differences need."""
        factor = 100 if self.is_rate else 1
        scaled_difference = self.differences * factor
        digits = 1 - math.floor(math.log10(scaled_difference)) if scaled_difference > 0 else 2
        return f"{factor * value:z,.{min(6, max(int(self.is_rate), digits))}f}"
