"""The private keys of open rounds, each created before its round is published and destroyed when the round closes."""

import logging
import os
import re
from collections.abc import Collection
from pathlib import Path
from threading import Lock
from typing import Final, Protocol

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import delete, func, insert, select, text
from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.serving.logs import trace
from privateer_core.serving.store.database import Database
from privateer_core.serving.store.store_key import StoreKey
from privateer_core.wire.keys import UNREADABLE_KEY_REMEDY
from privateer_server.intake.decryption import Decryptor
from privateer_server.store.backup import fsync_path
from privateer_server.store.schema import KEYS, SEAL

_KEY_SIZE: Final = 32
_KEY_FILE_SUFFIX: Final = ".key"
_KEY_FILE_NAME: Final = re.compile(r"[0-9a-f]{64}\.key", re.ASCII)
_WRAP_LABEL: Final = b"privateer/round-key/1"
_IS_OLDER_THAN_AN_HOUR: Final = KEYS.c.made < func.clock_timestamp() - text("interval '1 hour'")
"""A younger key without a round may belong to a round that another server is about to publish."""
_log = logging.getLogger("privateer.server")


class KeyStorage(Protocol):
    """A storage for keys of rounds, outside the store and its backups."""

    def write(self, decryptor: Decryptor) -> None:
        """Store a new key, which is durable when this returns."""

    def read(self, public_key: bytes) -> bytes | None:
        """Return the private key of a public key, if it is stored."""

    def erase(self, public_key: bytes) -> None:
        """Erase a key; a missing key is no error."""

    def erase_all_except(self, public_keys: Collection[bytes]) -> None:
        """Erase every key but these, and but those that another server may just have made."""


class RoundKeys:
    """The keys of a server's open rounds.

    A key without an open round belongs either to a round that was about to open or to a closed round. When the server
    starts, `erase_all_except` destroys both kinds.
    """

    def __init__(self, storage: KeyStorage) -> None:
        self._storage = storage
        self._decryptors: dict[bytes, Decryptor] = {}
        self._keys_to_erase: set[bytes] = set()
        self._erase_lock = Lock()

    def create_key(self) -> bytes:
        """Create a key, which is durable when this returns, and return its public key."""
        decryptor = Decryptor(X25519PrivateKey.generate())
        self._storage.write(decryptor)
        self._decryptors[decryptor.public_key] = decryptor
        return decryptor.public_key

    def find_decryptor(self, public_key: bytes) -> Decryptor | None:
        """Return the decryptor of reports sealed to a public key; None if the private key is lost or damaged."""
        if decryptor := self._decryptors.get(public_key):
            return decryptor
        with self._erase_lock:  # another thread may be destroying it
            if public_key not in self._keys_to_erase and (decryptor := self._read(public_key)):
                self._decryptors[public_key] = decryptor
        return decryptor

    def _read(self, public_key: bytes) -> Decryptor | None:
        raw = self._storage.read(public_key)
        decryptor = Decryptor.from_private_key(raw) if raw and len(raw) == _KEY_SIZE else None
        return decryptor if decryptor and decryptor.public_key == public_key else None

    def destroy(self, public_key: bytes) -> None:
        """Forget a key and erase it; if erasing fails now, `retry_erasures` erases it later."""
        with self._erase_lock:
            self._decryptors.pop(public_key, None)
            self._keys_to_erase.add(public_key)
        self.retry_erasures()

    def retry_erasures(self) -> None:
        """Erase the keys that could not be erased."""
        with self._erase_lock:
            for public_key in list(self._keys_to_erase):
                try:
                    self._storage.erase(public_key)
                except OSError as error:
                    _log.error("the key of a closed round is not destroyed yet (%s)", trace(error))
                else:
                    self._keys_to_erase.discard(public_key)

    @property
    def n_unerased(self) -> int:
        """The number of keys of closed rounds that could not be erased yet."""
        return len(self._keys_to_erase)

    def erase_all_except(self, public_keys: Collection[bytes]) -> None:
        """Erase every key but these, and but those that another server may just have made."""
        self._storage.erase_all_except(public_keys)


