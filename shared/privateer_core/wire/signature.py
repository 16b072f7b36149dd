"""Signatures in the headers of a request: a service knows who sends a body, and how much, before it reads it."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer_core.clock import SystemClock
from privateer_core.errors import PrivateerError
from privateer_core.wire.keys import signing_key_id

SECONDS_APART: Final = 300
"""How far the clocks of sender and service may be apart, and how long a signature is valid."""
FORM: Final = r"([0-9a-f]{16})\.([0-9]{1,12})\.([0-9]{1,15})\.([0-9a-f]{64})\.([0-9a-f]{128})"
"""Key id, time, length, digest and signature."""
_FORM: Final = re.compile(FORM)


@dataclass(frozen=True)
class Announcement:
    """The facts that a valid signature states about the body that follows.

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


@dataclass(frozen=True)
class Purpose:
    """The purpose of a signature, which is valid for nothing else.

    Attributes
    ----------
    tag
        Is signed along with the body.
    header
        Name of the HTTP header that carries the signature.
    what, signer
        What is signed and who may sign it, for messages.
    refusal, remedy
        The error if the signature is not valid, and what to do then.
    """

    tag: bytes
    header: str
    what: str
    signer: str
    refusal: type[PrivateerError]
    remedy: str

    def sign(self, body: bytes, key: Ed25519PrivateKey, now: float | None = None) -> str:
        """Return the header's text for ``body``: key id, time, length, digest and signature, separated by dots.

        ``now`` is in seconds since 1970, by default by the system's clock.
        """
        time = int(SystemClock().now() if now is None else now)
        claim = f"{signing_key_id(key.public_key())}.{time}.{len(body)}.{hashlib.sha256(body).hexdigest()}"
        return f"{claim}.{key.sign(self.tag + claim.encode()).hex()}"

    def check(self, text: str, keys: Mapping[str, Ed25519PublicKey], now: float) -> Announcement:
        """Return what a header's text says about the body that follows.

        Raises
        ------
        PrivateerError
            A ``refusal``, unless one of ``keys`` (by id) signed for this purpose within five minutes of ``now``.
        """
        found = _FORM.fullmatch(text)
        if found is None or abs(int(found[2]) - now) > SECONDS_APART or found[1] not in keys:
            raise self.unsigned()
        try:
            keys[found[1]].verify(bytes.fromhex(found[5]), self.tag + text[: -len(found[5]) - 1].encode())
        except InvalidSignature:
            raise self.unsigned() from None
        return Announcement(found[1], int(found[2]), int(found[3]), bytes.fromhex(found[4]))

    def unsigned(self) -> PrivateerError:
        """Return the refusal of a signature that is not valid."""
        detail = f"the {self.what} is not signed by a trusted {self.signer} within {SECONDS_APART} seconds"
        return self.refusal(detail, field=self.header, remedy=self.remedy)

    def changed(self) -> PrivateerError:
        """Return the refusal of a body that is not the one that was signed."""
        detail = f"the {self.what} is not the one that was signed"
        return self.refusal(detail, field=self.header, remedy="send it again")
