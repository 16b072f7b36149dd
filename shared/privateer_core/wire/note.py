"""Signed notes: a text and who signed it, in the format of C2SP signed-note, with Ed25519."""

import base64
import hashlib
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer_core.errors import SignatureInvalid

NOTE_BYTES_MAX: Final = 4 << 10
_ED25519: Final = b"\x01"
_ID_SIZE: Final = 4
_DASH: Final = "— "
_REMEDY: Final = "fetch it again; if it stays so, ask the server's operator"


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
    """Return what a note says. Signatures under other names or by other keys count for nothing.

    Raises
    ------
    SignatureInvalid
        If ``key`` has not signed it under this name.
    """
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
    return SignatureInvalid("the head of the log is not signed by the server's key", field="head", remedy=_REMEDY)
