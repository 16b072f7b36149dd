"""Texts of rules in the names of the spec: `platform is ios and days_since_install below 7`."""

import math
from collections.abc import Sequence
from typing import Final

from privateer_core.answer.facts import Among, Between, Condition, Level
from privateer_core.errors import printable
from privateer_server.conclusions.feature_parts import FeaturePart

EVERYBODY: Final = "everybody"
REST: Final = "everybody else"
_MAX_NAME_LENGTH: Final = 60  # the maximum number of characters of a name in a sentence
_MAX_LISTED_LEVELS: Final = 6  # the maximum number of levels that are listed one by one
_MIN_LEVELS_TO_NEGATE: Final = 3  # the maximum number of levels that are listed although the excluded levels are fewer
_MIN_WHOLE_NUMBER: Final = 1000  # numbers from here on are written without decimals


def describe_parts(parts: Sequence[FeaturePart], *, is_only_rule: bool) -> str:
    """Describe the participants in all parts; without parts all participants, or all others unless ``is_only_rule``."""
    if not parts:
        return EVERYBODY if is_only_rule else REST
    return " and ".join(_describe_condition(part.condition, part.parent.condition) for part in parts)


def shorten(name: str) -> str:
    """Return a printable name of limited length for a sentence."""
    clean = printable(name).strip() or "(blank)"
    return clean if len(clean) <= _MAX_NAME_LENGTH else f"{clean[: _MAX_NAME_LENGTH - 1]}…"


def format_number(value: float) -> str:
    """Format a number with four digits, and from 1,000 on without decimals."""
    return f"{value:z,.0f}" if abs(value) >= _MIN_WHOLE_NUMBER else f"{value:z.4g}"


def _describe_condition(condition: Condition, whole: Condition) -> str:
    """Describe a condition on a feature, of which ``whole`` is the condition that all participants satisfy."""
    name = shorten(condition.feature)
    if isinstance(condition, Between) and isinstance(whole, Between):
        text = _describe_interval(name, condition, whole)
        return f"{text} (or missing)" if condition.missing and text else text or f"{name} is given"
    if isinstance(condition, Among) and isinstance(whole, Among):
        return f"{name} {_describe_levels(condition, whole)}"
    return f"{name} is missing"


def _describe_interval(name: str, part: Between, whole: Between) -> str:
    """Describe an interval of a number by its ends within the whole range; empty if it is the whole range."""
    if math.isclose(part.low, whole.low):
        return "" if math.isclose(part.high, whole.high) else f"{name} below {format_number(part.high)}"
    if math.isclose(part.high, whole.high):
        return f"{name} {format_number(part.low)} or more"
    return f"{name} from {format_number(part.low)} to below {format_number(part.high)}"


def _describe_levels(condition: Among, whole: Among) -> str:
    """Describe a set of levels, or its complement if that is shorter."""
    excluded = [value for value in whole.values if value not in condition.values]
    is_missing = whole.missing and not condition.missing
    has_few_excluded = len(excluded) + is_missing < len(condition.values) + condition.missing
    if len(condition.values) > _MIN_LEVELS_TO_NEGATE and has_few_excluded:
        return f"is not {_format_levels(excluded, is_missing)}"
    return f"is {_format_levels(list(condition.values), condition.missing)}"


def _format_levels(values: Sequence[Level], missing: bool) -> str:
    """Format levels as a list of alternatives, shortened if there are many."""
    names = [_format_level(value) for value in values] + (["missing"] if missing else [])
    if len(names) > _MAX_LISTED_LEVELS:
        return f"one of {len(names)} ({', '.join(names[: _MAX_LISTED_LEVELS - 1])}, …)"
    return join_words(names, "or")


def join_words(words: Sequence[str], conjunction: str) -> str:
    """Join words by commas, and the last two by a conjunction."""
    return f" {conjunction} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _format_level(value: Level) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shorten(value) if isinstance(value, str) else format_number(value)
