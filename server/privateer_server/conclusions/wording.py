"""What was found of an experiment, and how sentences say its figures, its rewards and its cost in privacy."""

import math
from dataclasses import dataclass
from typing import Final

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import PrivacyCost, RewardUnit
from privateer_core.portable import round_up
from privateer_core.spec.spec import Spec
from privateer_server.conclusions.rule_words import number

_DIGITS_MAX: Final = 6
_FEW_DIGITS: Final = 3
"""A first digit below this has another one beside it."""
_ROUNDED_MAX: Final = 0.1
"""Part of half of an interval that rounding may move its ends by."""


@dataclass(frozen=True)
class LearnedAnswer:
    """An answer and the spec of its experiment."""

    spec: Spec
    answer: Answer

    @property
    def rates_options(self) -> bool:
        """Whether estimates are mean rewards of the options, one by one."""
        estimates = self.answer.estimates
        names = {one.name for one in estimates}
        return bool(estimates) and not self.answer.effects and names <= set(self.spec.options)

    def said(self, sentence: str) -> str:
        """Return a sentence that does not begin with a name; one that may change says so."""
        return sentence[:1].upper() + sentence[1:] if self.answer.is_over else f"So far: {sentence}"


def decimals_of(radius: float) -> int:
    """Return how many decimals say something where this is half of an interval."""
    if not (math.isfinite(radius) and radius > 0):
        return 3
    place = -math.floor(math.log10(radius))
    leading = radius * 10.0**place
    return min(_DIGITS_MAX, max(0, place + (leading < _FEW_DIGITS)))


def plain(value: float, radius: float) -> str:
    """Write a mean whose interval has this half, with a digit of its own if there is one."""
    digits = decimals_of(radius)
    if value and not round(value, digits):
        digits = min(decimals_of(abs(value)), digits + 1)
    return f"{value:z,.{digits}f}"


def signed(value: float, low: float | None, high: float | None) -> str:
    """Write a difference with its interval."""
    ends = [one for one in (low, high) if one is not None]
    radius = max((abs(one - value) for one in ends), default=math.nan)
    digits = decimals_of(radius)
    if any(abs(round(one, digits) - one) > _ROUNDED_MAX * radius for one in (value, *ends)):
        digits = min(digits + 1, _DIGITS_MAX)
    while digits < _DIGITS_MAX and any(one and not round(one, digits) for one in ends):
        digits += 1  # an end on one side of 0 is not written as 0
    said = f"{value:+z,.{digits}f}"
    if low is None or high is None:
        return said
    return f"{said} ({low:+z,.{digits}f} to {high:+z,.{digits}f})"


def unit_of(spec: Spec) -> RewardUnit:
    """Return what rewards are; no spec says that less is better."""
    low, high = (number(end) for end in (spec.reward.low, spec.reward.high))
    sentence = f"Rewards are from {low} to {high}, and more counts as better; effects are differences of means."
    return RewardUnit(spec.reward.low, spec.reward.high, sentence)


def privacy_of(spec: Spec) -> PrivacyCost:
    """Return what the experiment's own people were promised."""
    privacy = spec.privacy
    if not privacy.trust.promises or privacy.epsilon is None:
        said = f"Nothing was promised to people: the server sees {privacy.trust.sees}."
        return PrivacyCost(privacy.model, None, 0.0, said)
    delta = f" and delta {privacy.delta:g}" if privacy.delta else ""
    against = privacy.trust.reader
    said = f"It cost each person epsilon {privacy.epsilon:g}{delta} against {against}, for all that they report"
    return PrivacyCost(privacy.model, privacy.epsilon, privacy.delta, f"{said}: the server sees {privacy.trust.sees}.")


def people(count: float) -> str:
    """Write a number of people, and one that is estimated with two digits."""
    return f"{count:,} people" if isinstance(count, int) else f"about {math.ceil(round_up(count, 2)):,} people"
