"""Signed tokens without an issuer's service, and the file of keys that goes with them."""

from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from privateer_core.serving.settings import TokenSettings
from privateer_core.wire.token import Challenge, PendingToken
from privateer_core.wire.token_keys import Directory, TokenKey
from privateer_issuer.signing_keys import Signer

ISSUER = "issuer:80"
ORIGIN = "shuffler:80"
FOREVER = 2**40


@cache
def key_pair(number: int) -> tuple[TokenKey, Signer]:
    private = generate_private_key(65537, 2048)
    return TokenKey.from_rsa_key(private.public_key(), 0, FOREVER + number), Signer.from_private_key(private)


def key(number: int = 0) -> TokenKey:
    """A key, the same each time."""
    return key_pair(number)[0]


def minted(name: str = "spring", origin: str = ORIGIN, number: int = 0) -> bytes:
    """A token, signed with a key."""
    public, signer = key_pair(number)
    pending = PendingToken.draw(Challenge(ISSUER, origin, name), public)
    return pending.finish(public, signer.sign(pending.request[3:]))


def settings(folder: Path, *names: str, origin: str = ORIGIN) -> TokenSettings:
    """Settings of a service that takes tokens of these experiments alone; its file of keys is made."""
    folder.mkdir(exist_ok=True)
    directory = Directory.from_keys(ISSUER, {name: [key()] for name in names or ("spring",)})
    (folder / "issuer.json").write_bytes(directory.encode())
    return TokenSettings(required=True, keys=str(folder), origins=(origin,))
