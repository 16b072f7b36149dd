"""Encryption of the participant's data in the ledger, which cannot be read without the key."""

import os
import secrets
import unicodedata
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
    """Encryption and decryption with AES-GCM.

    It must be used within a transaction of the ledger, so that two processes cannot create different keys.

    key: 32 bytes of the application; None: the key in a file, which is created when it is first needed.
    path: the path of the file.
    """

    def __init__(self, key: bytes | None, path: Path) -> None:
        if key is not None and len(key) != KEY_SIZE:
            raise InputError(f"must be {KEY_SIZE} bytes", field="key", remedy="use secrets.token_bytes(32), once")
        self._key, self._path = key, path

    def keep_in_memory(self) -> None:
        """Load the key, and keep it in memory from now on."""
        self._key = self._load_or_create_key()

    def encrypt(self, plaintext: bytes, label: str) -> bytes:
        """Encrypt bytes; the label authenticates their location in the ledger."""
        nonce = secrets.token_bytes(_NONCE_SIZE)
        return nonce + AESGCM(self._load_or_create_key()).encrypt(nonce, plaintext, label.encode())

    def decrypt(self, ciphertext: bytes, label: str) -> bytes:
        """Decrypt the result of `encrypt` with the same label."""
        try:
            return AESGCM(self._load_key()).decrypt(ciphertext[:_NONCE_SIZE], ciphertext[_NONCE_SIZE:], label.encode())
        except (InvalidTag, ValueError, OSError):
            raise unreadable_error(label) from None

    def pseudonym(self, person: str) -> bytes:
        """Return a participant's pseudonym in the ledger, a keyed hash of the application's name."""
        # letters with accents have two spellings
        name = unicodedata.normalize("NFC", person).encode("utf-8", "surrogatepass")
        return blake2b(name, key=self._load_or_create_key(), digest_size=16, person=b"person").digest()

    @property
    def mark(self) -> bytes:
        """A keyed hash that identifies the key; a missing key is not created for it."""
        try:
            return blake2b(key=self._load_key(), digest_size=16, person=b"mark").digest()
        except OSError:
            raise other_key_error() from None

    def _load_or_create_key(self) -> bytes:
        """Return the key, created if its file is missing; refuse a file that cannot be read."""
        try:
            return self._load_key()
        except FileNotFoundError:
            return self._create_key()
        except OSError:
            raise _unusable_key_error() from None

    def _load_key(self) -> bytes:
        """Return the key of the application or the file; refuse another length; FileNotFoundError without a file."""
        key = self._path.read_bytes() if self._key is None else self._key
        if len(key) != KEY_SIZE:
            raise _unusable_key_error()
        return key

    def _create_key(self) -> bytes:
        """Write a new key durably, before it is used."""
        key, unfinished = secrets.token_bytes(KEY_SIZE), self._path.with_name(f"{self._path.name}.new")
        try:
            unfinished.unlink(missing_ok=True)
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self._path)
        except OSError:
            raise _unusable_key_error() from None
        with suppress(OSError):  # not every platform has folders that can be synchronized
            descriptor = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return key


def unreadable_error(label: str) -> InputError:
    """Return the error about a stored choice that is damaged, or was encrypted with another key."""
    remedy = f"open the ledger with the key that it was kept with, or erase it: ledger.forget({label!r})"
    return InputError("the choice that the ledger keeps cannot be read", field="key", remedy=remedy)


def _unusable_key_error() -> InputError:
    remedy = "put it back, or pass Ledger(key=...)"
    return InputError("cannot use the key beside the ledger", field="key", remedy=remedy)


def other_key_error() -> InputError:
    """Return the error about participants whose pseudonyms were made with another key."""
    detail = "is not the key by which the ledger knows its people, and all would report again"
    remedy = "put the file back that was beside the ledger, or pass the key of before"
    return InputError(detail, field="key", remedy=remedy)
