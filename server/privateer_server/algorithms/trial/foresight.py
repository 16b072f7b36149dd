"""What a trial can find, before anybody is asked."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.trial import TrialSpec
from privateer.errors import SpecError
from privateer.mechanisms.cell_pairs import CellPairs
from privateer.result import Table
from privateer.terms import calibrate
from privateer_server.algorithms.trial.design import Design
from privateer_server.algorithms.trial.detectable import Planned, detectable, deviations, looks_of, people_needed
from privateer_server.algorithms.trial.power import decision_time, drift_of

Array = NDArray[np.float64]
_SIGNIFICANT = 4


def planned_epochs(spec: TrialSpec) -> list[Planned]:
    """Return the epochs to come, as their mechanisms will be calibrated."""
    return [_planned(spec, people) for people in np.diff([0, *spec.looks]).tolist()]


def _planned(spec: TrialSpec, people: int) -> Planned:
    mechanism: Any = calibrate(spec.privacy, people, spec.usual_question()).mechanism
    if isinstance(mechanism, CellPairs):
        return Planned(people, noise=spec.answers * mechanism.noise)
    keep, other = mechanism.response.gain, spec.answers * mechanism.response.other
    if spec.names_arms:
        return Planned(people, keep, noise=people * other * (1 - other))
    return Planned(people, keep, other, hit=1 / mechanism.buckets)


def check_effect(spec: TrialSpec, design: Design) -> None:
    """Refuse an effect that matters and that the promise hides in every segment, and on average.

    Raises
    ------
    SpecError
        With the least effect that can be found.
    """
    if spec.smallest is None:
        return
    segments, average = _found(spec, design, planned_epochs(spec))
    least = min(float(segments.min()), float(average.min()))
    if spec.smallest < least:
        unit = 2 * spec.reward.half_range
        detail = f"cannot be found with power {spec.algorithm.power:g}: the least effect that can is {unit * least:.3g}"
        remedy = "raise experiment.horizon or privacy.epsilon, have fewer arms, or set a larger effect"
        raise SpecError(detail, field="algorithm.effect", remedy=remedy)


def foreseen(spec: TrialSpec, design: Design) -> tuple[Table, ...]:
    """Return what can be found in each segment and on average, with how many people, and when.

    Where an effect that matters is given, people and time are for that; otherwise for the least that can be found.
    Shares of arms are as planned: allocation that adapts finds less of what it drops.
    """
    epochs, unit = planned_epochs(spec), 2 * spec.reward.half_range
    segments, average = _found(spec, design, epochs)
    times, rate = looks_of(design, epochs), spec.algorithm.rate
    drift = drift_of(times, design.alpha, spec.algorithm.power)
    rows = []
    for k, a, _ in spec.effects():
        least = float(segments[k, a - 1])
        wanted = spec.smallest or least
        needed = people_needed(design, epochs, rate, wanted, spec.algorithm.power)[k, a - 1]
        time = decision_time(times, design.alpha, drift * wanted / least)
        rows.append((spec.segment_names[k], spec.options[a], *_figures(unit * least, unit * wanted, needed, time)))
    for a, _ in spec.average_effects():
        least = float(average[a - 1])
        wanted = spec.smallest or least
        time = decision_time(times, design.alpha, drift * wanted / least)
        needed = spec.experiment.horizon * (least / wanted) ** 2
        rows.append(("everybody", spec.options[a], *_figures(unit * least, unit * wanted, needed, time)))
    columns = ("segment", "arm", "least effect", "effect", "people needed", "decided after")
    looks = tuple((look + 1, people) for look, people in enumerate(spec.looks))
    title = f"what can be found with power {spec.algorithm.power:g}"
    return Table(title, columns, tuple(rows)), Table("looks", ("look", "people"), looks)


def _figures(least: float, wanted: float, needed: float, time: float) -> tuple[float, float, int, float]:
    """Round for people; the time is a share of the horizon, on average."""
    return float(f"{least:.{_SIGNIFICANT}g}"), float(f"{wanted:.{_SIGNIFICANT}g}"), round(needed), round(time, 3)


def _found(spec: TrialSpec, design: Design, epochs: list[Planned]) -> tuple[Array, Array]:
    """Return the least effects in segments (J, K), and on average (K,)."""
    rate, power = spec.algorithm.rate, spec.algorithm.power
    segments = detectable(design, epochs, rate, power)
    spread = np.square(design.segments[:, None] * deviations(design, epochs, rate)).sum(axis=0)
    return segments, drift_of(looks_of(design, epochs), design.alpha, power) * np.sqrt(spread)
