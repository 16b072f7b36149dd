"""Numbers from before an experiment, with which a device adjusts a reward so that it varies less."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from privateer_core.errors import InputError
from privateer_core.spec.columns import is_missing, is_number
from privateer_core.spec.sections import Finite, Section

Array = NDArray[np.float64]

ADJUSTMENTS_MAX: Final = 3
"""The most numbers that adjust a reward."""


class Adjustment(Section):
    """One ``[reward.adjust.NAME]``: a number that a person has before anything is chosen for them.

    Attributes
    ----------
    mean
        Its mean among people, as old data have it.
    slope
        How much higher the reward is where the number is higher by 1.
    correlation
        Its correlation with the reward, if that is known: what a plan reckons with.
    """

    mean: Finite
    slope: Finite
    correlation: float | None = Field(default=None, gt=-1, lt=1)

    @model_validator(mode="after")
    def _same_sign(self) -> Self:
        if (self.correlation or 0.0) * self.slope < 0:
            raise ValueError("correlation: must have the sign of the slope")
        return self

    def read(self, name: str, value: Any) -> float:
        """Return an application's number; the mean if there is none, so that nothing is adjusted.

        Raises
        ------
        InputError
            If it is neither a number nor missing; names it, and no value.
        """
        if is_missing(value):
            return self.mean
        if not is_number(value):
            raise InputError("must be a number", field=name, remedy="give a number, or None where it is not known")
        return float(value)

    def expected(self, numbers: Array, span: float) -> Array:
        """Return by how much rewards are expected to be higher than on average, within their ``span``; NaN is none."""
        # Twice the span moves any reward to its bound; what is beyond could be infinite.
        with np.errstate(over="ignore", invalid="ignore"):
            above = np.clip(self.slope * (numbers - self.mean), -2 * span, 2 * span)
        return np.asarray(np.where(np.isnan(above), 0.0, above))


Adjustments = dict[Annotated[str, Field(min_length=1, max_length=256)], Adjustment]


def expected(adjustments: Mapping[str, Adjustment], numbers: Array, span: float) -> Array:
    """Return by how much the rewards of n people are expected to be higher than on average, (n,).

    Parameters
    ----------
    adjustments
        Those of a spec.
    numbers
        Shape (n, adjustments), in their order; NaN where one is not known.
    span
        From the lowest reward to the highest.

    Notes
    -----
    With x from before the choice, rewards less theta (x - m) differ between arms by the effect in expectation, whatever
    theta and m (Deng, Xu, Kohavi and Walker 2013: CUPED), unless they are clipped.
    """
    parts = [one.expected(column, span) for one, column in zip(adjustments.values(), numbers.T, strict=True)]
    return np.asarray(np.sum(parts, axis=0)) if parts else np.zeros(len(numbers))


def left_over(adjustments: Mapping[str, Adjustment]) -> float:
    """Return what is left of the rewards' standard deviation, where numbers have nothing to do with each other."""
    explained = sum((one.correlation or 0.0) ** 2 for one in adjustments.values())
    return math.sqrt(max(0.0, 1 - explained))
