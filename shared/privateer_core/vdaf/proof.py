"""The proof that a circuit's bits are a vote, made by a device and checked on shares (BBCGGI19, theorem 4.3).

A wire is a polynomial of which the gadget's inputs in each call are the values at roots of unity; the proof is the
gadget of these polynomials. It is right at a random point only if it is right at all of them, but for a chance of some
hundreds in 2^128.
"""

from collections.abc import Sequence
from operator import mul

from privateer_core.vdaf.circuits import Circuit


def prove(
    circuit: Circuit, bits: Sequence[int], wire_seeds: Sequence[int], joint_randomness: Sequence[int]
) -> list[int]:
    """Prove that bits are a vote: ``wire_seeds`` hide the wires at the point that a verifier sees."""
    modulus, half = circuit.field.modulus, circuit.chunk_length
    even_rows, odd_rows = [list(wire_seeds[::2])], [list(wire_seeds[1::2])]
    for call, chunk in enumerate(_split(bits, half)):
        power, factor = 1, joint_randomness[call]
        powers = [power := power * factor % modulus for _ in range(half)]
        even_rows.append([number if bit else 0 for number, bit in zip(powers, chunk, strict=True)])
        odd_rows.append([bit - 1 for bit in chunk])
    for chunk in _split(circuit.subtract_centre(bits, 1), half):
        even_rows.append(list(chunk))
        odd_rows.append(list(chunk))
    empty = [[0] * half] * (circuit.n_points - len(even_rows))
    even_rows += empty
    odd_rows += empty
    at_roots = [sum(map(mul, *rows)) % modulus for rows in zip(even_rows, odd_rows, strict=True)]
    wires = circuit.field.double([[*even, *odd] for even, odd in zip(even_rows, odd_rows, strict=True)])
    between = [sum(map(mul, row[:half], row[half:])) % modulus for row in wires]
    values = [value for pair in zip(at_roots, between, strict=True) for value in pair]
    return [*wire_seeds, *values[:-1]]


def query(
    circuit: Circuit,
    bits: Sequence[int],
    proof: Sequence[int],
    query_randomness: Sequence[int],
    joint_randomness: Sequence[int],
    n_shares: int,
) -> list[int]:
    """Return a verifier, or a share of it: the circuit's output, and the wires and the gadget at a random point.

    Given shares of bits and proof it is a share, since all of it is linear in them.
    """
    modulus, length = circuit.field.modulus, circuit.chunk_length
    (*factors, point), share = query_randomness, pow(n_shares, -1, modulus)
    seeds, values = proof[: circuit.n_wires], complete(circuit, proof[circuit.n_wires :])
    wire_basis, gadget_basis = lagrange_bases(circuit, point)
    bit_basis = wire_basis[1 : circuit.n_bit_calls + 1]
    square_basis = wire_basis[circuit.n_bit_calls + 1 :]
    squared, shift = circuit.subtract_centre(bits, share), share * sum(bit_basis)
    powers, wires = bit_basis, []
    for place in range(length):  # the bits, and the numbers to square, that all calls have at one place
        powers = [power * number % modulus for power, number in zip(powers, joint_randomness, strict=True)]
        column, squares = bits[place::length], sum(map(mul, square_basis, squared[place::length]))
        wires.append(seeds[2 * place] * wire_basis[0] + sum(map(mul, powers, column)) + squares)
        wires.append(seeds[2 * place + 1] * wire_basis[0] + sum(map(mul, bit_basis, column)) - shift + squares)
    sums = [sum(map(mul, check.coefficients, bits)) for check in circuit.checks]
    output = join_outputs(circuit, values, sums, factors, share)
    gadget = sum(map(mul, gadget_basis, values))
    return [number % modulus for number in (output, *wires, gadget)]


def is_valid(circuit: Circuit, verifier: Sequence[int]) -> bool:
    """Tell whether a verifier, the sum of all its shares, is that of a vote."""
    output, *wires, gadget = verifier
    return output == 0 and (sum(map(mul, wires[::2], wires[1::2])) - gadget) % circuit.field.modulus == 0


def join_outputs(
    circuit: Circuit, values: Sequence[int], sums: Sequence[int], factors: Sequence[int], share: int
) -> int:
    """Return what the circuit leaves, 0 for a vote: given the gadget's values, and the sums of the linear checks."""
    calls = values[2 : 2 * circuit.n_calls + 1 : 2]
    range_check = sum(calls[: circuit.n_bit_calls])
    if not circuit.checks:
        return range_check % circuit.field.modulus
    pairs = zip(sums, circuit.checks, strict=True)
    outputs = [range_check, *(total - check.constant * share for total, check in pairs)]
    outputs[-1] += sum(calls[circuit.n_bit_calls :])
    output: int = sum(map(mul, factors, outputs)) % circuit.field.modulus
    return output


def complete(circuit: Circuit, values: Sequence[int]) -> list[int]:
    """Append the value at the last root, implied by the degree of the polynomial."""
    field = circuit.field
    roots = field.roots(2 * circuit.n_points)
    return [*values, -sum(map(mul, values, roots)) * roots[1] % field.modulus]


def lagrange_bases(circuit: Circuit, point: int) -> tuple[list[int], list[int]]:
    """Return what the values at the roots of a wire, and of the gadget, count at a point.

    Raises ``ValueError`` if the point is a root itself: there a verifier would show what the gadget said.
    """
    modulus, n_points = circuit.field.modulus, circuit.n_points
    powers = [point]  # to the powers 1, 2, 4, ..., up to the number of points
    while len(powers) < n_points.bit_length():
        powers.append(powers[-1] ** 2 % modulus)
    power = powers.pop()
    if power == 1 or power == modulus - 1:
        raise ValueError("the point is a root of unity")
    roots, scale = circuit.field.roots(2 * n_points), modulus - (modulus - 1) // n_points  # 1 / n_points
    half = (modulus + 1) // 2
    wire_basis = _divide_by_roots(modulus, roots, powers, 0, scale)
    factor, other = (power + 1) * half % modulus, (power - 1) * half % modulus * scale % modulus
    odd = _divide_by_roots(modulus, roots, powers, n_points, other)
    even = (factor * number % modulus for number in wire_basis)
    return wire_basis, [number for pair in zip(even, odd, strict=True) for number in pair]


def _divide_by_roots(modulus: int, roots: Sequence[int], powers: Sequence[int], exponent: int, value: int) -> list[int]:
    """Return a value times (x^n - a) r / (x - r) for each root r of x^n = a, at a point x without a division.

    ``powers`` are the point's, to 1, 2, 4 up to n / 2, and ``exponent`` is that of a among the 2 n ``roots``. A
    difference of squares x^2m - s^2 is divided by each of its factors, x^m - s and x^m + s, until roots are left.
    """
    n, factors = len(roots) // 2, {exponent: value}
    for power in reversed(powers):
        divided = {}
        for index, number in factors.items():
            root = roots[index // 2]
            divided[index // 2] = number * (power + root) % modulus
            divided[index // 2 + n] = number * (power - root) % modulus
        factors = divided
    return [factors[index] * roots[index] % modulus for index in sorted(factors)]


def _split(numbers: Sequence[int], length: int) -> list[Sequence[int]]:
    """Split numbers into chunks, the last one filled with zeros."""
    padded = [*numbers, *[0] * (-len(numbers) % length)]
    return [padded[start : start + length] for start in range(0, len(padded), length)]
