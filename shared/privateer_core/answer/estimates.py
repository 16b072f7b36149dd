"""Estimates with their intervals, and effects with the reason why each is decided or not."""

import math
from enum import StrEnum
from typing import ClassVar, Final

from privateer_core.answer.facts import Displayed


class Estimate(Displayed, frozen=True):
    """An estimated quantity and its interval.

    Attributes
    ----------
    name
        What is estimated, e.g. an arm: 1 to 256 printable characters.
    value, low, high
        The estimate, in the units of rewards, and the ends of the interval around it.
    at_bound
        Whether the estimate came out beyond what is possible, and stands at the bound.
    people
        How many people it is about, in expectation where coins decide that; None where that is not said.
    """

    name: str
    value: float
    low: float
    high: float
    at_bound: bool = False
    people: float | None = None

    def __post_init__(self) -> None:
        if not (all(map(math.isfinite, (self.low, self.value, self.high))) and self.low <= self.value <= self.high):
            raise ValueError("an estimate must lie in its interval, and all three numbers must be finite")
        super().__post_init__()

    @classmethod
    def within(
        cls, name: str, value: float, radius: float, bounds: tuple[float, float], people: float | None = None
    ) -> "Estimate":
        """Return an estimate of something that cannot be beyond some bounds, with the same radius to both sides."""
        inside, low, high = (min(max(one, bounds[0]), bounds[1]) for one in (value, value - radius, value + radius))
        return cls(name, inside, low, high, at_bound=inside != value, people=people)


BEARERS_LEAST: Final = 10.0
"""How many equal rewards must bear the mean of an arm like the unequal ones it has, for an interval without noise."""


class Reason(StrEnum):
    """Why an effect is decided, or why not: one for each cause, in words that every face shows as they are."""

    BETTER = "decided better"
    WORSE = "decided worse"
    EARLIER = "decided at an earlier look"
    HOLDS_ZERO = "its interval holds 0"
    CORRECTED = "its interval excludes 0, but not after the correction for several effects"
    AGAIN = "its test decided at an earlier look, but its interval holds 0 again"
    HEAVY_TAIL = "it rests on a few large rewards"
    """The mean of an arm is borne by fewer rewards than a normal interval needs."""
    RARE = "too few of the rarer outcome"
    """Yes or no is too rare in an arm for a normal interval, whatever noise there is."""
    FEW_PEOPLE = "too few people in an arm"
    """Nothing but the number of people is in the way."""
    NOBODY = "no outcome of an arm counts, as far as noise tells"
    """Nobody in an arm is told from the noise: nobody is there, or no outcome is one that counts."""
    NOISE = "too few people beside the noise"
    """The noise of the promise is too large beside the people of an arm."""
    SHARE = "its share of people is not told from 0"
    NOT_LOOKED_AT = "too few people since the last look"
    UNRESOLVED = "rewards vary too little for their bounds"


_DIGITS: Final = 6
DECIDED: Final = frozenset({Reason.BETTER, Reason.WORSE, Reason.EARLIER})


class Effect(Displayed, frozen=True):
    """An option's effect against the control, for whom, and whether it is decided.

    Attributes
    ----------
    option
        The option that is compared with the control.
    group
        Whom it is about; None: everybody.
    value, low, high
        The difference in the units of rewards, and the ends of its interval; None where nothing is known of it. An
        estimate without an interval may be far off: the reason says why.
    reason
        Why it is decided, or why not.
    people
        How many people had reported at the look that the figures are of: the last one that had an interval. What was
        decided of an option that hardly anybody gets any more is of an earlier look.
    p_value
        Of the test that there is no effect.
    detectable
        The smallest effect that so many people let one find.
    contribution
        What the group adds to the average effect.
    remark
        What to add to the reason, e.g. what to do about it.
    bounds
        Bounds of rewards, in their unit, with which more could be said; None where none would help.
    """

    may_be_empty: ClassVar[frozenset[str]] = frozenset({"remark"})

    option: str
    group: str | None
    value: float | None
    low: float | None
    high: float | None
    reason: Reason
    people: int | None = None
    p_value: float | None = None
    detectable: float | None = None
    contribution: float | None = None
    remark: str = ""
    bounds: tuple[float, float] | None = None

    @property
    def is_decided(self) -> bool:
        """Whether it is decided."""
        return self.reason in DECIDED

    @property
    def name(self) -> str:
        """The option, and the group if it is about one."""
        return self.option if self.group is None else f"{self.option}: {self.group}"


def reason_of(low: float, high: float, *, decided: bool) -> Reason:
    """Return why an effect is decided or not, from its interval and from what its test says after the correction."""
    if low > 0 or high < 0:
        called = Reason.BETTER if low > 0 else Reason.WORSE
        return called if decided else Reason.CORRECTED
    return Reason.AGAIN if decided else Reason.HOLDS_ZERO


def bounds_in_words(low: float, high: float) -> str:
    """Write bounds with the digits that their distance has."""
    places = max(0, 1 - math.floor(math.log10(high - low))) if high > low else _DIGITS
    return f"{low:z.{places}f} to {high:z.{places}f}"
