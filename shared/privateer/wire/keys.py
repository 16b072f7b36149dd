"""Ed25519 keys for signing requests, and the files that hold them."""

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer.errors import SpecError

_ID_DIGITS: Final = 16
_log = logging.getLogger("privateer.keys")


def signing_key_id(key: Ed25519PublicKey) -> str:
    """Return the first 8 bytes of the SHA-256 of a public key, hexadecimal."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:_ID_DIGITS]


def read_signing_key(path: Path, field: str) -> Ed25519PrivateKey:
    """Return the private key in a file that `own_key` wrote.

    Raises
    ------
    SpecError
        Naming ``field``, if the file cannot be read or holds no key.
    """
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text("ascii")))
    except (OSError, ValueError):
        raise SpecError(
            f"{path.name} holds no key",
            field=field,
            remedy="restore it, or delete it and have the services trust a new one",
        ) from None


def own_key(path: Path, field: str) -> Ed25519PrivateKey:
    """Return the private key in a file. If there is no file, make one with a new key (mode 0600).

    Raises
    ------
    SpecError
        Naming ``field``, if the file cannot be read or holds no key.
    """
    if not path.exists():
        write_file(path, Ed25519PrivateKey.generate().private_bytes_raw().hex(), 0o600)
    return read_signing_key(path, field)


def public_hex(key: Ed25519PrivateKey) -> str:
    """Return the public half of a key, 64 hexadecimal digits."""
    return key.public_key().public_bytes_raw().hex()


def publish_key(key: Ed25519PrivateKey, path: Path) -> None:
    """Write the public half of a key where services look for keys to trust."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = public_hex(key) + "\n"
    if not path.exists() or path.read_text() != text:
        write_file(path, text, 0o644)


def write_file(path: Path, text: str, mode: int) -> None:
    """Write a file that others read while a service runs, or one that nobody else may read."""
    draft = path.with_name(f".{path.name}.new")  # renamed when complete: nobody reads half a key
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "w") as file:
        os.fchmod(file.fileno(), mode)  # whatever the process's mask is: other services read the public half
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def read_public_key(path: Path) -> Ed25519PublicKey:
    """Return the public key in a file.

    Raises
    ------
    OSError, ValueError
        If the file cannot be read or holds no key.
    """
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(path.read_text("ascii")))


def public_key_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that are there now: those named, and ``*.pub`` in the directories named."""
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob("*.pub"))
        elif path.exists():
            yield path


class TrustedKeys:
    """Public keys (hexadecimal) in files. They are read anew every time, so that files may change while a service runs.

    Parameters
    ----------
    paths
        Files, or directories of ``*.pub`` files.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._warned: set[Path] = set()

    def by_id(self) -> Mapping[str, Ed25519PublicKey]:
        """Return the keys that are there now. A file without a key is left out, with one warning."""
        found = {}
        for path in public_key_files(self._paths):
            try:
                key = read_public_key(path)
            except (OSError, ValueError):
                self._warn(path)
            else:
                found[signing_key_id(key)] = key
        return found

    def _warn(self, path: Path) -> None:
        if path not in self._warned:
            _log.warning("%s does not hold a public key (64 hex digits)", path.name)
        self._warned.add(path)
