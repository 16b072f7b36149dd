"""Half-life of evidence, in participants, for rewards that change."""

import math
from typing import Any, Final

from privateer_core.errors import SpecError

FIELD: Final = "algorithm.half_life"
_HALF_LIFE_MAX: Final = 1e12
_ROUND_MAX: Final = 2000
_ROUND_SHARE: Final = 0.2  # larger rounds, with more than this share of the shortest half-life, detect changes slowly


def validate_half_life(memory: Any, keywords: tuple[str, ...]) -> Any:
    """Return a valid half-life in participants, keyword or None, and refuse others."""
    is_number = isinstance(memory, int | float) and not isinstance(memory, bool)
    if memory is None or memory in keywords or (is_number and 1 <= memory <= _HALF_LIFE_MAX):
        return memory
    *alternatives, last_alternative = ["a number of people from 1 on", *(f'"{keyword}"' for keyword in keywords)]
    detail, remedy = f"must be {', '.join(alternatives)} or {last_alternative}", "give the half-life, or remove it"
    raise SpecError(detail, field=FIELD, remedy=remedy)


def check_half_life(shortest: float, round_size: int) -> None:
    """Refuse a half-life that is shorter than a round."""
    if shortest < round_size:
        minimum = f"{round_size:,}, not {shortest:,.0f}: a round teaches when it closes"
        detail = f"must be at least experiment.round_size, {minimum}"
        raise SpecError(detail, field=FIELD, remedy="lower experiment.round_size, or give a longer half-life")


def half_life_concerns(shortest: float, largest_batch: int) -> list[str]:
    """Return a warning if the largest batch is too large for the shortest half-life."""
    max_round_size = max(_ROUND_MAX, math.floor(_ROUND_SHARE * shortest))
    if largest_batch <= max_round_size:
        return []
    return [
        f"with algorithm.half_life rounds of up to {largest_batch:,} people are too large: what moves is not noticed "
        "before a round closes. Lower experiment.min_round_fraction or round_size, so that none has more than "
        f"{max_round_size:,}"
    ]
