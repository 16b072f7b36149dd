"""Numbers that several machines compute and compare: exact sums, few digits, ties by row, equality but for digits.

BLAS, numpy's vector instructions and the C library round differently from one processor to another. What enters a
certificate, a digest or a comparison goes through this module (docs/architecture.md).
"""

import math
from collections.abc import Iterator
from decimal import ROUND_CEILING, Context
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

OTHER_DIGITS: Final = 1e-6
"""Share of a number by which another machine's may differ: its last digits."""
_TIE: Final = 1e-9
"""Values within this share of the largest one are as large: rounding decides which of them comes out first."""


def norm(vector: NDArray[np.float64]) -> float:
    """Return the L2 norm of a vector (n,), from an exact sum of squares."""
    return math.sqrt(math.fsum(np.square(vector).tolist()))


def round_up(value: float, digits: int) -> float:
    """Return the smallest number of so many decimal digits that is at least ``value``."""
    return float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value))))


def first_largest(values: NDArray[np.float64]) -> int:
    """Return the place of the first value, of shape (n,), that is the largest but for rounding."""
    most = float(values.max())
    return int(np.argmax(values >= most - _TIE * abs(most)))


def is_same(left: Any, right: Any) -> bool:
    """Whether numbers, words, or structs and tuples of them, are equal but for the last digits of floats."""
    ours, theirs = list(_leaves(left)), list(_leaves(right))
    return len(ours) == len(theirs) and all(map(_agree, ours, theirs))


def in_few_digits(value: Any) -> tuple[Any, ...]:
    """Return what a value holds, with six digits of each float: a name by which to look for the same value."""
    return tuple(f"{leaf:.6g}" if isinstance(leaf, float) else leaf for leaf in _leaves(value))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, msgspec.Struct):
        yield type(value)
        value = msgspec.structs.astuple(value)
    if not isinstance(value, tuple):
        yield value
        return
    yield len(value)
    for part in value:
        yield from _leaves(part)


def _agree(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=OTHER_DIGITS)
    return bool(left == right)
