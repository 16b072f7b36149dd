"""The server's private key."""

import hashlib
import os
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer.errors import SpecError
from privateer.wire.publication import KEY_ID_SIZE

_KEY_SIZE: Final = 32
_FILE: Final = "hpke.key"


def load_private_key(data: Path) -> X25519PrivateKey:
    """The key that opens reports; made at the first start, readable by the server's user alone.

    Raises
    ------
    SpecError
        If the file is there and holds no key.
    """
    path = data / _FILE
    if not path.exists():
        _write_secret(path, X25519PrivateKey.generate().private_bytes_raw())
    raw = path.read_bytes()
    if len(raw) != _KEY_SIZE:
        raise SpecError(f"{_FILE} is not a private key", field="PRIVATEER_DATA", remedy="restore it from a backup")
    return X25519PrivateKey.from_private_bytes(raw)


def _write_secret(path: Path, secret: bytes) -> None:
    """Write whole or not at all: a crash must not leave half a key, nor publish one that is not on disk yet."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def key_id(public_key: bytes) -> bytes:
    """The id by which reports name a public key, as `privateer.wire.publication.Round` derives it."""
    return hashlib.sha256(public_key).digest()[:KEY_ID_SIZE]
