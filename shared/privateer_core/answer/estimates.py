"""Estimates with confidence intervals, and effects with the reason why each is decided or not."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, Self

from privateer_core.answer.facts import Displayed

if TYPE_CHECKING:
    from privateer_core.spec.reward import Reward

_HALF_WIDTH_FACTOR: Final = 3.0
"""Half-width of the interval in standard errors, wide since answers are read after every round."""
_MAX_RATE_RATIO: Final = 3.0
"""Minimum ratio of a measured and a declared rate for a warning, in both directions."""


@dataclass(frozen=True)
class MeasuredRate:
    """The mean reward of people who reported, on the scale from 0 to 1, with an interval of three standard errors."""

    value: float
    low: float
    high: float

    @classmethod
    def normal(cls, value: float, standard_error: float) -> Self:
        """Return the rate with this estimate and standard error."""
        return cls.within(value, *cls.around(value, standard_error))

    @classmethod
    def within(cls, value: float, low: float, high: float) -> Self:
        """Return the rate with this estimate and these ends, clipped to the scale."""
        return cls(*(min(1.0, max(0.0, end)) for end in (value, low, high)))

    @staticmethod
    def around(value: float, standard_error: float) -> tuple[float, float]:
        """Return the ends of the interval around an estimate."""
        return (value - _HALF_WIDTH_FACTOR * standard_error, value + _HALF_WIDTH_FACTOR * standard_error)

    def warnings(self, reward: "Reward") -> tuple[str, ...]:
        """Return a warning if ``reward.base_rate`` is far from the whole interval; else none.

        Far is more than three times the declared rate or less than a third of it, both relative to the nearer bound.
        """
        declared, (value, low, high) = reward.expected_rate, (self.value, self.low, self.high)
        if declared is None:
            return ()
        if declared > 0.5:
            declared, low, high = 1 - declared, 1 - high, 1 - low
        if low <= _MAX_RATE_RATIO * declared and _MAX_RATE_RATIO * high >= declared:
            return ()
        ends = (reward.low + reward.span * end for end in (value, self.low, self.high))
        measured = "{:.3g} ({:.3g} to {:.3g})".format(*ends)
        warning = f"reward.base_rate is declared as {reward.base_rate:g}, and reports tell {measured}"
        return (f"{warning}: what is learned follows reports, but plans and sizes of rounds follow what is declared",)


class Estimate(Displayed, frozen=True):
    """An estimate with its confidence interval.

    Attributes
    ----------
    name
        The estimated quantity, e.g. an arm: 1 to 256 printable characters.
    value, low, high
        The estimate, in the unit of rewards, and the ends of its confidence interval.
    at_bound
        Whether the estimate was beyond a bound, and is clipped to it.
    people
        Number of people of the estimate, in expectation if coins decide; None if not given.
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
        cls, name: str, value: float, margin: float, bounds: tuple[float, float], people: float | None = None
    ) -> "Estimate":
        """Return an estimate of a bounded quantity, with a symmetric confidence interval that is clipped, too."""
        inside, low, high = (min(max(end, bounds[0]), bounds[1]) for end in (value, value - margin, value + margin))
        return cls(name, inside, low, high, at_bound=inside != value, people=people)


MIN_EFFECTIVE_REWARDS: Final = 10.0
"""Minimum effective number of rewards in an arm's mean for a normal interval without noise."""


class Reason(StrEnum):
    """The reason why an effect is decided or not, in words that every interface shows unchanged."""

    BETTER = "decided better"
    WORSE = "decided worse"
    EARLIER = "decided at an earlier look"
    HOLDS_ZERO = "its interval holds 0"
    CORRECTED = "its interval excludes 0, but not after the correction for several effects"
    AGAIN = "its test decided at an earlier look, but its interval holds 0 again"
    HEAVY_TAIL = "it rests on a few large rewards"
    """The effective number of rewards of an arm is too small for a normal interval."""
    RARE = "too few of the rarer outcome"
    """Yes or no is too rare in an arm for a normal interval, independent of noise."""
    FEW_PEOPLE = "too few people in an arm"
    """The number of people is too small, independent of noise."""
    NOBODY = "no outcome of an arm counts, as far as noise tells"
    """The people of an arm, or their outcomes that count, cannot be distinguished from noise."""
    NOISE = "too few people beside the noise"
    """The noise of the promise is too large for the number of people of an arm."""
    SHARE = "its share of people is not told from 0"
    NOT_LOOKED_AT = "too few people since the last look"
    UNRESOLVED = "rewards vary too little for their bounds"


_DIGITS: Final = 6
DECIDED: Final = frozenset({Reason.BETTER, Reason.WORSE, Reason.EARLIER})


class Effect(Displayed, frozen=True):
    """An option's effect relative to the control, in a group, and whether it is decided.

    Attributes
    ----------
    arm
        The option that is compared with the control.
    group
        The group; None: all people.
    value, low, high
        The difference in the unit of rewards, and the ends of its confidence interval; None if unknown. An estimate
        without an interval may have a large error, explained by the reason.
    reason
        The reason why it is decided or not.
    people
        Number of people who had reported at the look of the figures: the last one with an interval. A decision about an
        option that hardly anybody gets any more is of an earlier look.
    p_value
        The p-value of the test of no effect.
    detectable
        The minimum detectable effect with this number of people.
    contribution
        The contribution of the group to the average effect.
    remark
        A remark on the reason, e.g. a remedy.
    bounds
        Narrower bounds of rewards, in their unit, that would reduce the interval; None if none would.
    """

    may_be_empty: ClassVar[frozenset[str]] = frozenset({"remark"})

    arm: str
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
        return self.arm if self.group is None else f"{self.arm}: {self.group}"


def classify_effect(low: float, high: float, *, decided: bool) -> Reason:
    """Return why an effect is decided or not, from its confidence interval and its test after the correction."""
    if low > 0 or high < 0:
        direction = Reason.BETTER if low > 0 else Reason.WORSE
        return direction if decided else Reason.CORRECTED
    return Reason.AGAIN if decided else Reason.HOLDS_ZERO


def format_bounds(low: float, high: float) -> str:
    """Format bounds with the precision of their difference."""
    n_decimals = max(0, 1 - math.floor(math.log10(high - low))) if high > low else _DIGITS
    return f"{low:z.{n_decimals}f} to {high:z.{n_decimals}f}"
