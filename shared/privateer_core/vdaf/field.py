"""Prime fields whose roots of unity make transforms fast."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from privateer_core.vdaf.turboshake import turboshake128

_WORD_BYTES: Final = 8


@dataclass(frozen=True)
class PrimeField:
    """Whole numbers modulo a prime, encoded in little-endian order."""

    modulus: int
    n_bytes: int  # of an encoded number: one word of 8 bytes, or two
    log_order: int  # the largest order of a root of unity is 2 to this power
    generator: int  # a root of that order

    def encode(self, vector: Sequence[int]) -> bytes:
        """Encode numbers below the modulus."""
        return b"".join([number.to_bytes(self.n_bytes, "little") for number in vector])

    def expand(self, message: bytes, length: int) -> bytes:
        """Hash a message to uniform numbers, encoded: those of the hash that are too large are left out."""
        n_drawn = length
        while not self.is_encoded(stream := turboshake128(message, n_drawn * self.n_bytes)):
            vector = [number for number in self.read(stream) if number < self.modulus]
            if len(vector) >= length:
                return self.encode(vector[:length])
            n_drawn += length - len(vector)
        return stream[: length * self.n_bytes]

    def is_encoded(self, encoded: bytes) -> bool:
        """Tell whether all encoded numbers are below the modulus."""
        n_words = self.n_bytes // _WORD_BYTES
        highest_words = np.frombuffer(encoded, dtype="<u8")[n_words - 1 :: n_words]
        if int(highest_words.max(initial=0)) < self.modulus >> 64 * (n_words - 1):
            return True
        return max(self.read(encoded), default=0) < self.modulus

    def read(self, encoded: bytes) -> list[int]:
        """Decode numbers that were checked before."""
        words: list[int] = np.frombuffer(encoded, dtype="<u8").tolist()
        if self.n_bytes == _WORD_BYTES:
            return words
        return [low | high << 64 for low, high in zip(words[::2], words[1::2], strict=True)]

    def roots(self, order: int) -> tuple[int, ...]:
        """Return the powers of the root of unity of an order, a power of 2, beginning with 1."""
        return _roots(self, order)

    def double(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return polynomials' values at the odd roots of twice an order, given those at the roots of that order.

        Rows are points, and columns are polynomials of as many coefficients as there are rows.
        """
        n, modulus = len(rows), self.modulus
        scaled = self._transform([rows[0], *reversed(rows[1:])])  # coefficients, times n
        factor = pow(n, -1, modulus)
        factors = [root * factor % modulus for root in self.roots(2 * n)[:n]]
        shifted = [[number * shift % modulus for number in row] for row, shift in zip(scaled, factors, strict=True)]
        return self._transform(shifted)

    def _transform(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        """Evaluate polynomials at the roots of unity, given their coefficients (Cooley and Tukey)."""
        n, modulus = len(rows), self.modulus
        if n == 1:
            return [list(rows[0])]
        even, odd = self._transform(rows[::2]), self._transform(rows[1::2])
        turned = [
            [root * number % modulus for number in row] for root, row in zip(self.roots(n)[: n // 2], odd, strict=True)
        ]
        pairs = list(zip(even, turned, strict=True))
        return [
            *([(a + b) % modulus for a, b in zip(*pair, strict=True)] for pair in pairs),
            *([(a - b) % modulus for a, b in zip(*pair, strict=True)] for pair in pairs),
        ]


@lru_cache(maxsize=64)
def _roots(field: PrimeField, order: int) -> tuple[int, ...]:
    root, powers = pow(field.generator, (1 << field.log_order) // order, field.modulus), [1]
    for _ in range(order - 1):
        powers.append(powers[-1] * root % field.modulus)
    return tuple(powers)


def _field(factor: int, log_order: int, n_bytes: int) -> PrimeField:
    modulus = (factor << log_order) + 1
    return PrimeField(modulus, n_bytes, log_order, pow(7, factor, modulus))


FIELD_64: Final = _field(4294967295, 32, 8)
FIELD_128: Final = _field(4611686018427387897, 66, 16)
