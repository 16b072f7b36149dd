"""Names of public keys, and the public keys of the shufflers that the server trusts."""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from privateer.wire.publication import KEY_ID_SIZE

_log = logging.getLogger("privateer.server")


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
