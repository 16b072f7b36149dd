"""Prio3 gives the bytes of the draft's test vectors, and refuses what they spoil at the step that they state."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privateer_core.vdaf import turboshake
from privateer_core.vdaf.batch import Report, verify_many
from privateer_core.vdaf.circuits import box, encode_number, histogram, multihot
from privateer_core.vdaf.field import FIELD_64, FIELD_128
from privateer_core.vdaf.prio3 import InvalidProof, Prio3, Verification, VerifierShare
from tests.unit.vdaf.votes import encode_numbers, one_hot

XOF_SEED = "b62ef0a2778190792d4d42d8c167ba20e0c37a3f319ba79645829c427d70eea5"
"""What the draft derives of the seed 0, 1, ..., 31, a tag and a binder."""
KINDS = ("Histogram", "MultihotCountVec", "SumVec", "SumVecWithMultiproof")


@pytest.mark.parametrize("hash_bytes", [turboshake.turboshake128, turboshake.hash_with_integers])
def test_the_hash_matches_the_drafts_vector(hash_bytes) -> None:
    tag, seed = b"domain separation tag", bytes(range(32))
    message = len(tag).to_bytes(2, "little") + tag + bytes([len(seed)]) + seed + b"binder string"
    assert hash_bytes(message, 32).hex() == XOF_SEED


@pytest.mark.parametrize("n_bytes", [0, 1, 166, 167, 168, 169, 500])
def test_turboshake_with_integers_equals_the_library(n_bytes: int) -> None:
    assert turboshake._HAS_LIBRARY, "pycryptodome is one of the packages of tests"
    message = hashlib.shake_128(b"a message").digest(n_bytes)
    assert turboshake.turboshake128(message, 400) == turboshake.hash_with_integers(message, 400)


FIRST_VECTORS = {
    "Prio3Histogram_0": (
        Prio3(replace(histogram(4), chunk_length=2), 4),
        one_hot(4, 2),
        "0f1f34ad58d8fa6c42a649b43bfb369552832b6194357fed9796074ae3bec885",
    ),
    "Prio3SumVec_0": (
        Prio3(replace(box(10, 255), chunk_length=9), 3),
        encode_numbers(range(10), 255),
        "8a5d5bfaab0ae3d70d5d298a91a9f934bf2ea41ecf583591b99891a86b712af3",
    ),
}
"""Votes of the draft's first vectors, and SHA-256 of their public and input shares."""


@pytest.mark.parametrize(("prio3", "bits", "digest"), FIRST_VECTORS.values(), ids=FIRST_VECTORS)
def test_shares_of_the_first_vectors_are_the_drafts(prio3: Prio3, bits: tuple[int, ...], digest: str) -> None:
    shares = prio3.shard(b"some application", bits, bytes(range(16)), bytes(range(128)))
    assert hashlib.sha256(b"".join((shares.public, *shares.inputs))).hexdigest() == digest


def vectors(pattern: str) -> Iterator[tuple[str, dict[str, Any]]]:
    folder = os.environ.get("PRIVATEER_VDAF") or Path(os.environ["PRIVATEER_ADULT"].split(",")[0]).parent / "vdaf"
    paths = sorted(Path(folder).glob(pattern))
    assert paths, "no test vectors there"
    for path in paths:
        yield path.stem, json.loads(path.read_text())


