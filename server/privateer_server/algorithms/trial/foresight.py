"""What a trial can find, before anybody is asked."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.algorithms.trial.segments import EVERYBODY
from privateer_core.errors import SpecError
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.result import Cell, Table
from privateer_core.terms import calibrate
from privateer_server.algorithms.trial.design import Designs
from privateer_server.algorithms.trial.detectable import Planned, detectable, deviations, looks_of, people_needed
from privateer_server.algorithms.trial.power import decision_time, drift_of
from privateer_server.algorithms.trial.questions import questions_table

Array = NDArray[np.float64]
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
    segments, average = _found(spec, plans, planned_epochs(spec))
    least = min(float(segments.min()), float(average.min()))
    if spec.smallest < least:
        unit = 2 * spec.reward.half_range
        detail = f"cannot be found with power {spec.algorithm.power:g}: the least effect that can is {unit * least:.3g}"
        remedy = "raise experiment.horizon or privacy.epsilon, have fewer arms, or set a larger effect"
        raise SpecError(detail, field="algorithm.effect", remedy=remedy)


def foreseen(spec: TrialSpec, plans: Designs) -> tuple[Table, ...]:
    """Return what can be found in each segment and on average; for an effect that matters with how many people, when.

    Shares of arms are as planned: allocation that adapts finds less of what it drops.
    """
    epochs, unit, wanted = planned_epochs(spec), 2 * spec.reward.half_range, spec.smallest
    design, (segments, average) = plans.segments, _found(spec, plans, epochs)
    least = np.concatenate([segments, average[None]]) if spec.segment_count > 1 else segments
    names = [*spec.segment_names, EVERYBODY][: len(least)]
    arms = _alike(spec)
    if wanted is None:
        columns: tuple[str, ...] = ("segment", "arm", "least effect")
        rows: list[tuple[Cell, ...]] = [
            (name, arm, _rounded(unit * least[k, a])) for k, name in enumerate(names) for a, arm in arms
        ]
    else:
        power, rate = spec.algorithm.power, spec.algorithm.rate
        needed = people_needed(design, epochs, rate, wanted, power)
        overall = spec.experiment.horizon * np.square(average / wanted)
        everybody = spec.experiment.horizon / design.people * needed
        people, times = np.concatenate([everybody, overall[None]]), looks_of(design, epochs)
        drift = drift_of(times, design.alpha, power) * wanted
        columns = ("segment", "arm", "least effect", "people for the effect wanted", "people until decided, or all")

        def when(k: int, a: int) -> int:
            return round(spec.experiment.horizon * decision_time(times, design.alpha, drift / float(least[k, a])))

        rows = [
            (name, arm, _rounded(unit * least[k, a]), round(float(people[k, a])), when(k, a))
            for k, name in enumerate(names)
            for a, arm in arms
        ]
    looks = tuple((look, people) for look, people in enumerate(spec.looks, 1))
    alike = ", if all segments have as many people" if spec.segment_count > 1 and spec.segments.shares is None else ""
    title = f"what can be found with power {spec.algorithm.power:g}{alike}"
    return Table(title, columns, tuple(rows)), Table("looks", ("look", "people"), looks), *questions_table(spec)


def _alike(spec: TrialSpec) -> list[tuple[int, str]]:
    """Return treatments by number and name, or one in the place of all where their planned shares are equal."""
    arms = list(enumerate(spec.options[1:]))
    return [(0, "each")] if len(arms) > 1 and len(set(spec.arm_shares[1:])) == 1 else arms


def _rounded(effect: float) -> float:
    return float(f"{effect:.{_SIGNIFICANT}g}")


def _found(spec: TrialSpec, plans: Designs, epochs: list[Planned]) -> tuple[Array, Array]:
    """Return the least effects in segments (J, K), and on average (K,)."""
    rate, power, design, whole = spec.algorithm.rate, spec.algorithm.power, plans.segments, plans.everybody
    segments, drift = detectable(design, epochs, rate, power), drift_of(looks_of(design, epochs), design.alpha, power)
    precision = 1 / np.square(design.segments[:, None] * deviations(design, epochs, rate)).sum(axis=0)
    if whole is not None:
        asked = [replace(epoch, people=epoch.people * whole.people / design.people) for epoch in epochs]
        precision = precision + 1 / np.square(deviations(whole, asked, rate)[0])
    return segments, drift / np.sqrt(precision)
