"""Half-lives of evidence, in participants, where rewards may change: ``algorithm.half_life`` of a spec."""

import math
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator

from privateer_core.errors import SpecError

AUTOMATIC_HALF_LIVES: Final = (math.inf, 30_000.0, 10_000.0, 3_000.0)
"""Half-lives of which ``half_life = "auto"`` uses the best predictor, the infinite one first."""
FIELD: Final = "algorithm.half_life"
_HALF_LIFE_MAX: Final = 1e12
_ROUND_MAX: Final = 2000
_ROUND_SHARE: Final = 0.2  # larger rounds, with more than this share of the shortest half-life, detect changes slowly


def validate_half_life(half_life: Any) -> Any:
    """Return a valid half-life in participants, keyword or None, and refuse others."""
    is_number = isinstance(half_life, int | float) and not isinstance(half_life, bool)
    if half_life in (None, "auto", "none") or (is_number and 1 <= half_life <= _HALF_LIFE_MAX):
        return half_life
    detail, remedy = 'must be a number of people from 1 on, "auto" or "none"', "give the half-life, or remove it"
    raise SpecError(detail, field=FIELD, remedy=remedy)


HalfLife = Annotated[float | Literal["auto", "none"] | None, BeforeValidator(validate_half_life)]
"""A half-life of evidence, in participants; ``auto``: the one of `AUTOMATIC_HALF_LIVES` that predicts best; ``none``,
as if not given: evidence is never forgotten."""


def list_half_lives(half_life: float | str | None) -> tuple[float, ...]:
    """List the half-lives of a learner, the infinite one first; empty without forgetting."""
    if half_life is None or half_life == "none":
        return ()
    return AUTOMATIC_HALF_LIVES if half_life == "auto" else (math.inf, float(half_life))


def check_half_lives(half_lives: tuple[float, ...], round_size: int) -> None:
    """Refuse a half-life that is shorter than a round."""
    shortest = min(half_lives, default=math.inf)
    if shortest < round_size:
        minimum = f"{round_size:,}, not {shortest:,.0f}: a round teaches when it closes"
        detail = f"must be at least experiment.round_size, {minimum}"
        raise SpecError(detail, field=FIELD, remedy="lower experiment.round_size, or give a longer half-life")


def half_life_concerns(half_lives: tuple[float, ...], largest_batch: int) -> list[str]:
    """Return a warning if the largest batch is too large for the shortest half-life."""
    max_round_size = max(_ROUND_MAX, _ROUND_SHARE * min(half_lives, default=math.inf))
    if largest_batch <= max_round_size:
        return []
    return [
        f"with algorithm.half_life rounds of up to {largest_batch:,} people are too large: what moves is not noticed "
        "before a round closes. Lower experiment.min_round_fraction or round_size, so that none has more than "
        f"{math.floor(max_round_size):,}"
    ]
