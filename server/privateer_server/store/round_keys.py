"""Storages for the private keys of open rounds: a folder of files, or a table of encrypted keys."""

import logging
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from sqlalchemy import delete, func, insert, select, text
from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.serving.store.database import Database
from privateer_core.serving.store.store_key import StoreKey
from privateer_core.wire.keys import UNREADABLE_KEY_REMEDY
from privateer_server.intake.decryption import KEY_SIZE, Decryptor, KeyStorage
from privateer_server.store.backup import fsync_path
from privateer_server.store.schema import KEYS, SEAL

_KEY_FILE_SUFFIX: Final = ".key"
_KEY_FILE_NAME: Final = re.compile(r"[0-9a-f]{64}\.key", re.ASCII)
_WRAP_LABEL: Final = b"privateer/round-key/1"
_IS_OLDER_THAN_AN_HOUR: Final = KEYS.c.made < func.clock_timestamp() - text("interval '1 hour'")
"""A younger key without a round may belong to a round that another server is about to publish."""
_log = logging.getLogger("privateer.server")


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
                file.write(os.urandom(KEY_SIZE))
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
        decryptor = Decryptor.from_private_key(raw) if len(raw) == KEY_SIZE else None
        if decryptor and decryptor.public_key.hex() == path.stem:
            decryptors[decryptor.public_key] = decryptor
        else:
            n_broken += 1
    return decryptors, n_broken
