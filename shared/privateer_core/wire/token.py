"""One-use upload tokens: Privacy Pass tokens of type 0x0002, blind RSA with 2048 bits (RFC 9577 and RFC 9578).

A token is for one experiment at one endpoint. Its challenge says so: the name of the experiment is the redemption
context, and the endpoint is the origin. Devices make the challenge themselves, so no service can mark a device by it.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

from privateer_core.errors import Malformed, TokenInvalid, TokenRequestRefused
from privateer_core.wire import blind_rsa
from privateer_core.wire.blind_rsa import BlindedMessage
from privateer_core.wire.token_keys import MODULUS_BITS, TokenKey, base64url, unbase64url

TYPE: Final = (2).to_bytes(2)
REQUEST_TYPE: Final = "application/private-token-request"
RESPONSE_TYPE: Final = "application/private-token-response"
SCHEME: Final = "PrivateToken"
NONCE_SIZE: Final = 32
DIGEST_SIZE: Final = 32
INPUT_SIZE: Final = len(TYPE) + NONCE_SIZE + 2 * DIGEST_SIZE
SIGNATURE_SIZE: Final = MODULUS_BITS // 8
TOKEN_SIZE: Final = INPUT_SIZE + SIGNATURE_SIZE
REQUEST_SIZE: Final = len(TYPE) + 1 + SIGNATURE_SIZE
_CONTEXT_PREFIX: Final = b"privateer/token/1\0"
_AUTHORIZATION_REGEX: Final = re.compile(rb'PrivateToken +token="?([A-Za-z0-9_-]+={0,2})"?', re.IGNORECASE)
_HTTPS_PORT: Final = 443


@dataclass(frozen=True)
class Challenge:
    """The challenge that a token answers (RFC 9577, section 2.1)."""

    # issuer, origin: names of the issuer and of the endpoint: host, and port unless it is 443
    issuer: str
    origin: str
    experiment: str  # name of the experiment

    def encode(self) -> bytes:
        """Return the encoded challenge."""
        context = hashlib.sha256(_CONTEXT_PREFIX + self.experiment.encode()).digest()
        return TYPE + _encode_name(self.issuer) + bytes([len(context)]) + context + _encode_name(self.origin)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the encoded challenge, which its tokens contain."""
        return hashlib.sha256(self.encode()).digest()

    def header(self, key: TokenKey) -> str:
        """Return the ``WWW-Authenticate`` header that asks for a token."""
        return f'{SCHEME} challenge="{base64url(self.encode())}", token-key="{base64url(key.encoded)}"'


def _encode_name(name: str) -> bytes:
    encoded = name.encode("ascii")
    return len(encoded).to_bytes(2) + encoded


def origin_name(url: str) -> str:
    """Return the origin name of the service at a URL, for challenges (RFC 9577, section 2.1.1)."""
    address = urlsplit(url)
    host = address.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = address.port or (_HTTPS_PORT if address.scheme == "https" else 80)
    return host if port == _HTTPS_PORT else f"{host}:{port}"


class Token(NamedTuple):
    """A signed token."""

    nonce: bytes
    challenge_digest: bytes
    key_id: bytes
    authenticator: bytes

    @classmethod
    def decode(cls, token: bytes) -> Self:
        """Parse a token, and refuse other bytes."""
        if len(token) != TOKEN_SIZE or not token.startswith(TYPE):
            raise TokenInvalid("not a token of type 2", field="Authorization", remedy="get one from the issuer")
        nonce, digest, key_id = (token[2 + start : 34 + start] for start in (0, 32, 64))
        return cls(nonce, digest, key_id, token[INPUT_SIZE:])

    @property
    def input(self) -> bytes:
        """The bytes that the issuer signed."""
        return TYPE + self.nonce + self.challenge_digest + self.key_id

    def is_signed(self, key: TokenKey) -> bool:
        """Whether the token's signature verifies under this key."""
        return blind_rsa.is_valid_signature(key.public, self.input, self.authenticator)


@dataclass(frozen=True)
class PendingToken:
    """A token that the issuer has not signed yet: a secret of the device."""

    input: bytes  # the token input to be signed
    request: bytes  # the token request, the same bytes each time (RFC 9578, section 6.1)
    inverse: bytes  # the inverse of the blinding factor

    @classmethod
    def draw(cls, challenge: Challenge, key: TokenKey) -> Self:
        """Draw a token, and blind it."""
        token_input = TYPE + secrets.token_bytes(NONCE_SIZE) + challenge.digest + key.id
        return cls.from_blinded(token_input, key, blind_rsa.blind(key.public, token_input))

    @classmethod
    def from_blinded(cls, token_input: bytes, key: TokenKey, blinded: BlindedMessage) -> Self:
        """Return a pending token from its blinded input."""
        return cls(token_input, TYPE + key.id[-1:] + blinded.message, blinded.inverse)

    @property
    def key_id(self) -> bytes:
        """Id of the issuer's key for the signature."""
        return self.input[-DIGEST_SIZE:]

    def finish(self, key: TokenKey, blind_signature: bytes) -> bytes:
        """Unblind the issuer's answer, and return the finished token."""
        return self.input + blind_rsa.finalize(key.public, self.input, blind_signature, self.inverse)


def parse_token_request(body: bytes | bytearray) -> tuple[int, bytes]:
    """Return the last byte of the key id and the blinded message of a token request; refuse other bytes."""
    if len(body) != REQUEST_SIZE or not body.startswith(TYPE):
        raise TokenRequestRefused("not a request for a token of type 2", remedy="send what the client library makes")
    return body[2], bytes(body[3:])


def authorization(token: bytes) -> str:
    """Return the ``Authorization`` header that spends a token."""
    return f'{SCHEME} token="{base64url(token)}"'


def read_authorization(text: bytes) -> Token:
    """Parse the token in an ``Authorization`` header, and refuse a header without one."""
    match = _AUTHORIZATION_REGEX.fullmatch(text)
    try:
        return Token.decode(unbase64url(match[1]) if match else b"")
    except Malformed:
        return Token.decode(b"")
