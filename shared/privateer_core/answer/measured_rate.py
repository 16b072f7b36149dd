"""The mean reward that releases tell, beside the one that the spec declares."""

from dataclasses import dataclass
from typing import Final, Self

from privateer_core.spec.reward import Reward

_DEVIATIONS: Final = 3.0
"""Half of the interval, in standard deviations: answers are read after every round."""
_FACTOR: Final = 3.0
"""How many times too large or too small a declared rate must be for anybody to be told."""


@dataclass(frozen=True)
class MeasuredRate:
    """The mean reward of people who reported, on the scale from 0 to 1, with an interval of three deviations."""

    value: float
    low: float
    high: float

    @classmethod
    def normal(cls, value: float, deviation: float) -> Self:
        """Return the rate with this estimate and standard deviation."""
        return cls.within(value, *cls.around(value, deviation))

    @classmethod
    def within(cls, value: float, low: float, high: float) -> Self:
        """Return the rate with this estimate and these ends, clipped to the scale."""
        return cls(*(min(1.0, max(0.0, end)) for end in (value, low, high)))

    @staticmethod
    def around(value: float, deviation: float) -> tuple[float, float]:
        """Return the ends of the interval around an estimate."""
        return value - _DEVIATIONS * deviation, value + _DEVIATIONS * deviation

    def warnings(self, reward: Reward) -> tuple[str, ...]:
        """Return what to say of ``reward.base_rate``: nothing unless it is far from all that the interval has.

        Far is more than three times the declared rate or less than a third of it, both counted from the nearer bound.
        """
        declared, (value, low, high) = reward.expected, (self.value, self.low, self.high)
        if declared is None:
            return ()
        if declared > 0.5:
            declared, low, high = 1 - declared, 1 - high, 1 - low
        if low <= _FACTOR * declared and _FACTOR * high >= declared:
            return ()
        ends = (reward.low + reward.span * end for end in (value, self.low, self.high))
        told = "{:.3g} ({:.3g} to {:.3g})".format(*ends)
        said = f"reward.base_rate is declared as {reward.base_rate:g}, and reports tell {told}"
        return (f"{said}: what is learned follows reports, but plans and sizes of rounds follow what is declared",)
