"""Power analysis: the smallest coefficients that will be found, before anybody is asked."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from privateer_core.algorithms.sparse import SparseSpec
from privateer_core.answer.facts import Kind, Table
from privateer_core.errors import SpecError
from privateer_core.mechanisms import ScreenedMoments
from privateer_core.privacy.terms import calibrate
from privateer_server.algorithms.sparse.coefficients import UNIFORM, threshold

_BEYOND: Final = 1.0
"""Standard deviations beyond the threshold that a coefficient needs to be found more often than not."""
_BY_CHANCE: Final = 2.0
"""How far the largest of many choices may be beyond its usual place, in scales."""
_VARIANCE: Final = 0.25
"""What rewards are taken to vary by, in squared half ranges."""
_GRID: Final = (10, 30, 100, 300, 1000, 3000, 10_000)
_PEOPLE_MAX: Final = 1 << 34


def smallest(spec: SparseSpec, features: int, people: int) -> float:
    """Return the smallest coefficient, in half ranges of rewards, that so many people show of one of the features.

    Features are taken to be uniform within their bounds, and not to correlate.
    """
    question = replace(spec.question_about(features, 0), screened=min(spec.kept_most, features))
    mechanism: Any = calibrate(spec.privacy, people, question).mechanism
    signal, needed = people * UNIFORM, threshold(features) + _BEYOND
    if isinstance(mechanism, ScreenedMoments):
        own = people * UNIFORM * _VARIANCE
        chosen = mechanism.score_scale * (math.log(features) + _BY_CHANCE) + math.sqrt(2 * own * math.log(2 * features))
        return max(chosen, needed * math.sqrt(mechanism.product_variance + own)) / signal
    asked = people / getattr(mechanism, "classes", 1)
    variance = mechanism.spread(max(1, int(asked)))[0] + UNIFORM * _VARIANCE / asked
    return needed * math.sqrt(variance) / UNIFORM


def check_first_round(spec: SparseSpec) -> None:
    """Refuse a first round in which no coefficient can be found, however large."""
    people = spec.first_batch("")
    if smallest(spec, spec.arm_features, people) <= 1:
        return
    enough = next((size for size in _doubled(people) if smallest(spec, spec.arm_features, size) <= 1), None)
    asks = f"{people} people cannot show which of {spec.arm_features} features matter, however large their coefficients"
    remedy = "raise epsilon, or name fewer features"
    if enough is not None:
        remedy = f"{enough} people can; or raise epsilon, or name fewer features"
    raise SpecError(asks, field="experiment.round_size", remedy=remedy)


def _doubled(people: int) -> Iterator[int]:
    while (people := 2 * people) <= _PEOPLE_MAX:
        yield people


def foreseen(spec: SparseSpec) -> tuple[Table, ...]:
    """Return a table by numbers of features: how small a coefficient may be, in units of rewards, and if it is enough.

    It is, if coefficients are found that share half the range of rewards among as many features as may matter.
    """
    first, half, unit = spec.first_batch(""), max(1, spec.experiment.horizon // 2), spec.reward.half_range
    enough = 1 / (2 * spec.kept_most)
    rows = []
    for features in sorted({*_GRID, spec.arm_features}):
        if not spec.takes(features):
            continue
        found = [smallest(spec, features, max(people, first)) for people in (first, half)]
        rows.append((features, *(round(unit * one, 4) for one in found), "yes" if found[1] <= enough else "no"))
    title = f"smallest coefficients found; it learns where {unit * enough:.4g} is found by half the horizon"
    columns: dict[str, Kind] = {
        "features": "count",
        "by the first round": "difference",
        "by half the horizon": "difference",
        "learns": "words",
    }
    return (Table.of(title, columns, tuple(rows)),)
