"""Validity circuits as data: bits, linear checks of bits, and outputs that servers add up.

Every circuit calls one gadget, the sum of a chunk's products, to show that each encoded number is 0 or 1. What else a
vote must hold is linear, so that servers check it on their shares without a further proof.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import mul

from privateer_core.vdaf.field import FIELD_128, PrimeField


@dataclass(frozen=True)
class LinearCheck:
    """A sum of bits, times whole numbers, that a valid vote brings to a constant."""

    coefficients: tuple[int, ...]  # one for each bit
    constant: int


@dataclass(frozen=True)
class Circuit:
    """A validity circuit: the bits of a vote, their checks, and the outputs."""

    n_bits: int
    chunk_length: int  # bits that one call of the gadget checks
    output_weights: tuple[int, ...]  # of the bits of an output: outputs take their bits in turn, from the first on
    n_outputs: int
    checks: tuple[LinearCheck, ...] = ()
    centre: int | None = None  # of a ball: the last check also adds the squares of outputs less this
    field: PrimeField = FIELD_128

    @cached_property
    def n_bit_calls(self) -> int:
        """The number of calls of the gadget that check bits, each with a number of joint randomness."""
        return -(-self.n_bits // self.chunk_length)

    @cached_property
    def n_square_calls(self) -> int:
        """The number of calls of the gadget that add up squares of outputs."""
        return 0 if self.centre is None else -(-self.n_outputs // self.chunk_length)

    @property
    def n_calls(self) -> int:
        """The number of calls of the gadget."""
        return self.n_bit_calls + self.n_square_calls

    @cached_property
    def n_points(self) -> int:
        """The number of points of a wire's polynomial: a seed, the calls, and zeros up to a power of 2."""
        return 1 << self.n_calls.bit_length()

    @property
    def n_wires(self) -> int:
        """The number of inputs of the gadget: two for each bit of a chunk."""
        return 2 * self.chunk_length

    @property
    def proof_length(self) -> int:
        """The number of field elements in a proof: the wires' seeds, the gadget polynomial's values but the last."""
        return self.n_wires + 2 * self.n_points - 1

    @property
    def verifier_length(self) -> int:
        """The number of field elements in a verifier: the circuit's output, each wire at a point, and the gadget."""
        return self.n_wires + 2

    @property
    def n_factors(self) -> int:
        """The number of random factors that join several outputs of the circuit into one."""
        return 1 + len(self.checks) if self.checks else 0

    def aggregate(self, bits: Sequence[int]) -> list[int]:
        """Return the outputs of bits, or shares of outputs of shares of bits."""
        width, modulus = len(self.output_weights), self.field.modulus
        if width == 1:
            return list(bits[: self.n_outputs])
        starts = range(0, width * self.n_outputs, width)
        return [sum(map(mul, self.output_weights, bits[start : start + width])) % modulus for start in starts]

    def subtract_centre(self, bits: Sequence[int], share: int) -> list[int]:
        """Return the outputs of bits less the centre of a ball, or shares of the differences."""
        if self.centre is None:
            return []
        shift = self.centre * share
        return [output - shift for output in self.aggregate(bits)]


def with_short_proof(circuit: Circuit) -> Circuit:
    """Return the circuit with the chunk length of which its proof is shortest, the larger of two as good ones."""
    lengths = range(circuit.n_bits, 0, -1)
    return min((replace(circuit, chunk_length=length) for length in lengths), key=lambda variant: variant.proof_length)


def bit_weights(maximum: int) -> tuple[int, ...]:
    """Return the weights of bits that make each whole number from 0 to a maximum, and none above it."""
    n_bits = maximum.bit_length()
    return (*(1 << place for place in range(n_bits - 1)), maximum - (1 << n_bits - 1) + 1)


def encode_number(number: int, maximum: int) -> list[int]:
    """Return bits of a whole number from 0 to a maximum: `bit_weights` times them is the number."""
    if not 0 <= number <= maximum:
        raise ValueError("the number is not between 0 and its maximum")
    *lower, last = bit_weights(maximum)
    is_high = number >> len(lower) > 0
    rest = number - last if is_high else number
    return [*(rest >> place & 1 for place in range(len(lower))), int(is_high)]


def histogram(length: int) -> Circuit:
    """Make the circuit of a vote for one of many cells (the draft's Histogram)."""
    return blocks([length])


def blocks(lengths: Sequence[int]) -> Circuit:
    """Make the circuit of a vote in each of several consecutive blocks of cells."""
    n_bits = sum(lengths)
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    checks = (
        LinearCheck((*(0,) * start, *(1,) * length, *(0,) * (n_bits - start - length)), 1)
        for start, length in zip(starts, lengths, strict=True)
    )
    return with_short_proof(Circuit(n_bits, 1, (1,), n_bits, tuple(checks)))


def multihot(length: int, max_weight: int) -> Circuit:
    """Make the circuit of votes for at most some of many cells: their number follows the cells, in bits."""
    weights = bit_weights(max_weight)
    check = LinearCheck((*(1,) * length, *(-weight for weight in weights)), 0)
    return with_short_proof(Circuit(length + len(weights), 1, (1,), length, (check,)))


def box(length: int, maximum: int) -> Circuit:
    """Make the circuit of a vector of whole numbers from 0 to a maximum (the draft's SumVec)."""
    weights = bit_weights(maximum)
    return with_short_proof(Circuit(length * len(weights), 1, weights, length))


def simplex(length: int, unit: int) -> Circuit:
    """Make the circuit of whole numbers, one a cell, that sum up to a unit."""
    weights = bit_weights(unit)
    check = LinearCheck(weights * length, unit)
    return with_short_proof(Circuit(length * len(weights), 1, weights, length, (check,)))


def ball(length: int, maximum: int, squared_radius: int) -> Circuit:
    """Make the circuit of a vector in a box whose squared distance from the box's centre is at most a number.

    The distance is counted in half steps, so that the centre is a whole number; it follows the vector, in bits.
    """
    weights = tuple(2 * weight for weight in bit_weights(maximum))
    norm_weights = bit_weights(squared_radius)
    n_bits = length * len(weights) + len(norm_weights)
    check = LinearCheck((*(0,) * (length * len(weights)), *(-weight for weight in norm_weights)), 0)
    return with_short_proof(Circuit(n_bits, 1, weights, length, (check,), centre=maximum))