def prio3_of(name: str, vector: dict[str, Any]) -> tuple[Prio3, Any]:
    """Return a vector's Prio3, and what encodes its measurements."""
    chunk_length, n_shares = vector["chunk_length"], vector["shares"]
    if "Histogram" in name:
        length = vector["length"]
        circuit = replace(histogram(length), chunk_length=chunk_length)
        return Prio3(circuit, 4, n_shares), lambda cell: one_hot(length, cell)
    if "Multihot" in name:
        max_weight = vector["max_weight"]
        circuit = replace(multihot(vector["length"], max_weight), chunk_length=chunk_length)
        return Prio3(circuit, 5, n_shares), lambda cells: [*map(int, cells), *encode_number(sum(cells), max_weight)]
    maximum = vector["max_measurement"]
    field, algorithm, n_proofs = (FIELD_64, 0xFFFFFFFF, 3) if "Multiproof" in name else (FIELD_128, 3, 1)
    circuit = replace(box(vector["length"], maximum), chunk_length=chunk_length, field=field)
    return Prio3(circuit, algorithm, n_shares, n_proofs), lambda numbers: encode_numbers(numbers, maximum)


def verify(
    prio3: Prio3, vector: dict[str, Any], report: dict[str, Any], party: int
) -> tuple[Verification, VerifierShare]:
    """Verify a server's share alone, and twice in a batch."""
    key, context = bytes.fromhex(vector["verify_key"]), bytes.fromhex(vector["ctx"])
    parts = [bytes.fromhex(part) for part in (report["nonce"], report["public_share"], report["input_shares"][party])]
    verification, verifier = prio3.verify(key, context, party, *parts)
    if prio3.circuit.field is FIELD_128:
        batch = verify_many(prio3, key, context, party, [Report(*parts)] * 2)
        assert batch.verifiers == [verifier] * 2
        assert batch.joint_seeds == [verification.joint_seed] * 2
        assert batch.add_up([True, False]) == list(verification.output)
    return verification, verifier


@pytest.mark.data
@pytest.mark.parametrize("kind", KINDS)
def test_shares_verifiers_and_sums_are_the_drafts(kind: str) -> None:
    for name, vector in vectors(f"Prio3{kind}_[0-9]*.json"):
        prio3, encode = prio3_of(name, vector)
        field, context = prio3.circuit.field, bytes.fromhex(vector["ctx"])
        outputs = []
        for report in vector["reports"]:
            nonce, randomness = bytes.fromhex(report["nonce"]), bytes.fromhex(report["rand"])
            shares = prio3.shard(context, encode(report["measurement"]), nonce, randomness)
            assert shares.public.hex() == report["public_share"]
            assert [share.hex() for share in shares.inputs] == report["input_shares"]
            parts = [verify(prio3, vector, report, party) for party in range(prio3.n_shares)]
            encoded = [(field.encode(verifier.verifiers) + verifier.joint_part).hex() for _, verifier in parts]
            assert encoded == report["verifier_shares"][0]
            message = prio3.decide(context, [verifier for _, verifier in parts])
            assert message.hex() == report["verifier_messages"][0]
            outputs.append([prio3.finish(verification, message) for verification, _ in parts])
        parties = zip(*outputs, strict=True)
        sums = [[sum(column) % field.modulus for column in zip(*party, strict=True)] for party in parties]
        assert [field.encode(party).hex() for party in sums] == vector["agg_shares"]
        assert [sum(column) % field.modulus for column in zip(*sums, strict=True)] == vector["agg_result"]


@pytest.mark.data
@pytest.mark.parametrize("kind", ["Histogram"])
def test_bad_vectors_are_refused_at_their_step(kind: str) -> None:
    for name, vector in vectors(f"Prio3{kind}_bad_*.json"):
        prio3, _ = prio3_of(name, vector)
        (step,) = (operation["operation"] for operation in vector["operations"] if not operation["success"])
        (report,) = vector["reports"]
        parts = [verify(prio3, vector, report, party) for party in range(prio3.n_shares)]
        verifiers = [verifier for _, verifier in parts]
        if step == "verifier_shares_to_message":
            with pytest.raises(InvalidProof):
                prio3.decide(bytes.fromhex(vector["ctx"]), verifiers)
        else:
            assert step == "verify_next"
            with pytest.raises(InvalidProof):
                prio3.finish(parts[0][0], bytes.fromhex(report["verifier_messages"][0]))
