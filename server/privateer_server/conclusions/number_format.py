"""Formats of numbers in the sentences of a conclusion, and the facts that these sentences need."""

import math
from dataclasses import dataclass
from typing import Final

from privateer_core.answer import Answer
from privateer_core.portable import round_up
from privateer_core.spec.spec import Spec

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
