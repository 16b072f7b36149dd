"""Signed heads and proofs: what a device accepts, and what each lie is called."""

import base64
import hashlib
from collections.abc import Callable

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from privateer_core.errors import (
    HeadWentBack,
    InputError,
    KeyChanged,
    LogForked,
    ProofInvalid,
    SignatureInvalid,
    Untrusted,
)
from privateer_core.wire.identity import check_signed, read_keys
from privateer_core.wire.merkle import MerkleTree
from privateer_core.wire.publication import digest
from privateer_core.wire.transparency_log import (
    BLOCK,
    Entry,
    Head,
    Proof,
    block_of,
    check_proof,
    prove,
    read_proof,
    starts_too_late,
    verifier,
)
from tests.support.notary import ORIGIN, Notary


def entry(place: int, name: str = "test") -> Entry:
    return Entry(name, place + 1, hashlib.sha256(f"{name} {place}".encode()).digest())


def grown(size: int, **options: object) -> Notary:
    notary = Notary(**options)  # type: ignore[arg-type]
    for place in range(size):
        notary.enter(entry(place))
    return notary


def test_a_head_is_a_checkpoint_that_other_programs_read() -> None:
    notary = grown(3)
    text, _, stamp = notary.head().signed.rpartition("\n\n")
    assert text.split("\n") == [ORIGIN, "3", base64.b64encode(notary.head().root).decode()]
    dash, name, signature = stamp.rstrip("\n").split(" ")
    assert (dash, name) == ("—", ORIGIN)
    key = notary.identity.key.public_key()
    named, shown, encoded = verifier(ORIGIN, key).split("+", 2)
    raw = base64.b64decode(signature)
    assert (named, raw[:4].hex()) == (ORIGIN, shown)
    assert base64.b64decode(encoded) == b"\x01" + key.public_bytes_raw()
    assert raw[:4] == hashlib.sha256(f"{ORIGIN}\n".encode() + b"\x01" + key.public_bytes_raw()).digest()[:4]
    Ed25519PublicKey.from_public_bytes(key.public_bytes_raw()).verify(raw[4:], f"{text}\n".encode())


@pytest.mark.parametrize(
    "change",
    [
        lambda signed: signed.replace("\n3\n", "\n4\n"),
        lambda signed: signed.replace(ORIGIN, "privateer/log/0000000000000000"),
        lambda signed: signed.replace("\n3\n", "\n03\n"),
        lambda signed: signed[:-20],
        lambda signed: signed[:-20] + "é" + signed[-19:],
        lambda signed: signed.replace("\n\n", "\n"),
        lambda signed: signed + "x" * 5000,
        lambda _: "",
        lambda _: "\n\n",
    ],
)
def test_a_head_that_is_changed_is_not_signed(change: Callable[[str], str]) -> None:
    notary = grown(3)
    assert Head.open(notary.head().signed, notary.identity.public) == notary.head()
    with pytest.raises(SignatureInvalid):
        Head.open(change(notary.head().signed), notary.identity.public)


def test_signatures_of_others_beside_the_servers_count_for_nothing() -> None:
    notary, other = grown(3), grown(3, seed=b"1" * 32)
    both = notary.head().signed + other.head().signed.rpartition("\n\n")[2]
    assert Head.open(both, notary.identity.public).size == 3
    with pytest.raises(SignatureInvalid):
        Head.open(other.head().signed, notary.identity.public)


@pytest.mark.parametrize("before", [1, 31, 32, 33, 64, 99, 100])
@pytest.mark.parametrize("size", [100, 128, 129])
def test_a_device_learns_how_the_log_went_on(before: int, size: int) -> None:
    notary = grown(size)
    last = notary.head(before)
    proof = notary.proof("test", size)
    if starts_too_late(proof, last):
        assert before < proof.start <= size - BLOCK
        proof = notary.proof("test", size, block_of(last))
    head = check_proof(proof, entry(size - 1), notary.identity.public, last)
    assert head == notary.head()
    assert check_proof(notary.proof("test", size), entry(size - 1), notary.identity.public, None) == head


