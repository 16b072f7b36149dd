"""Shares of a vote add up to it, and what is no vote is refused, but for once in 2^118."""

from dataclasses import replace

import pytest

from privateer_core.errors import Malformed
from privateer_core.vdaf.circuits import Circuit, bit_weights, encode_number
from privateer_core.vdaf.field import FIELD_64, FIELD_128
from privateer_core.vdaf.prio3 import InvalidProof, Prio3, ReportShares
from tests.unit.vdaf.votes import CONTEXT, KEY, KINDS, RADIUS, Kind, encode_in_ball, encode_numbers, make_nonces, shard


def count(prio3: Prio3, nonce: bytes, shares: ReportShares, context: bytes = CONTEXT, key: bytes = KEY) -> list[int]:
    """Have all servers verify a report, and add up what they keep."""
    inputs = enumerate(shares.inputs)
    parts = [prio3.verify(key, context, party, nonce, shares.public, share) for party, share in inputs]
    message = prio3.decide(context, [verifier for _, verifier in parts])
    outputs = [prio3.finish(verification, message) for verification, _ in parts]
    return [sum(numbers) % prio3.circuit.field.modulus for numbers in zip(*outputs, strict=True)]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("n_shares", [2, 3])
def test_shares_of_a_vote_add_up_to_it(kind: Kind, n_shares: int) -> None:
    prio3 = replace(kind.prio3, n_shares=n_shares)
    for (bits, output), nonce in zip(kind.votes, make_nonces(len(kind.votes)), strict=True):
        assert count(prio3, nonce, shard(prio3, bits, nonce)) == list(output)


@pytest.mark.parametrize("chunk_length", [1, 2, 5, 80])
def test_any_chunk_length_proves_the_same(chunk_length: int) -> None:
    for kind in KINDS.values():
        prio3 = replace(kind.prio3, circuit=replace(kind.circuit, chunk_length=chunk_length))
        bits, output = kind.votes[0]
        assert count(prio3, bytes(16), shard(prio3, bits, bytes(16))) == list(output)


def test_several_proofs_in_a_smaller_field() -> None:
    kind = KINDS["box"]
    prio3 = replace(kind.prio3, circuit=replace(kind.circuit, field=FIELD_64), n_proofs=3)
    bits, output = kind.votes[0]
    assert count(prio3, bytes(16), shard(prio3, bits, bytes(16))) == list(output)


def with_bit(kind: str, place: int, number: int) -> tuple[int, ...]:
    bits = list(KINDS[kind].votes[0][0])
    bits[place] = number % FIELD_128.modulus
    return tuple(bits)


LIES = {
    "histogram, no cell": ("histogram", (0,) * 21),
    "histogram, two cells": ("histogram", (1, 1, *(0,) * 19)),
    "histogram, 2 less 1": ("histogram", (2, FIELD_128.modulus - 1, *(0,) * 19)),
    "blocks, both in one": ("blocks", (1, 1, *(0,) * 7)),
    "multihot, more than told": ("multihot", (1, 1, *(0,) * 9, *encode_number(1, 3))),
    "multihot, one cell twice": ("multihot", (2, *(0,) * 10, *encode_number(2, 3))),
    "box, above its maximum": ("box", with_bit("box", 3, 2)),
    "box, below 0": ("box", with_bit("box", 0, -1)),
    "simplex, less than the unit": ("simplex", encode_numbers((5, 5, 5, 4), 20)),
    "simplex, more than the unit": ("simplex", encode_numbers((20, 1, 0, 0), 20)),
    "ball, outside": ("ball", (*encode_numbers((31,) * 6, 31), *encode_number(RADIUS, RADIUS))),
    "ball, told nearer": ("ball", (*encode_in_ball((9,) * 6, 31, RADIUS)[:30], *encode_number(3, RADIUS))),
    "ball, told in no bits": (
        "ball",
        (*encode_numbers((31,) * 6, 31), 6 * 31 * 31, *(0,) * (len(bit_weights(RADIUS)) - 1)),
    ),
}


@pytest.mark.parametrize(("kind", "bits"), LIES.values(), ids=LIES)
def test_what_is_no_vote_is_refused(kind: str, bits: tuple[int, ...]) -> None:
    prio3 = KINDS[kind].prio3
    assert len(bits) == prio3.circuit.n_bits
    with pytest.raises(InvalidProof, match="does not hold"):
        count(prio3, bytes(16), shard(prio3, bits, bytes(16)))


