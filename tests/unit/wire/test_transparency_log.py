"""The public log: trees of hashes, heads and proofs."""

import base64
import hashlib
from collections.abc import Callable

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from privateer_core.errors import (
    InputError,
    KeyChanged,
    LogForked,
    LogRollback,
    ProofInvalid,
    SignatureInvalid,
    Untrusted,
)
from privateer_core.wire.identity import parse_public_keys, verify_signature
from privateer_core.wire.merkle import EMPTY_ROOT, MerkleTree, Peaks, is_consistent, is_included, leaf_hash, node_hash
from privateer_core.wire.publication import digest
from privateer_core.wire.transparency_log import (
    BLOCK,
    Entry,
    Head,
    Proof,
    continuation_block,
    is_after_head,
    make_proof,
    read_proof,
    verifier_key,
    verify_proof,
)
from tests.support.notary import ORIGIN, Notary


def entry(place: int, name: str = "test") -> Entry:
    return Entry(name, place + 1, hashlib.sha256(f"{name} {place}".encode()).digest())


def grow_log(size: int, **options: object) -> Notary:
    notary = Notary(**options)  # type: ignore[arg-type]
    for index in range(size):
        notary.enter(entry(index))
    return notary


def test_a_head_is_a_checkpoint_that_other_programs_read() -> None:
    notary = grow_log(3)
    text, _, stamp = notary.head().signed.rpartition("\n\n")
    assert text.split("\n") == [ORIGIN, "3", base64.b64encode(notary.head().root).decode()]
    dash, name, signature = stamp.rstrip("\n").split(" ")
    assert (dash, name) == ("—", ORIGIN)
    key = notary.identity.key.public_key()
    named, key_hash, encoded = verifier_key(ORIGIN, key).split("+", 2)
    raw = base64.b64decode(signature)
    assert (named, raw[:4].hex()) == (ORIGIN, key_hash)
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
    notary = grow_log(3)
    assert Head.verify(notary.head().signed, notary.identity.public) == notary.head()
    with pytest.raises(SignatureInvalid):
        Head.verify(change(notary.head().signed), notary.identity.public)


def test_signatures_of_others_beside_the_servers_count_for_nothing() -> None:
    notary, other = grow_log(3), grow_log(3, seed=b"1" * 32)
    cosigned = notary.head().signed + other.head().signed.rpartition("\n\n")[2]
    assert Head.verify(cosigned, notary.identity.public).size == 3
    with pytest.raises(SignatureInvalid):
        Head.verify(other.head().signed, notary.identity.public)


@pytest.mark.parametrize("before", [1, 31, 32, 33, 64, 99, 100])
@pytest.mark.parametrize("size", [100, 128, 129])
def test_a_device_learns_how_the_log_went_on(before: int, size: int) -> None:
    notary = grow_log(size)
    last = notary.head(before)
    proof = notary.proof("test", size)
    if is_after_head(proof, last):
        assert before < proof.start <= size - BLOCK
        proof = notary.proof("test", size, continuation_block(last))
    head = verify_proof(proof, entry(size - 1), notary.identity.public, last)
    assert head == notary.head()
    assert verify_proof(notary.proof("test", size), entry(size - 1), notary.identity.public, None) == head


def test_the_usual_proof_tells_the_server_nothing_and_is_small() -> None:
    """A device that has missed fewer than 33 publications sends the same request as a new device."""
    notary = grow_log(1000)
    for missed in range(BLOCK + 1):
        assert not is_after_head(notary.proof("test", 1000), notary.head(1000 - missed))
    assert len(msgspec.json.encode(notary.proof("test", 1000))) < 5000
    tree, leaf = MerkleTree([entry(0).leaf] * (1 << 14)), 1 << 14
    head = Head.sign(ORIGIN, leaf, tree.root(leaf), notary.identity.key)
    assert len(msgspec.json.encode(make_proof(tree, head, 5, 0))) < 5500


@pytest.mark.parametrize("before", [5, 31, 32, 33, 60, 99])
def test_two_heads_that_are_not_of_one_log_are_evidence(before: int) -> None:
    """The other device's log has another publication before the last head, and equal later entries."""
    other = grow_log(0)
    other.enter(entry(0, "secret"))
    for place in range(1, 100):
        other.enter(entry(place))
    last = grow_log(before).head()
    proof = other.proof("test", 100)
    if is_after_head(proof, last):
        proof = other.proof("test", 100, continuation_block(last))
    with pytest.raises(LogForked):
        verify_proof(proof, entry(99), other.identity.public, last)


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
def test_every_forged_proof_has_its_error(lie: str) -> None:
    notary, (kind, change) = grow_log(100), LIES[lie]
    proof = notary.proof("test", 100)
    with pytest.raises(kind) as caught:
        verify_proof(change(proof), entry(99), notary.identity.public, notary.head(90))
    assert caught.value.remedy


