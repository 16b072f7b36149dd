"""Rules in the words of the spec: `platform is ios and days_since_install below 7`."""

import math
from collections.abc import Sequence
from typing import Final

from privateer_core.answer.facts import Among, Between, Condition, Level
from privateer_core.errors import printable
from privateer_server.conclusions.feature_parts import FeaturePart

EVERYBODY: Final = "everybody"
REST: Final = "everybody else"
_NAME: Final = 60
"""Characters of a name in a sentence."""
_LISTED: Final = 6
"""Levels that are listed one by one."""
_KEPT: Final = 3
"""Levels that are listed although those that are left out are fewer."""
_WHOLE: Final = 1000
"""Numbers from here on are written without decimals."""


def in_words(parts: Sequence[FeaturePart], *, alone: bool) -> str:
    """Say who is in all of some parts; where there is none, it is everybody (``alone``), or everybody else."""
    if not parts:
        return EVERYBODY if alone else REST
    return " and ".join(_in_words(one.condition, one.whole.condition) for one in parts)


def short(name: str) -> str:
    """Write a name as part of a sentence."""
    clean = printable(name).strip() or "(blank)"
    return clean if len(clean) <= _NAME else f"{clean[: _NAME - 1]}…"


def number(value: float) -> str:
    """Write a number with four digits, and one of thousands in whole."""
    return f"{value:z,.0f}" if abs(value) >= _WHOLE else f"{value:z.4g}"


def _in_words(one: Condition, all_: Condition) -> str:
    name = short(one.feature)
    if isinstance(one, Between) and isinstance(all_, Between):
        said = _interval(name, one, all_)
        return f"{said} (or missing)" if one.missing and said else said or f"{name} is given"
    if isinstance(one, Among) and isinstance(all_, Among):
        return f"{name} {_levels(one, all_)}"
    return f"{name} is missing"


def _interval(name: str, one: Between, all_: Between) -> str:
    if math.isclose(one.low, all_.low):
        return "" if math.isclose(one.high, all_.high) else f"{name} below {number(one.high)}"
    if math.isclose(one.high, all_.high):
        return f"{name} {number(one.low)} or more"
    return f"{name} from {number(one.low)} to below {number(one.high)}"


def _levels(one: Among, all_: Among) -> str:
    left = [value for value in all_.values if value not in one.values]
    gone = all_.missing and not one.missing
    if len(one.values) > _KEPT and len(left) + gone < len(one.values) + one.missing:
        return f"is not {_listed(left, gone)}"
    return f"is {_listed(list(one.values), one.missing)}"


def _listed(values: Sequence[Level], missing: bool) -> str:
    names = [_level(value) for value in values] + (["missing"] if missing else [])
    if len(names) > _LISTED:
        return f"one of {len(names)} ({', '.join(names[: _LISTED - 1])}, …)"
    return " or ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} or {names[-1]}"


def _level(value: Level) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return short(value) if isinstance(value, str) else number(value)
