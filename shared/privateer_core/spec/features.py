"""Features of a context, and the encoding of their values as columns in [0, 1].

This module has numbers; `privateer_core.spec.categories` has levels, and `privateer_core.spec.context` the context.
"""

import math
from abc import ABC, abstractmethod
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from typing_extensions import override

from privateer_core.arrays import Array, Bools
from privateer_core.errors import InputError
from privateer_core.spec.columns import CIRCLE, FLAG, MISSING_PLACE, NUMBER, Block, is_missing, is_number
from privateer_core.spec.sections import Finite, Section

if TYPE_CHECKING:
    from privateer_core.answer.facts import Condition


QUANTILES_MAX: Final = 101
BOUND_MAX: Final = 1e15
"""Maximum absolute bound: larger numbers are in a wrong unit, and their squares and sums lose precision."""
_MIN_RELATIVE_RANGE: Final = 1e3 * 2.0**-52
"""Minimum range relative to the larger bound: a thousandth of it is then more than a rounding error."""


class Range(Section):
    """A range that can be scaled to [0, 1]."""

    low: Finite
    high: Finite

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        check_bounds(self.low, self.high)
        return self


def check_bounds(low: float, high: float) -> None:
    """Refuse bounds between which numbers have too few significant digits."""
    check_scale(low, high)
    largest = max(abs(low), abs(high))
    if largest > BOUND_MAX:
        raise ValueError(f"the range is too wide, bounds must be from -{BOUND_MAX:g} to {BOUND_MAX:g}; change the unit")
    if high - low < max(1 / BOUND_MAX, _MIN_RELATIVE_RANGE * largest):
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
    """A feature of a context."""

    missing: bool = False  # whether values may be missing

    @model_validator(mode="before")
    @classmethod
    def _check_cyclic(cls, data: Any) -> Any:
        if isinstance(data, dict) and "cyclic" in data and "cyclic" not in cls.model_fields:
            raise ValueError("only a number with low and high can be cyclic, remove the key")
        return data

    @model_serializer(mode="wrap")
    def _serialize_for_storage(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialize without keys that are false, as specs of earlier versions."""
        data: dict[str, Any] = serialize(self)
        return {key: value for key, value in data.items() if value is not False or key not in ("missing", "cyclic")}

    @property
    @abstractmethod
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the feature's columns, in order."""

    @property
    def columns(self) -> int:
        """The number of columns."""
        return sum(block.columns for block in self.blocks)

    def read(self, name: str, value: Any) -> float:
        """Parse an application's value as a number for `encode`; NaN if it is missing, which a spec may not allow."""
        if not is_missing(value):
            return self._parse_value(name, value)
        if not self.missing:
            remedy = "set missing = true for the feature in the spec"
            raise InputError("has no value, and the spec allows none to be missing", field=name, remedy=remedy)
        return math.nan

    @abstractmethod
    def _parse_value(self, name: str, value: Any) -> float:
        """Parse a value that is not missing."""

    @abstractmethod
    def encode(self, numbers: Array) -> Array:
        """Return the columns, (n, columns) in [0, 1], of the numbers (n,) that `read` returns.

        NaN is encoded even if the spec allows no missing values: a participant without a value must be able to report.
        """

    def clips(self, _number: float) -> bool:
        """Whether a number, as `read` returns it, is clipped to bounds."""
        return False

    @abstractmethod
    def find_inhabited(self, lower: Array, upper: Array) -> Bools:
        """Return which boxes contain a value, (boxes,), by corners along the feature's columns, (boxes, columns)."""

    @abstractmethod
    def list_box_values(self, lower: Array, upper: Array) -> Any:
        """Return readable values of a box, by its corners along the feature's columns."""

    def condition(self, name: str, lower: Array, upper: Array) -> "Condition":
        """Return the condition of a box on the feature ``name``, by the box's corners along the feature's columns."""
        from privateer_core.answer.facts import Among

        values = self.list_box_values(lower, upper) or [None]
        return Among(name, tuple(level for level in values if level is not None), missing=None in values)


class Scaled(Feature):
    """A number in a column, with a second column that flags missing numbers if there may be any."""

    @property
    def _resolution(self) -> Block:
        return NUMBER

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the number and the flag."""
        return (self._resolution, FLAG) if self.missing else (self._resolution,)

    def encode(self, numbers: Array) -> Array:
        """Return positions in [0, 1], (n, 1), or with flags, (n, 2), if numbers may be missing."""
        is_nan = np.isnan(numbers)
        positions = np.where(is_nan, MISSING_PLACE, self.positions(numbers))
        return np.stack([positions, is_nan.astype(np.float64)], axis=1) if self.missing else positions[:, None]

    @abstractmethod
    def positions(self, numbers: Array) -> Array:
        """Return the position of each number in [0, 1], shape (n,); arbitrary for NaN."""

    def find_inhabited(self, lower: Array, upper: Array) -> Bools:
        """Return which boxes contain the position of a value, or missing values."""
        has_any = self._has_values(lower[:, 0], upper[:, 0])
        return np.asarray((lower[:, 1] == 0) & has_any | _contains_missing(lower, upper)) if self.missing else has_any

    def _has_values(self, low: Array, high: Array) -> Bools:
        return high > low

    def list_box_values(self, lower: Array, upper: Array) -> Any:
        """Return the values of a box, and None if it has missing values, too; None alone if it has no other values."""
        if self.missing and lower[1] > 0:
            return None
        values = self._shown_values(float(lower[0]), float(upper[0]))
        return [*values, None] if self.missing and _contains_missing(lower[None], upper[None])[0] else values

    def _shown_values(self, low: float, high: float) -> list[Any]:
        return [self.value_at(low), self.value_at(high)]

    @abstractmethod
    def value_at(self, place: float) -> Any:
        """Return the value at a position in [0, 1]."""

    def _parse_value(self, name: str, value: Any) -> float:
        if not is_number(value):
            raise InputError("must be a number", field=name, remedy="give a number, or None where the spec allows it")
        return float(value)


def _contains_missing(lower: Array, upper: Array) -> Bools:
    is_flagged: Bools = upper[:, 1] == 1
    return is_flagged & (lower[:, 0] <= MISSING_PLACE) & (upper[:, 0] > MISSING_PLACE)


class _Number(Scaled):
    """A number whose values in a box are an interval."""

    @override
    def condition(self, name: str, lower: Array, upper: Array) -> "Condition":
        """Return the interval of numbers of a box, or the condition that the number is missing."""
        from privateer_core.answer.facts import Among, Between

        values = self.list_box_values(lower, upper)
        if values is None:
            return Among(name, (), missing=True)
        low, high, *missing_markers = values
        return Between(name, low, high, missing=bool(missing_markers))


class Numeric(_Number, Range):
    """A number in a range; a device clips to it and scales to [0, 1]."""

    # whether ``high`` equals ``low``, as for hours and weekdays: numbers beyond the range are taken modulo the range
    cyclic: bool = False

    @property
    @override
    def _resolution(self) -> Block:
        return CIRCLE if self.cyclic else NUMBER

    def clips(self, number: float) -> bool:
        """Whether a number is beyond the range."""
        return not self.cyclic and (number < self.low or number > self.high)

    def positions(self, numbers: Array) -> Array:
        """Return the position of each number in the range, from 0 to 1."""
        low, high = (-BOUND_MAX, BOUND_MAX) if self.cyclic else (self.low, self.high)
        positions = (np.minimum(np.maximum(numbers, low), high) - self.low) / (self.high - self.low)
        return np.asarray(positions - np.floor(positions) if self.cyclic else positions)

    def value_at(self, place: float) -> float:
        """Return the number at a position in the range."""
        return self.low + (self.high - self.low) * place


class Ranked(_Number):
    """A number encoded as its rank among public quantiles, for skewed distributions."""

    # ascending cut points with equally many participants between neighbours, by public knowledge. Equal cut points mean
    # that many participants have exactly this number.
    quantiles: tuple[Finite, ...] = Field(min_length=2, max_length=QUANTILES_MAX)

    @model_validator(mode="after")
    def _check_quantiles(self) -> Self:
        """Refuse quantiles that fall, are all equal, or cannot be scaled."""
        if any(higher < lower for lower, higher in pairwise(self.quantiles)) or self.quantiles[0] == self.quantiles[-1]:
            raise ValueError("quantiles: must rise from the first to the last")
        check_bounds(self.quantiles[0], self.quantiles[-1])
        for low, high in pairwise(sorted(set(self.quantiles))):
            check_scale(low, high)
        return self

    @cached_property
    def _cuts(self) -> tuple[Array, Array, Array]:
        """Distinct cut points, with the first and the last rank of each."""
        cuts, first_index, n_equal = np.unique(np.array(self.quantiles), return_index=True, return_counts=True)
        n_intervals = len(self.quantiles) - 1
        return cuts, first_index / n_intervals, (first_index + n_equal - 1) / n_intervals

    def positions(self, numbers: Array) -> Array:
        """Return ranks, linear between cut points; equal cut points have the middle of their ranks."""
        cuts, first, last = self._cuts
        clipped = np.minimum(np.maximum(numbers, cuts[0]), cuts[-1])
        lower_cut = np.minimum(np.searchsorted(cuts, clipped, side="right") - 1, len(cuts) - 2)
        fraction = (clipped - cuts[lower_cut]) / (cuts[lower_cut + 1] - cuts[lower_cut])
        ranks = last[lower_cut] + fraction * (first[lower_cut + 1] - last[lower_cut])
        cut_index = np.minimum(np.searchsorted(cuts, clipped, side="left"), len(cuts) - 1)
        # The extreme values stay at the ends: numbers beyond are clipped to them.
        middles = (first + last) / 2
        return np.asarray(np.where(cuts[cut_index] == clipped, middles[cut_index], ranks))

    def _has_values(self, low: Array, high: Array) -> Bools:
        _, first, last = self._cuts
        middles, high = (first + last) / 2, np.where(high == 1, np.inf, high)[:, None]
        between = (last[:-1] < high) & (first[1:] > low[:, None])
        return np.asarray(between.any(axis=1) | ((middles >= low[:, None]) & (middles < high)).any(axis=1))

    def value_at(self, place: float) -> float:
        """Return the number with a rank."""
        return float(np.interp(place, np.linspace(0.0, 1.0, len(self.quantiles)), self.quantiles))