def test_a_circuit_without_its_checks_counts_two_cells() -> None:
    """Without the linear check two cells are counted: a planted defect."""
    circuit = replace(KINDS["histogram"].circuit, checks=())
    prio3 = replace(KINDS["histogram"].prio3, circuit=circuit)
    bits = (1, 1, *(0,) * 19)
    assert count(prio3, bytes(16), shard(prio3, bits, bytes(16))) == list(bits)


def flip(encoded: bytes, place: int) -> bytes:
    return encoded[:place] + bytes([encoded[place] ^ 1]) + encoded[place + 1 :]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_spoilt_share_is_refused(kind: Kind) -> None:
    prio3, nonce = kind.prio3, bytes(16)
    shares = shard(prio3, kind.votes[0][0], nonce)
    leader, helper = shares.inputs
    size = kind.circuit.field.n_bytes
    proof = kind.circuit.n_bits * size
    spoilt = [flip(leader, 0), flip(leader, proof), flip(leader, proof + kind.circuit.n_wires * size)]
    for share in (*spoilt, flip(leader, len(leader) - 1)):
        with pytest.raises(InvalidProof):
            count(prio3, nonce, ReportShares(shares.public, (share, helper)))
    for place in (0, 32):
        with pytest.raises(InvalidProof):
            count(prio3, nonce, ReportShares(shares.public, (leader, flip(helper, place))))


def test_a_report_of_another_context_or_nonce_does_not_verify() -> None:
    prio3, (bits, output) = KINDS["blocks"].prio3, KINDS["blocks"].votes[0]
    nonce, other = make_nonces(2)
    shares = shard(prio3, bits, nonce)
    assert count(prio3, nonce, shares) == list(output)
    for changed in ((nonce, shares, b"another round"), (other, shares, CONTEXT)):
        with pytest.raises(InvalidProof):
            count(prio3, *changed)


@pytest.mark.parametrize("place", [0, 32])
def test_servers_with_different_public_shares_refuse(place: int) -> None:
    prio3, (bits, _) = KINDS["histogram"].prio3, KINDS["histogram"].votes[0]
    shares = shard(prio3, bits, bytes(16))
    with pytest.raises(InvalidProof):
        count(prio3, bytes(16), replace(shares, public=flip(shares.public, place)))


def test_a_message_of_another_report_is_refused() -> None:
    prio3, (bits, _) = KINDS["box"].prio3, KINDS["box"].votes[0]
    shares = shard(prio3, bits, bytes(16))
    verification, _ = prio3.verify(KEY, CONTEXT, 1, bytes(16), shares.public, shares.inputs[1])
    with pytest.raises(InvalidProof, match="different parts"):
        prio3.finish(verification, bytes(32))


@pytest.mark.parametrize("party", [0, 1])
@pytest.mark.parametrize("change", [lambda share: share[:-1], lambda share: share + b"\0", lambda _: b""])
def test_bytes_that_are_no_share_are_malformed(party, change) -> None:
    prio3, (bits, _) = KINDS["box"].prio3, KINDS["box"].votes[0]
    shares = shard(prio3, bits, bytes(16))
    with pytest.raises(Malformed):
        prio3.verify(KEY, CONTEXT, party, bytes(16), shares.public, change(shares.inputs[party]))
    with pytest.raises(Malformed):
        prio3.verify(KEY, CONTEXT, party, bytes(16), change(shares.public), shares.inputs[party])


def test_a_number_that_is_not_below_the_prime_is_malformed() -> None:
    prio3, (bits, _) = KINDS["box"].prio3, KINDS["box"].votes[0]
    shares = shard(prio3, bits, bytes(16))
    prime = FIELD_128.modulus.to_bytes(16, "little")
    for place in (0, prio3.circuit.n_bits * 16):
        share = shares.inputs[0][:place] + prime + shares.inputs[0][place + 16 :]
        with pytest.raises(Malformed, match="not of the field"):
            prio3.verify(KEY, CONTEXT, 0, bytes(16), shares.public, share)


def test_numbers_and_bits_are_each_others() -> None:
    for maximum in (1, 2, 5, 7, 10, 255, 1000):
        weights = bit_weights(maximum)
        for number in range(maximum + 1):
            bits = encode_number(number, maximum)
            assert set(bits) <= {0, 1}
            assert sum(weight * bit for weight, bit in zip(weights, bits, strict=True)) == number
        assert sum(weights) == maximum
    with pytest.raises(ValueError, match="maximum"):
        encode_number(8, 7)


def test_a_proof_is_as_short_as_its_chunk_length_makes_it() -> None:
    circuit: Circuit = KINDS["box"].circuit
    lengths = [replace(circuit, chunk_length=length).proof_length for length in range(1, circuit.n_bits + 1)]
    assert circuit.proof_length == min(lengths)
