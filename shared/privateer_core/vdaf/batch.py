"""A server's verification of many reports at once: the bytes of `Prio3.verify` for each, sooner.

What has a length of a vote is computed for all reports together, on limbs; what has one of the gadget's calls, with
whole numbers, one by one. A report that is none stops no other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import Malformed
from privateer_core.vdaf import limbs
from privateer_core.vdaf.circuits import Circuit
from privateer_core.vdaf.field import FIELD_128
from privateer_core.vdaf.limbs import Limbs
from privateer_core.vdaf.prio3 import Prio3, VerifierShare
from privateer_core.vdaf.proof import complete, join_outputs, lagrange_bases

_CACHED_NUMBERS: Final = 30_000
"""Numbers of a block of reports: with more, limbs leave the processor's cache."""


@dataclass(frozen=True, repr=False)
class Report:
    """A report as one of the servers receives it."""

    nonce: bytes
    public: bytes
    share: bytes  # its own input share


@dataclass(frozen=True)
class VerifiedBatch:
    """The verifier shares of a batch, and a server's shares of the votes."""

    joint_seeds: list[bytes | None]  # None in the place of a report that is none
    verifiers: list[VerifierShare | None]
    outputs: Limbs  # its shares of the votes, (5, n, n_outputs); 0 for a report that is none

    def add_up(self, is_accepted: Sequence[bool]) -> list[int]:
        """Return its share of the sum of the accepted reports' votes."""
        accepted = np.array(is_accepted, dtype=bool)
        return limbs.to_integers(limbs.fold(self.outputs[:, accepted].sum(axis=1, keepdims=True)))[0]


