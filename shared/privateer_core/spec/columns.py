"""Columns of encoded contexts, and checks of applications' numbers; no message contains either."""

import math
from typing import Any, Final

import msgspec
import numpy as np

from privateer_core.arrays import Array, Bools
from privateer_core.errors import InputError

MISSING_PLACE: Final = 0.5  # the position of a missing number, whose flag is set
_UNLIMITED_HALVINGS: Final = 64
_MISSING_TYPE_NAMES: Final = ("NAType", "NaTType")  # type names of missing values in pandas, which is not imported here


class Block(msgspec.Struct, frozen=True):
    """Columns that encode a value together."""

    columns: int = 1  # number of columns
    # empty for a number; otherwise the codes of levels, whose bits, the highest first, are the columns
    codes: tuple[int, ...] = ()
    halvings: int = _UNLIMITED_HALVINGS  # maximum number of useful halvings of each column
    flags: bool = False  # whether 1 flags a missing number in the previous column
    cyclic: bool = False  # whether 0 and 1 are the same number

    def column_names(self, feature: str) -> list[str]:
        """Return the names of the columns of a feature."""
        if self.flags:
            return [f"{feature} is missing"]
        if self.columns == 1:
            return [feature]
        return [f"{feature}, bit {bit}" for bit in range(1, self.columns + 1)]


NUMBER: Final = Block()
CIRCLE: Final = Block(cyclic=True)
FLAG: Final = Block(codes=(0, 1), halvings=1, flags=True)


def count_bits(n_values: int) -> int:
    """Return the number of bits that distinguish ``n_values``."""
    return max(1, (n_values - 1).bit_length())


def code_block(n_levels: int) -> Block:
    """Return the block of ``n_levels``, with evenly spread codes, so that halves have about equally many levels."""
    n_bits = count_bits(n_levels)
    return Block(n_bits, tuple((index << n_bits) // n_levels for index in range(n_levels)), 1)


def encode_bits(indices: Array, block: Block) -> Array:
    """Return the bits of the codes of levels by index (n,), shape (n, columns)."""
    codes = np.array(block.codes)[indices.astype(np.int64)]
    return np.asarray((codes[:, None] >> np.arange(block.columns - 1, -1, -1)) & 1, dtype=np.float64)


def find_levels_in_boxes(block: Block, lower: Array, upper: Array) -> Bools:
    """Return which boxes contain which levels, (boxes, levels), by the boxes' corners along the block's columns."""
    code_bits = (np.array(block.codes)[:, None] >> np.arange(block.columns - 1, -1, -1)) & 1
    # A bit is 0 or 1, so it is in the lower half of its column, in the upper one, or in both.
    includes_zero, includes_one = (lower == 0)[:, None], (upper == 1)[:, None]
    return np.asarray(np.where(code_bits == 0, includes_zero, includes_one).all(axis=2))


def is_number(value: Any) -> bool:
    """Whether an application's value is a number within floating point; NaN, True and False are not."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return not math.isnan(value)
    except OverflowError:
        return False


def is_missing(value: Any) -> bool:
    """Whether an application's value is None, NaN, or a missing value of a data frame."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or type(value).__name__ in _MISSING_TYPE_NAMES


def clipped_columns(contexts: Array) -> Array:
    """Return encoded contexts (n, columns) clipped to [0, 1], and refuse infinities and NaN."""
    if not np.isfinite(contexts).all():
        remedy = "give the device finite values, or None where the spec allows it"
        raise InputError("must be finite numbers", field="context", remedy=remedy)
    return np.asarray(np.minimum(np.maximum(contexts, 0.0), 1.0))
