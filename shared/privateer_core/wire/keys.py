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

UNREADABLE_KEY_REMEDY: Final = (
    "read it as the user of the service; if that fails, make that user its owner, with mode 600"
)
_ID_DIGITS: Final = 16
_TICK_NANOSECONDS: Final = 1_000_000_000
"""Time in which two changes of a file may have the same timestamp."""
_log = logging.getLogger("privateer.keys")


class _FileStamp(NamedTuple):
    """Inode and time of change of a file, in nanoseconds since 1970, for detecting changes."""

    inode: int
    changed_ns: int


def signing_key_id(key: Ed25519PublicKey) -> str:
    """Return the first 8 bytes of the SHA-256 of a public key, hexadecimal."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:_ID_DIGITS]


def read_signing_key(path: Path, field: str) -> Ed25519PrivateKey:
    """Return the private key in a file that `load_or_create_key` wrote; refuse an unreadable or damaged file."""
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text("ascii")))
    except OSError as error:  # the key may be whole: nobody is told to replace it
        detail = f"{path.name} cannot be read: {error.strerror}"
        raise SpecError(detail, field=field, remedy=UNREADABLE_KEY_REMEDY) from None
    except ValueError:
        remedy = "restore it, or delete it and have the services trust a new one"
        raise SpecError(f"{path.name} holds no key", field=field, remedy=remedy) from None


def load_or_create_key(path: Path, field: str) -> Ed25519PrivateKey:
    """Return the private key in a file; if there is no file, write a new key (mode 0600)."""
    if not path.exists():
        write_file(path, Ed25519PrivateKey.generate().private_bytes_raw().hex(), 0o600)
    return read_signing_key(path, field)


def public_hex(key: Ed25519PrivateKey) -> str:
    """Return the public key of a private key, 64 hexadecimal digits."""
    return key.public_key().public_bytes_raw().hex()


def publish_key(key: Ed25519PrivateKey, path: Path) -> None:
    """Write the public key of a private key to a file, for services that trust the keys in it."""
    write_public_key(key.public_key().public_bytes_raw(), path)


def write_public_key(key: bytes, path: Path, mode: int = 0o644) -> None:
    """Write a public key to a file, unless the file holds it already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = key.hex() + "\n"
    if not path.exists() or path.read_text() != text:
        write_file(path, text, mode)


def write_file(path: Path, text: str, mode: int) -> None:
    """Write a file durably and atomically, with the given mode."""
    draft = path.with_name(f".{path.name}.new")  # renamed when complete: nobody reads half a key
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "w") as file:
        os.fchmod(file.fileno(), mode)  # whatever the process's mask is: other services read the public half
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def read_public_keys(path: Path) -> list[Ed25519PublicKey]:
    """Return the public keys in a file, a line for each; refuse a file without any."""
    keys = [Ed25519PublicKey.from_public_bytes(bytes.fromhex(line)) for line in path.read_text("ascii").split()]
    if not keys:
        raise ValueError("no key")
    return keys


def public_key_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the existing files among the paths, and ``*.pub`` in the directories among them."""
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob("*.pub"))
        elif path.exists():
            yield path


class TrustedKeys:
    """Public keys (hexadecimal) in files, each file named by the organisation that the keys belong to.

    Files may change while a service runs. They are read again only when a file or a directory has changed, since every
    signed request looks keys up.

    paths: files, or directories of ``*.pub`` files.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._warned: set[Path] = set()
        self._read_paths: list[Path] = []
        self._stamps: list[_FileStamp | None] | None = None
        self._keys_by_id: dict[str, Ed25519PublicKey] = {}
        self._organisations: dict[str, str] = {}

    def by_id(self) -> Mapping[str, Ed25519PublicKey]:
        """Return the current keys by id. A file without a key is left out, with one warning."""
        self._refresh()
        return self._keys_by_id

    def organisation(self, key_id: str) -> str:
        """Return the organisation of a key: its file's name without the suffix, or empty for an unknown key."""
        self._refresh()
        return self._organisations.get(key_id, "")

    def _refresh(self) -> None:
        """Read the files of keys again if any has changed; log a file without keys once."""
        if self._stamps is not None and self._stamps == _file_stamps([*self._paths, *self._read_paths]):
            return
        self._read_paths = list(public_key_files(self._paths))
        stamps = _file_stamps([*self._paths, *self._read_paths])
        self._keys_by_id, self._organisations = {}, {}
        for path in self._read_paths:
            try:
                keys = read_public_keys(path)
            except (OSError, ValueError):
                if path not in self._warned:
                    _log.warning("%s does not hold public keys (64 hex digits each)", path.name)
                self._warned.add(path)
            else:
                for key in keys:
                    self._keys_by_id[signing_key_id(key)] = key
                    self._organisations.setdefault(signing_key_id(key), path.stem)
        # What has just changed may change again within one tick of the clock of files, and look the same.
        stable_before = time.time_ns() - _TICK_NANOSECONDS
        self._stamps = stamps if all(stamp is None or stamp.changed_ns < stable_before for stamp in stamps) else None


def _file_stamps(paths: Sequence[Path]) -> list[_FileStamp | None]:
    return [_file_stamp(path) for path in paths]


def _file_stamp(path: Path) -> _FileStamp | None:
    """Return the stamp of a file, or None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return _FileStamp(status.st_ino, status.st_ctime_ns)
