"""Numbers that several machines compute and compare: exact sums, rounding, ties, and equality within a tolerance.

BLAS, numpy's vector instructions and the C library round differently from one processor to another. Numbers that enter
a certificate, a digest or a comparison go through this module (docs/architecture.md).
"""

import math
from collections.abc import Iterator
from decimal import ROUND_CEILING, Context
from typing import Any, Final

import msgspec
import numpy as np

from privateer_core.arrays import Array

RELATIVE_TOLERANCE: Final = 1e-6
"""Relative difference between the numbers that two machines compute, at most: their last digits."""
_TIE_TOLERANCE: Final = 1e-9
"""Values within this relative distance of the maximum count as ties, since rounding decides their order."""


def norm(vector: Array) -> float:
    """Return the L2 norm of a vector (n,), from an exact sum of squares."""
    return math.sqrt(math.fsum(np.square(vector).tolist()))


def round_up(value: float, digits: int) -> float:
    """Return the smallest number of ``digits`` decimal digits that is at least ``value``."""
    return float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value))))


def first_largest(values: Array) -> int:
    """Return the index of the first of ``values``, shape (n,), that equals the maximum but for rounding."""
    maximum = float(values.max())
    return int(np.argmax(values >= maximum - _TIE_TOLERANCE * abs(maximum)))


def is_same(left: Any, right: Any) -> bool:
    """Whether numbers, words, or structs and tuples of these, are equal but for the last digits of floats."""
    left_leaves, right_leaves = list(_leaves(left)), list(_leaves(right))
    return len(left_leaves) == len(right_leaves) and all(map(_are_close, left_leaves, right_leaves))


def rounded_key(value: Any) -> tuple[Any, ...]:
    """Return the leaves of a value, with six digits of each float, as a key for looking up equal values."""
    return tuple(f"{leaf:.6g}" if isinstance(leaf, float) else leaf for leaf in _leaves(value))


def _leaves(value: Any) -> Iterator[Any]:
    """Yield type, lengths and leaves of a struct or tuple, depth first, so that equal sequences mean equal values."""
    if isinstance(value, msgspec.Struct):
        yield type(value)
        value = msgspec.structs.astuple(value)
    if not isinstance(value, tuple):
        yield value
        return
    yield len(value)
    for element in value:
        yield from _leaves(element)


def _are_close(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=RELATIVE_TOLERANCE)
    return bool(left == right)
