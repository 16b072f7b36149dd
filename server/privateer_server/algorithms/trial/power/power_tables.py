"""What a plan says of a trial before anybody is asked, in tables; and the effect that it refuses to look for."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.algorithms.trial.segments import EVERYBODY
from privateer_core.answer.facts import Kind, Table
from privateer_core.errors import SpecError
from privateer_core.spec.adjustment import left_over
from privateer_server.algorithms.trial.power.planned_designs import TrialDesigns, designs
from privateer_server.algorithms.trial.power.power_analysis import power_analysis, told_apart

_WIDER: Final = (1, 10, 100)
_SIGNIFICANT: Final = 4
ALIKE: Final = ", if all segments have as many people"
CORRECTED: Final = "least effect decided, at worst"
_FLOORS: Final = (0.1, 0.15, 0.2)
"""Least shares of an arm that a plan compares."""
QUESTION_COLUMNS: Final[dict[str, Kind]] = {"question": "words", "about": "words", "share of people": "share"}


def check_effect(spec: TrialSpec, plans: TrialDesigns) -> None:
    """Refuse an effect that matters and that the promise hides in every segment, and on average."""
    if spec.smallest is None:
        return
    waiting = spec.experiment.waiting
    found = power_analysis(spec, plans, waiting or 0.0)
    if waiting is None:
        # Shares follow late, and how late nobody knows here: more is found than without a window, up to fixed shares.
        found = replace(found, rule="fixed")
    if found.power(spec.smallest)[0].max() >= found.target:
        return
    least = float(found.least().min())
    if spec.smallest < least:
        unit = spec.reward.span
        said = f"the least effect that can is {unit * least:.3g}" if least < np.inf else "nor can any other"
        detail = f"cannot be found with power {spec.algorithm.power:g}: {said}"
        remedy = "raise experiment.horizon or privacy.epsilon, have fewer arms, or set a larger effect"
        if spec.numeric:
            remedy += ", or narrower reward bounds"
            remedy += "" if spec.reward.deviation else ", or say what reward.deviation is expected"
        if not found.formulas:
            remedy += ", or a larger algorithm.floor"
        raise SpecError(detail, field="algorithm.effect", remedy=remedy)


def power_tables(
    spec: TrialSpec, plans: TrialDesigns, waiting: float = 0.0, shares: Sequence[float] | None = None
) -> tuple[Table, ...]:
    """Return what can be found in each segment and on average; for an effect that matters with how many people, when.

    An effect is found if its interval leaves 0 out at some look. Where shares adapt, numbers are those of simulated
    statistics. Of ``waiting`` people nothing is known yet who have chosen before a look and report after it. Segments
    have ``shares`` of the people; by default those that the spec plans.
    """
    plans = plans.with_shares(shares)
    found, unit, wanted = power_analysis(spec, plans, waiting), spec.reward.span, spec.smallest
    least, arms = found.least(), told_apart(spec)
    names = [*spec.segment_names, EVERYBODY][: len(least)]
    columns: dict[str, Kind] = {"segment": "words", "arm": "words", "least effect": "difference"}
    cells = [[name, arm, _rounded(unit * least[k, a])] for k, name in enumerate(names) for a, arm in arms]
    rows_of = [(k, a) for k in range(len(names)) for a, _ in arms]
    families = _families(spec, shares, len(names))
    if spec.algorithm.correction != "none" and max(families) > 1:
        columns[CORRECTED] = "difference"
        decided = found.corrected(least, np.array(families))
        for row, (k, a) in zip(cells, rows_of, strict=True):
            row.append(_rounded(unit * decided[k, a]))
    if left_over(spec.reward.adjust) < 1:
        columns["least effect if nothing were adjusted"] = "difference"
        plain = power_analysis(spec.unadjusted, plans, waiting).least()
        for row, (k, a) in zip(cells, rows_of, strict=True):
            row.append(_rounded(unit * plain[k, a]))
    if wanted is not None:
        columns |= {
            "power for the effect wanted": "probability",
            "people for the effect wanted": "count",
            "people until decided, or all": "count",
        }
        power, until = found.power(wanted)
        people = found.people_for(wanted)
        for row, (k, a) in zip(cells, rows_of, strict=True):
            horizon = spec.experiment.horizon
            row += [round(float(power[k, a]), 2), _whole(people[k, a]), round(horizon * float(until[k, a]) + waiting)]
    rows = tuple(tuple(row) for row in cells)
    looks = tuple((look, round(people + waiting)) for look, people in enumerate(spec.looks, 1))
    alike = ""
    if spec.segment_count > 1 and spec.segments.shares is None:
        alike = ALIKE if shares is None else ", with the shares of these people"
    title = f"what can be found with power {spec.algorithm.power:g}{alike}"
    tables: tuple[Table, ...] = (
        Table.of(title, columns, rows),
        Table.of("looks", {"look": "count", "people": "count"}, looks),
    )
    if wanted is not None and not found.strict:
        tables = (*tables, allocations_table(spec, wanted, waiting, shares))
    if spec.numeric:
        tables = (*tables, bounds_table(spec))
    if not spec.questions:
        return tables
    return *tables, Table.of("what coins ask", QUESTION_COLUMNS, question_rows(spec))


def _families(spec: TrialSpec, shares: Sequence[float] | None, rows: int) -> list[int]:
    """Return how many effects are corrected together with those of each row: of all segments, or of all averages."""
    inhabited = spec.segment_count if shares is None else sum(share > 0 for share in shares)
    treatments = spec.arm_count - 1
    return [inhabited * treatments] * spec.segment_count + [treatments] * (rows - spec.segment_count)


def allocations_table(
    spec: TrialSpec, effect: float, waiting: float = 0.0, shares: Sequence[float] | None = None
) -> Table:
    """Return what an effect costs and how often it is found in a segment, as the spec allocates arms and otherwise."""
    columns: dict[str, Kind] = {
        "allocation": "words",
        "least share of an arm": "share",
        "power in a segment": "probability",
        "half-width at the end": "difference",
        "reward lost": "number",
    }
    rows = []
    for other in _allocations(spec):
        analysis, unit = power_analysis(other, designs(other).with_shares(shares), waiting), spec.reward.span
        found = analysis.outcome(effect)
        least = min(spec.arm_shares) if other.algorithm.allocation == "fixed" else other.floor
        width, lost = _rounded(unit * found.half_width), float(_rounded(unit * found.lost) or 0.0)
        rows.append((other.algorithm.allocation, round(least, 4), round(found.power, 2), width, lost))
    title = "what one treatment's effect wanted, alike in all segments, costs by allocation"
    return Table.of(title, columns, tuple(rows))


def _allocations(spec: TrialSpec) -> Iterator[TrialSpec]:
    """Yield the spec, other allocations, and matching with higher floors."""
    own, most = spec.algorithm.allocation, min(spec.arm_shares)
    yield spec
    for rule in (rule for rule in ("fixed", "elimination", "matching") if rule != own):
        yield _with(spec, allocation=rule)
    least = _with(spec, allocation="matching").floor
    for floor in (floor for floor in _FLOORS if least < floor <= most):
        yield _with(spec, allocation="matching", floor=floor)


def _with(spec: TrialSpec, **changed: object) -> TrialSpec:
    return spec.model_copy(update={"algorithm": spec.algorithm.model_copy(update=changed)})


def bounds_table(spec: TrialSpec) -> Table:
    """Return what other bounds cost at planned shares: the least effect on everybody, of the most frequent arm."""
    reward, rows = spec.reward, []
    mean = reward.low + spec.rate * reward.span
    expected = {"base_rate": mean, "deviation": (spec.unadjusted.deviation or 0.0) * reward.span}
    bounds = [(reward.low, reward.low + times * reward.span) for times in _WIDER]
    if reach := (reward.fitting or 0.0) / 2:
        bounds = [(max(reward.low, mean - reach), min(reward.high, mean + reach)), *bounds]
    for low, high in bounds:
        other = spec.model_copy(update={"reward": reward.model_copy(update={"low": low, "high": high, **expected})})
        least = replace(power_analysis(other, designs(other)), rule="fixed", strict=False).least()[-1].min()
        rows.append((f"{low:g} to {high:g}", _rounded((high - low) * float(least))))
    columns: dict[str, Kind] = {"bounds": "words", "least effect": "difference"}
    return Table.of("what other bounds would cost, with planned shares of the arms", columns, tuple(rows))


def question_rows(spec: TrialSpec) -> tuple[tuple[str, str, float], ...]:
    """Return what coins ask, about whom, and of which share of the people; empty if everybody answers all."""
    facts = ("the reward", *spec.algorithm.guardrails)
    return tuple(
        (
            "being in the segment" if one.fact is None else facts[one.fact],
            EVERYBODY if one.everybody else "a segment",
            round(one.share, 6),
        )
        for one in spec.questions
    )


def _rounded(effect: float) -> float | None:
    """Round an effect; None if no rewards differ so much."""
    return float(f"{effect:.{_SIGNIFICANT}g}") if np.isfinite(effect) else None


def _whole(people: float) -> int | None:
    return round(float(people)) if np.isfinite(people) else None
