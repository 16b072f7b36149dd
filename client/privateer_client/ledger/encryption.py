"""Encryption of what a device keeps about its person: anybody who has the ledger without the key cannot read it."""

import os
import secrets
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from privateer_core.errors import InputError

KEY_SIZE: Final = 32
_NONCE_SIZE: Final = 12


class Encryption:
    """Encrypts and decrypts with AES-GCM.

    Use it from within a transaction of the ledger, so that no two processes make a key.

    key: 32 bytes that the application keeps; None: those in a file, which is made when it is first needed.
    path: that file.
    """

    def __init__(self, key: bytes | None, path: Path) -> None:
        if key is not None and len(key) != KEY_SIZE:
            raise InputError(f"must be {KEY_SIZE} bytes", field="key", remedy="use secrets.token_bytes(32), once")
        self._key, self._path = key, path

    def hold(self) -> None:
        """Keep the key in memory from now on."""
        self._key = self._own_key()

    def lock(self, plain: bytes, label: str) -> bytes:
        """Encrypt; the label binds the result to its place."""
        nonce = secrets.token_bytes(_NONCE_SIZE)
        return nonce + AESGCM(self._own_key()).encrypt(nonce, plain, label.encode())

    def unlock(self, body: bytes, label: str) -> bytes:
        """Decrypt."""
        try:
            return AESGCM(self._found_key()).decrypt(body[:_NONCE_SIZE], body[_NONCE_SIZE:], label.encode())
        except (InvalidTag, ValueError, OSError):
            raise unreadable(label) from None

    def pseudonym(self, person: str) -> bytes:
        """Return what a person is called in the ledger: nobody without the key can find out who that is."""
        return blake2b(
            person.encode("utf-8", "surrogatepass"), key=self._own_key(), digest_size=16, person=b"person"
        ).digest()

    @property
    def mark(self) -> bytes:
        """What tells keys apart without giving one away; a key that is missing is not made anew for it."""
        try:
            return blake2b(key=self._found_key(), digest_size=16, person=b"mark").digest()
        except OSError:
            raise other_key() from None

    def _own_key(self) -> bytes:
        try:
            return self._found_key()
        except FileNotFoundError:
            return self._made_key()
        except OSError:
            raise _no_key() from None

    def _found_key(self) -> bytes:
        key = self._path.read_bytes() if self._key is None else self._key
        if len(key) != KEY_SIZE:
            raise _no_key()
        return key

    def _made_key(self) -> bytes:
        """Write a new key: it is on disk, whole, before anything is encrypted with it."""
        key, unfinished = secrets.token_bytes(KEY_SIZE), self._path.with_name(f"{self._path.name}.new")
        try:
            unfinished.unlink(missing_ok=True)
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self._path)
        except OSError:
            raise _no_key() from None
        with suppress(OSError):  # not every platform has folders that can be synchronized
            _synchronize(self._path.parent)
        return key


def _synchronize(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unreadable(label: str) -> InputError:
    """Return the error about a kept choice that is damaged, or was encrypted with another key."""
    return InputError(
        "the choice that the ledger keeps cannot be read",
        field="key",
        remedy=f"open the ledger with the key that it was kept with, or erase it: ledger.forget({label!r})",
    )


def _no_key() -> InputError:
    return InputError(
        "cannot use the key beside the ledger", field="key", remedy="put it back, or pass Ledger(key=...)"
    )


def other_key() -> InputError:
    """Return the error about people who are known by another key."""
    return InputError(
        "is not the key by which the ledger knows its people, and all would report again",
        field="key",
        remedy="put the file back that was beside the ledger, or pass the key of before",
    )
