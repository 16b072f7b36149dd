"""Features of a context: what a spec says of one, and how people's values become columns in [0, 1].

Here are numbers; `privateer_core.spec.categories` has the others, and `privateer_core.spec.context` puts them together.
"""

import math
from abc import ABC, abstractmethod
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from typing_extensions import override

from privateer_core.errors import InputError
from privateer_core.spec.columns import CIRCLE, FLAG, MISSING_PLACE, NUMBER, Block, is_missing, is_number
from privateer_core.spec.sections import Finite, Section

if TYPE_CHECKING:
    from privateer_core.answer.facts import Condition

Array = NDArray[np.float64]

QUANTILES_MAX: Final = 101
BOUND_MAX: Final = 1e15
"""No bound is farther from 0: larger numbers are in the wrong unit, and their squares and sums lose their digits."""
_APART: Final = 1e3 * 2.0**-52
"""Bounds are at least so far apart, by the larger one: a thousandth of the range is then more than a last digit."""


class Range(Section):
    """A range that can be scaled to [0, 1]."""

    low: Finite
    high: Finite

    @model_validator(mode="after")
    def _can_be_scaled(self) -> Self:
        check_bounds(self.low, self.high)
        return self


def check_bounds(low: float, high: float) -> None:
    """Refuse bounds between which numbers have too few digits to be told apart."""
    check_scale(low, high)
    largest = max(abs(low), abs(high))
    if largest > BOUND_MAX:
        raise ValueError(f"the range is too wide, bounds must be from -{BOUND_MAX:g} to {BOUND_MAX:g}; change the unit")
    if high - low < max(1 / BOUND_MAX, _APART * largest):
        raise ValueError(
            f"the range is too narrow, bounds must differ by {1 / BOUND_MAX:g}, and in their first twelve digits; "
            "change the unit, or subtract what all values have in common"
        )


def check_scale(low: float, high: float) -> None:
    """Refuse a range that cannot be scaled to [0, 1]."""
    if not low < high:
        raise ValueError("the range is empty, low must be below high")
    if not math.isfinite(1 / (high - low)) or not math.isfinite(high - low):
        raise ValueError("the range is too wide or too narrow to be scaled to [0, 1]")


