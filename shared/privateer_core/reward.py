"""The ``[reward]`` of every spec: between which bounds a reward is, and what stands for an outcome that never came."""

from typing import Any, Self

from pydantic import model_validator

from privateer_core.errors import InputError
from privateer_core.features import Range
from privateer_core.numbers import is_number
from privateer_core.sections import Finite


class Reward(Range):
    """Bounds of a reward; a device clips to them.

    Attributes
    ----------
    default
        The reward of a person who has had no outcome within the conversion window; by default 0, or the bound next to
        it.
    """

    low: Finite = 0.0
    high: Finite = 1.0
    default: Finite | None = None

    @model_validator(mode="after")
    def _default_within_bounds(self) -> Self:
        if self.default is not None and not self.low <= self.default <= self.high:
            raise ValueError("default: must be from low to high")
        return self

    @property
    def without_outcome(self) -> float:
        """The reward of a person of whom no outcome is known when the conversion window closes."""
        return min(self.high, max(self.low, 0.0)) if self.default is None else self.default

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return (self.high + self.low) / 2

    @property
    def half_range(self) -> float:
        """How far rewards are from the middle at most."""
        return (self.high - self.low) / 2

    def scaled(self, value: Any) -> tuple[float, bool]:
        """Scale an application's reward to [0, 1]; also tell whether it had to be clipped to its bounds.

        Raises
        ------
        InputError
            If it is not a number, or NaN.
        """
        if not is_number(value):
            raise InputError("must be a number, and not NaN", field="reward", remedy="report 0 or 1 for no or yes")
        scaled = (float(value) - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, scaled)), not 0.0 <= scaled <= 1.0
