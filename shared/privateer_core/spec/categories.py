"""Categorical features: unordered, hashed or ordered levels, and booleans."""

import math
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from privateer_core.arrays import Array, Bools
from privateer_core.errors import InputError
from privateer_core.primitives.public_coins import mix_words
from privateer_core.spec.columns import Block, code_block, count_bits, encode_bits, find_levels_in_boxes, is_number
from privateer_core.spec.features import Feature, Scaled

LEVELS_MAX: Final = 1000
_ORDERED_MAX: Final = 256
OTHER: Final = "other"  # the level that represents all unlisted levels in a spec
MISSING: Final = "missing"  # the name of a missing value
_TEXT_MAX: Final = 256
_INTEGER_MAX: Final = 2**53
_WORD_MASK: Final = (1 << 64) - 1


def _validate_level(value: Any) -> Any:
    """Return a level that is text or a whole number, and refuse others, also booleans."""
    is_text = isinstance(value, str) and 1 <= len(value) <= _TEXT_MAX and value.isprintable()
    if not is_text and (type(value) is not int or abs(value) > _INTEGER_MAX):
        raise ValueError(f"must be text of 1 to {_TEXT_MAX} printable characters, or a whole number")
    return value


Level = Annotated[str | int, BeforeValidator(_validate_level)]


