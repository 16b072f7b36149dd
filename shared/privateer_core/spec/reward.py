"""Kinds of rewards: what an application may report of a person, how it is scaled for learners, and how it is said.

A kind has ``read``, which returns what a policy's `contribute` takes, ``adjusted`` and ``without_outcome``.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from privateer_core.errors import InputError
from privateer_core.spec.adjustment import ADJUSTMENTS_MAX, Adjustments, left_over
from privateer_core.spec.columns import is_number
from privateer_core.spec.features import Range
from privateer_core.spec.sections import Finite

Array = NDArray[np.float64]
_LATER: Final = ("kind", "base_rate", "deviation", "adjust")
"""Keys that specs of earlier versions do not have."""
REWARD: Final = "reward"
"""What a reward is called among answers."""
YES: Final = 0.5
"""Answers from here on are yes."""
_WIDE: Final = 50
"""Bounds that are farther apart, in standard deviations, are probably not meant: revenue up to a cap has 10 to 20."""
_FITTING: Final = 10
"""Standard deviations between bounds that cut off next to nothing of a score."""
_FAR: Final = 100
"""Rewards that numbers from before would move by more than so many ranges are probably in another unit."""


class Reward(Range):
    """The ``[reward]`` of every spec: a number between bounds, to which a device clips.

    Learners see it scaled to [0, 1].
    """

    low: Finite = 0.0
    high: Finite = 1.0
    # the reward of a person who has had no outcome within the conversion window; by default 0, or the bound next to it
    default: Finite | None = None
    # ``binary``: no or yes, whose mean tells how much they vary. ``numeric``: numbers between the bounds, of which a
    # trial measures how much they vary; other algorithms learn from both alike.
    kind: Literal["binary", "numeric"] = "binary"
    # the mean reward that is expected before anything changes, in its own unit, as that of purchases by one in two
    # hundred is .005. It decides what reports tell best; what people report overrules it.
    base_rate: Finite | None = None
    # the standard deviation that is expected of numbers, in their own unit: what a plan reckons with
    deviation: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    # numbers from before the choice, by name. A device subtracts from the reward what they lead it to expect above the
    # average, and clips again.
    adjust: Adjustments = Field(default_factory=dict, max_length=ADJUSTMENTS_MAX)

    @model_serializer(mode="wrap")
    def _as_stored(self, dumped: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out later keys where they say nothing: experiments of earlier versions go on with the same bytes."""
        usual = type(self).model_construct()
        idle = {name for name in _LATER if getattr(self, name) == getattr(usual, name)}
        return {name: told for name, told in dumped(self).items() if name not in idle}

    @model_validator(mode="after")
    def _within_bounds(self) -> Self:
        if self.default is not None and not self.low <= self.default <= self.high:
            raise ValueError("default: must be from low to high")
        if self.base_rate is not None and not self.low < self.base_rate < self.high:
            raise ValueError("base_rate: must be between low and high")
        return self

    @model_validator(mode="after")
    def _expected_within_bounds(self) -> Self:
        if self.deviation is not None and (self.kind == "binary" or self.deviation > self.half_range):
            raise ValueError('deviation: must be of kind = "numeric", and at most half the range')
        if self.deviation is not None and self.base_rate is not None:
            # No numbers within bounds vary more about their mean (Bhatia and Davis 2000).
            most = math.sqrt((self.base_rate - self.low) * (self.high - self.base_rate))
            if self.deviation > most:
                raise ValueError(f"deviation: must be at most {most:.4g}, as of a mean of base_rate within the bounds")
        return self

    @model_validator(mode="after")
    def _explained_in_part(self) -> Self:
        if left_over(self.adjust) == 0:
            raise ValueError("adjust: correlations must have a sum of squares below 1")
        return self

    @property
    def expected(self) -> float | None:
        """The mean reward that is expected, on the scale from 0 to 1; None if nothing is."""
        return None if self.base_rate is None else (self.base_rate - self.low) / self.span

    @property
    def without_outcome(self) -> float:
        """The reward of a person of whom no outcome is known when the conversion window closes."""
        return min(self.high, max(self.low, 0.0)) if self.default is None else self.default

    @property
    def fitting(self) -> float | None:
        """A range that fits rewards of the expected deviation, where the declared one is far too wide."""
        wide = self.deviation is not None and self.span > _WIDE * self.deviation
        return _FITTING * self.deviation if wide and self.deviation else None

    def concerns(self, noisy: bool) -> list[str]:
        """Say which bounds and slopes are probably not meant; wide bounds cost nothing without noise."""
        found, fitting = [], self.fitting
        if noisy and fitting:
            found.append(
                f"reward.low and reward.high are {self.span / fitting * _FITTING:,.0f} standard deviations apart. "
                f"Noise is in proportion to that: with bounds {fitting:g} apart it would be "
                f"{self.span / fitting:,.0f} times smaller"
            )
        for name, one in self.adjust.items():
            moved = abs((one.slope or 0.0) * (one.mean or 0.0)) / self.span
            if moved > _FAR:
                found.append(
                    f"reward.adjust.{name} moves the reward of a person whose number is 0 by {moved:,.0f} times the "
                    "range of rewards, so that bounds cut it off: check the units of mean and slope"
                )
        return found

    @property
    def is_rate(self) -> bool:
        """Whether a mean reward is the share of people who say yes."""
        return self.kind == "binary" and (self.low, self.high) == (0.0, 1.0)

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return (self.high + self.low) / 2

    @property
    def half_range(self) -> float:
        """How far rewards are from the middle at most."""
        return (self.high - self.low) / 2

    @property
    def span(self) -> float:
        """From the lowest reward to the highest: what a difference of 1 between scaled rewards is in their unit."""
        return self.high - self.low

    def read(self, told: Any) -> tuple[Array, bool]:
        """Read one person's reward, scaled, shape (1,); also tell whether it had to be clipped."""
        value, clipped = self.scaled(told)
        return np.array([value]), clipped

    def scaled(self, value: Any) -> tuple[float, bool]:
        """Scale an application's reward to [0, 1]; also tell whether it had to be clipped to its bounds."""
        if not is_number(value):
            raise InputError("must be a number, and not NaN", field="reward", remedy=self._remedy)
        scaled = (float(value) - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, scaled)), not 0.0 <= scaled <= 1.0

    @property
    def _remedy(self) -> str:
        if self.kind == "numeric":
            return f"report a number from {self.low:g} to {self.high:g}"
        return "report 0 or 1 for no or yes"

    def adjusted(self, told: Any, offset: float) -> Any:
        """Return a reward within its bounds, less what a person's numbers led to expect; what is none stays."""
        return min(self.high, max(self.low, float(told))) - offset if is_number(told) else told

    def scaled_all(self, rewards: Array, offsets: Array | None = None) -> Array:
        """Clip rewards, of any shape, to the bounds, and scale them to [0, 1]; adjust them by ``offsets``, if any."""
        # In small rounds np.clip takes many times as long.
        rewards = np.minimum(np.maximum(rewards, self.low), self.high)
        if offsets is not None:
            rewards = rewards - offsets
        return np.asarray(np.minimum(np.maximum((rewards - self.low) / (self.high - self.low), 0.0), 1.0))

    def unscaled(self, values: Array) -> Array:
        """Return in their unit what is from 0 to 1; what is beyond them, as an interval's end may be, stays so."""
        return np.asarray(self.low + self.span * values)


