"""The public keys of an issuer of upload tokens, by experiment, and the document that shows them.

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
from privateer_core.prepared_types import prepared

MEDIA_TYPE: Final = "application/private-token-issuer-directory"
BITS: Final = 2048
EXPONENT: Final = 65537
VALID_MAX: Final = 2
"""Keys of one experiment that are valid at a time; more would tell devices apart."""
_PREFIX: Final = bytes.fromhex(
    "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d010108"
    "300b0609608648016503040202a2030201300382010f00"
)
"""A SubjectPublicKeyInfo up to the key itself: id-RSASSA-PSS with SHA-384, MGF1 with SHA-384 and 48 bytes of salt."""
_RSA_PREFIX: Final = bytes.fromhex("30820122300d06092a864886f70d01010105000382010f00")
"""The same of a key that does not say what it is for, as `cryptography` reads and writes it."""


@dataclass(frozen=True)
class TokenKey:
    """A key that an issuer signs tokens of one experiment with."""

    encoded: bytes  # its SubjectPublicKeyInfo
    # not_before, not_after: when it is valid, in seconds since 1970. Its tokens count as long as it is valid.
    not_before: int
    not_after: int

    def __post_init__(self) -> None:
        try:
            numbers = self.public.public_numbers()
        except (ValueError, TypeError):
            raise _unfit() from None
        if _encoded(numbers) != self.encoded or numbers.n.bit_length() != BITS or numbers.e != EXPONENT:
            raise _unfit()
        if not 0 <= self.not_before < self.not_after:
            raise Malformed("a token key's times are not in order", field="not-after", remedy="ask its issuer")

    @classmethod
    def of(cls, key: RSAPublicKey, not_before: int, not_after: int) -> Self:
        """Return a key with its times."""
        return cls(_encoded(key.public_numbers()), not_before, not_after)

    @cached_property
    def public(self) -> RSAPublicKey:
        """The key itself."""
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        if not self.encoded.startswith(_PREFIX):
            raise ValueError
        numbers = load_der_public_key(_plain(self.encoded[len(_PREFIX) :]))
        if not isinstance(numbers, RSAPublicKey):
            raise TypeError
        return numbers

    @cached_property
    def id(self) -> bytes:
        """SHA-256 of the encoded key."""
        return hashlib.sha256(self.encoded).digest()

    def is_valid(self, now: float) -> bool:
        """Whether its tokens count now."""
        return self.not_before <= now < self.not_after


def _plain(key: bytes) -> bytes:
    return _RSA_PREFIX + key


def _encoded(numbers: RSAPublicNumbers) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    plain = numbers.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return _PREFIX + plain[len(_RSA_PREFIX) :]


def _unfit() -> Malformed:
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
    """The document."""

    issuer: str  # its name, as challenges have it
    experiments: dict[str, _Keys]  # what RFC 9578 has in a directory, by experiment

    @classmethod
    def of(cls, issuer: str, keys: Mapping[str, list[TokenKey]]) -> Self:
        """Make the document of an issuer."""
        return cls(
            issuer,
            {name: _Keys(f"/experiments/{name}/tokens", list(map(_shown, those))) for name, those in keys.items()},
        )

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a document."""
        try:
            return msgspec.json.decode(body, type=prepared(cls))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Malformed("not a directory of token keys", remedy="ask the issuer for its document") from None

    def encode(self) -> bytes:
        """Return the document as JSON."""
        return msgspec.json.encode(self)

    def keys(self, experiment: str) -> list[TokenKey]:
        """Return an experiment's keys, the newest first."""
        shown = self.experiments[experiment].token_keys if experiment in self.experiments else []
        keys = [
            TokenKey(unbase64url(one.token_key), one.not_before, one.not_after) for one in shown if one.token_type == 2
        ]
        return sorted(keys, key=lambda key: key.not_before, reverse=True)


def _shown(key: TokenKey) -> _Key:
    return _Key(2, base64url(key.encoded), key.not_before, key.not_after)


def base64url(some: bytes) -> str:
    """Encode bytes with base64url and padding."""
    return base64.urlsafe_b64encode(some).decode()


def unbase64url(text: str | bytes) -> bytes:
    """Decode base64url; nothing else has the same bytes."""
    try:
        decoded = base64.urlsafe_b64decode(text)
    except (binascii.Error, ValueError):
        decoded = b""
    if base64url(decoded).encode() != (text.encode() if isinstance(text, str) else text):
        raise Malformed("not base64url with padding", remedy="see RFC 4648, section 5")
    return decoded