def verify_many(prio3: Prio3, key: bytes, context: bytes, party: int, reports: Sequence[Report]) -> VerifiedBatch:
    """Verify each report as `Prio3.verify` does.

    Of the field of 128 bits, with one proof a report, and weights of bits whose sums stay in 64 bits.
    """
    circuit = prio3.circuit
    weights = [circuit.output_weights, *(check.coefficients for check in circuit.checks)]
    is_large = max(sum(map(abs, row)) for row in weights) >= limbs.MOST_WEIGHT
    if circuit.field is not FIELD_128 or prio3.n_proofs != 1 or circuit.n_calls > limbs.MOST_ADDED or is_large:
        raise ValueError("such a circuit is verified one by one")
    size = max(1, _CACHED_NUMBERS // circuit.n_bits)
    batch = VerifiedBatch([], [], np.zeros((5, len(reports), circuit.n_outputs), dtype=np.int64))
    for start in range(0, len(reports), size):
        questions = [_try_to_ask(prio3, key, context, party, report) for report in reports[start : start + size]]
        indices = [index for index, question in enumerate(questions) if question is not None]
        valid_questions = [question for question in questions if question is not None]
        votes = limbs.read_numbers(b"".join(question.vote for question in valid_questions), circuit.n_bits)
        outputs = _aggregate(circuit, votes)
        verifiers = iter(_make_shares(prio3, votes, outputs, valid_questions) if valid_questions else ())
        batch.joint_seeds.extend(None if question is None else question.joint_seed for question in questions)
        batch.verifiers.extend(None if question is None else next(verifiers) for question in questions)
        batch.outputs[:, [start + index for index in indices]] = outputs
    return batch


def add_up_shares(prio3: Prio3, context: bytes, shares: Sequence[bytes]) -> list[int]:
    """Return the leader's share of the sum of votes by its shares of them, which it has verified before."""
    circuit = prio3.circuit
    total = [0] * circuit.n_outputs
    size = max(1, _CACHED_NUMBERS // circuit.n_bits)
    for start in range(0, len(shares), size):
        votes = b"".join(prio3.read_share(context, 0, share)[0] for share in shares[start : start + size])
        outputs = _aggregate(circuit, limbs.read_numbers(votes, circuit.n_bits))
        sums = limbs.to_integers(limbs.fold(outputs.sum(axis=1, keepdims=True)))[0]
        total = [(left + right) % circuit.field.modulus for left, right in zip(total, sums, strict=True)]
    return total


@dataclass(frozen=True)
class _Question:
    """The query of one report, and the parts of its answer that whole numbers compute."""

    vote: bytes  # its share of the bits, encoded
    seeds: bytes  # its share of the wires' seeds, encoded
    factors: list[int]  # that join outputs
    joint_randomness: bytes  # a number for each call that checks bits, encoded
    wire_basis: list[int]
    values: list[int]  # of the gadget's polynomial
    gadget: int
    joint_seed: bytes
    joint_part: bytes


def _try_to_ask(prio3: Prio3, key: bytes, context: bytes, party: int, report: Report) -> _Question | None:
    try:
        return _build_question(prio3, key, context, party, report)
    except Malformed:
        return None


def _build_question(prio3: Prio3, key: bytes, context: bytes, party: int, report: Report) -> _Question:
    """Parse a report, and compute the server's question about it; `Malformed` for other bytes."""
    circuit, field = prio3.circuit, prio3.circuit.field
    vote, proof, blind = prio3.read_share(context, party, report.share)
    part = prio3.joint_part(context, party, blind, report.nonce, vote)
    seed = prio3.joint_seed(context, prio3.replace_part(report.public, party, part))
    *factors, point = prio3.query_numbers(key, context, report.nonce)
    wire_basis, gadget_basis = lagrange_bases(circuit, point)
    n_seed_bytes = circuit.n_wires * field.n_bytes
    values = complete(circuit, field.read(proof[n_seed_bytes:]))
    gadget = sum(map(mul, gadget_basis, values)) % field.modulus
    joint = prio3.joint_randomness(context, seed)
    return _Question(vote, proof[:n_seed_bytes], factors, joint, wire_basis, values, gadget, seed, part)


def _make_shares(prio3: Prio3, votes: Limbs, outputs: Limbs, questions: Sequence[_Question]) -> Iterator[VerifierShare]:
    circuit = prio3.circuit
    share = pow(prio3.n_shares, -1, circuit.field.modulus)
    wires = _evaluate_wires(circuit, votes, outputs, questions, share)
    sums = _check_linearly(circuit, votes)
    for index, question in enumerate(questions):
        output = join_outputs(circuit, question.values, sums[index] if sums else (), question.factors, share)
        yield VerifierShare((output, *wires[index], question.gadget), question.joint_part)


def _evaluate_wires(
    circuit: Circuit, votes: Limbs, outputs: Limbs, questions: Sequence[_Question], share: int
) -> list[list[int]]:
    """Return the wires' values at each report's point, even and odd in turn."""
    modulus, n_bit_calls = circuit.field.modulus, circuit.n_bit_calls
    chunks = _split(votes, circuit.chunk_length)
    bases = [question.wire_basis[1 : circuit.n_calls + 1] for question in questions]
    basis = limbs.to_limbs(bases)
    bit_basis = basis[..., :n_bit_calls]
    even = limbs.dot(chunks, _make_powers(circuit, bit_basis, questions), "nkw,nkw->nw")
    odd = limbs.dot(chunks, bit_basis, "nkw,nk->nw")
    if circuit.centre is not None:
        shift = limbs.to_limbs([[-circuit.centre * share % modulus]])
        squares = limbs.dot(_split(outputs + shift, circuit.chunk_length), basis[..., n_bit_calls:], "nkw,nk->nw")
        even, odd = even + squares, odd + squares
    seeds = limbs.read_numbers(b"".join(question.seeds for question in questions), circuit.n_wires)
    wires = limbs.multiply(seeds, limbs.to_limbs([question.wire_basis[:1] for question in questions]))
    wires[..., ::2] += limbs.fold(even)
    bit_shifts = limbs.to_limbs([[sum(base[:n_bit_calls]) * share % modulus] for base in bases])
    wires[..., 1::2] += limbs.fold(odd) - bit_shifts
    return limbs.to_integers(wires)


def _split(numbers: Limbs, length: int) -> Limbs:
    """Split rows into chunks, the last one filled with zeros."""
    n_reports, n_numbers = numbers.shape[1:]
    padded = np.pad(numbers, ((0, 0), (0, 0), (0, -n_numbers % length)))
    return padded.reshape(5, n_reports, -1, length)


def _make_powers(circuit: Circuit, basis: Limbs, questions: Sequence[_Question]) -> Limbs:
    """Return each call's joint number to the powers from 1 on, times what the call counts at the point."""
    n_calls, length = circuit.n_bit_calls, circuit.chunk_length
    power = limbs.read_numbers(b"".join(question.joint_randomness for question in questions), n_calls)
    powers = np.empty((5, len(questions), n_calls, length), dtype=np.int64)
    powers[..., 0] = limbs.multiply(basis, power)
    n_made = 1
    while n_made < length:
        n_more = min(n_made, length - n_made)
        powers[..., n_made : n_made + n_more] = limbs.multiply(powers[..., :n_more], power[..., None])
        power = limbs.multiply(power, power)
        n_made += n_more
    return powers


def _check_linearly(circuit: Circuit, votes: Limbs) -> list[list[int]]:
    """Return each report's sums of bits times coefficients, a column for each check."""
    if not circuit.checks:
        return []
    coefficients: NDArray[Any] = np.array([check.coefficients for check in circuit.checks], dtype=np.int64)
    return limbs.to_integers(limbs.fold(np.einsum("lnm,cm->lnc", votes, coefficients)))


def _aggregate(circuit: Circuit, votes: Limbs) -> Limbs:
    """Return each report's shares of what is added up."""
    width = len(circuit.output_weights)
    if circuit.output_weights == (1,):
        return votes[..., : circuit.n_outputs]
    bits = votes[..., : width * circuit.n_outputs].reshape(5, -1, circuit.n_outputs, width)
    return limbs.fold(np.einsum("lnow,w->lno", bits, np.array(circuit.output_weights, dtype=np.int64)))
