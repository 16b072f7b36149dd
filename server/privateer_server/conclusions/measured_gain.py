"""What people measured of the gain of choosing by context, in words; and what to do where nobody measured it."""

import math
from statistics import NormalDist
from typing import Final, NamedTuple

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Headline
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.parts import ABOVE_CHANCE, Gain, Intervals
from privateer_core.spec.arms import ArmsSpec
from privateer_server.conclusions.rule_words import short
from privateer_server.conclusions.rules import sureness_of
from privateer_server.conclusions.wording import LearnedAnswer, decimals_of, people, plain

_USUAL: Final = 0.05
_SHARE_MOST: Final = 0.5
_PERCENT: Final = 100
_WIDTH: Final = NormalDist().inv_cdf(0.975)


class Measured(NamedTuple):
    """A gain, its value, and the ends of its interval of 95 %."""

    gain: Gain
    value: float
    low: float
    high: float

    @property
    def radius(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    @property
    def means(self) -> tuple[float, float] | None:
        """The mean rewards by context and of the single option."""
        known = self.gain.means
        return (known[0].value, known[-1].value) if known else None

    @property
    def said(self) -> str:
        """The value and the interval in words."""
        digits = decimals_of(self.radius)
        return f"{self.value:+z,.{digits}f} (95 % interval {self.low:z,.{digits}f} to {self.high:z,.{digits}f})"


def measured(gain: Gain | None) -> Measured | None:
    """Return a gain that was measured; None where it was not."""
    if gain is None or gain.value is None or gain.low is None or gain.high is None:
        return None
    return Measured(gain, gain.value, gain.low, gain.high)


def measured_headline(findings: LearnedAnswer, found: Measured, by: str) -> Headline:
    """Say what choosing ``by`` features gives beside the best single option, as people reported who got one of both."""
    option = short(found.gain.option)
    parts = found.gain.option, found.value, found.low, found.high
    means = ""
    if found.means:
        policy, constant = (plain(one, found.radius) for one in found.means)
        means = f", a mean reward of {policy} instead of {constant}"
    if found.low > 0:
        best = f"{option} for everybody, the best single option as far as is known"
        gives = f"Choosing by context gives {found.said} above {best}: measured{means}."
        sureness = sureness_of(NormalDist().cdf(_WIDTH * found.value / found.radius))
        return Headline("rules", findings.said(f"choose by {by}. {gives}"), sureness, None, *parts)
    if found.high < 0:
        gives = f"Choosing by {by} as was learned gives {found.said} beside it: measured{means}."
        return Headline("one option", findings.said(f"give everybody {option}. {gives}"), "almost certain", *parts[:1])
    unknown = f"it is not known whether choosing by {by} is better than {option} for everybody"
    return Headline("rules", findings.said(f"{unknown}: {found.said} was measured."), "not known", None, *parts)


def above_chance(answer: Answer) -> Estimate | None:
    """Return what choosing by context gains over any option by chance, if that was measured."""
    shown = (one for part in answer.all_of(Intervals) for one in part.estimates)
    return next((one for one in shown if one.name == ABOVE_CHANCE), None)


def beside_chance(answer: Answer) -> tuple[str, ...]:
    """Say that the single option earned no more than options by chance, where people measured that."""
    found, chance = measured(answer.gain), above_chance(answer)
    if found is None or chance is None:
        return ()
    # A quarter of the interval is more than a wrong guess among equal options usually shows.
    if found.value - chance.value <= (chance.high - chance.low) / 4:
        return ()
    option = short(found.gain.option)
    return (f"As measured, {option} for everybody earns no more than options by chance: another may be the best one.",)


def gain_to_measure(spec: ArmsSpec) -> tuple[str, ...]:
    """Say who will measure the gain, or what to do so that somebody does; nothing where nobody can."""
    table = spec.experiment
    if not spec.capabilities.further_questions or table.reports_per_person > 1:
        return ()
    if spec.gain_people:
        return (f"The gain is what the model expects; the last {people(spec.gain_people)} will measure it.",)
    share = max(_USUAL, math.ceil(_PERCENT * spec.measuring_least / table.horizon) / _PERCENT)
    if share > _SHARE_MOST:
        return (f"Nobody measured the gain: that takes {people(2 * spec.measuring_least)} in all.",)
    with_share = f"With experiment.gain_share = {share:g} the last {share:.0%} of the people do, in the next experiment"
    return (f"Nobody measured the gain: it is what the model expects. {with_share}.",)