def test_an_older_head_and_another_log_are_refused() -> None:
    notary = grow_log(100)
    proof, key = notary.proof("test", 100), notary.identity.public
    later = grow_log(101).head()
    with pytest.raises(LogRollback):
        verify_proof(proof, entry(99), key, later)
    other_log = grow_log(200, origin="privateer/log/ffffffffffffffff")
    with pytest.raises(KeyChanged, match="another log"):
        verify_proof(other_log.proof("test", 100), entry(99), key, later)
    with pytest.raises(ProofInvalid, match="not in the server's log"):
        verify_proof(proof, entry(99, "other"), key, None)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"head": 1}', b"[" * 5000, b"\xff"])
def test_a_response_that_is_no_proof_is_refused(body: bytes) -> None:
    with pytest.raises(ProofInvalid, match="not a proof"):
        read_proof(body)


def test_signatures_of_publications() -> None:
    notary, body = Notary(), b"a publication"
    signed, key = notary.identity.signature_header(digest(body)), notary.identity.public
    assert verify_signature(signed, body, {key}) == verify_signature(signed, body, frozenset()) == key
    with pytest.raises(SignatureInvalid, match="not that of this publication"):
        verify_signature(signed, b"another", {key})
    with pytest.raises(KeyChanged):
        verify_signature(signed, body, {b"1" * 32})
    for broken in ("", signed[:-1], signed.upper(), signed.replace(".", ":"), f"{signed}\n"):
        with pytest.raises(SignatureInvalid, match="not signed"):
            verify_signature(broken, body, frozenset())


def test_keys_are_named_one_by_one() -> None:
    assert parse_public_keys("", "server_key") == frozenset()
    assert len(parse_public_keys(f"{'a' * 64}, {'b' * 64}", "server_key")) == 2
    with pytest.raises(InputError, match="server_key"):
        parse_public_keys("abc", "server_key")


LEAVES = [leaf_hash(bytes.fromhex(entry)) for entry in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
)]  # fmt: skip
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
MANY = [leaf_hash(bytes([place])) for place in range(70)]


def defined(leaves: list[bytes]) -> bytes:
    """The root by the recursive definition."""
    if len(leaves) == 1:
        return leaves[0]
    middle = 1 << (len(leaves) - 1).bit_length() - 1
    return node_hash(defined(leaves[:middle]), defined(leaves[middle:]))


def test_roots_are_those_of_certificate_transparency() -> None:
    tree = MerkleTree(LEAVES)
    assert [tree.root(size).hex() for size in range(1, 9)] == ROOTS
    assert tree.root(0) == EMPTY_ROOT


@pytest.mark.parametrize("size", [1, 2, 3, 7, 32, 33, 63, 70])
def test_valid_proofs_are_accepted_and_changed_proofs_refused(size: int) -> None:
    tree = MerkleTree(MANY)
    root = tree.root(size)
    assert root == defined(MANY[:size]) == tree.peaks(size).root
    for index in range(size):
        path = tree.inclusion_proof(index, size)
        assert is_included(MANY[index], index, size, path, root)
        assert not is_included(MANY[index], index, size, [*path, bytes(32)], root)
        assert not is_included(MANY[index], index, size, path[:-1], root) or not path
        assert not is_included(MANY[(index + 1) % 70], index, size, path, root)
        assert not is_included(MANY[index], index + 1, size, path, root)
    for first in range(1, size):
        path, before = tree.consistency_proof(first, size), tree.root(first)
        assert is_consistent(first, before, size, root, path)
        assert not is_consistent(first, before, size, root, path[:-1])
        assert not is_consistent(first, before, size, root, [*path, bytes(32)])
        assert not is_consistent(first, bytes(32), size, root, path)
        assert not is_consistent(first, before, size, bytes(32), path)
    assert is_consistent(size, root, size, root, [])
    assert not is_consistent(0, EMPTY_ROOT, size, root, [])
    assert not is_included(MANY[0], -1, size, [], root)


def test_peaks_grow_as_the_tree_does() -> None:
    tree, peaks = MerkleTree(MANY), Peaks(0, [])
    for size, leaf in enumerate(MANY, 1):
        assert peaks.add(leaf).root == tree.root(size)
    with pytest.raises(ValueError, match="subtree"):
        Peaks(3, [bytes(32)])
