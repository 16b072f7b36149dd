"""What a trial can find, before anybody is asked."""

from dataclasses import replace
from typing import Any

import numpy as np

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.algorithms.trial.segments import EVERYBODY
from privateer_core.answer.tables import Kind, Table
from privateer_core.errors import SpecError
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.terms import calibrate
from privateer_server.algorithms.trial.design import Designs
from privateer_server.algorithms.trial.detectable import Planned
from privateer_server.algorithms.trial.prospect import Prospect
from privateer_server.algorithms.trial.questions import questions_table

_SIGNIFICANT = 4


def planned_epochs(spec: TrialSpec) -> list[Planned]:
    """Return the epochs to come, as their mechanisms will be calibrated: people asked for the reward by segment."""
    share = spec.questions[0].share if spec.questions else 1.0
    return [_planned(spec, batch, batch * share) for batch in np.diff([0, *spec.looks]).tolist()]


def _planned(spec: TrialSpec, batch: int, people: float) -> Planned:
    mechanism: Any = calibrate(spec.privacy, batch, spec.usual_question()).mechanism
    if isinstance(mechanism, CellPairs):
        return Planned(people, noise=spec.answers * mechanism.noise)
    keep, other = mechanism.response.gain, spec.answers * mechanism.response.other
    if spec.names_arms:
        return Planned(people, keep, noise=people * other * (1 - other))
    return Planned(people, keep, other)


def check_effect(spec: TrialSpec, plans: Designs) -> None:
    """Refuse an effect that matters and that the promise hides in every segment, and on average.

    Raises
    ------
    SpecError
        With the least effect that can be found.
    """
    if spec.smallest is None:
        return
    found = prospect_of(spec, plans)
    if spec.experiment.conversion_window:
        # Shares follow late, and how late nobody knows here: more is found than without a window, up to fixed shares.
        found = replace(found, rule="fixed")
    if found.power(spec.smallest)[0].max() >= found.target:
        return
    least = float(found.least().min())
    if spec.smallest < least:
        unit = 2 * spec.reward.half_range
        said = f"the least effect that can is {unit * least:.3g}" if least < np.inf else "nor can any other"
        detail = f"cannot be found with power {spec.algorithm.power:g}: {said}"
        remedy = "raise experiment.horizon or privacy.epsilon, have fewer arms, or set a larger effect"
        if not found.formulas:
            remedy += ", or a larger algorithm.floor"
        raise SpecError(detail, field="algorithm.effect", remedy=remedy)


def foreseen(spec: TrialSpec, plans: Designs, waiting: float = 0.0) -> tuple[Table, ...]:
    """Return what can be found in each segment and on average; for an effect that matters with how many people, when.

    An effect is found if its interval leaves 0 out at some look. Where shares adapt, numbers are those of simulated
    statistics. Of ``waiting`` people nothing is known yet who have chosen before a look and report after it.
    """
    found, unit, wanted = prospect_of(spec, plans, waiting), 2 * spec.reward.half_range, spec.smallest
    least, arms = found.least(), _alike(spec)
    names = [*spec.segment_names, EVERYBODY][: len(least)]
    columns: dict[str, Kind] = {"segment": "words", "arm": "words", "least effect": "difference"}
    cells = [[name, arm, _rounded(unit * least[k, a])] for k, name in enumerate(names) for a, arm in arms]
    if wanted is not None:
        columns |= {
            "power for the effect wanted": "probability",
            "people for the effect wanted": "count",
            "people until decided, or all": "count",
        }
        power, until = found.power(wanted)
        people = found.people_for(wanted)
        for row, (k, a) in zip(cells, ((k, a) for k in range(len(names)) for a, _ in arms), strict=True):
            horizon = spec.experiment.horizon
            row += [round(float(power[k, a]), 2), _whole(people[k, a]), round(horizon * float(until[k, a]) + waiting)]
    rows = tuple(tuple(row) for row in cells)
    looks = tuple((look, round(people + waiting)) for look, people in enumerate(spec.looks, 1))
    alike = ", if all segments have as many people" if spec.segment_count > 1 and spec.segments.shares is None else ""
    title = f"what can be found with power {spec.algorithm.power:g}{alike}"
    table_of_looks = Table.of("looks", {"look": "count", "people": "count"}, looks)
    return Table.of(title, columns, rows), table_of_looks, *questions_table(spec)


def _alike(spec: TrialSpec) -> list[tuple[int, str]]:
    """Return treatments by number and name, or one in the place of all where their planned shares are equal."""
    arms = list(enumerate(spec.options[1:]))
    return [(0, "each")] if len(arms) > 1 and len(set(spec.arm_shares[1:])) == 1 else arms


def _rounded(effect: float) -> float | None:
    """Round an effect; None if no rewards differ so much."""
    return float(f"{effect:.{_SIGNIFICANT}g}") if np.isfinite(effect) else None


def _whole(people: float) -> int | None:
    return round(float(people)) if np.isfinite(people) else None


def prospect_of(spec: TrialSpec, plans: Designs, waiting: float = 0.0) -> Prospect:
    """Return what a spec can find, before anybody is asked; ``waiting`` people choose before somebody reports."""
    section = spec.algorithm
    return Prospect(
        plans,
        tuple(planned_epochs(spec)),
        section.allocation,
        spec.floor,
        section.rate,
        section.power,
        spec.experiment.horizon,
        section.intervals == "strict",
        tuple(a for a, _ in _alike(spec)),
        waiting,
    )
