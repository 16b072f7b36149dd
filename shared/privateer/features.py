"""Features of a context: what a spec says of them, and how people's values become columns in [0, 1].

A policy halves columns and knows nothing of features. How many columns there are, and what each of them says, is a
function of the spec alone. Devices, simulated people and the load driver all encode with `encoded`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Discriminator, Field, SerializerFunctionWrapHandler, Tag, model_serializer, model_validator

from privateer.errors import InputError
from privateer.numbers import is_missing, is_number
from privateer.sections import Finite, Section

Array = NDArray[np.float64]

FEATURES_MAX: Final = 20
COLUMNS_MAX: Final = 40
LEVELS_MAX: Final = 256
QUANTILES_MAX: Final = 101
OTHER: Final = "other"
"""The level that a spec may list for all others."""
_MISSING_PLACE: Final = 0.5
"""Where the number of somebody is whose flag says that it is missing."""
_ENDLESS: Final = 64
_TEXT_MAX: Final = 256
_INTEGER_MAX: Final = 2**53


@dataclass(frozen=True)
class Block:
    """Columns that say one thing together.

    Attributes
    ----------
    columns
        How many.
    codes
        Empty for a number. Otherwise the codes in use: the bits of a code, the highest first, are the columns.
    halvings
        How often halving each column may part people from each other.
    flags
        Whether 1 says that the number in the column before is missing.
    """

    columns: int = 1
    codes: tuple[int, ...] = ()
    halvings: int = _ENDLESS
    flags: bool = False


_NUMBER: Final = Block()
_FLAG: Final = Block(codes=(0, 1), halvings=1, flags=True)


class Range(Section):
    """A range that can be scaled to [0, 1]."""

    low: Finite
    high: Finite

    @model_validator(mode="after")
    def _can_be_scaled(self) -> Self:
        if not self.low < self.high:
            raise ValueError("the range is empty, low must be below high")
        if not math.isfinite(1 / (self.high - self.low)) or not math.isfinite(self.high - self.low):
            raise ValueError("the range is too wide or too narrow to be scaled to [0, 1]")
        return self


class Feature(Section, ABC):
    """One feature of a context.

    Attributes
    ----------
    missing
        Whether people may have no value.
    """

    missing: bool = False

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out that nothing may be missing, as the specs do that were written before it could be said."""
        data: dict[str, Any] = handler(self)
        return data if self.missing else {key: value for key, value in data.items() if key != "missing"}

    @property
    @abstractmethod
    def blocks(self) -> tuple[Block, ...]:
        """What the feature's columns are, in order."""

    @property
    def columns(self) -> int:
        """The number of columns."""
        return sum(block.columns for block in self.blocks)

    def read(self, name: str, value: Any) -> float:
        """Read an application's value as the number that `encode` takes; NaN if it is missing.

        Raises
        ------
        InputError
            If the feature cannot have it. The message names the feature and carries no value.
        """
        if not is_missing(value):
            return self._number(name, value)
        if not self.missing:
            remedy = "leave the person out, or set missing = true for the feature in the spec"
            raise InputError("has no value, and the spec allows none to be missing", field=name, remedy=remedy)
        return math.nan

    @abstractmethod
    def _number(self, name: str, value: Any) -> float:
        """Read a value that is not missing."""

    @abstractmethod
    def encode(self, numbers: Array) -> Array:
        """Return the columns, (n, columns) in [0, 1], of the numbers (n,) that `read` returns."""


