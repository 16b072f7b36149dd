"""Power analysis of a trial in tables, and the refusal of undetectable effects."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.algorithms.trial.sections import EVERYBODY
from privateer_core.answer.facts import Kind, Table
from privateer_core.errors import SpecError
from privateer_core.spec.adjustment import remaining_deviation_factor
from privateer_server.algorithms.trial.power.power_analysis import (
    TrialDesigns,
    analyze_power,
    build_designs,
    list_treatments,
)

_BOUNDS_FACTORS: Final = (1, 10, 100)
_SIGNIFICANT: Final = 4
EQUAL_SEGMENTS_NOTE: Final = ", if all segments have as many people"
CORRECTED_COLUMN: Final = "least effect decided, at worst"
_COMPARED_FLOORS: Final = (0.1, 0.15, 0.2)  # least shares of an arm that a plan compares
QUESTION_COLUMNS: Final[dict[str, Kind]] = {"question": "words", "about": "words", "share of people": "share"}


def check_effect(spec: TrialSpec, plans: TrialDesigns) -> None:
    """Refuse a target effect that privacy noise hides in every segment, and on average."""
    if spec.min_relevant_effect is None:
        return
    waiting = spec.experiment.n_choices_in_window
    analysis = analyze_power(spec, plans, waiting or 0.0)
    if waiting is None:
        # Shares follow late, and how late nobody knows here: more is found than without a window, up to fixed shares.
        analysis = replace(analysis, rule="fixed")
    if analysis.power(spec.min_relevant_effect)[0].max() >= analysis.target:
        return
    minimum = float(analysis.minimum_detectable_effects().min())
    if spec.min_relevant_effect < minimum:
        unit = spec.reward.span
        hint = f"the least effect that can is {unit * minimum:.3g}" if minimum < np.inf else "nor can any other"
        detail = f"cannot be found with power {spec.algorithm.power:g}: {hint}"
        remedy = "raise experiment.horizon or privacy.epsilon, have fewer arms, or set a larger effect"
        if spec.is_numeric:
            remedy += ", or narrower reward bounds"
            remedy += "" if spec.reward.standard_deviation else ", or say what reward.standard_deviation is expected"
        if not analysis.uses_formulas:
            remedy += ", or a larger algorithm.min_allocation"
        raise SpecError(detail, field="algorithm.minimum_detectable_effect", remedy=remedy)


def build_power_tables(
    spec: TrialSpec, plans: TrialDesigns, waiting: float = 0.0, shares: Sequence[float] | None = None
) -> tuple[Table, ...]:
    """Return the minimum detectable effects by segment and on average, and the sample size for an effect that matters.

    An effect is detected if its interval excludes 0 at some look. Where shares adapt, statistics are simulated.
    ``waiting`` participants have chosen before a look and report after it. Segments have ``shares`` of the
    participants; by default those that the spec plans.
    """
    plans = plans.with_shares(shares)
    analysis, unit, target_effect = analyze_power(spec, plans, waiting), spec.reward.span, spec.min_relevant_effect
    least_effects, arms = analysis.minimum_detectable_effects(), list_treatments(spec)
    names = [*spec.segment_names, EVERYBODY][: len(least_effects)]
    columns: dict[str, Kind] = {"segment": "words", "arm": "words", "least effect": "difference"}
    cells = [[name, arm, _round_effect(unit * least_effects[k, a])] for k, name in enumerate(names) for a, arm in arms]
    row_cells = [(k, a) for k in range(len(names)) for a, _ in arms]
    families = _family_sizes(spec, shares, len(names))
    if spec.algorithm.correction != "none" and max(families) > 1:
        columns[CORRECTED_COLUMN] = "difference"
        corrected = analysis.apply_holm_correction(least_effects, np.array(families))
        for row, (k, a) in zip(cells, row_cells, strict=True):
            row.append(_round_effect(unit * corrected[k, a]))
    if remaining_deviation_factor(spec.reward.covariates) < 1:
        columns["least effect if nothing were adjusted"] = "difference"
        unadjusted = analyze_power(spec.unadjusted, plans, waiting).minimum_detectable_effects()
        for row, (k, a) in zip(cells, row_cells, strict=True):
            row.append(_round_effect(unit * unadjusted[k, a]))
    if target_effect is not None:
        columns |= {
            "power for the effect wanted": "probability",
            "people for the effect wanted": "count",
            "people until decided, or all": "count",
        }
        power, times = analysis.power(target_effect)
        people = analysis.people_for(target_effect)
        for row, (k, a) in zip(cells, row_cells, strict=True):
            horizon = spec.experiment.horizon
            row += [round(float(power[k, a]), 2), _round(people[k, a]), round(horizon * float(times[k, a]) + waiting)]
    rows = tuple(tuple(row) for row in cells)
    looks = tuple((look, round(people + waiting)) for look, people in enumerate(spec.looks, 1))
    shares_note = ""
    if spec.segment_count > 1 and spec.segments.proportions is None:
        shares_note = EQUAL_SEGMENTS_NOTE if shares is None else ", with the shares of these people"
    title = f"what can be found with power {spec.algorithm.power:g}{shares_note}"
    looks_table = Table.of("looks", {"look": "count", "people": "count"}, looks)
    tables: tuple[Table, ...] = (Table.of(title, columns, rows), looks_table)
    if target_effect is not None:
        tables = (*tables, build_allocations_table(spec, target_effect, waiting, shares))
    if spec.is_numeric:
        tables = (*tables, build_bounds_table(spec))
    if not spec.questions:
        return tables
    return *tables, Table.of("what coins ask", QUESTION_COLUMNS, list_question_rows(spec))


def _family_sizes(spec: TrialSpec, shares: Sequence[float] | None, n_rows: int) -> list[int]:
    """Return the number of effects corrected together with each row's: of all segments, or of all averages."""
    n_inhabited = spec.segment_count if shares is None else sum(share > 0 for share in shares)
    n_treatments = spec.arm_count - 1
    return [n_inhabited * n_treatments] * spec.segment_count + [n_treatments] * (n_rows - spec.segment_count)


