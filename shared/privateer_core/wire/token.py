"""One-use upload tokens: Privacy Pass tokens of type 0x0002, blind RSA with 2048 bits (RFC 9577 and RFC 9578).

A token is for one experiment at one endpoint. Its challenge says so: the name of the experiment is the redemption
context, and the endpoint is the origin. A device makes the challenge itself, so that nobody can mark a device by it.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

from privateer_core.errors import Malformed, TokenInvalid, TokenRequestRefused
from privateer_core.wire import blind_rsa
from privateer_core.wire.blind_rsa import Blinded
from privateer_core.wire.token_keys import BITS, TokenKey, base64url, unbase64url

TYPE: Final = (2).to_bytes(2)
REQUEST_TYPE: Final = "application/private-token-request"
RESPONSE_TYPE: Final = "application/private-token-response"
SCHEME: Final = "PrivateToken"
NONCE_SIZE: Final = 32
DIGEST_SIZE: Final = 32
INPUT_SIZE: Final = len(TYPE) + NONCE_SIZE + 2 * DIGEST_SIZE
SIGNATURE_SIZE: Final = BITS // 8
TOKEN_SIZE: Final = INPUT_SIZE + SIGNATURE_SIZE
REQUEST_SIZE: Final = len(TYPE) + 1 + SIGNATURE_SIZE
_CONTEXT: Final = b"privateer/token/1\0"
_TOKEN: Final = re.compile(rb'PrivateToken +token="?([A-Za-z0-9_-]+={0,2})"?', re.IGNORECASE)
_SECURE: Final = 443


@dataclass(frozen=True)
class Challenge:
    """The challenge that a token answers (RFC 9577, section 2.1)."""

    # issuer, origin: names of the issuer and of the endpoint: host, and port unless it is 443
    issuer: str
    origin: str
    experiment: str  # name of the experiment

    def encode(self) -> bytes:
        """Return the challenge as it travels."""
        context = hashlib.sha256(_CONTEXT + self.experiment.encode()).digest()
        return TYPE + _text(self.issuer) + bytes([len(context)]) + context + _text(self.origin)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the challenge, which every token for it has."""
        return hashlib.sha256(self.encode()).digest()

    def header(self, key: TokenKey) -> str:
        """Return the ``WWW-Authenticate`` that asks for a token."""
        return f'{SCHEME} challenge="{base64url(self.encode())}", token-key="{base64url(key.encoded)}"'


def _text(name: str) -> bytes:
    encoded = name.encode("ascii")
    return len(encoded).to_bytes(2) + encoded


def server_name(url: str) -> str:
    """Return the name of a service at an address, as challenges have it (RFC 9577, section 2.1.1)."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = parts.port or (_SECURE if parts.scheme == "https" else 80)
    return host if port == _SECURE else f"{host}:{port}"


class Token(NamedTuple):
    """A token as it is spent."""

    nonce: bytes
    challenge_digest: bytes
    key_id: bytes
    authenticator: bytes

    @classmethod
    def decode(cls, token: bytes) -> Self:
        """Read a token."""
        if len(token) != TOKEN_SIZE or not token.startswith(TYPE):
            raise TokenInvalid("not a token of type 2", field="Authorization", remedy="get one from the issuer")
        nonce, digest, key_id = (token[2 + start : 34 + start] for start in (0, 32, 64))
        return cls(nonce, digest, key_id, token[INPUT_SIZE:])

    @property
    def input(self) -> bytes:
        """What the issuer signed."""
        return TYPE + self.nonce + self.challenge_digest + self.key_id

    def is_signed(self, key: TokenKey) -> bool:
        """Whether it has a signature by this key."""
        return blind_rsa.verifies(key.public, self.input, self.authenticator)


@dataclass(frozen=True)
class PendingToken:
    """A token that the issuer has not signed yet: the device's own secret."""

    input: bytes  # what is to be signed
    request: bytes  # what the issuer gets, the same bytes each time (RFC 9578, section 6.1)
    inverse: bytes  # what takes the blinding off the answer

    @classmethod
    def draw(cls, challenge: Challenge, key: TokenKey) -> Self:
        """Draw a token, and blind it."""
        unsigned = TYPE + secrets.token_bytes(NONCE_SIZE) + challenge.digest + key.id
        return cls.of(unsigned, key, blind_rsa.blind(key.public, unsigned))

    @classmethod
    def of(cls, unsigned: bytes, key: TokenKey, blinded: Blinded) -> Self:
        """Return the request for a token that is blinded already."""
        return cls(unsigned, TYPE + key.id[-1:] + blinded.message, blinded.inverse)

    @property
    def key_id(self) -> bytes:
        """Id of the key that shall sign it."""
        return self.input[-DIGEST_SIZE:]

    def finish(self, key: TokenKey, signed: bytes) -> bytes:
        """Return the token that the issuer's answer makes."""
        return self.input + blind_rsa.finalize(key.public, self.input, signed, self.inverse)


def read_request(body: bytes | bytearray) -> tuple[int, bytes]:
    """Return the last byte of a key's id and the blinded message, which a request for a token has."""
    if len(body) != REQUEST_SIZE or not body.startswith(TYPE):
        raise TokenRequestRefused("not a request for a token of type 2", remedy="send what the client library makes")
    return body[2], bytes(body[3:])


def authorization(token: bytes) -> str:
    """Return the ``Authorization`` that spends a token."""
    return f'{SCHEME} token="{base64url(token)}"'


def read_authorization(text: bytes) -> Token:
    """Return the token in an ``Authorization``."""
    found = _TOKEN.fullmatch(text)
    try:
        return Token.decode(unbase64url(found[1]) if found else b"")
    except Malformed:
        return Token.decode(b"")
