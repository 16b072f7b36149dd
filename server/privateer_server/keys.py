"""The server's private key, and the public keys of the shufflers it trusts."""

import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer.errors import SpecError
from privateer.wire.publication import KEY_ID_SIZE

_KEY_SIZE: Final = 32
_FILE: Final = "hpke.key"
_log = logging.getLogger("privateer.server")


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


class TrustedShufflers:
    """Public keys (Ed25519, hex) in files; read when asked, so that a shuffler may start after the server."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def keys(self) -> list[Ed25519PublicKey]:
        """The keys that are there now; files that hold none are left out with a warning."""
        found = []
        for path in self._files():
            try:
                found.append(Ed25519PublicKey.from_public_bytes(bytes.fromhex(path.read_text("ascii"))))
            except (OSError, ValueError):
                _log.warning("%s holds no public key of a shuffler (64 hex digits)", path.name)
        return found

    def _files(self) -> Iterator[Path]:
        for path in self._paths:
            if path.is_dir():
                yield from sorted(path.glob("*.pub"))
            elif path.exists():
                yield path
