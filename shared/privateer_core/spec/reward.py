"""Types of rewards: outcomes from applications, and their scaling for learners.

A type has ``read``, which returns an argument of a policy's `contribute`, ``adjusted`` and ``without_outcome``.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, Self

import msgspec
import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from privateer_core.arrays import Array
from privateer_core.errors import InputError
from privateer_core.spec.adjustment import ADJUSTMENTS_MAX, Adjustments, remaining_deviation_factor
from privateer_core.spec.columns import is_number
from privateer_core.spec.features import Range
from privateer_core.spec.sections import Finite

_LATER_KEYS: Final = ("kind", "base_rate", "standard_deviation", "covariates")
"""Keys that specs of earlier versions lack."""
REWARD: Final = "reward"  # the key of the reward in an outcome with guardrails
YES: Final = 0.5  # minimum number of an answer that is yes
_MAX_RANGE_DEVIATIONS: Final = 50  # maximum plausible range in standard deviations: revenue up to a cap has 10 to 20
_FITTED_RANGE: Final = 10  # range in standard deviations that clips very few scores
_MAX_SHIFT_RANGES: Final = 100
"""Maximum plausible adjustment in ranges of the reward; larger ones are probably in another unit."""


class Reward(Range):
    """The ``[reward]`` of every spec: a number between bounds, to which a device clips.

    Learners see it scaled to [0, 1].
    """

    low: Finite = 0.0
    high: Finite = 1.0
    # the reward of a participant without an outcome in the conversion window; by default 0, or the bound nearest to 0
    default: Finite | None = None
    # ``binary``: no or yes, whose mean determines the variance. ``numeric``: numbers between the bounds, whose variance
    # a trial measures; other algorithms treat both equally.
    kind: Literal["binary", "numeric"] = "binary"
    # the expected mean reward before the experiment, in its own unit, such as .005 for purchases by one in two hundred.
    # Reports are designed for it; measured rewards override it.
    base_rate: Finite | None = None
    # the expected standard deviation of numbers, in their own unit, for plans
    standard_deviation: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    # numbers known before the choice, by name. A device subtracts the excess that they predict from the reward, and
    # clips again.
    covariates: Adjustments = Field(default_factory=dict, max_length=ADJUSTMENTS_MAX)

    @model_serializer(mode="wrap")
    def _serialize_for_storage(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialize without later keys at their defaults, so that specs of earlier versions keep their bytes."""
        defaults = type(self).model_construct()
        idle_keys = {name for name in _LATER_KEYS if getattr(self, name) == getattr(defaults, name)}
        return {name: value for name, value in serialize(self).items() if name not in idle_keys}

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        """Refuse a default, base rate, standard deviation or correlations that contradict the bounds or each other."""
        if self.default is not None and not self.low <= self.default <= self.high:
            raise ValueError("default: must be from low to high")
        if self.base_rate is not None and not self.low < self.base_rate < self.high:
            raise ValueError("base_rate: must be between low and high")
        if self.standard_deviation is not None and (self.kind == "binary" or self.standard_deviation > self.half_range):
            raise ValueError('standard_deviation: must be of kind = "numeric", and at most half the range')
        if self.standard_deviation is not None and self.base_rate is not None:
            # No numbers within bounds vary more about their mean (Bhatia and Davis 2000).
            max_deviation = math.sqrt((self.base_rate - self.low) * (self.high - self.base_rate))
            if self.standard_deviation > max_deviation:
                limit = f"{max_deviation:.4g}, as of a mean of base_rate within the bounds"
                raise ValueError(f"standard_deviation: must be at most {limit}")
        if remaining_deviation_factor(self.covariates) == 0:
            raise ValueError("covariates: correlations must have a sum of squares below 1")
        return self

    @property
    def expected_rate(self) -> float | None:
        """The expected mean reward, scaled to [0, 1]; None if not declared."""
        return None if self.base_rate is None else (self.base_rate - self.low) / self.span

    @property
    def without_outcome(self) -> float:
        """The reward of a participant without an outcome at the end of the conversion window."""
        return min(self.high, max(self.low, 0.0)) if self.default is None else self.default

    @property
    def fitting_range(self) -> float | None:
        """A range that fits the expected standard deviation, if the declared range is far too wide."""
        is_wide = self.standard_deviation is not None and self.span > _MAX_RANGE_DEVIATIONS * self.standard_deviation
        return _FITTED_RANGE * self.standard_deviation if is_wide and self.standard_deviation else None

    def concerns(self, has_noise: bool) -> list[str]:
        """Return warnings about implausible bounds and slopes; without noise wide bounds are harmless."""
        concerns, fitting = [], self.fitting_range
        if has_noise and fitting:
            concerns.append(
                f"reward.low and reward.high are {self.span / fitting * _FITTED_RANGE:,.0f} standard deviations apart. "
                f"Noise is in proportion to that: with bounds {fitting:g} apart it would be "
                f"{self.span / fitting:,.0f} times smaller"
            )
        for name, adjustment in self.covariates.items():
            shift = abs((adjustment.slope or 0.0) * (adjustment.mean or 0.0)) / self.span
            if shift > _MAX_SHIFT_RANGES:
                concerns.append(
                    f"reward.covariates.{name} moves the reward of a person whose number is 0 by {shift:,.0f} times "
                    "the range of rewards, so that bounds cut it off: check the units of mean and slope"
                )
        return concerns

    @property
    def is_rate(self) -> bool:
        """Whether the mean reward is the share of participants with yes."""
        return self.kind == "binary" and (self.low, self.high) == (0.0, 1.0)

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return (self.high + self.low) / 2

    @property
    def half_range(self) -> float:
        """Half of the range: the maximum distance of a reward from the middle."""
        return (self.high - self.low) / 2

    @property
    def span(self) -> float:
        """The range of rewards, in their unit, which a difference of 1 between scaled rewards represents."""
        return self.high - self.low

    def read(self, reported: Any) -> tuple[Array, bool]:
        """Parse and scale a participant's reward, shape (1,); also return whether it was clipped."""
        value, is_clipped = self.scale_and_clip(reported)
        return np.array([value]), is_clipped

    def scale_and_clip(self, value: Any) -> tuple[float, bool]:
        """Return an application's reward scaled to [0, 1], and whether it was clipped; refuse what is no number."""
        if not is_number(value):
            interval = f"report a number from {self.low:g} to {self.high:g}"
            remedy = interval if self.kind == "numeric" else "report 0 or 1 for no or yes"
            raise InputError("must be a number, and not NaN", field="reward", remedy=remedy)
        scaled = (float(value) - self.low) / self.span
        return min(1.0, max(0.0, scaled)), not 0.0 <= scaled <= 1.0

    def adjusted(self, reported: Any, offset: float) -> Any:
        """Return a reward clipped to its bounds, minus ``offset``; a value that is no number is unchanged."""
        return min(self.high, max(self.low, float(reported))) - offset if is_number(reported) else reported

    def scaled_all(self, rewards: Array, offsets: Array | None = None) -> Array:
        """Clip rewards, of any shape, to the bounds, subtract ``offsets``, if given, and scale them to [0, 1]."""
        # np.clip is many times slower in small rounds.
        rewards = np.minimum(np.maximum(rewards, self.low), self.high) - (0.0 if offsets is None else offsets)
        return np.asarray(np.minimum(np.maximum((rewards - self.low) / self.span, 0.0), 1.0))

    def unscaled(self, values: Array) -> Array:
        """Return scaled values in the unit of rewards, without clipping, as for ends of intervals."""
        return np.asarray(self.low + self.span * values)