class Feature(Section, ABC):
    """One feature of a context."""

    missing: bool = False  # whether people may have no value

    @model_validator(mode="before")
    @classmethod
    def _may_be_cyclic(cls, data: Any) -> Any:
        if isinstance(data, dict) and "cyclic" in data and "cyclic" not in cls.model_fields:
            raise ValueError("only a number with low and high can be cyclic, remove the key")
        return data

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what a feature is not, as the specs do that were written before it could be said."""
        data: dict[str, Any] = handler(self)
        return {key: value for key, value in data.items() if value is not False or key not in ("missing", "cyclic")}

    @property
    @abstractmethod
    def blocks(self) -> tuple[Block, ...]:
        """What the feature's columns are, in order."""

    @property
    def columns(self) -> int:
        """The number of columns."""
        return sum(block.columns for block in self.blocks)

    def read(self, name: str, value: Any) -> float:
        """Read an application's value as the number that `encode` takes; NaN if it is missing."""
        if not is_missing(value):
            return self._number(name, value)
        if not self.missing:
            remedy = "set missing = true for the feature in the spec"
            raise InputError("has no value, and the spec allows none to be missing", field=name, remedy=remedy)
        return math.nan

    @abstractmethod
    def _number(self, name: str, value: Any) -> float:
        """Read a value that is not missing."""

    @abstractmethod
    def encode(self, numbers: Array) -> Array:
        """Return the columns, (n, columns) in [0, 1], of the numbers (n,) that `read` returns.

        NaN has a place also where the spec allows none to be missing: who has no value must be able to report.
        """

    def clips(self, _number: float) -> bool:
        """Whether a number, as `read` returns it, is beyond bounds that it is clipped to."""
        return False

    @abstractmethod
    def holds(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Tell in which boxes anybody can be, (boxes,), by their corners along its columns, (boxes, columns)."""

    @abstractmethod
    def shown(self, lower: Array, upper: Array) -> Any:
        """Return which values a box has, by its corners along the feature's columns, for people."""

    def condition(self, name: str, lower: Array, upper: Array) -> "Condition":
        """Return whom a box holds, by its corners along the feature's columns; ``name`` is the feature's."""
        from privateer_core.answer.facts import Among

        values = self.shown(lower, upper) or [None]
        return Among(name, tuple(one for one in values if one is not None), missing=None in values)


class Scaled(Feature):
    """A number in one column, and a column that says whether it is missing if that may be."""

    @property
    def _resolution(self) -> Block:
        return NUMBER

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The number, and the flag."""
        return (self._resolution, FLAG) if self.missing else (self._resolution,)

    def encode(self, numbers: Array) -> Array:
        """Return places in [0, 1], (n, 1), with flags beside them, (n, 2), where numbers may be missing."""
        gaps = np.isnan(numbers)
        places = np.where(gaps, MISSING_PLACE, self.places(numbers))
        return np.stack([places, gaps.astype(np.float64)], axis=1) if self.missing else places[:, None]

    @abstractmethod
    def places(self, numbers: Array) -> Array:
        """Return the place of each number in [0, 1], shape (n,); anything for NaN."""

    def holds(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Tell which boxes hold the place of some value, or of those who have none."""
        valued = self._has_values(lower[:, 0], upper[:, 0])
        return np.asarray((lower[:, 1] == 0) & valued | _holds_missing(lower, upper)) if self.missing else valued

    def _has_values(self, low: Array, high: Array) -> NDArray[np.bool_]:
        """Tell which intervals of places, from ``low`` to below ``high``, (boxes,) each, hold that of some value."""
        return high > low

    def shown(self, lower: Array, upper: Array) -> Any:
        """Return what a box holds: its values, and None if it also holds people who have none; None if nobody else."""
        if self.missing and lower[1] > 0:
            return None
        values = self._shown_values(float(lower[0]), float(upper[0]))
        return [*values, None] if self.missing and _holds_missing(lower[None], upper[None])[0] else values

    def _shown_values(self, low: float, high: float) -> list[Any]:
        """Return the lowest and the highest value of an interval of places."""
        return [self.value_at(low), self.value_at(high)]

    @abstractmethod
    def value_at(self, place: float) -> Any:
        """Return the value at a place in [0, 1]."""

    def _number(self, name: str, value: Any) -> float:
        if not is_number(value):
            raise InputError("must be a number", field=name, remedy="give a number, or None where the spec allows it")
        return float(value)


def _holds_missing(lower: Array, upper: Array) -> NDArray[np.bool_]:
    """Tell which boxes of a number and its flag hold people who have no number, (boxes,)."""
    flagged: NDArray[np.bool_] = upper[:, 1] == 1
    return flagged & (lower[:, 0] <= MISSING_PLACE) & (upper[:, 0] > MISSING_PLACE)


class _Number(Scaled):
    """A number of which a box has an interval."""

    @override
    def condition(self, name: str, lower: Array, upper: Array) -> "Condition":
        from privateer_core.answer.facts import Among, Between

        values = self.shown(lower, upper)
        if values is None:
            return Among(name, (), missing=True)
        low, high, *missing = values
        return Between(name, low, high, missing=bool(missing))


class Numeric(_Number, Range):
    """A number in a range; a device clips to it and scales to [0, 1]."""

    # whether ``high`` is ``low`` again, as of hours and weekdays: what is beyond the range comes round into it
    cyclic: bool = False

    @property
    @override
    def _resolution(self) -> Block:
        return CIRCLE if self.cyclic else NUMBER

    def clips(self, number: float) -> bool:
        """Whether a number is beyond the range."""
        return not self.cyclic and (number < self.low or number > self.high)

    def places(self, numbers: Array) -> Array:
        """Return how far each number is along the range."""
        low, high = (-BOUND_MAX, BOUND_MAX) if self.cyclic else (self.low, self.high)
        places = (np.minimum(np.maximum(numbers, low), high) - self.low) / (self.high - self.low)
        return np.asarray(places - np.floor(places) if self.cyclic else places)

    def value_at(self, place: float) -> float:
        """Return the number that far along the range."""
        return self.low + (self.high - self.low) * place


class Ranked(_Number):
    """A number by its rank among public cut points, for numbers that crowd in a part of their range."""

    # cut points that rise, with as many people between one and the next, as far as anybody knows in public. Equal ones
    # say that many people have just this number.
    quantiles: tuple[Finite, ...] = Field(min_length=2, max_length=QUANTILES_MAX)

    @model_validator(mode="after")
    def _rise(self) -> Self:
        if any(after < before for before, after in pairwise(self.quantiles)) or self.quantiles[0] == self.quantiles[-1]:
            raise ValueError("quantiles: must rise from the first to the last")
        check_bounds(self.quantiles[0], self.quantiles[-1])
        for low, high in pairwise(sorted(set(self.quantiles))):
            check_scale(low, high)
        return self

    @cached_property
    def _cuts(self) -> tuple[Array, Array, Array]:
        """Distinct cut points, and the first and the last rank of each."""
        cuts, first, count = np.unique(np.array(self.quantiles), return_index=True, return_counts=True)
        last = len(self.quantiles) - 1
        return cuts, first / last, (first + count - 1) / last

    def places(self, numbers: Array) -> Array:
        """Return ranks, linear between cut points; where several are equal, the middle of their ranks."""
        cuts, first, last = self._cuts
        clipped = np.minimum(np.maximum(numbers, cuts[0]), cuts[-1])
        below = np.minimum(np.searchsorted(cuts, clipped, side="right") - 1, len(cuts) - 2)
        along = (clipped - cuts[below]) / (cuts[below + 1] - cuts[below])
        ranks = last[below] + along * (first[below + 1] - last[below])
        at = np.minimum(np.searchsorted(cuts, clipped, side="left"), len(cuts) - 1)
        # The outermost values stay at the ends: what is beyond them counts as they do.
        middles = (first + last) / 2
        return np.asarray(np.where(cuts[at] == clipped, middles[at], ranks))

    def _has_values(self, low: Array, high: Array) -> NDArray[np.bool_]:
        """Tell which intervals hold ranks between two cut points, or that of a number that many people have."""
        _, first, last = self._cuts
        middles, high = (first + last) / 2, np.where(high == 1, np.inf, high)[:, None]
        between = (last[:-1] < high) & (first[1:] > low[:, None])
        return np.asarray(between.any(axis=1) | ((middles >= low[:, None]) & (middles < high)).any(axis=1))

    def value_at(self, place: float) -> float:
        """Return the number of a rank."""
        return float(np.interp(place, np.linspace(0.0, 1.0, len(self.quantiles)), self.quantiles))
