"""Texts about the measured gain of choosing by context, and suggestions of how to measure it."""

import math
from statistics import NormalDist
from typing import Final, NamedTuple

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Headline
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.parts import ABOVE_CHANCE, Gain, Intervals
from privateer_core.spec.arms import ArmsSpec
from privateer_server.conclusions.number_format import AnswerFacts, choose_decimals, format_count, format_mean
from privateer_server.conclusions.rule_words import shorten
from privateer_server.conclusions.rules import choose_confidence_label

_DEFAULT_SHARE: Final = 0.05
_MAX_SHARE: Final = 0.5
_PERCENT: Final = 100
_QUANTILE: Final = NormalDist().inv_cdf(0.975)


class MeasuredGain(NamedTuple):
    """A measured gain, with the bounds of its 95 % confidence interval."""

    gain: Gain
    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """The half-width of the confidence interval."""
        return (self.high - self.low) / 2

    @property
    def means(self) -> tuple[float, float] | None:
        """The mean rewards by context and of the single option; None without them."""
        pair = self.gain.means
        return (pair[0].value, pair[-1].value) if pair else None

    @property
    def text(self) -> str:
        """The value and the confidence interval as text."""
        digits = choose_decimals(self.half_width)
        return f"{self.value:+z,.{digits}f} (95 % interval {self.low:z,.{digits}f} to {self.high:z,.{digits}f})"


def as_measured_gain(gain: Gain | None) -> MeasuredGain | None:
    """Return a gain as a measured gain; None if it was not measured."""
    if gain is None or gain.value is None or gain.low is None or gain.high is None:
        return None
    return MeasuredGain(gain, gain.value, gain.low, gain.high)


def measured_headline(findings: AnswerFacts, measured: MeasuredGain, features: str) -> Headline:
    """Return the headline of the measured gain of choosing by features over the best single option."""
    option = shorten(measured.gain.arm)
    figures = measured.gain.arm, measured.value, measured.low, measured.high
    means_text = ""
    if measured.means:
        policy, constant = (format_mean(mean, measured.half_width) for mean in measured.means)
        means_text = f", a mean reward of {policy} instead of {constant}"
    if measured.low > 0:
        comparison = f"{option} for everybody, the best single option as far as is known"
        text = f"Choosing by context gives {measured.text} above {comparison}: measured{means_text}."
        confidence_label = choose_confidence_label(NormalDist().cdf(_QUANTILE * measured.value / measured.half_width))
        return Headline("rules", findings.phrase(f"choose by {features}. {text}"), confidence_label, None, *figures)
    if measured.high < 0:
        text = f"Choosing by {features} as was learned gives {measured.text} beside it: measured{means_text}."
        sentence = findings.phrase(f"give everybody {option}. {text}")
        return Headline("one arm", sentence, "almost certain", measured.gain.arm)
    doubt = f"it is not known whether choosing by {features} is better than {option} for everybody"
    return Headline("rules", findings.phrase(f"{doubt}: {measured.text} was measured."), "not known", None, *figures)


def find_gain_above_chance(answer: Answer) -> Estimate | None:
    """Return the estimated gain of choosing by context over random options, if it was measured."""
    estimates = (estimate for part in answer.all_of(Intervals) for estimate in part.estimates)
    return next((estimate for estimate in estimates if estimate.name == ABOVE_CHANCE), None)


def warn_of_chance_level(answer: Answer) -> tuple[str, ...]:
    """Warn if the measured mean of the single option does not exceed that of random options."""
    measured, chance = as_measured_gain(answer.gain), find_gain_above_chance(answer)
    if measured is None or chance is None:
        return ()
    # Among equal options a wrong guess usually differs by less than a quarter of the interval.
    if measured.value - chance.value <= (chance.high - chance.low) / 4:
        return ()
    option = shorten(measured.gain.arm)
    return (f"As measured, {option} for everybody earns no more than options by chance: another may be the best one.",)


def suggest_measurement(spec: ArmsSpec) -> tuple[str, ...]:
    """Describe which participants will measure the gain, or the setting for that; empty if it is impossible."""
    table = spec.experiment
    if not spec.capabilities.further_questions or table.reports_per_person > 1:
        return ()
    if spec.gain_people:
        return (f"The gain is what the model expects; the last {format_count(spec.gain_people)} will measure it.",)
    share = max(_DEFAULT_SHARE, math.ceil(_PERCENT * spec.min_gain_participants / table.horizon) / _PERCENT)
    if share > _MAX_SHARE:
        return (f"Nobody measured the gain: that takes {format_count(2 * spec.min_gain_participants)} in all.",)
    participants = f"the last {share:.0%} of the people do, in the next experiment"
    setting = f"With experiment.evaluation_fraction = {share:g} {participants}"
    return (f"Nobody measured the gain: it is what the model expects. {setting}.",)