class _Levels(Feature):
    """A feature with public levels, which are texts or whole numbers."""

    levels: tuple[Level, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_levels(self) -> Self:
        """Refuse too many levels, and repeated ones."""
        if len(self.levels) > LEVELS_MAX:
            remedy = f"list the most frequent, or have all dealt to buckets: hash_buckets = {LEVELS_MAX // 2}"
            raise ValueError(f"levels: at most {LEVELS_MAX:,}, not {len(self.levels):,}; {remedy}")
        if len(set(self.levels)) < len(self.levels):
            raise ValueError("levels: must be distinct")
        return self

    @cached_property
    def _places(self) -> dict[str | int, int]:
        return {level: index for index, level in enumerate(self.levels)}

    def find_level(self, name: str, value: Any) -> int | None:
        """Return the index of a value among the levels, None if it is unlisted; refuse values of another type."""
        kinds = {type(level) for level in self.levels}
        if isinstance(value, str) and str in kinds:
            return self._places.get(value)
        if is_number(value) and int in kinds:
            return self._places.get(int(value)) if math.isfinite(value) and value == int(value) else None
        kind_names = " or ".join(word for kind, word in ((str, "text"), (int, "a whole number")) if kind in kinds)
        raise InputError(f"must be {kind_names}", field=name, remedy="give it as the levels of the spec are written")


class Categorical(_Levels):
    """A feature with unordered levels; an unlisted level counts as `OTHER`.

    `OTHER` is an additional level, as is "missing" if values may be missing. But if `OTHER` needs a further column,
    unlisted levels count as the last level: specs list frequent levels first.
    """

    @property
    def _slots(self) -> tuple[int, int, int]:
        """Number of all levels, and the indices of the missing and of the unlisted ones."""
        n_listed, other_index = len(self.levels), self._places.get(OTHER)
        missing_index, n_levels = n_listed, n_listed + self.missing
        if other_index is not None:
            return n_levels, missing_index, other_index
        has_full_codes = n_levels > 1 and n_levels & (n_levels - 1) == 0
        return (n_levels, missing_index, n_listed - 1) if has_full_codes else (n_levels + 1, missing_index, n_levels)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The block of the levels' codes."""
        return (code_block(max(2, self._slots[0])),)

    def _parse_value(self, name: str, value: Any) -> float:
        index = self.find_level(name, value)
        return float(len(self.levels) if index is None else index)

    def encode(self, numbers: Array) -> Array:
        """Return the bits of levels' codes."""
        _, missing_index, other = self._slots
        missing_index = missing_index if self.missing else other
        indices = np.where(np.isnan(numbers), missing_index, np.where(numbers >= len(self.levels), other, numbers))
        return encode_bits(indices, self.blocks[0])

    def find_inhabited(self, lower: Array, upper: Array) -> Bools:
        """Return which boxes contain the code of a level, of unlisted levels or of missing values."""
        return np.asarray(find_levels_in_boxes(self.blocks[0], lower, upper)[:, : self._slots[0]].any(axis=1))

    def list_box_values(self, lower: Array, upper: Array) -> list[str | int | None]:
        """Return the levels of a box; None represents missing values."""
        n_levels, _, other_index = self._slots
        names: list[str | int | None] = [*self.levels, *([None] if self.missing else []), OTHER]
        is_inside = find_levels_in_boxes(self.blocks[0], lower[None], upper[None])[0]
        box_levels = [names[index] for index in np.flatnonzero(is_inside) if index < n_levels]
        stands_for_others = other_index < len(self.levels) and is_inside[other_index] and OTHER not in box_levels
        return [*box_levels, OTHER] if stands_for_others else box_levels


def name_code(feature: Feature, code: int, n_columns: int) -> str:
    """Return the names of a feature's levels with a code."""
    bits = (code >> np.arange(n_columns - 1, -1, -1)) & 1
    names = {None: MISSING, True: "yes", False: "no"} if isinstance(feature, Boolean) else {None: MISSING}
    return " or ".join(names.get(level, str(level)) for level in feature.list_box_values(bits / 2, (bits + 1) / 2))


class Hashed(Feature):
    """A feature with too many levels to list, assigned to buckets by a public hash of their names."""

    hash_buckets: int = Field(ge=2, le=LEVELS_MAX)  # number of buckets. Levels of a bucket are not distinguished.

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the buckets."""
        return tuple(f"bucket {index}" for index in range(self.hash_buckets))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The block of the codes of buckets, and of missing values if there may be any."""
        return (code_block(self.hash_buckets + self.missing),)

    def _parse_value(self, name: str, value: Any) -> float:
        """Return the bucket of a text or whole number, and refuse other values."""
        if isinstance(value, str):
            return float(hash_bucket(value, self.hash_buckets))
        if is_number(value) and abs(value) < _INTEGER_MAX and value == int(value):
            return float(hash_bucket(str(int(value)), self.hash_buckets))
        raise InputError("must be text or a whole number", field=name, remedy="give it as text")

    def encode(self, numbers: Array) -> Array:
        """Return the bits of buckets' codes; a missing value that is not allowed has the bucket of the empty text."""
        missing_bucket = self.hash_buckets if self.missing else hash_bucket("", self.hash_buckets)
        return encode_bits(np.where(np.isnan(numbers), missing_bucket, numbers), self.blocks[0])

    def find_inhabited(self, lower: Array, upper: Array) -> Bools:
        """Return which boxes contain the code of a bucket, or of missing values."""
        return np.asarray(find_levels_in_boxes(self.blocks[0], lower, upper).any(axis=1))

    def list_box_values(self, lower: Array, upper: Array) -> list[str | None]:
        """Return the buckets of a box; None represents missing values."""
        is_inside = find_levels_in_boxes(self.blocks[0], lower[None], upper[None])[0]
        return [self.levels[bucket] if bucket < self.hash_buckets else None for bucket in np.flatnonzero(is_inside)]


def hash_bucket(text: str, n_buckets: int) -> int:
    """Return the bucket of a text, from 0, by the upper bits of the mixed 64-bit FNV-1a hash of its bytes in UTF-8.

    Source: Fowler, Noll and Vo (draft-eastlake-fnv); `mix` spreads its bits, since the upper ones of short texts are
    similar. The hash is public and gives no privacy.
    """
    word = 0xCBF29CE484222325
    for byte in text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode():
        word = ((word ^ byte) * 0x100000001B3) & _WORD_MASK
    mixed = int(mix_words(np.array([word], np.uint64))[0])
    return ((mixed >> 32) * n_buckets) >> 32


class Ordinal(_Levels, Scaled):
    """A feature with ordered levels, evenly spaced in a single column."""

    ordered: Literal[True]

    @model_validator(mode="after")
    def _check_level_count(self) -> Self:
        """Refuse a single level, and too many ordered levels."""
        if len(self.levels) < 2:
            raise ValueError("levels: must be two or more in an ordered feature")
        if len(self.levels) > _ORDERED_MAX:
            raise ValueError(f"levels: must be at most {_ORDERED_MAX} in an ordered feature; use a number instead")
        return self

    @property
    def _resolution(self) -> Block:
        return Block(halvings=count_bits(len(self.levels)))

    def _parse_value(self, name: str, value: Any) -> float:
        """Return the index of a level, and refuse unlisted values."""
        index = self.find_level(name, value)
        if index is None:
            remedy = "list it in the spec, or set missing = true there"
            raise InputError("is not one of the spec's ordered levels", field=name, remedy=remedy)
        return float(index)

    def positions(self, numbers: Array) -> Array:
        """Return the position of each level: the middle of its interval of [0, 1]."""
        return np.asarray((numbers + 0.5) / len(self.levels))

    def _find_levels_within(self, low: Array, high: Array) -> Bools:
        positions = self.positions(np.arange(len(self.levels), dtype=np.float64))
        return np.asarray((positions >= low[:, None]) & (positions < high[:, None]))

    def _has_values(self, low: Array, high: Array) -> Bools:
        return np.asarray(self._find_levels_within(low, high).any(axis=1))

    def _shown_values(self, low: float, high: float) -> list[Any]:
        is_inside = self._find_levels_within(np.array([low]), np.array([high]))[0]
        return [self.levels[index] for index in np.flatnonzero(is_inside)]

    def value_at(self, place: float) -> Any:
        """Return the level at a position in [0, 1]."""
        return self.levels[min(int(place * len(self.levels)), len(self.levels) - 1)]


class Boolean(Feature):
    """A boolean feature; "missing" is a third level if values may be missing."""

    boolean: Literal[True]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The block of one column, or two if values may be missing."""
        return (code_block(3 if self.missing else 2),)

    def _parse_value(self, name: str, value: Any) -> float:
        if isinstance(value, bool | np.bool_) or (is_number(value) and value in (0, 1)):
            return float(value)
        raise InputError("must be true or false", field=name, remedy="give True or False, or 1 or 0")

    def encode(self, numbers: Array) -> Array:
        """Return the bits of no, yes and missing."""
        return encode_bits(np.where(np.isnan(numbers), 2.0 * self.missing, numbers), self.blocks[0])

    def find_inhabited(self, lower: Array, upper: Array) -> Bools:
        """Return which boxes contain the code of yes, no, or missing."""
        return np.asarray(find_levels_in_boxes(self.blocks[0], lower, upper).any(axis=1))

    def list_box_values(self, lower: Array, upper: Array) -> list[bool | None]:
        """Return the booleans of a box; None represents missing values."""
        is_inside = find_levels_in_boxes(self.blocks[0], lower[None], upper[None])[0]
        return [(False, True, None)[index] for index in np.flatnonzero(is_inside)]