class _Scaled(Feature):
    """A number in one column, and a column that says whether it is missing if that may be."""

    @property
    def _resolution(self) -> Block:
        return _NUMBER

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The number, and the flag."""
        return (self._resolution, _FLAG) if self.missing else (self._resolution,)

    def encode(self, numbers: Array) -> Array:
        """Return places in [0, 1], (n, 1), with flags beside them, (n, 2), where numbers may be missing."""
        if not self.missing:
            return self.places(numbers)[:, None]
        gaps = np.isnan(numbers)
        return np.stack([np.where(gaps, _MISSING_PLACE, self.places(numbers)), gaps.astype(np.float64)], axis=1)

    @abstractmethod
    def places(self, numbers: Array) -> Array:
        """Return the place of each number in [0, 1], shape (n,); anything for NaN."""

    def _number(self, name: str, value: Any) -> float:
        if not is_number(value):
            raise InputError("must be a number", field=name, remedy="give a number, or None where the spec allows it")
        return float(value)


class Numeric(_Scaled, Range):
    """A number in a range; a device clips to it and scales to [0, 1]."""

    def places(self, numbers: Array) -> Array:
        """Return how far each number is along the range."""
        clipped = np.minimum(np.maximum(numbers, self.low), self.high)
        return np.asarray((clipped - self.low) / (self.high - self.low))


class Ranked(_Scaled):
    """A number by its rank among public cut points, for numbers that crowd in a part of their range.

    Attributes
    ----------
    quantiles
        Cut points that rise, with as many people between one and the next, as far as anybody knows in public. Equal
        ones say that many people have just this number.
    """

    quantiles: tuple[Finite, ...] = Field(min_length=2, max_length=QUANTILES_MAX)

    @model_validator(mode="after")
    def _rise(self) -> Self:
        steps = np.diff(np.array(self.quantiles))
        if not (steps >= 0).all() or not steps.max() > 0:
            raise ValueError("quantiles: must rise from the first to the last")
        Numeric(low=self.quantiles[0], high=self.quantiles[-1])
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


def _level(value: Any) -> Any:
    """Refuse what is neither text nor a whole number; True would count as 1 otherwise."""
    fits = isinstance(value, str) and 1 <= len(value) <= _TEXT_MAX
    if not fits and (type(value) is not int or abs(value) > _INTEGER_MAX):
        raise ValueError(f"must be text of 1 to {_TEXT_MAX} letters, or a whole number")
    return value


Level = Annotated[str | int, BeforeValidator(_level)]


class _Levels(Feature):
    """A value among public levels, which are texts or whole numbers."""

    levels: tuple[Level, ...] = Field(min_length=1, max_length=LEVELS_MAX)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len(set(self.levels)) < len(self.levels):
            raise ValueError("levels: must be distinct")
        return self

    @cached_property
    def _places(self) -> dict[str | int, int]:
        return {level: place for place, level in enumerate(self.levels)}

    def place(self, name: str, value: Any) -> int | None:
        """Return the place of a value among the levels; None if it is none of them.

        Raises
        ------
        InputError
            If it is of another kind than the levels.
        """
        kinds = {type(level) for level in self.levels}
        if isinstance(value, str) and str in kinds:
            return self._places.get(value)
        if is_number(value) and int in kinds:
            return self._places.get(int(value)) if math.isfinite(value) and value == int(value) else None
        words = " or ".join(word for kind, word in ((str, "text"), (int, "a whole number")) if kind in kinds)
        raise InputError(f"must be {words}", field=name, remedy="give it as the levels of the spec are written")


class Categorical(_Levels):
    """One of several levels without an order; a level that is not listed counts as `OTHER`.

    `OTHER` and, if that may be, "missing" are levels of their own. But where one more level would take one more column,
    others count as the last level: specs list frequent levels first.
    """

    @property
    def _slots(self) -> tuple[int, int, int]:
        """How many levels there are in all, and which of them are the missing and the others."""
        listed, own = len(self.levels), self._places.get(OTHER)
        gap, count = listed, listed + self.missing
        if own is not None:
            return count, gap, own
        full = count > 1 and count & (count - 1) == 0
        return (count, gap, listed - 1) if full else (count + 1, gap, count)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:  # type: ignore[override] # it is read as often as people come
        """Codes for the levels."""
        return (_coded(max(2, self._slots[0])),)

    def _number(self, name: str, value: Any) -> float:
        place = self.place(name, value)
        return float(len(self.levels) if place is None else place)

    def encode(self, numbers: Array) -> Array:
        """Return the bits of each level's code."""
        _, gap, others = self._slots
        slots = np.where(np.isnan(numbers), gap, np.where(numbers >= len(self.levels), others, numbers))
        return _bits(slots, self.blocks[0])


