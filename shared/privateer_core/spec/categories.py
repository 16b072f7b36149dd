"""Features that are one of several levels: without an order, hashed, in order, or yes and no."""

import math
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from privateer_core.errors import InputError
from privateer_core.primitives.public_coins import mix
from privateer_core.spec.columns import Block, bits, bits_of, coded, codes_within, is_number
from privateer_core.spec.features import Feature, Scaled

Array = NDArray[np.float64]

LEVELS_MAX: Final = 1000
_ORDERED_MAX: Final = 256
OTHER: Final = "other"
"""The level that a spec may list for all others."""
_TEXT_MAX: Final = 256
_INTEGER_MAX: Final = 2**53
_WORD: Final = (1 << 64) - 1


def _level(value: Any) -> Any:
    """Refuse what is neither text nor a whole number; True would count as 1 otherwise."""
    fits = isinstance(value, str) and 1 <= len(value) <= _TEXT_MAX and value.isprintable()
    if not fits and (type(value) is not int or abs(value) > _INTEGER_MAX):
        raise ValueError(f"must be text of 1 to {_TEXT_MAX} printable characters, or a whole number")
    return value


Level = Annotated[str | int, BeforeValidator(_level)]


class _Levels(Feature):
    """A value among public levels, which are texts or whole numbers."""

    levels: tuple[Level, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _few(self) -> Self:
        if len(self.levels) > LEVELS_MAX:
            remedy = f"list the most frequent, or have all dealt to buckets: hashed = {LEVELS_MAX // 2}, and no levels"
            raise ValueError(f"levels: at most {LEVELS_MAX:,}, not {len(self.levels):,}; {remedy}")
        return self

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len(set(self.levels)) < len(self.levels):
            raise ValueError("levels: must be distinct")
        return self

    @cached_property
    def _places(self) -> dict[str | int, int]:
        return {level: place for place, level in enumerate(self.levels)}

    def place(self, name: str, value: Any) -> int | None:
        """Return the place of a value among the levels; None if it is none of them."""
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
    def blocks(self) -> tuple[Block, ...]:
        """Codes for the levels."""
        return (coded(max(2, self._slots[0])),)

    def _number(self, name: str, value: Any) -> float:
        place = self.place(name, value)
        return float(len(self.levels) if place is None else place)

    def encode(self, numbers: Array) -> Array:
        """Return the bits of each level's code."""
        _, gap, others = self._slots
        gap = gap if self.missing else others
        slots = np.where(np.isnan(numbers), gap, np.where(numbers >= len(self.levels), others, numbers))
        return bits(slots, self.blocks[0])

    def holds(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Tell which boxes hold the code of a level, of others or of missing values."""
        return np.asarray(codes_within(self.blocks[0], lower, upper)[:, : self._slots[0]].any(axis=1))

    def shown(self, lower: Array, upper: Array) -> list[str | int | None]:
        """Return the levels of a box; None stands for missing values."""
        count, _, others = self._slots
        names: list[str | int | None] = [*self.levels, *([None] if self.missing else []), OTHER]
        inside = codes_within(self.blocks[0], lower[None], upper[None])[0]
        found = [names[slot] for slot in np.flatnonzero(inside) if slot < count]
        shared = others < len(self.levels) and inside[others] and OTHER not in found
        return [*found, OTHER] if shared else found


class Hashed(Feature):
    """One of more levels than can be listed, dealt to buckets by a public hash of its name."""

    hashed: int = Field(ge=2, le=LEVELS_MAX)  # how many buckets there are. Levels of one bucket are not told apart.

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the buckets."""
        return tuple(f"bucket {place}" for place in range(self.hashed))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Codes for the buckets, and for missing values if they may be."""
        return (coded(self.hashed + self.missing),)

    def _number(self, name: str, value: Any) -> float:
        if isinstance(value, str):
            return float(bucket_of(value, self.hashed))
        if is_number(value) and abs(value) < _INTEGER_MAX and value == int(value):
            return float(bucket_of(str(int(value)), self.hashed))
        raise InputError("must be text or a whole number", field=name, remedy="give it as text")

    def encode(self, numbers: Array) -> Array:
        """Return the bits of each bucket's code; who has no value where none may be missing is in that of no text."""
        gap = self.hashed if self.missing else bucket_of("", self.hashed)
        return bits(np.where(np.isnan(numbers), gap, numbers), self.blocks[0])

    def holds(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Tell which boxes hold the code of a bucket, or of missing values."""
        return np.asarray(codes_within(self.blocks[0], lower, upper).any(axis=1))

    def shown(self, lower: Array, upper: Array) -> list[str | None]:
        """Return the buckets of a box; None stands for missing values."""
        inside = codes_within(self.blocks[0], lower[None], upper[None])[0]
        return [self.levels[slot] if slot < self.hashed else None for slot in np.flatnonzero(inside)]


def bucket_of(text: str, buckets: int) -> int:
    """Return the bucket of a text, from 0: 64-bit FNV-1a of its bytes in UTF-8, mixed, of which the upper bits decide.

    Source: Fowler, Noll and Vo (draft-eastlake-fnv); `mix` spreads its bits, of which the upper ones of short texts are
    alike. It is no secret, and hides nothing.
    """
    word = 0xCBF29CE484222325
    for byte in text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode():
        word = ((word ^ byte) * 0x100000001B3) & _WORD
    mixed = int(mix(np.array([word], np.uint64))[0])
    return ((mixed >> 32) * buckets) >> 32


class Ordinal(_Levels, Scaled):
    """One of several levels in order, evenly spaced in one column."""

    ordered: Literal[True]

    @model_validator(mode="after")
    def _has_an_order(self) -> Self:
        if len(self.levels) < 2:
            raise ValueError("levels: must be two or more where they are ordered")
        if len(self.levels) > _ORDERED_MAX:
            raise ValueError(f"levels: at most {_ORDERED_MAX} where they are ordered: give a number instead")
        return self

    @property
    def _resolution(self) -> Block:
        return Block(halvings=bits_of(len(self.levels)))

    def _number(self, name: str, value: Any) -> float:
        place = self.place(name, value)
        if place is None:
            remedy = "list it in the spec, or set missing = true there"
            raise InputError("is not one of the spec's ordered levels", field=name, remedy=remedy)
        return float(place)

    def places(self, numbers: Array) -> Array:
        """Return the middle of each level's share of [0, 1]."""
        return np.asarray((numbers + 0.5) / len(self.levels))

    def _within(self, low: Array, high: Array) -> NDArray[np.bool_]:
        """Tell which levels are in which intervals of places, (boxes, levels)."""
        places = self.places(np.arange(len(self.levels), dtype=np.float64))
        return np.asarray((places >= low[:, None]) & (places < high[:, None]))

    def _has_values(self, low: Array, high: Array) -> NDArray[np.bool_]:
        """Tell which intervals hold the place of a level."""
        return np.asarray(self._within(low, high).any(axis=1))

    def _shown_values(self, low: float, high: float) -> list[Any]:
        """Return the levels of an interval of places."""
        return [self.levels[place] for place in np.flatnonzero(self._within(np.array([low]), np.array([high]))[0])]

    def value_at(self, place: float) -> Any:
        """Return the level that has a place."""
        return self.levels[min(int(place * len(self.levels)), len(self.levels) - 1)]


class Boolean(Feature):
    """Yes or no; "missing" is a third level if that may be."""

    boolean: Literal[True]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """One column; two if values may be missing."""
        return (coded(3 if self.missing else 2),)

    def _number(self, name: str, value: Any) -> float:
        if isinstance(value, bool | np.bool_) or (is_number(value) and value in (0, 1)):
            return float(value)
        raise InputError("must be true or false", field=name, remedy="give True or False, or 1 or 0")

    def encode(self, numbers: Array) -> Array:
        """Return the bits of no, yes and missing."""
        return bits(np.where(np.isnan(numbers), 2.0 * self.missing, numbers), self.blocks[0])

    def holds(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Tell which boxes hold the code of an answer, or of missing ones."""
        return np.asarray(codes_within(self.blocks[0], lower, upper).any(axis=1))

    def shown(self, lower: Array, upper: Array) -> list[bool | None]:
        """Return the answers of a box; None stands for missing ones."""
        inside = codes_within(self.blocks[0], lower[None], upper[None])[0]
        return [(False, True, None)[slot] for slot in np.flatnonzero(inside)]
