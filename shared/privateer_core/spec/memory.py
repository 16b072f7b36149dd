"""Memory: people after whose reports what was learned counts half, where rewards move."""

import math
from typing import Any, Final

from privateer_core.errors import SpecError

FIELD: Final = "algorithm.memory"
_MOST: Final = 1e12
_ROUND_MAX: Final = 2000
_ROUND_SHARE: Final = 0.2
"""Rounds of more people, and of more than this share of the shortest half-life, are slow to notice what moves."""


def checked_memory(memory: Any, words: tuple[str, ...]) -> Any:
    """Return a memory: a half-life in people, one of some ``words``, or None."""
    number = isinstance(memory, int | float) and not isinstance(memory, bool)
    if memory is None or memory in words or (number and 1 <= memory <= _MOST):
        return memory
    *others, last = ["a number of people from 1 on", *(f'"{word}"' for word in words)]
    detail, remedy = f"must be {', '.join(others)} or {last}", "give the half-life, or remove it"
    raise SpecError(detail, field=FIELD, remedy=remedy)


def check_rounds(shortest: float, round_size: int) -> None:
    """Refuse a half-life that is shorter than a round."""
    if shortest < round_size:
        least = f"{round_size:,}, not {shortest:,.0f}: a round teaches when it closes"
        detail = f"must be at least experiment.round_size, {least}"
        raise SpecError(detail, field=FIELD, remedy="lower experiment.round_size, or give a longer half-life")


def concerns_of_rounds(shortest: float, largest: int) -> list[str]:
    """Say that the ``largest`` rounds have too many people for the shortest half-life, if they do."""
    most = max(_ROUND_MAX, math.floor(_ROUND_SHARE * shortest))
    if largest <= most:
        return []
    return [
        f"with algorithm.memory rounds of up to {largest:,} people are too large: what moves is not noticed before "
        f"a round closes. Lower experiment.round_growth or round_size, so that none has more than {most:,}"
    ]
