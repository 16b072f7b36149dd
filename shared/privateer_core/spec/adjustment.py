"""Numbers from before an experiment, with which a device adjusts a reward so that it varies less."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from privateer_core.errors import InputError
from privateer_core.spec.columns import is_missing, is_number
from privateer_core.spec.features import BOUND_MAX, check_bounds
from privateer_core.spec.sections import Finite, Section

Array = NDArray[np.float64]

ADJUSTMENTS_MAX: Final = 3
"""The most numbers that adjust a reward."""


_UNKNOWN: Final = 0.5
"""A number that is not known, on the scale from 0 to 1: the middle of its bounds."""


class Adjustment(Section):
    """One ``[reward.adjust.NAME]``: a number that a person has before anything is chosen for them.

    Mean and slope are declared, from old data, or bounds are, and the experiment learns the others (`is_learned`).
    """

    mean: Finite | None = None  # its mean among people, as old data have it
    slope: Finite | None = None  # how much higher the reward is where the number is higher by 1
    # low, high: bounds of the number, to which devices clip it
    low: Finite | None = None
    high: Finite | None = None
    # its correlation with the reward, if that is known: what a plan reckons with
    correlation: float | None = Field(default=None, gt=-1, lt=1)

    @model_serializer(mode="wrap")
    def _as_stored(self, dumped: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what is not declared: experiments of earlier versions go on with the same bytes."""
        return {name: told for name, told in dumped(self).items() if told is not None or name == "correlation"}

    @model_validator(mode="after")
    def _declared_or_learned(self) -> Self:
        given = [one is not None for one in (self.mean, self.slope, self.low, self.high)]
        if given not in ([True, True, False, False], [False, False, True, True]):
            raise ValueError("slope: declare mean and slope from old data, or low and high to have the slope learned")
        if self.low is not None and self.high is not None:
            if self.low >= self.high:
                raise ValueError("high: must be above low")
            check_bounds(self.low, self.high)
        return self

    @model_validator(mode="after")
    def _countable(self) -> Self:
        for name, value in (("mean", self.mean), ("slope", self.slope)):
            if abs(value or 0.0) > BOUND_MAX:
                raise ValueError(f"{name}: must be from -{BOUND_MAX:g} to {BOUND_MAX:g}; change the unit of the number")
        return self

    @model_validator(mode="after")
    def _same_sign(self) -> Self:
        if (self.correlation or 0.0) * (self.slope or 0.0) < 0:
            raise ValueError("correlation: must have the sign of the slope")
        return self

    @property
    def is_learned(self) -> bool:
        """Whether the experiment learns its slope."""
        return self.slope is None

    def read(self, name: str, value: Any) -> float:
        """Return an application's number; NaN if there is none, so that nothing is adjusted."""
        if is_missing(value):
            return math.nan
        if not is_number(value):
            raise InputError("must be a number", field=name, remedy="give a number, or None where it is not known")
        return float(value)

    def expected(self, numbers: Array, span: float) -> Array:
        """Return by how much rewards are expected to be higher than on average, within their ``span``; NaN is none.

        Where the slope is learned, policies say that, and nothing is expected here.
        """
        if self.slope is None or self.mean is None:
            return np.zeros(numbers.shape)
        # Twice the span moves any reward to its bound; what is beyond could be infinite.
        with np.errstate(over="ignore", invalid="ignore"):
            above = np.clip(self.slope * (numbers - self.mean), -2 * span, 2 * span)
        return np.asarray(np.where(np.isnan(above), 0.0, above))

    @property
    def span(self) -> float:
        """From the lowest number to the highest, where bounds are declared."""
        assert self.low is not None
        assert self.high is not None
        return self.high - self.low

    def scaled(self, numbers: Array) -> Array:
        """Return numbers within the bounds on the scale from 0 to 1; the middle where one is NaN."""
        with np.errstate(over="ignore"):
            places = np.clip((numbers - (self.low or 0.0)) / self.span, 0.0, 1.0)
        return np.asarray(np.where(np.isnan(places), _UNKNOWN, places))


Adjustments = dict[Annotated[str, Field(min_length=1, max_length=256)], Adjustment]


def expected(adjustments: Mapping[str, Adjustment], numbers: Array, span: float) -> Array:
    """Return by how much the rewards of n people are expected to be higher than on average, (n,).

    With x from before the choice, rewards less theta (x - m) differ between arms by the effect in expectation, whatever
    theta and m (Deng, Xu, Kohavi and Walker 2013: CUPED), unless they are clipped.

    adjustments: those of a spec.
    numbers (n, adjustments): in their order; NaN where one is not known.
    span: from the lowest reward to the highest.
    """
    parts = [one.expected(column, span) for one, column in zip(adjustments.values(), numbers.T, strict=True)]
    return np.asarray(np.sum(parts, axis=0)) if parts else np.zeros(len(numbers))


def left_over(adjustments: Mapping[str, Adjustment]) -> float:
    """Return what is left of the rewards' standard deviation, where numbers have nothing to do with each other."""
    explained = sum((one.correlation or 0.0) ** 2 for one in adjustments.values())
    return math.sqrt(max(0.0, 1 - explained))


def learned_names(adjustments: Mapping[str, Adjustment]) -> tuple[str, ...]:
    """Return the names of the numbers whose slopes are learned, in order."""
    return tuple(name for name, one in adjustments.items() if one.is_learned)


def learned_numbers(adjustments: Mapping[str, Adjustment], numbers: Array) -> Array:
    """Return the numbers of n people whose slopes are learned, on the scale from 0 to 1; shape (n, learned).

    numbers: as of `expected`.
    """
    known = [one.scaled(column) for one, column in zip(adjustments.values(), numbers.T, strict=True) if one.is_learned]
    return np.stack(known, axis=1) if known else np.zeros((len(numbers), 0))


def with_numbers(rewards: Array, numbers: Array) -> Array:
    """Return rewards (n,) or (n, columns) with numbers (n, learned) in columns after theirs, as policies take them."""
    return np.column_stack([rewards, numbers]) if numbers.shape[1] else rewards
