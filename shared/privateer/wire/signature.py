"""Signatures in the headers of a request: a service knows who sends a body, and how much, before it reads it."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer.clock import SystemClock
from privateer.wire.keys import signing_key_id

SECONDS_APART: Final = 300
"""How far the clocks of sender and service may be apart, and how long a signature is valid."""
_FORM: Final = re.compile(r"([0-9a-f]{16})\.(\d{1,12})\.(\d{1,15})\.([0-9a-f]{64})\.([0-9a-f]{128})", re.ASCII)


@dataclass(frozen=True)
class Announcement:
    """What a valid signature says about the body that follows.

    Attributes
    ----------
    key_id
        Id of the key that signed, hexadecimal.
    signed_at
        Seconds since 1970, by the sender's clock.
    length, digest
        Bytes of the body, and their SHA-256.
    """

    key_id: str
    signed_at: int
    length: int
    digest: bytes


def sign(purpose: bytes, body: bytes, key: Ed25519PrivateKey, now: float | None = None) -> str:
    """Return the header's text for ``body``: key id, time, length, digest and signature, separated by dots.

    Parameters
    ----------
    purpose
        What the body is. The signature is valid for no other purpose.
    now
        Seconds since 1970; default: by the system's clock.
    """
    time = int(SystemClock().now() if now is None else now)
    claim = f"{signing_key_id(key.public_key())}.{time}.{len(body)}.{hashlib.sha256(body).hexdigest()}"
    return f"{claim}.{key.sign(purpose + claim.encode()).hex()}"


def verify(purpose: bytes, text: str, keys: Mapping[str, Ed25519PublicKey], now: float) -> Announcement | None:
    """Return what a body's header says, or None unless one of ``keys`` (by id) signed it for this purpose and time."""
    found = _FORM.fullmatch(text)
    if found is None or abs(int(found[2]) - now) > SECONDS_APART:
        return None
    key = keys.get(found[1])
    if key is None:
        return None
    try:
        key.verify(bytes.fromhex(found[5]), purpose + text[: -len(found[5]) - 1].encode())
    except InvalidSignature:
        return None
    return Announcement(found[1], int(found[2]), int(found[3]), bytes.fromhex(found[4]))
