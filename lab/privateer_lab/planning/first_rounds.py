"""What the first round asks of people under each promise."""

from collections.abc import Iterable
from typing import Any

from privateer_core.privacy.record import planned_of
from privateer_lab.planning.plans import Variant


def first_rounds(wanted: Iterable[Variant]) -> list[dict[str, Any]]:
    """Return the people of each first round, and the mechanism of a report as records name it.

    A round that begins with several bins, of levels or of many features, has more keys than are planned here; where
    events are rare that may change the mechanism.
    """
    return [row for one in wanted if (row := _first_round(one))]


def _first_round(variant: Variant) -> dict[str, Any] | None:
    terms = variant.spec.planned("")
    if terms is None:
        return None
    return {
        "model": variant.model,
        "epsilon": variant.epsilon,
        "people": terms.batch,
        "mechanism": planned_of(terms).mechanism["type"],
    }
