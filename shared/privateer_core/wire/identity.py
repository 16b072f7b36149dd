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
SIGNED_PATTERN: Final = r"[0-9a-f]{64}\.[0-9a-f]{128}"
_SIGNED_REGEX: Final = re.compile(SIGNED_PATTERN, re.ASCII)
_KEY_REGEX: Final = re.compile("[0-9a-f]{64}", re.ASCII)
_PURPOSE: Final = b"privateer/publication/1\0"
_SIGNATURE_CACHE_SIZE: Final = 1024
_REMEDY: Final = "fetch it again; if it stays so, ask the server's operator"


class Identity:
    """The server's signing key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self.key = key
        self.public = key.public_key().public_bytes_raw()
        # The same policy is fetched again and again, and its signature is always the same.
        self.signature_header = lru_cache(maxsize=_SIGNATURE_CACHE_SIZE)(self._build_signature_header)

    def _build_signature_header(self, publication_digest: bytes) -> str:
        """Return the text of the signature header for the publication with this digest."""
        return f"{self.public.hex()}.{self.key.sign(_PURPOSE + publication_digest).hex()}"


class PublicationSignature(NamedTuple):
    """The public key in a signature header, and the signature. Neither is verified yet."""

    key: bytes
    signature: bytes


def parse_signature(text: str) -> PublicationSignature:
    """Return key and signature of a signature header, not verified, and refuse other texts."""
    if not _SIGNED_REGEX.fullmatch(text):
        detail = "the publication is not signed"
        raise SignatureInvalid(detail, field=SIGNED_HEADER, remedy="update the server, or look for who is in between")
    key, _, signature = text.partition(".")
    return PublicationSignature(bytes.fromhex(key), bytes.fromhex(signature))


def verify_signature(text: str, body: bytes, accepted_keys: Collection[bytes]) -> bytes:
    """Return the public key that signed a publication, and refuse a wrong signature or a key that is not accepted.

    accepted_keys: the keys that the server may have; empty accepts any key, for the first contact.
    """
    parsed = parse_signature(text)
    if accepted_keys and parsed.key not in accepted_keys:
        raise key_changed_error()
    try:
        Ed25519PublicKey.from_public_bytes(parsed.key).verify(parsed.signature, _PURPOSE + digest(body))
    except InvalidSignature:
        detail = "the signature is not that of this publication"
        raise SignatureInvalid(detail, field=SIGNED_HEADER, remedy=_REMEDY) from None
    return parsed.key


def key_changed_error() -> KeyChanged:
    """Return the error about a server key that is not among the accepted keys."""
    remedy = "ask its operator in another way: if the key was replaced, name the new one, "
    remedy += "as server_key or for a shuffler as PRIVATEER_SERVER_KEY"
    return KeyChanged("the server signs with another key than the known one", field="server_key", remedy=remedy)


def fingerprint(key: bytes) -> str:
    """Return the SHA-256 of a public key, hexadecimal."""
    return hashlib.sha256(key).hexdigest()


def parse_public_keys(text: str, field: str) -> frozenset[bytes]:
    """Parse public keys of 64 hexadecimal digits, separated by commas or space; refuse other text."""
    words = text.replace(",", " ").split()
    if not all(map(_KEY_REGEX.fullmatch, words)):
        raise InputError("a key has 64 hexadecimal digits", field=field, remedy="copy what privateer log key prints")
    return frozenset(map(bytes.fromhex, words))
