"""The public keys of an issuer of upload tokens, by experiment, and the issuer's directory document.

The document is the issuer's directory of RFC 9578, section 4, with three departures. It has one list of keys for each
experiment, since the issuer counts tokens by experiment and cannot see what a blinded token is for. A key has a
``not-after``. The ``issuer`` is named, as challenges name it.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers

from privateer_core.errors import Malformed
from privateer_core.prepared_types import cache_decoder

MEDIA_TYPE: Final = "application/private-token-issuer-directory"
MODULUS_BITS: Final = 2048
EXPONENT: Final = 65537
VALID_KEYS_MAX: Final = 2
"""Number of keys of one experiment that may be valid at a time; more keys would make devices distinguishable."""
_PREFIX: Final = bytes.fromhex(
    "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d010108"
    "300b0609608648016503040202a2030201300382010f00"
)
"""A SubjectPublicKeyInfo up to the key itself: id-RSASSA-PSS with SHA-384, MGF1 with SHA-384 and 48 bytes of salt."""
_RSA_PREFIX: Final = bytes.fromhex("30820122300d06092a864886f70d01010105000382010f00")
"""The same prefix for a key with the generic id rsaEncryption, which `cryptography` reads and writes."""


@dataclass(frozen=True)
class TokenKey:
    """An issuer's public key for the tokens of one experiment."""

    encoded: bytes  # its SubjectPublicKeyInfo
    # not_before, not_after: its validity, in seconds since 1970. Its tokens are accepted as long as it is valid.
    not_before: int
    not_after: int

    def __post_init__(self) -> None:
        try:
            numbers = self.public.public_numbers()
        except (ValueError, TypeError):
            raise _unusable_key_error() from None
        if _encode_rsa_key(numbers) != self.encoded or numbers.n.bit_length() != MODULUS_BITS or numbers.e != EXPONENT:
            raise _unusable_key_error()
        if not 0 <= self.not_before < self.not_after:
            raise Malformed("a token key's times are not in order", field="not-after", remedy="ask its issuer")

    @classmethod
    def from_rsa_key(cls, key: RSAPublicKey, not_before: int, not_after: int) -> Self:
        """Return a token key from an RSA key and its validity."""
        return cls(_encode_rsa_key(key.public_numbers()), not_before, not_after)

    @cached_property
    def public(self) -> RSAPublicKey:
        """The RSA public key."""
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        if not self.encoded.startswith(_PREFIX):
            raise ValueError
        numbers = load_der_public_key(_RSA_PREFIX + self.encoded[len(_PREFIX) :])
        if not isinstance(numbers, RSAPublicKey):
            raise TypeError
        return numbers

    @cached_property
    def id(self) -> bytes:
        """SHA-256 of the encoded key."""
        return hashlib.sha256(self.encoded).digest()

    def is_valid(self, now: float) -> bool:
        """Whether the key is valid at a time in seconds since 1970."""
        return self.not_before <= now < self.not_after


def _encode_rsa_key(numbers: RSAPublicNumbers) -> bytes:
    """Return a key's SubjectPublicKeyInfo with the id of RSASSA-PSS that tokens require."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    plain = numbers.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return _PREFIX + plain[len(_RSA_PREFIX) :]


def _unusable_key_error() -> Malformed:
    remedy = "ask its issuer for the document that it shows now"
    return Malformed("not an RSA key of 2048 bits for RSASSA-PSS with SHA-384", field="token-key", remedy=remedy)


class _Key(msgspec.Struct, frozen=True, rename="kebab"):
    token_type: int
    token_key: str
    not_before: int
    not_after: int


class _Keys(msgspec.Struct, frozen=True, rename="kebab"):
    issuer_request_uri: str
    token_keys: list[_Key]


class Directory(msgspec.Struct, frozen=True, rename="kebab"):
    """An issuer's directory of token keys."""

    issuer: str  # the issuer's name, as in challenges
    experiments: dict[str, _Keys]  # a directory as in RFC 9578, by experiment

    @classmethod
    def from_keys(cls, issuer: str, keys: Mapping[str, list[TokenKey]]) -> Self:
        """Return the directory of an issuer with these keys by experiment."""
        entries = {name: list(map(_key_entry, group)) for name, group in keys.items()}
        return cls(issuer, {name: _Keys(f"/experiments/{name}/tokens", group) for name, group in entries.items()})

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Parse a directory from JSON, and refuse other bytes."""
        try:
            return msgspec.json.decode(body, type=cache_decoder(cls))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Malformed("not a directory of token keys", remedy="ask the issuer for its document") from None

    def encode(self) -> bytes:
        """Return the directory as JSON."""
        return msgspec.json.encode(self)

    def keys(self, experiment: str) -> list[TokenKey]:
        """Return an experiment's keys, the newest first."""
        rows = self.experiments[experiment].token_keys if experiment in self.experiments else []
        rows = sorted((row for row in rows if row.token_type == 2), key=lambda row: row.not_before, reverse=True)
        return [TokenKey(unbase64url(row.token_key), row.not_before, row.not_after) for row in rows]


def _key_entry(key: TokenKey) -> _Key:
    return _Key(2, base64url(key.encoded), key.not_before, key.not_after)


def base64url(raw: bytes) -> str:
    """Encode bytes with base64url and padding."""
    return base64.urlsafe_b64encode(raw).decode()


def unbase64url(text: str | bytes) -> bytes:
    """Decode base64url with padding, and refuse all other spellings of the same bytes."""
    try:
        decoded = base64.urlsafe_b64decode(text)
    except (binascii.Error, ValueError):
        decoded = b""
    if base64url(decoded).encode() != (text.encode() if isinstance(text, str) else text):
        raise Malformed("not base64url with padding", remedy="see RFC 4648, section 5")
    return decoded
