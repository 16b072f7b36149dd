"""The log of all publications of a server: it only grows, and everybody can check that it does.

A leaf is an experiment, a version and the digest of its publication; they form the Merkle tree of RFC 9162. The server
signs heads in the format of C2SP tlog-checkpoint: the name of the log, the number of leaves, and the tree's root:
a signed note (C2SP signed-note, with Ed25519).

A device that named the size of its last head would tell the server when it came last. So the proof for a device carries
the last leaves one by one, from a multiple of `BLOCK` on: all who came meanwhile learn what they need from the same
bytes.
"""

import base64
import binascii
import hashlib
import re
from typing import Annotated, Final, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer_core.errors import HeadWentBack, KeyChanged, LogForked, ProofInvalid, SignatureInvalid
from privateer_core.prepared_types import prepared
from privateer_core.wire.merkle import (
    HASH_SIZE,
    MerkleTree,
    Peaks,
    consistent,
    included,
    leaf_hash,
)
from privateer_core.wire.publication import DIGEST_SIZE

BLOCK: Final = 32
"""Leaves by which a proof for devices begins."""
PROOF_BYTES_MAX: Final = 64 << 10
_TEXT: Final = re.compile(r"(privateer/log/[0-9a-f]{16})\n(0|[1-9][0-9]{0,14})\n([A-Za-z0-9+/]{43}=)\n(?:[^\n]+\n)*")
_REMEDY: Final = "keep the evidence, and ask the server's operator"
Place = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
"""A number of leaves, which JavaScript can hold as well."""
NOTE_BYTES_MAX: Final = 4 << 10
_ED25519: Final = b"\x01"
_ID_SIZE: Final = 4
_DASH: Final = "— "
_FETCH_AGAIN: Final = "fetch it again; if it stays so, ask the server's operator"


class Note(NamedTuple):
    """A text whose signature holds, and the whole note."""

    text: str
    signed: str


def sign_note(text: str, name: str, key: Ed25519PrivateKey) -> str:
    """Return a note: a text that ends with a newline, and one line with the signature of ``key`` under a name."""
    public = key.public_key()
    stamp = base64.b64encode(_key_hash(name, public) + key.sign(text.encode())).decode()
    return f"{text}\n{_DASH}{name} {stamp}\n"


def open_note(signed: str, name: str, key: Ed25519PublicKey) -> Note:
    """Return what a note says. Signatures under other names or by other keys count for nothing."""
    text, gap, lines = signed.rpartition("\n\n")
    text += "\n"
    if not gap or len(signed) > NOTE_BYTES_MAX:
        raise _unsigned()
    for line in lines.split("\n"):
        stamp = _stamp(line, name)
        if stamp[:_ID_SIZE] != _key_hash(name, key):
            continue
        try:
            key.verify(stamp[_ID_SIZE:], text.encode())
        except InvalidSignature:
            raise _unsigned() from None
        return Note(text, signed)
    raise _unsigned()


def verifier(name: str, key: Ed25519PublicKey) -> str:
    """Return a name and a key as other programs that read signed notes take them."""
    encoded = base64.b64encode(_ED25519 + key.public_bytes_raw()).decode()
    return f"{name}+{_key_hash(name, key).hex()}+{encoded}"


def _stamp(line: str, name: str) -> bytes:
    """Return key hash and signature in a signature line under this name; nothing if it is another's."""
    before = f"{_DASH}{name} "
    if not line.startswith(before):
        return b""
    try:
        return base64.b64decode(line[len(before) :], validate=True)
    except ValueError:  # no base64, or no ASCII
        return b""


def _key_hash(name: str, key: Ed25519PublicKey) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + key.public_bytes_raw()).digest()[:_ID_SIZE]