class Ordinal(_Levels, _Scaled):
    """One of several levels in order, evenly spaced in one column."""

    ordered: Literal[True]

    @model_validator(mode="after")
    def _has_an_order(self) -> Self:
        if len(self.levels) < 2:
            raise ValueError("levels: must be two or more where they are ordered")
        return self

    @property
    def _resolution(self) -> Block:
        return Block(halvings=_bits_of(len(self.levels)))

    def _number(self, name: str, value: Any) -> float:
        place = self.place(name, value)
        if place is None:
            remedy = "give one of them: others have no place in their order"
            raise InputError("is not one of the spec's ordered levels", field=name, remedy=remedy)
        return float(place)

    def places(self, numbers: Array) -> Array:
        """Return the middle of each level's share of [0, 1]."""
        return np.asarray((numbers + 0.5) / len(self.levels))


class Boolean(Feature):
    """Yes or no; "missing" is a third level if that may be."""

    boolean: Literal[True]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """One column; two if values may be missing."""
        return (_coded(3 if self.missing else 2),)

    def _number(self, name: str, value: Any) -> float:
        if isinstance(value, bool | np.bool_) or (is_number(value) and value in (0, 1)):
            return float(value)
        raise InputError("must be true or false", field=name, remedy="give True or False, or 1 or 0")

    def encode(self, numbers: Array) -> Array:
        """Return the bits of no, yes and missing."""
        return _bits(np.where(np.isnan(numbers), 2.0, numbers), self.blocks[0])


def _bits_of(count: int) -> int:
    """Return the bits that tell so many things apart."""
    return max(1, (count - 1).bit_length())


def _coded(count: int) -> Block:
    """Return the block of so many levels: codes are spread evenly, so that halves hold as many of them as can be."""
    bits = _bits_of(count)
    return Block(bits, tuple((place << bits) // count for place in range(count)), 1)


def _bits(slots: Array, block: Block) -> Array:
    codes = np.array(block.codes)[slots.astype(np.int64)]
    return np.asarray((codes[:, None] >> np.arange(block.columns - 1, -1, -1)) & 1, dtype=np.float64)


def _kind(data: Any) -> str:
    """Tell which feature a table of the spec describes, by its keys."""
    has = data if isinstance(data, dict) else dict.fromkeys(getattr(type(data), "model_fields", {}), True)
    if "levels" in has:
        return "<ordinal>" if has.get("ordered") else "<categorical>"
    return "<boolean>" if "boolean" in has else "<ranked>" if "quantiles" in has else "<numeric>"


AnyFeature = Annotated[
    Annotated[Numeric, Tag("<numeric>")]
    | Annotated[Ranked, Tag("<ranked>")]
    | Annotated[Categorical, Tag("<categorical>")]
    | Annotated[Ordinal, Tag("<ordinal>")]
    | Annotated[Boolean, Tag("<boolean>")],
    Discriminator(_kind),
]


class Context(Section):
    """The features of a context, in order."""

    features: dict[Annotated[str, Field(min_length=1, max_length=256)], AnyFeature] = Field(
        min_length=1, max_length=FEATURES_MAX
    )

    @model_validator(mode="after")
    def _has_few_columns(self) -> Self:
        columns = sum(feature.columns for feature in self.features.values())
        if columns > COLUMNS_MAX:
            raise ValueError(f"features: make {columns} columns, at most {COLUMNS_MAX}: list fewer levels")
        return self


def blocks_of(features: Mapping[str, Feature]) -> tuple[Block, ...]:
    """Return the blocks of all features, in order."""
    return tuple(block for feature in features.values() for block in feature.blocks)


def column_names(features: Mapping[str, Feature]) -> list[str]:
    """Name the columns: a feature's name, with the number of a bit of its code, or that it is missing."""
    names = []
    for name, feature in features.items():
        for block in feature.blocks:
            bits = [f"{name}, bit {bit + 1} of {block.columns}" for bit in range(block.columns)]
            names += [f"{name} is missing"] if block.flags else [name] if block.columns == 1 else bits
    return names


def encoded(features: Mapping[str, Feature], numbers: Array) -> Array:
    """Return the columns of n people, (n, columns) in [0, 1].

    Parameters
    ----------
    features
        Those of the spec.
    numbers
        Shape (n, features + more), as `Feature.read` returns them: a number; the place of a level, or the number of
        levels for one that is not listed; 1 or 0; and NaN where a value is missing.
    """
    parts = [feature.encode(column) for feature, column in zip(features.values(), numbers.T, strict=False)]
    return np.concatenate(parts, axis=1) if parts else np.zeros((len(numbers), 0))