def test_the_usual_proof_tells_the_server_nothing_and_is_small() -> None:
    """A device that has missed fewer than 33 publications asks as one that has missed none, or has never come."""
    notary = grown(1000)
    for missed in range(BLOCK + 1):
        assert not starts_too_late(notary.proof("test", 1000), notary.head(1000 - missed))
    assert len(msgspec.json.encode(notary.proof("test", 1000))) < 5000
    tree, leaf = MerkleTree([entry(0).leaf] * (1 << 14)), 1 << 14
    head = Head.sign(ORIGIN, leaf, tree.root(leaf), notary.identity.key)
    assert len(msgspec.json.encode(prove(tree, head, 5, 0))) < 5500


@pytest.mark.parametrize("before", [5, 31, 32, 33, 60, 99])
def test_two_heads_that_are_not_of_one_log_are_evidence(before: int) -> None:
    """The log of the other device has another publication before the last head, and is the same from there on."""
    other = grown(0)
    other.enter(entry(0, "secret"))
    for place in range(1, 100):
        other.enter(entry(place))
    last = grown(before).head()
    proof = other.proof("test", 100)
    if starts_too_late(proof, last):
        proof = other.proof("test", 100, block_of(last))
    with pytest.raises(LogForked):
        check_proof(proof, entry(99), other.identity.public, last)


LIES: dict[str, tuple[type[Untrusted], Callable[[Proof], Proof]]] = {
    "another leaf": (ProofInvalid, lambda proof: msgspec.structs.replace(proof, index=98)),
    "a shorter path": (ProofInvalid, lambda proof: msgspec.structs.replace(proof, inclusion="")),
    "no hashes": (ProofInvalid, lambda proof: msgspec.structs.replace(proof, inclusion="abc")),
    "leaves left out": (ProofInvalid, lambda proof: msgspec.structs.replace(proof, leaves=proof.leaves[:-44])),
    "other peaks": (ProofInvalid, lambda proof: msgspec.structs.replace(proof, peaks="")),
    "another start": (ProofInvalid, lambda proof: msgspec.structs.replace(proof, start=1)),
    "a start beyond": (ProofInvalid, lambda proof: msgspec.structs.replace(proof, start=1 << 50)),
    "a path too many": (ProofInvalid, lambda proof: msgspec.structs.replace(proof, consistency="A" * 43 + "=")),
    "another head": (SignatureInvalid, lambda proof: msgspec.structs.replace(proof, head=proof.head.replace("0", "1"))),
}


@pytest.mark.parametrize("lie", LIES)
def test_every_lie_has_its_name(lie: str) -> None:
    notary, (kind, change) = grown(100), LIES[lie]
    proof = notary.proof("test", 100)
    with pytest.raises(kind) as caught:
        check_proof(change(proof), entry(99), notary.identity.public, notary.head(90))
    assert caught.value.remedy


def test_a_head_that_goes_back_and_another_log() -> None:
    notary = grown(100)
    proof, key = notary.proof("test", 100), notary.identity.public
    later = grown(101).head()
    with pytest.raises(HeadWentBack):
        check_proof(proof, entry(99), key, later)
    anew = grown(200, origin="privateer/log/ffffffffffffffff")
    with pytest.raises(KeyChanged, match="another log"):
        check_proof(anew.proof("test", 100), entry(99), key, later)
    with pytest.raises(ProofInvalid, match="not in the server's log"):
        check_proof(proof, entry(99, "other"), key, None)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"head": 1}', b"[" * 5000, b"\xff"])
def test_an_answer_that_is_no_proof(body: bytes) -> None:
    with pytest.raises(ProofInvalid, match="not a proof"):
        read_proof(body)


def test_signatures_of_publications() -> None:
    notary, body = Notary(), b"a publication"
    signed, key = notary.identity.signed(digest(body)), notary.identity.public
    assert check_signed(signed, body, {key}) == check_signed(signed, body, frozenset()) == key
    with pytest.raises(SignatureInvalid, match="not that of this publication"):
        check_signed(signed, b"another", {key})
    with pytest.raises(KeyChanged):
        check_signed(signed, body, {b"1" * 32})
    for broken in ("", signed[:-1], signed.upper(), signed.replace(".", ":"), f"{signed}\n"):
        with pytest.raises(SignatureInvalid, match="not signed"):
            check_signed(broken, body, frozenset())


def test_keys_are_named_one_by_one() -> None:
    assert read_keys("", "server_key") == frozenset()
    assert len(read_keys(f"{'a' * 64}, {'b' * 64}", "server_key")) == 2
    with pytest.raises(InputError, match="server_key"):
        read_keys("abc", "server_key")
