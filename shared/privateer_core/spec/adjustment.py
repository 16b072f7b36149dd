"""Covariates known before a choice, with which a device adjusts a reward to reduce its variance."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from privateer_core.arrays import Array
from privateer_core.errors import InputError
from privateer_core.spec.columns import is_missing, is_number
from privateer_core.spec.features import BOUND_MAX, check_bounds
from privateer_core.spec.sections import Finite, Section

ADJUSTMENTS_MAX: Final = 3  # maximum number of covariates of a reward
_MISSING_NUMBER: Final = 0.5  # the scaled value of a missing number: the middle of its bounds


class Adjustment(Section):
    """The ``[reward.covariates.NAME]``: a number that a participant has before the choice.

    Either mean and slope are declared, from old data, or bounds, and the experiment learns the slope (`is_learned`).
    """

    mean: Finite | None = None  # its mean among participants in old data
    slope: Finite | None = None  # change of the reward per unit of the number
    # low, high: bounds of the number, to which devices clip it
    low: Finite | None = None
    high: Finite | None = None
    correlation: float | None = Field(default=None, gt=-1, lt=1)  # its correlation with the reward, if known, for plans

    @model_serializer(mode="wrap")
    def _serialize_for_storage(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialize without undeclared keys, so that specs of earlier versions keep their bytes."""
        return {name: value for name, value in serialize(self).items() if value is not None or name == "correlation"}

    @model_validator(mode="after")
    def _check_slope(self) -> Self:
        """Refuse all but mean and slope, or low and high, and numbers that are huge or contradict each other."""
        is_given = [field_value is not None for field_value in (self.mean, self.slope, self.low, self.high)]
        if is_given not in ([True, True, False, False], [False, False, True, True]):
            raise ValueError("slope: declare mean and slope from old data, or low and high to have the slope learned")
        if self.low is not None and self.high is not None:
            if self.low >= self.high:
                raise ValueError("high: must be above low")
            check_bounds(self.low, self.high)
        for name, value in (("mean", self.mean), ("slope", self.slope)):
            if abs(value or 0.0) > BOUND_MAX:
                raise ValueError(f"{name}: must be from -{BOUND_MAX:g} to {BOUND_MAX:g}; change the unit of the number")
        if (self.correlation or 0.0) * (self.slope or 0.0) < 0:
            raise ValueError("correlation: must have the sign of the slope")
        return self

    @property
    def is_learned(self) -> bool:
        """Whether the experiment learns the slope."""
        return self.slope is None

    def read(self, name: str, value: Any) -> float:
        """Parse an application's number; a missing number is NaN, without adjustment; refuse another type."""
        if is_missing(value):
            return math.nan
        if not is_number(value):
            raise InputError("must be a number", field=name, remedy="give a number, or None where it is not known")
        return float(value)

    def expected_excess(self, numbers: Array, span: float) -> Array:
        """Return the expected excess of rewards over their mean, within their ``span``; 0 for NaN.

        If the slope is learned, it is in policies, and the excess here is 0.
        """
        if self.slope is None or self.mean is None:
            return np.zeros(numbers.shape)
        # Twice the span moves any reward to its bound, and larger products could be infinite.
        with np.errstate(over="ignore", invalid="ignore"):
            excess = np.clip(self.slope * (numbers - self.mean), -2 * span, 2 * span)
        return np.asarray(np.where(np.isnan(excess), 0.0, excess))

    @property
    def span(self) -> float:
        """The range of the number, if bounds are declared."""
        assert self.low is not None
        assert self.high is not None
        return self.high - self.low

    def scale_numbers(self, numbers: Array) -> Array:
        """Return numbers clipped to the bounds and scaled to [0, 1]; NaN becomes the middle."""
        with np.errstate(over="ignore"):
            positions = np.clip((numbers - (self.low or 0.0)) / self.span, 0.0, 1.0)
        return np.asarray(np.where(np.isnan(positions), _MISSING_NUMBER, positions))


Adjustments = dict[Annotated[str, Field(min_length=1, max_length=256)], Adjustment]


def expected_excess(adjustments: Mapping[str, Adjustment], numbers: Array, span: float) -> Array:
    """Return the expected excess of the rewards of n participants over their mean, (n,).

    With x known before the choice, rewards minus theta (x - m) have the effect as expected difference between arms, for
    all theta and m (Deng, Xu, Kohavi and Walker 2013: CUPED), unless they are clipped.

    numbers (n, adjustments): in their order; NaN if missing.
    """
    pairs = zip(adjustments.values(), numbers.T, strict=True)
    excesses = [adjustment.expected_excess(column, span) for adjustment, column in pairs]
    return np.asarray(np.sum(excesses, axis=0)) if excesses else np.zeros(len(numbers))


def remaining_deviation_factor(adjustments: Mapping[str, Adjustment]) -> float:
    """Return the factor by which independent covariates reduce the rewards' standard deviation."""
    explained = sum((adjustment.correlation or 0.0) ** 2 for adjustment in adjustments.values())
    return math.sqrt(max(0.0, 1 - explained))


def learned_names(adjustments: Mapping[str, Adjustment]) -> tuple[str, ...]:
    """Return the names of the numbers whose slopes are learned, in order."""
    return tuple(name for name, adjustment in adjustments.items() if adjustment.is_learned)


def select_learned_numbers(adjustments: Mapping[str, Adjustment], numbers: Array) -> Array:
    """Return the scaled numbers whose slopes are learned, (n, learned), from numbers as in `expected_excess`."""
    pairs = zip(adjustments.values(), numbers.T, strict=True)
    columns = [adjustment.scale_numbers(column) for adjustment, column in pairs if adjustment.is_learned]
    return np.stack(columns, axis=1) if columns else np.zeros((len(numbers), 0))