class KeyFolder(KeyStorage):
    """A folder with a file for each key, named by its public key; other files in it are left alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        fsync_path(folder.parent)

    @override
    def write(self, decryptor: Decryptor) -> None:
        path = self._path(decryptor.public_key)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(decryptor.private_bytes())
            file.flush()
            os.fsync(file.fileno())
        fsync_path(self._folder)

    @override
    def read(self, public_key: bytes) -> bytes | None:
        try:
            return self._path(public_key).read_bytes()
        except FileNotFoundError:
            return None
        except PermissionError as error:
            detail = f"the key of an open round cannot be read: {error.strerror}"
            raise SpecError(detail, field="PRIVATEER_DATA", remedy=UNREADABLE_KEY_REMEDY) from None

    @override
    def erase(self, public_key: bytes) -> None:
        """Overwrite a file, then unlink it: a file system that writes in place keeps no copy."""
        path = self._path(public_key)
        try:
            with path.open("r+b") as file:
                file.write(os.urandom(_KEY_SIZE))
                file.flush()
                os.fsync(file.fileno())
        except FileNotFoundError:
            return
        path.unlink()
        fsync_path(self._folder)

    @override
    def erase_all_except(self, public_keys: Collection[bytes]) -> None:
        retained_paths = {self._path(public_key) for public_key in public_keys}
        for path in self._folder.iterdir():
            if path not in retained_paths and _KEY_FILE_NAME.fullmatch(path.name) and path.is_file():
                self.erase(bytes.fromhex(path.stem))

    def _path(self, public_key: bytes) -> Path:
        return self._folder / f"{public_key.hex()}{_KEY_FILE_SUFFIX}"


class KeyTable(KeyStorage):
    """A table of keys in the journal's database, encrypted (AES-256-GCM) with a key that is in no database."""

    def __init__(self, database: Database, store_key: bytes) -> None:
        self._database, self._store_key = database, StoreKey(store_key)
        self._store_key.check(database, SEAL)

    @override
    def write(self, decryptor: Decryptor) -> None:
        wrapped = self._store_key.encrypt(decryptor.private_bytes(), _WRAP_LABEL + decryptor.public_key)
        with self._database.transaction() as db:
            db.execute(insert(KEYS).values(public_key=decryptor.public_key, wrapped=wrapped))

    @override
    def read(self, public_key: bytes) -> bytes | None:
        with self._database.connection() as db:
            wrapped = db.execute(select(KEYS.c.wrapped).where(KEYS.c.public_key == public_key)).scalar_one_or_none()
        return self._store_key.decrypt(wrapped, _WRAP_LABEL + public_key) if wrapped else None

    @override
    def erase(self, public_key: bytes) -> None:
        with self._database.transaction() as db:
            db.execute(delete(KEYS).where(KEYS.c.public_key == public_key))

    @override
    def erase_all_except(self, public_keys: Collection[bytes]) -> None:
        with self._database.transaction() as db:
            db.execute(delete(KEYS).where(KEYS.c.public_key.not_in(public_keys), _IS_OLDER_THAN_AN_HOUR))


def read_keys(folder: Path) -> tuple[dict[bytes, Decryptor], int]:
    """Return the decryptors of a folder's keys by public key, and the number of files without the key of their name."""
    decryptors, n_broken = dict[bytes, Decryptor](), 0
    for path in sorted(folder.glob(f"*{_KEY_FILE_SUFFIX}")):
        try:
            raw = path.read_bytes() if path.is_file() or not path.exists() else b""  # a pipe would never end
        except FileNotFoundError:  # the round has closed
            continue
        except PermissionError:
            raise
        except OSError:
            raw = b""
        decryptor = Decryptor.from_private_key(raw) if len(raw) == _KEY_SIZE else None
        if decryptor and decryptor.public_key.hex() == path.stem:
            decryptors[decryptor.public_key] = decryptor
        else:
            n_broken += 1
    return decryptors, n_broken
