"""The transparency log of a server's publications: an append-only log that everybody can verify.

A leaf is an experiment, a version and the digest of its publication; they form the Merkle tree of RFC 9162. The server
signs heads in the format of C2SP tlog-checkpoint: the name of the log, the number of leaves, and the tree's root:
a signed note (C2SP signed-note, with Ed25519).

A device that named the size of its last head would tell the server when it asked last. So a proof for devices carries
the last leaves one by one, from a multiple of `BLOCK` on, and all devices that asked since then can use the same bytes.
"""

import base64
import binascii
import hashlib
import re
from typing import Annotated, Final, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer_core.errors import KeyChanged, LogForked, LogRollback, ProofInvalid, SignatureInvalid
from privateer_core.prepared_types import cache_decoder
from privateer_core.wire.merkle import HASH_SIZE, MerkleTree, Peaks, is_consistent, is_included, leaf_hash
from privateer_core.wire.publication import DIGEST_SIZE

BLOCK: Final = 32
"""Number of leaves in a block; the leaves in a proof for devices begin with a block."""
PROOF_BYTES_MAX: Final = 64 << 10
_HEAD: Final = re.compile(r"(privateer/log/[0-9a-f]{16})\n(0|[1-9][0-9]{0,14})\n([A-Za-z0-9+/]{43}=)\n(?:[^\n]+\n)*")
_REMEDY: Final = "keep the evidence, and ask the server's operator"
LeafCount = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
"""A number of leaves that is exact in JavaScript, too."""
NOTE_BYTES_MAX: Final = 4 << 10
_ED25519: Final = b"\x01"
_ID_SIZE: Final = 4
_SIGNATURE_LINE_PREFIX: Final = "— "
_FETCH_AGAIN: Final = "fetch it again; if it stays so, ask the server's operator"


class Note(NamedTuple):
    """The verified text of a signed note, and the whole note."""

    text: str
    signed: str


def sign_note(text: str, name: str, key: Ed25519PrivateKey) -> str:
    """Return a signed note: a text that ends with a newline, and a line with the signature of ``key`` under a name."""
    public = key.public_key()
    stamp = base64.b64encode(_key_hash(name, public) + key.sign(text.encode())).decode()
    return f"{text}\n{_SIGNATURE_LINE_PREFIX}{name} {stamp}\n"


def verify_note(signed: str, name: str, key: Ed25519PublicKey) -> Note:
    """Return the text of a note that this key signed under this name, and refuse others."""
    text, separator, lines = signed.rpartition("\n\n")
    text += "\n"
    if not separator or len(signed) > NOTE_BYTES_MAX:
        raise _unsigned_error()
    for line in lines.split("\n"):
        stamp = _decode_signature_line(line, name)
        if stamp[:_ID_SIZE] != _key_hash(name, key):
            continue
        try:
            key.verify(stamp[_ID_SIZE:], text.encode())
        except InvalidSignature:
            raise _unsigned_error() from None
        return Note(text, signed)
    raise _unsigned_error()


def verifier_key(name: str, key: Ed25519PublicKey) -> str:
    """Return the verifier key of a name and a key, in the format of C2SP signed-note."""
    encoded = base64.b64encode(_ED25519 + key.public_bytes_raw()).decode()
    return f"{name}+{_key_hash(name, key).hex()}+{encoded}"


def _decode_signature_line(line: str, name: str) -> bytes:
    """Return key hash and signature in a signature line; empty if it is under another name."""
    prefix = f"{_SIGNATURE_LINE_PREFIX}{name} "
    if not line.startswith(prefix):
        return b""
    try:
        return base64.b64decode(line[len(prefix) :], validate=True)
    except ValueError:  # no base64, or no ASCII
        return b""


def _key_hash(name: str, key: Ed25519PublicKey) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + key.public_bytes_raw()).digest()[:_ID_SIZE]