def _unsigned() -> SignatureInvalid:
    return SignatureInvalid("the head of the log is not signed by the server's key", field="head", remedy=_FETCH_AGAIN)


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A publication in the log."""

    experiment: str
    version: int
    digest: bytes

    def __post_init__(self) -> None:
        if self.version < 1 or len(self.digest) != DIGEST_SIZE:
            raise ValueError("versions count from 1, and a digest has 32 bytes")

    @property
    def leaf(self) -> bytes:
        """The hash of its leaf: that of its msgpack."""
        return leaf_hash(msgspec.msgpack.encode(self))


class Head(NamedTuple):
    """The content of a log's signed head."""

    origin: str  # name of the log
    # size, root: number of its leaves, and root of their tree
    size: int
    root: bytes
    signed: str  # the whole signed note

    @classmethod
    def sign(cls, origin: str, size: int, root: bytes, key: Ed25519PrivateKey) -> "Head":
        """Sign the head of a log."""
        text = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"
        return cls(origin, size, root, sign_note(text, origin, key))

    @staticmethod
    def is_one(text: str) -> bool:
        """Whether a text looks like a head, no matter who signed it."""
        return _TEXT.match(text) is not None

    @classmethod
    def open(cls, signed: str, key: bytes) -> "Head":
        """Return what a head says that this key has signed."""
        found = _TEXT.match(signed)
        if found is None:
            raise SignatureInvalid("this is not the head of a log", field="head", remedy="fetch it again")
        origin, size, root = found.groups()
        note: Note = open_note(signed, origin, Ed25519PublicKey.from_public_bytes(key))
        if _TEXT.fullmatch(note.text) is None:
            raise SignatureInvalid("this is not the head of a log", field="head", remedy="fetch it again")
        return cls(origin, int(size), base64.b64decode(root), signed)


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That a publication is in the log, and that the log continues what it was. Hashes are in base64, put together."""

    head: str  # the signed head
    # index, inclusion: place of the publication's leaf, and the path from there to the root (RFC 9162, section 2.1.3)
    index: Place
    inclusion: str
    # start, peaks: a multiple of 32, and the roots of the complete subtrees over the leaves before it, the largest
    # first
    start: Place
    peaks: str
    leaves: str  # hashes of the leaves from there on: to the end, or of one block
    # proof that the tree of the head begins with that of the leaves so far (section 2.1.4); empty at the end
    consistency: str = ""


def prove(tree: MerkleTree, head: Head, index: int, block: int | None = None) -> Proof:
    """Return the proof for devices; by default with the last leaves, 33 to 64 of them once there are so many.

    block: the number of the block from which a device knows how the log goes on.
    """
    start = _usual_start(head) if block is None else BLOCK * block
    end = head.size if block is None else min(start + BLOCK, head.size)
    return Proof(
        head=head.signed,
        index=index,
        inclusion=_packed(tree.inclusion(index, head.size)),
        start=start,
        peaks=_packed(tree.peaks(start).hashes),
        leaves=base64.b64encode(tree.leaves(start, end)).decode(),
        consistency=_packed(tree.consistency(end, head.size)) if 0 < end < head.size else "",
    )


def read_proof(body: bytes) -> Proof:
    """Parse a proof."""
    try:
        return msgspec.json.decode(body, type=prepared(Proof))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ProofInvalid("the answer is not a proof", field="proof", remedy="fetch it again") from None


def _usual_start(head: Head) -> int:
    return BLOCK * max(0, (head.size - 1) // BLOCK - 1)


def check_start(proof: Proof, key: bytes) -> None:
    """Refuse a proof, asked for without a block, with fewer of the last leaves than the size of its head asks for.

    Else a server that tells little would learn who has a head already, and anybody who has would name its block.
    """
    if proof.start > _usual_start(Head.open(proof.head, key)):
        raise ProofInvalid("the proof begins later than the log's size asks for", field="start", remedy=_REMEDY)


def starts_too_late(proof: Proof, last: Head | None) -> bool:
    """Whether a proof says nothing of the head that is known: it must be asked for with that one's block."""
    return last is not None and last.size < proof.start


def block_of(head: Head) -> int:
    """Return the block whose leaves show how the log went on from a head."""
    return head.size // BLOCK


def check_proof(proof: Proof, entry: Entry, key: bytes, last: Head | None) -> Head:
    """Return the head of a proof that shows that an entry is in the log, and that the log continues the last head."""
    head = Head.open(proof.head, key)
    check_order(head, last)
    inclusion, leaves = _unpacked(proof.inclusion), _unpacked(proof.leaves)
    if not included(entry.leaf, proof.index, head.size, inclusion, head.root):
        detail = "the publication is not in the server's log"
        raise ProofInvalid(detail, field="inclusion", remedy=_REMEDY)
    try:
        peaks = Peaks(proof.start, _unpacked(proof.peaks))
    except (ValueError, OverflowError):
        raise _misshapen() from None
    if starts_too_late(proof, last) or proof.start % BLOCK:
        raise _misshapen()
    then = peaks.root if last is not None and last.size == proof.start else b""
    for leaf in leaves:
        peaks.add(leaf)
        if last is not None and last.size == peaks.size:
            then = peaks.root
    if not consistent(peaks.size, peaks.root, head.size, head.root, _unpacked(proof.consistency)):
        raise _misshapen()
    # The leaves are those of the head, whatever the server meant by them: so the last head is not.
    if last is not None and (last.size > peaks.size or (last.size and then != last.root)):
        raise _misshapen() if last.size > peaks.size else forked()
    return head


def check_order(head: Head, last: Head | None) -> None:
    """Refuse a head of another log, one that went back, and one that is as large as the last and not the same."""
    if last is None:
        return
    if head.origin != last.origin:
        remedy = "ask its operator in another way; if the log was lost with its disk, name a new key (server_key)"
        raise KeyChanged("the server keeps another log than the known one", field="head", remedy=remedy)
    if head.size < last.size:
        raise HeadWentBack("the head of the log is older than the last one", field="head", remedy=_REMEDY)
    if head.size == last.size and head.root != last.root:
        raise forked()


def forked() -> LogForked:
    """Return the accusation that two signed heads are not of one log."""
    return LogForked("the log is no continuation of its last head", field="head", remedy=_REMEDY)


def _misshapen() -> ProofInvalid:
    return ProofInvalid("the proof does not lead to the head", field="consistency", remedy=_REMEDY)


def _packed(hashes: list[bytes]) -> str:
    return base64.b64encode(b"".join(hashes)).decode()


def _unpacked(text: str) -> list[bytes]:
    try:
        joined = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        joined = b"?"
    if len(joined) % HASH_SIZE:
        raise _misshapen()
    return [joined[place : place + HASH_SIZE] for place in range(0, len(joined), HASH_SIZE)]