def build_allocations_table(
    spec: TrialSpec, effect: float, waiting: float = 0.0, shares: Sequence[float] | None = None
) -> Table:
    """Return the cost and power of an effect in a segment, under the spec's allocation and alternatives."""
    columns: dict[str, Kind] = {
        "allocation": "words",
        "least share of an arm": "share",
        "power in a segment": "probability",
        "half-width at the end": "difference",
        "reward lost": "number",
    }
    rows = []
    for other in _vary_allocation(spec):
        analysis, unit = analyze_power(other, build_designs(other).with_shares(shares), waiting), spec.reward.span
        plan = analysis.simulate_outcome(effect)
        min_share = min(spec.arm_shares) if other.algorithm.allocation == "fixed" else other.min_arm_share
        width, regret = _round_effect(unit * plan.half_width), float(_round_effect(unit * plan.reward_lost) or 0.0)
        rows.append((other.algorithm.allocation, round(min_share, 4), round(plan.power, 2), width, regret))
    title = "what one treatment's effect wanted, alike in all segments, costs by allocation"
    return Table.of(title, columns, tuple(rows))


def _vary_allocation(spec: TrialSpec) -> Iterator[TrialSpec]:
    """Yield the spec, other allocations, and Thompson sampling with higher floors."""
    allocation, max_floor = spec.algorithm.allocation, min(spec.arm_shares)
    yield spec
    yield _change_algorithm(spec, allocation="thompson" if allocation == "fixed" else "fixed")
    min_floor = _change_algorithm(spec, allocation="thompson").min_arm_share
    for floor in (floor for floor in _COMPARED_FLOORS if min_floor < floor <= max_floor):
        yield _change_algorithm(spec, allocation="thompson", min_allocation=floor)


def _change_algorithm(spec: TrialSpec, **changes: object) -> TrialSpec:
    return spec.model_copy(update={"algorithm": spec.algorithm.model_copy(update=changes)})


def build_bounds_table(spec: TrialSpec) -> Table:
    """Return the minimum detectable effect under other reward bounds, at planned shares."""
    reward, rows = spec.reward, []
    mean = reward.low + spec.base_rate * reward.span
    expected = {"base_rate": mean, "standard_deviation": (spec.unadjusted.standard_deviation or 0.0) * reward.span}
    bounds = [(reward.low, reward.low + times * reward.span) for times in _BOUNDS_FACTORS]
    if half_width := (reward.fitting_range or 0.0) / 2:
        bounds = [(max(reward.low, mean - half_width), min(reward.high, mean + half_width)), *bounds]
    for low, high in bounds:
        other = spec.model_copy(update={"reward": reward.model_copy(update={"low": low, "high": high, **expected})})
        least_effect = (
            replace(analyze_power(other, build_designs(other)), rule="fixed").minimum_detectable_effects()[-1].min()
        )
        rows.append((f"{low:g} to {high:g}", _round_effect((high - low) * float(least_effect))))
    columns: dict[str, Kind] = {"bounds": "words", "least effect": "difference"}
    return Table.of("what other bounds would cost, with planned shares of the arms", columns, tuple(rows))


def list_question_rows(spec: TrialSpec) -> tuple[tuple[str, str, float], ...]:
    """Return the questions, their subjects and shares of participants; empty if all participants answer all."""
    facts = ("the reward", *spec.algorithm.guardrails)
    rows = []
    for question in spec.questions:
        text = "being in the segment" if question.fact is None else facts[question.fact]
        rows.append((text, EVERYBODY if question.everybody else "a segment", round(question.share, 6)))
    return tuple(rows)


def _round_effect(effect: float) -> float | None:
    return float(f"{effect:.{_SIGNIFICANT}g}") if np.isfinite(effect) else None


def _round(people: float) -> int | None:
    return round(float(people)) if np.isfinite(people) else None
