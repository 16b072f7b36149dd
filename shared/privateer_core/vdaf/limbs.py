"""Arithmetic of the field of 128 bits on many numbers at once: five limbs of 26 bits in 64-bit integers, limb first.

Limbs are signed, and larger than 26 bits between operations: `carry` and `fold` make them small again. A product's limb
is a sum of five products of 52 bits, and 256 products add up without overflow.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.vdaf.field import FIELD_128

Limbs = NDArray[np.int64]
"""Numbers, (5, ...): the sum of limb i times 2^(26 i)."""
MOST_ADDED: Final = 256
MOST_WEIGHT: Final = 1 << 36
"""Bound of the sum of whole numbers by which limbs of 26 bits are multiplied before `fold`."""
_BITS: Final = 26
_MASK: Final = (1 << _BITS) - 1
_N_LIMBS: Final = 5
_PRIME_LIMBS: Final = tuple(FIELD_128.modulus >> _BITS * place & _MASK for place in range(_N_LIMBS))
_LARGEST_CERTAIN: Final = (1 << 64) - 28
"""Upper words below it belong to numbers below the prime, whatever the lower word."""


def read_numbers(encoded: bytes, length: int) -> Limbs:
    """Decode rows of numbers, (5, n, length); they may be larger than the prime: see `is_certain`."""
    words = np.frombuffer(encoded, dtype="<u8").reshape(-1, length, 2)
    low, high = words[..., 0], words[..., 1]
    parts = (low, low >> np.uint64(26), low >> np.uint64(52) | high << np.uint64(12), high >> np.uint64(14))
    limbs = np.empty((_N_LIMBS, *low.shape), dtype=np.int64)
    for place, part in enumerate(parts):
        limbs[place] = part & np.uint64(_MASK)
    limbs[4] = high >> np.uint64(40)
    return limbs


def is_certain(encoded: bytes) -> bool:
    """Tell whether all numbers are surely below the prime; others are 1 in 2^59, and need a closer look."""
    return bool((np.frombuffer(encoded, dtype="<u8")[1::2] < np.uint64(_LARGEST_CERTAIN)).all())


def to_limbs(rows: Sequence[Sequence[int]]) -> Limbs:
    """Return whole numbers below the prime as limbs, (5, rows, columns)."""
    return read_numbers(b"".join(map(FIELD_128.encode, rows)), len(rows[0]))


def to_integers(limbs: Limbs) -> list[list[int]]:
    """Return rows of whole numbers below the prime, given limbs of (5, n, length)."""
    reduced = reduce_fully(limbs)
    unsigned = reduced.astype(np.uint64)
    words = np.empty((*reduced.shape[1:], 2), dtype="<u8")
    words[..., 0] = unsigned[0] | unsigned[1] << np.uint64(26) | unsigned[2] << np.uint64(52)
    words[..., 1] = unsigned[2] >> np.uint64(12) | unsigned[3] << np.uint64(14) | unsigned[4] << np.uint64(40)
    return [FIELD_128.read(row.tobytes()) for row in words]


def multiply(left: Limbs, right: Limbs) -> Limbs:
    """Multiply numbers, with limbs of at most 28 bits; shapes broadcast."""
    return fold(_products(left, right))


def dot(left: Limbs, right: Limbs, subscripts: str) -> Limbs:
    """Add up products of numbers as einsum does, (9, ...): `fold` makes numbers of them."""
    products: Limbs | None = None
    for i in range(_N_LIMBS):
        for j in range(_N_LIMBS):
            term = np.einsum(subscripts, left[i], right[j])
            if products is None:
                products = np.zeros((2 * _N_LIMBS - 1, *term.shape), dtype=np.int64)
            products[i + j] += term
    assert products is not None
    return products


def fold(limbs: Limbs) -> Limbs:
    """Reduce five or more limbs, of at most 62 bits, to five of about 26: 2^130 is 28 * 2^66 - 4 modulo the prime."""
    n_high = 2
    while n_high > 1:
        carried = _carry(limbs)
        high = carried[_N_LIMBS:]
        n_high = len(high)
        limbs = np.zeros((max(_N_LIMBS, n_high + 2), *carried.shape[1:]), dtype=np.int64)
        limbs[:_N_LIMBS] = carried[:_N_LIMBS]
        limbs[:n_high] -= high << 2
        limbs[2 : n_high + 2] += high * (28 << 14)
    return _carry_within(limbs)


def reduce_fully(limbs: Limbs) -> Limbs:
    """Reduce numbers to limbs of 26 bits and values from 0 to below the prime."""
    reduced = fold(limbs)
    for _ in range(3):  # 2^128 is 7 * 2^66 - 1
        high = reduced[4] >> 24
        reduced[4] &= (1 << 24) - 1
        reduced[2] += high * (7 << 14)
        reduced[0] -= high
        reduced = _carry_within(reduced)
    smaller = reduced - np.array(_PRIME_LIMBS, dtype=np.int64).reshape(-1, *[1] * (reduced.ndim - 1))
    smaller = _carry(smaller)
    return np.where(smaller[5] < 0, reduced, smaller[:_N_LIMBS])


def _products(left: Limbs, right: Limbs) -> Limbs:
    shape = np.broadcast_shapes(left.shape[1:], right.shape[1:])
    products = np.zeros((2 * _N_LIMBS - 1, *shape), dtype=np.int64)
    for i in range(_N_LIMBS):
        for j in range(_N_LIMBS):
            products[i + j] += left[i] * right[j]
    return products


def _carry_within(limbs: Limbs) -> Limbs:
    """Give each limb 26 bits but the last, which keeps what is left."""
    carried = _carry(limbs[:-1])
    carried[-1] += limbs[-1]
    return carried


def _carry(limbs: Limbs) -> Limbs:
    """Give each limb 26 bits, and what is left to another at the end."""
    carried = np.empty((len(limbs) + 1, *limbs.shape[1:]), dtype=np.int64)
    carried[:-1], carried[-1] = limbs, 0
    rest = np.empty(limbs.shape[1:], dtype=np.int64)
    for place in range(len(limbs)):
        np.right_shift(carried[place], _BITS, out=rest)
        carried[place] &= _MASK
        carried[place + 1] += rest
    return carried