class GuardedReward(msgspec.Struct, frozen=True):
    """A reward with an answer of yes or no to each guardrail."""

    # reward, guardrails: the type of the reward, and the names of the answers
    reward: Reward
    guardrails: tuple[str, ...]

    @property
    def without_outcome(self) -> dict[str, Any]:
        """The reward of a participant without an outcome, with no for every guardrail."""
        return {REWARD: self.reward.without_outcome, **dict.fromkeys(self.guardrails, False)}

    def adjusted(self, reported: Any, offset: float) -> Any:
        """Adjust the reward, as `Reward.adjusted`; answers are unchanged."""
        if isinstance(reported, Mapping):
            return {**reported, REWARD: self.reward.adjusted(reported.get(REWARD), offset)}
        return self.reward.adjusted(reported, offset)

    def read(self, reported: Any) -> tuple[Array, bool]:
        """Parse a mapping of "reward" and the names, shape (1, 1 + guardrails); a number alone has only no."""
        answers = reported if isinstance(reported, Mapping) else self.without_outcome | {REWARD: reported}
        names = self.guardrails
        if set(answers) != {REWARD, *names}:
            raise InputError(f"must have {', '.join([REWARD, *names])}", field="reward", remedy="report each of them")
        value, is_clipped = self.reward.scale_and_clip(answers[REWARD])
        if not all(is_number(answers[name]) or isinstance(answers[name], bool | np.bool_) for name in names):
            raise InputError("guardrails must be yes or no", field="reward", remedy="report True or False")
        return np.array([[value, *(float(answers[name] >= YES) for name in names)]]), is_clipped


def read_numbers(reported: Any, names: Collection[Any], field: str, remedy: str) -> Array:
    """Parse a mapping with a finite number for each of ``names``, shape (names,), and refuse other mappings."""
    if not isinstance(reported, Mapping) or set(reported) != set(names):
        raise InputError(f"must have {len(names)} values, each by its name", field=field, remedy=remedy)
    if not all(is_number(reported[name]) and math.isfinite(reported[name]) for name in names):
        raise InputError("must be finite numbers", field=field, remedy="report what was observed")
    return np.array([reported[name] for name in names], np.float64)


def append_numbers(rewards: Array, numbers: Array) -> Array:
    """Return rewards (n,) or (n, columns) with numbers (n, learned) as further columns, as policies expect them."""
    return np.column_stack([rewards, numbers]) if numbers.shape[1] else rewards
