"""Encoded columns of a context, and numbers as applications have them. No message carries one."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import InputError

Array = NDArray[np.float64]

MISSING_PLACE: Final = 0.5
"""Where the number of somebody is whose flag says that it is missing."""
_ENDLESS: Final = 64
_GAPS: Final = ("NAType", "NaTType")
"""What pandas calls its missing values; nothing here imports it."""


@dataclass(frozen=True)
class Block:
    """Columns that say one thing together."""

    columns: int = 1  # how many
    # empty for a number. Otherwise the codes in use: the bits of a code, the highest first, are the columns.
    codes: tuple[int, ...] = ()
    halvings: int = _ENDLESS  # how often halving each column may part people from each other
    flags: bool = False  # whether 1 says that the number in the column before is missing
    cyclic: bool = False  # whether 1 is the number that 0 is

    def named(self, feature: str) -> list[str]:
        """Name the columns after their feature."""
        if self.flags:
            return [f"{feature} is missing"]
        if self.columns == 1:
            return [feature]
        return [f"{feature}, bit {place}" for place in range(1, self.columns + 1)]


NUMBER: Final = Block()
CIRCLE: Final = Block(cyclic=True)
FLAG: Final = Block(codes=(0, 1), halvings=1, flags=True)


def bits_of(count: int) -> int:
    """Return the bits that tell so many things apart."""
    return max(1, (count - 1).bit_length())


def coded(count: int) -> Block:
    """Return the block of so many levels: codes are spread evenly, so that halves hold as many of them as can be."""
    width = bits_of(count)
    return Block(width, tuple((place << width) // count for place in range(count)), 1)


def bits(slots: Array, block: Block) -> Array:
    """Return the bits of the codes of levels by their places (n,), shape (n, columns)."""
    codes = np.array(block.codes)[slots.astype(np.int64)]
    return np.asarray((codes[:, None] >> np.arange(block.columns - 1, -1, -1)) & 1, dtype=np.float64)


def codes_within(block: Block, lower: Array, upper: Array) -> NDArray[np.bool_]:
    """Tell which of a block's levels boxes have, shape (boxes, levels), by their corners along its columns."""
    of_codes = (np.array(block.codes)[:, None] >> np.arange(block.columns - 1, -1, -1)) & 1
    # A bit is 0 or 1, so it is in the lower half of its column, in the upper one, or in both.
    below, above = (lower == 0)[:, None], (upper == 1)[:, None]
    return np.asarray(np.where(of_codes == 0, below, above).all(axis=2))


def is_number(value: Any) -> bool:
    """Whether an application's value is a number that floating point has, and not NaN; True and False are not."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return not math.isnan(value)
    except OverflowError:
        return False


def is_missing(value: Any) -> bool:
    """Whether an application's value is None, NaN, or what data frames write in their place."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or type(value).__name__ in _GAPS


def clipped_columns(contexts: Array) -> Array:
    """Return encoded contexts (n, columns), each number at least 0 and at most 1."""
    if not np.isfinite(contexts).all():
        remedy = "give the device finite values, or None where the spec allows it"
        raise InputError("must be finite numbers", field="context", remedy=remedy)
    return np.asarray(np.minimum(np.maximum(contexts, 0.0), 1.0))