def _unsigned_error() -> SignatureInvalid:
    return SignatureInvalid("the head of the log is not signed by the server's key", field="head", remedy=_FETCH_AGAIN)


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An entry of the log: a publication's experiment, version and digest."""

    experiment: str
    version: int
    digest: bytes

    def __post_init__(self) -> None:
        if self.version < 1 or len(self.digest) != DIGEST_SIZE:
            raise ValueError("versions count from 1, and a digest has 32 bytes")

    @property
    def leaf(self) -> bytes:
        """The leaf hash of the entry's msgpack."""
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
    def is_head_text(text: str) -> bool:
        """Whether a text has the form of a head. Its signature is not verified."""
        return _HEAD.match(text) is not None

    @classmethod
    def verify(cls, signed: str, key: bytes) -> "Head":
        """Return the head in a signed note, and refuse one that the key has not signed."""
        match = _HEAD.match(signed)
        note = match and verify_note(signed, match[1], Ed25519PublicKey.from_public_bytes(key))
        if match is None or note is None or _HEAD.fullmatch(note.text) is None:
            raise SignatureInvalid("this is not the head of a log", field="head", remedy="fetch it again")
        return cls(match[1], int(match[2]), base64.b64decode(match[3]), signed)


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A proof that a publication is in the log, and that the log continues earlier heads. Hashes are in base64."""

    head: str  # the signed head
    # index, inclusion: index of the publication's leaf, and its inclusion proof (RFC 9162, section 2.1.3)
    index: LeafCount
    inclusion: str
    # start, peaks: a multiple of 32, and the roots of the complete subtrees over the leaves before it, the largest
    # first
    start: LeafCount
    peaks: str
    leaves: str  # hashes of the leaves from ``start`` on: to the end, or of one block
    # consistency proof of the head with the tree up to these leaves (section 2.1.4); empty at the end
    consistency: str = ""


def make_proof(tree: MerkleTree, head: Head, index: int, block: int | None = None) -> Proof:
    """Return the proof for devices, by default with the last 33 to 64 leaves.

    block: the number of the block whose leaves the proof carries instead.
    """
    start = _default_start(head) if block is None else BLOCK * block
    end = head.size if block is None else min(start + BLOCK, head.size)
    return Proof(
        head=head.signed,
        index=index,
        inclusion=_encode_hashes(tree.inclusion_proof(index, head.size)),
        start=start,
        peaks=_encode_hashes(tree.peaks(start).hashes),
        leaves=base64.b64encode(tree.leaves(start, end)).decode(),
        consistency=_encode_hashes(tree.consistency_proof(end, head.size)) if 0 < end < head.size else "",
    )


def read_proof(body: bytes) -> Proof:
    """Parse a proof from JSON, and refuse other bytes."""
    try:
        return msgspec.json.decode(body, type=cache_decoder(Proof))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ProofInvalid("the answer is not a proof", field="proof", remedy="fetch it again") from None


def _default_start(head: Head) -> int:
    return BLOCK * max(0, (head.size - 1) // BLOCK - 1)


def check_start(proof: Proof, key: bytes) -> None:
    """Refuse a default proof that has fewer of the last leaves than `make_proof` gives for the size of its head.

    Otherwise a server could send few leaves, and learn from the next request which block a device's head is in.
    """
    if proof.start > _default_start(Head.verify(proof.head, key)):
        raise ProofInvalid("the proof begins later than the log's size asks for", field="start", remedy=_REMEDY)


def is_after_head(proof: Proof, last: Head | None) -> bool:
    """Whether a proof's leaves begin after the last known head, so that the proof of that head's block is needed."""
    return last is not None and last.size < proof.start


def continuation_block(head: Head) -> int:
    """Return the number of the block with the leaves that follow a head."""
    return head.size // BLOCK


def verify_proof(proof: Proof, entry: Entry, key: bytes, last: Head | None) -> Head:
    """Return a proof's head, and refuse a proof without the entry, or that does not continue the last head."""
    head = Head.verify(proof.head, key)
    check_order(head, last)
    inclusion, leaves = _decode_hashes(proof.inclusion), _decode_hashes(proof.leaves)
    if not is_included(entry.leaf, proof.index, head.size, inclusion, head.root):
        raise ProofInvalid("the publication is not in the server's log", field="inclusion", remedy=_REMEDY)
    try:
        peaks = Peaks(proof.start, _decode_hashes(proof.peaks))
    except (ValueError, OverflowError):
        raise _malformed_proof_error() from None
    if is_after_head(proof, last) or proof.start % BLOCK:
        raise _malformed_proof_error()
    root_at_last = peaks.root if last is not None and last.size == proof.start else b""
    for leaf in leaves:
        peaks.add(leaf)
        if last is not None and last.size == peaks.size:
            root_at_last = peaks.root
    if not is_consistent(peaks.size, peaks.root, head.size, head.root, _decode_hashes(proof.consistency)):
        raise _malformed_proof_error()
    # The leaves belong to the head, so the last head does not.
    if last is not None and (last.size > peaks.size or (last.size and root_at_last != last.root)):
        raise _malformed_proof_error() if last.size > peaks.size else fork_error()
    return head


def check_order(head: Head, last: Head | None) -> None:
    """Refuse a head of another log, a smaller head, and a different head of the same size."""
    if last is None:
        return
    if head.origin != last.origin:
        remedy = "ask its operator in another way; if the log was lost with its disk, name a new key (server_key)"
        raise KeyChanged("the server keeps another log than the known one", field="head", remedy=remedy)
    if head.size < last.size:
        raise LogRollback("the head of the log is older than the last one", field="head", remedy=_REMEDY)
    if head.size == last.size and head.root != last.root:
        raise fork_error()


def fork_error() -> LogForked:
    """Return the error that two signed heads are not of one log."""
    return LogForked("the log is no continuation of its last head", field="head", remedy=_REMEDY)


def _malformed_proof_error() -> ProofInvalid:
    return ProofInvalid("the proof does not lead to the head", field="consistency", remedy=_REMEDY)


def _encode_hashes(hashes: list[bytes]) -> str:
    return base64.b64encode(b"".join(hashes)).decode()


def _decode_hashes(text: str) -> list[bytes]:
    """Parse concatenated hashes in base64, and refuse a proof with other text."""
    try:
        joined = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        joined = b"?"
    if len(joined) % HASH_SIZE:
        raise _malformed_proof_error()
    return [joined[start : start + HASH_SIZE] for start in range(0, len(joined), HASH_SIZE)]
