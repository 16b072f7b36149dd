"""A learning server's identity: the key that signs its publications and the heads of its log."""

import hashlib
import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer_core.errors import InputError, KeyChanged, SignatureInvalid
from privateer_core.wire.publication import digest

SIGNED_HEADER: Final = "Privateer-Signed"
"""A header of the answer that carries a publication: the server's public key, a dot, and its signature, hexadecimal."""
SIGNED_FORM: Final = r"[0-9a-f]{64}\.[0-9a-f]{128}"
_FORM: Final = re.compile(SIGNED_FORM, re.ASCII)
_KEY: Final = re.compile("[0-9a-f]{64}", re.ASCII)
_PURPOSE: Final = b"privateer/publication/1\0"
_KEPT: Final = 1024
_REMEDY: Final = "fetch it again; if it stays so, ask the server's operator"


class Identity:
    """The private half, for the server."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self.key = key
        self.public = key.public_key().public_bytes_raw()
        # The same policy is fetched again and again, and its signature is always the same.
        self.signed = lru_cache(maxsize=_KEPT)(self._signed)

    def _signed(self, name: bytes) -> str:
        """Return the header's text for the publication of this digest."""
        return f"{self.public.hex()}.{self.key.sign(_PURPOSE + name).hex()}"


class Signed(NamedTuple):
    """The key that a publication claims to be signed with, and the signature."""

    key: bytes
    signature: bytes


def read_signed(text: str) -> Signed:
    """Parse a header's text."""
    if not _FORM.fullmatch(text):
        detail = "the publication is not signed"
        raise SignatureInvalid(detail, field=SIGNED_HEADER, remedy="update the server, or look for who is in between")
    key, _, signature = text.partition(".")
    return Signed(bytes.fromhex(key), bytes.fromhex(signature))


def check_signed(text: str, body: bytes, known: Collection[bytes]) -> bytes:
    """Return the public key that signed a publication.

    text: what the header says.
    known: the keys that the server may have; empty: any, since it is met for the first time.
    """
    signed = read_signed(text)
    if known and signed.key not in known:
        raise key_changed()
    try:
        Ed25519PublicKey.from_public_bytes(signed.key).verify(signed.signature, _PURPOSE + digest(body))
    except InvalidSignature:
        raise SignatureInvalid(
            "the signature is not that of this publication", field=SIGNED_HEADER, remedy=_REMEDY
        ) from None
    return signed.key


def key_changed() -> KeyChanged:
    """Return the refusal of a key that is not the known one."""
    return KeyChanged(
        "the server signs with another key than the known one",
        field="server_key",
        remedy="ask its operator in another way: if the key was replaced, name the new one, "
        "as server_key or for a shuffler as PRIVATEER_SERVER_KEY",
    )


def fingerprint(key: bytes) -> str:
    """Return the SHA-256 of a public key, hexadecimal: short enough to be read aloud in parts."""
    return hashlib.sha256(key).hexdigest()


def read_keys(text: str, field: str) -> frozenset[bytes]:
    """Parse public keys of 64 hexadecimal digits, separated by commas or space."""
    parts = text.replace(",", " ").split()
    if not all(map(_KEY.fullmatch, parts)):
        raise InputError("a key has 64 hexadecimal digits", field=field, remedy="copy what privateer log key prints")
    return frozenset(map(bytes.fromhex, parts))
