"""Ed25519 keys for signing requests, and the files that hold them."""

import hashlib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer_core.errors import SpecError

UNREADABLE_KEY: Final = "read it as the user of the service; if that fails, make that user its owner, with mode 600"
_ID_DIGITS: Final = 16
_TICK: Final = 1_000_000_000
"""Nanoseconds in which a file that changes twice may look as if it had changed once."""
_log = logging.getLogger("privateer.keys")


class _Mark(NamedTuple):
    """Tells whether a file is still the same: its number, and when it changed, in nanoseconds since 1970."""

    number: int
    changed: int


def signing_key_id(key: Ed25519PublicKey) -> str:
    """Return the first 8 bytes of the SHA-256 of a public key, hexadecimal."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:_ID_DIGITS]


def read_signing_key(path: Path, field: str) -> Ed25519PrivateKey:
    """Return the private key in a file that `own_key` wrote."""
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text("ascii")))
    except OSError as error:  # the key may be whole: nobody is told to replace it
        detail = f"{path.name} cannot be read: {error.strerror}"
        raise SpecError(detail, field=field, remedy=UNREADABLE_KEY) from None
    except ValueError:
        raise SpecError(
            f"{path.name} holds no key",
            field=field,
            remedy="restore it, or delete it and have the services trust a new one",
        ) from None


def own_key(path: Path, field: str) -> Ed25519PrivateKey:
    """Return the private key in a file. If there is no file, make one with a new key (mode 0600)."""
    if not path.exists():
        write_file(path, Ed25519PrivateKey.generate().private_bytes_raw().hex(), 0o600)
    return read_signing_key(path, field)


def public_hex(key: Ed25519PrivateKey) -> str:
    """Return the public half of a key, 64 hexadecimal digits."""
    return key.public_key().public_bytes_raw().hex()


def publish_key(key: Ed25519PrivateKey, path: Path) -> None:
    """Write the public half of a key where services look for keys to trust."""
    write_public_key(key.public_key().public_bytes_raw(), path)


def write_public_key(key: bytes, path: Path, mode: int = 0o644) -> None:
    """Write a public key, if the file has not got it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = key.hex() + "\n"
    if not path.exists() or path.read_text() != text:
        write_file(path, text, mode)


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


def read_public_keys(path: Path) -> list[Ed25519PublicKey]:
    """Return the public keys in a file, a line for each."""
    keys = [Ed25519PublicKey.from_public_bytes(bytes.fromhex(line)) for line in path.read_text("ascii").split()]
    if not keys:
        raise ValueError("no key")
    return keys


def public_key_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that are there now: those named, and ``*.pub`` in the directories named."""
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob("*.pub"))
        elif path.exists():
            yield path


class TrustedKeys:
    """Public keys (hexadecimal) in files, those of an organisation in a file of its name.

    Files may change while a service runs. They are read anew when a file or a directory has changed since, since every
    signed request asks for them.

    paths: files, or directories of ``*.pub`` files.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._warned: set[Path] = set()
        self._read: list[Path] = []
        self._marks: list[_Mark | None] | None = None
        self._known: dict[str, Ed25519PublicKey] = {}
        self._organisations: dict[str, str] = {}

    def by_id(self) -> Mapping[str, Ed25519PublicKey]:
        """Return the keys that are there now. A file without a key is left out, with one warning."""
        self._settle()
        return self._known

    def organisation(self, key_id: str) -> str:
        """Return whose key that is: the name of its file without the suffix, or nothing if it is not there."""
        self._settle()
        return self._organisations.get(key_id, "")

    def _settle(self) -> None:
        if self._marks is None or self._marks != _marks([*self._paths, *self._read]):
            self._read_again()

    def _read_again(self) -> None:
        self._read = list(public_key_files(self._paths))
        marks = _marks([*self._paths, *self._read])
        self._known, self._organisations = {}, {}
        for path in self._read:
            try:
                keys = read_public_keys(path)
            except (OSError, ValueError):
                self._warn(path)
            else:
                for key in keys:
                    self._known[signing_key_id(key)] = key
                    self._organisations.setdefault(signing_key_id(key), path.stem)
        # What has just changed may change again within one tick of the clock of files, and look the same.
        settled = time.time_ns() - _TICK
        self._marks = marks if all(mark is None or mark.changed < settled for mark in marks) else None

    def _warn(self, path: Path) -> None:
        if path not in self._warned:
            _log.warning("%s does not hold public keys (64 hex digits each)", path.name)
        self._warned.add(path)


def _marks(paths: Sequence[Path]) -> list[_Mark | None]:
    return [_mark(path) for path in paths]


def _mark(path: Path) -> _Mark | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _Mark(found.st_ino, found.st_ctime_ns)
