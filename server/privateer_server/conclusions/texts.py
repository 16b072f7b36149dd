"""Texts of numbers, names and conditions in the sentences of a conclusion: `platform is ios and age below 7`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from privateer_core.answer import Answer
from privateer_core.answer.facts import Among, Between, Condition, Level
from privateer_core.errors import printable
from privateer_core.portable import round_up
from privateer_core.spec.spec import Spec
from privateer_server.conclusions.rule_search import FeaturePart

_MAX_DECIMALS: Final = 6
_MIN_SINGLE_DIGIT: Final = 3  # a leading digit below this is followed by a second digit
_MAX_ROUNDING_SHARE: Final = 0.1  # the maximum share of an interval's half-width by which rounding may move its bounds


@dataclass(frozen=True)
class AnswerFacts:
    """An answer and the spec of its experiment."""

    spec: Spec
    answer: Answer

    @property
    def has_option_estimates(self) -> bool:
        """Whether estimates are the mean rewards of options."""
        estimates = self.answer.estimates
        names = {estimate.name for estimate in estimates}
        return bool(estimates) and not self.answer.effects and names <= set(self.spec.options)

    def phrase(self, sentence: str) -> str:
        """Return a sentence with a capital letter, or after "So far" if the answer may change."""
        return sentence[:1].upper() + sentence[1:] if self.answer.is_over else f"So far: {sentence}"


def choose_decimals(half_width: float) -> int:
    """Return the number of significant decimals for an interval of this half-width."""
    if not (math.isfinite(half_width) and half_width > 0):
        return 3
    n_decimals = -math.floor(math.log10(half_width))
    leading = half_width * 10.0**n_decimals
    return min(_MAX_DECIMALS, max(0, n_decimals + (leading < _MIN_SINGLE_DIGIT)))


def format_mean(value: float, half_width: float) -> str:
    """Format a mean with the decimals of its interval's half-width, and one more if it would be 0."""
    digits = choose_decimals(half_width)
    if value and not round(value, digits):
        digits = min(choose_decimals(abs(value)), digits + 1)
    return f"{value:z,.{digits}f}"


def format_difference(value: float, low: float | None, high: float | None) -> str:
    """Format a difference with its interval."""
    bounds = [end for end in (low, high) if end is not None]
    half_width = max((abs(end - value) for end in bounds), default=math.nan)
    digits = choose_decimals(half_width)
    if any(abs(round(end, digits) - end) > _MAX_ROUNDING_SHARE * half_width for end in (value, *bounds)):
        digits = min(digits + 1, _MAX_DECIMALS)
    while digits < _MAX_DECIMALS and any(end and not round(end, digits) for end in bounds):
        digits += 1  # a nonzero bound is not written as 0
    text = f"{value:+z,.{digits}f}"
    if low is None or high is None:
        return text
    return f"{text} ({low:+z,.{digits}f} to {high:+z,.{digits}f})"


def format_count(count: float) -> str:
    """Format a number of participants; an estimated number with two digits."""
    return f"{count:,} people" if isinstance(count, int) else f"about {math.ceil(round_up(count, 2)):,} people"


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
