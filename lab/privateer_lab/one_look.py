"""One look at all rows of a test that is over, by the statistics of an experiment, with a curator's noise or none."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self, cast

import numpy as np
from msgspec.structs import replace as replace_fields
from numpy.typing import NDArray

from privateer_core.algorithms import algorithm, parse_spec
from privateer_core.answer import Answer
from privateer_core.answer.estimates import Effect
from privateer_core.answer.parts import Figures
from privateer_core.errors import SpecError
from privateer_core.policies.decisions import Arms
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.heavy_tails import TestRows, capping_in_words, with_sentences
from privateer_lab.lower_rewards import LowerRewards
from privateer_lab.notebook.results import Found, found_in
from privateer_lab.segment_columns import contexts_of
from privateer_lab.tables import TABLE
from privateer_lab.tables.data_table import TableRows
from privateer_lab.tables.rewards import HIGHER
from privateer_lab.tables.row_outcomes import RowOutcomes
from privateer_server.conclusions.conclusion import conclude
from privateer_server.rounds.loop import Schedule

_NO_NOISE: Final = "No privacy is promised to the people of these rows: figures have no noise."
_NOISE: Final = "It costs epsilon {:g} against readers of the answer: noise is in its sums."
_UNIT: Final = "{} counts from {:g} to {:g}, and more counts as better; effects are differences of means."
_RATIO: Final = "sample ratio"
_CONFIDENT: Final = 1.96
"""Standard deviations of 95 % confidence."""


@dataclass(frozen=True)
class RowCount:
    """How many rows an answer rests on, and the standard deviation of the noise in that."""

    count: float
    deviation: float

    def sentence(self, unit: str, total: int) -> str:
        """Say how many of all rows count; noise that tells of no other row says so."""
        radius = math.ceil(_CONFIDENT * self.deviation)
        if not self.deviation:
            others = f" of {total:,}" if unit == "rows" and round(self.count) < total else ""
            return f"It rests on {round(self.count):,}{others} {unit}."
        n_left_out = total - self.count
        if n_left_out <= radius:
            most = max(0, math.ceil(n_left_out)) + radius
            return f"It rests on {total:,} {unit}, less {most:,} at most, as far as noise tells."
        rows = f"about {max(0, round(self.count)):,} of {total:,} {unit}, give or take {radius:,}"
        return f"It rests on {rows}: the others have no named option, or no outcome that counts."


def _without_ratio(answer: Answer) -> Answer:
    """Return an answer that says nothing of shares of people, which nobody declared."""
    figures = [one for one in answer.parts if isinstance(one, Figures)]
    kept = [replace_fields(one, facts=tuple(fact for fact in one.facts if _RATIO not in fact.name)) for one in figures]
    others = [one for one in answer.parts if not isinstance(one, Figures)]
    warnings = tuple(warning for warning in answer.warnings if not warning.startswith(_RATIO))
    return replace_fields(answer, warnings=warnings, parts=(*kept, *others))


@dataclass(frozen=True)
class LookResult:
    """What one look says, and the experiment that the rows are taken for."""

    spec: ArmsSpec
    found: Found
    direction: str  # whether more or less is better, and what that means for effects
    row_count: RowCount  # how many rows it rests on


@dataclass(frozen=True)
class OneLook:
    """The rows of a test, each a person, or what stands for one."""

    tables: Mapping[str, Any]  # those of the spec, without the reward
    # rows, parts: columns of segments, with their values or cuts
    rows: TableRows
    parts: Mapping[str, list[str] | list[float]]
    chosen: NDArray[np.int64]  # shape (n,): places of arms
    # shape (n,): with a promise, which rows have something to contribute; None without one
    is_counted: NDArray[np.bool_] | None
    # name, is_lower_better: what the reward is called, and whether less of it is better
    name: str
    is_lower_better: bool
    has_shares: bool  # whether anybody said which shares of people arms were meant to get
    warnings: tuple[str, ...] = ()  # what the rows themselves warn of

    def of(self, first: NDArray[np.int64]) -> Self:
        """Return a look at what some rows stand for, (m,)."""
        size = {"horizon": len(first), "round_size": len(first)}
        tables = {**self.tables, "experiment": {**self.tables["experiment"], **size}}
        return replace(self, tables=tables, rows=self.rows.of(first), chosen=self.chosen[first])

    def find(self, outcomes: RowOutcomes) -> LookResult:
        """Return what one look at outcomes says, with the rows that decide a heavy tail."""
        lower = LowerRewards(self.name, outcomes.is_yes_or_no) if self.is_lower_better else None
        values = outcomes.turned() if lower else outcomes
        spec, found, row_count = self._look(values, values.ends, lower)
        if self.is_counted is None and not outcomes.is_derived:

            def find_capped(low: float, high: float) -> tuple[Effect, ...]:
                return self._look(values, (low, high), lower)[1].said.effects

            test_rows = TestRows(values.values, self.chosen, spec.options, self.name, -1 if lower else 1)
            found = with_sentences(
                found, tuple(capping_in_words(test_rows, found.said.effects, values.ends, find_capped))
            )
        low, high = outcomes.bounds.low, outcomes.bounds.high
        if lower:
            direction, found = lower.sentence(found), lower.without_means(found, spec, (low, high))
            return LookResult(spec, found, direction, row_count)
        if outcomes.is_derived:
            sentence = _UNIT.format(self.name, low, high)
            unit = replace_fields(found.conclusion.reward, low=low, high=high, sentence=sentence)
            found = replace(found, conclusion=replace_fields(found.conclusion, reward=unit))
        return LookResult(spec, found, HIGHER, row_count)

    def groups(self, outcomes: RowOutcomes) -> NDArray[np.int64]:
        """Return the places of rows' segments, (n,)."""
        spec = self._spec(outcomes, outcomes.ends)
        policy: Any = Schedule(spec).open(0).policy
        contexts = contexts_of(self.rows, spec, self.parts, is_private=self.is_counted is not None)
        return np.asarray(policy.groups(contexts))

    def _spec(self, outcomes: RowOutcomes, ends: tuple[float, float]) -> ArmsSpec:
        """Read the experiment that the rows would have been; a first look that is too small is too few rows."""
        reward = {"low": ends[0], "high": ends[1], "kind": "numeric" if outcomes.is_numeric else "binary"}
        try:
            return cast(ArmsSpec, parse_spec({**self.tables, "reward": reward}))
        except SpecError as error:
            if error.field != "experiment.round_size":
                raise
            kind: Any = algorithm(self.tables["algorithm"]["name"]).spec
            least = kind.cell_least[self.is_counted is not None]
            detail = f"has {len(self.chosen):,} rows, too few for so many segments and arms: {least} of each"
            raise SpecError(detail, field=TABLE, remedy="name fewer segments, or leave rare arms out") from None

    def _look(
        self, outcomes: RowOutcomes, ends: tuple[float, float], lower: LowerRewards | None
    ) -> tuple[ArmsSpec, Found, RowCount]:
        """Return what one look says of outcomes clipped to these ends, by the experiment that they are taken for."""
        spec = self._spec(outcomes, ends)
        contexts = contexts_of(self.rows, spec, self.parts, is_private=self.is_counted is not None)
        step = (schedule := Schedule(spec)).open(0)
        policy: Any = step.policy
        coins, scaled = np.zeros(len(self.chosen), np.uint32), spec.reward.scaled_all(outcomes.values)
        given = policy.contribute(contexts, coins, Arms(self.chosen), scaled)
        mechanism: Any = policy.terms.mechanism
        if self.is_counted is None:
            release = mechanism.moments(given)
        else:
            given, noise = replace(given, keys=np.where(self.is_counted, given.keys, -1)), SecureNoise()
            release = mechanism.release(mechanism.add(mechanism.empty(), mechanism.randomize(given, noise)), noise)
        over = schedule.close(step, release, 0)
        answer = schedule.answer(over) if self.has_shares else _without_ratio(schedule.answer(over))
        answer = replace_fields(answer, ended="its rows", warnings=(*self.warnings, *answer.warnings))
        answer = lower.renamed(answer, spec) if lower else answer
        conclusion = conclude(schedule, over, answer)
        sentence = _NO_NOISE if self.is_counted is None else _NOISE.format(spec.privacy.bound)
        cost = replace_fields(conclusion.privacy, sentence=sentence)
        deviation = math.sqrt(release.hits.size * release.parts.count * release.noise)
        row_count = RowCount(float(release.hits.sum()), deviation)
        return spec, found_in("test", answer, replace_fields(conclusion, privacy=cost)), row_count