@dataclass(frozen=True)
class GuardedReward:
    """A reward, and beside it an answer of yes or no to each of several guardrails."""

    # reward, guardrails: what the reward may be, and the names of the answers
    reward: Reward
    guardrails: tuple[str, ...]

    @property
    def without_outcome(self) -> dict[str, Any]:
        """The reward of a person of whom no outcome is known, and no to every guardrail."""
        return {REWARD: self.reward.without_outcome, **dict.fromkeys(self.guardrails, False)}

    def adjusted(self, told: Any, offset: float) -> Any:
        """Adjust the reward, as `Reward.adjusted`; answers stay."""
        if isinstance(told, Mapping):
            return {**told, REWARD: self.reward.adjusted(told.get(REWARD), offset)}
        return self.reward.adjusted(told, offset)

    def read(self, told: Any) -> tuple[Array, bool]:
        """Read a mapping of "reward" and the names, shape (1, 1 + guardrails); of a number alone all answers are no."""
        known = told if isinstance(told, Mapping) else self.without_outcome | {REWARD: told}
        names = self.guardrails
        if set(known) != {REWARD, *names}:
            detail = f"must have {', '.join([REWARD, *names])}"
            raise InputError(detail, field="reward", remedy="report each of them")
        value, clipped = self.reward.scaled(known[REWARD])
        if not all(is_number(known[name]) or isinstance(known[name], bool | np.bool_) for name in names):
            raise InputError("guardrails must be yes or no", field="reward", remedy="report True or False")
        return np.array([[value, *(float(known[name] >= YES) for name in names)]]), clipped


def numbers_of(told: Any, names: Collection[Any], field: str, remedy: str) -> Array:
    """Read a finite number for each of several names from a mapping, shape (names,).

    field, remedy: what an error names and says.
    """
    if not isinstance(told, Mapping) or set(told) != set(names):
        raise InputError(f"must have {len(names)} values, each by its name", field=field, remedy=remedy)
    if not all(is_number(told[name]) and math.isfinite(told[name]) for name in names):
        raise InputError("must be finite numbers", field=field, remedy="report what was observed")
    return np.array([told[name] for name in names], np.float64)
