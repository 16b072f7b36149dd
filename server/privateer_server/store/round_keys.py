"""The private keys of open rounds: one a round, made before the round is published, destroyed when it closes."""

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
from privateer_core.wire.keys import UNREADABLE_KEY
from privateer_server.intake.opening import Opener
from privateer_server.store.schema import KEYS, SEAL

_KEY_SIZE: Final = 32
_SUFFIX: Final = ".key"
_NAME: Final = re.compile(r"[0-9a-f]{64}\.key", re.ASCII)
_LABEL: Final = b"privateer/round-key/1"
_OLD: Final = KEYS.c.made < func.clock_timestamp() - text("interval '1 hour'")
"""A key that no round names may be of one that another server is just about to publish, as long as it is younger."""
_log = logging.getLogger("privateer.server")


class KeyPlace(Protocol):
    """A place for keys of rounds, outside the store and its backups."""

    def write(self, opener: Opener) -> None:
        """Keep a new key, which is durable when this returns."""
        ...

    def read(self, public_key: bytes) -> bytes | None:
        """Return the private half of a key, if it is there."""
        ...

    def erase(self, public_key: bytes) -> None:
        """Erase a key; one that is not there is none."""
        ...

    def keep(self, public_keys: Collection[bytes]) -> None:
        """Erase every key but these, and but those that another server may just have made."""
        ...


class RoundKeys:
    """The keys of a server's open rounds.

    A key that no open round names is either of a round that was about to open or of one that has closed. When the
    server starts, `keep` destroys both kinds.
    """

    def __init__(self, place: KeyPlace) -> None:
        self._place = place
        self._openers: dict[bytes, Opener] = {}
        self._doomed: set[bytes] = set()
        self._erasing = Lock()

    def make(self) -> bytes:
        """Return the public half of a new key, which is durable when this returns."""
        opener = Opener(X25519PrivateKey.generate())
        self._place.write(opener)
        self._openers[opener.public_key] = opener
        return opener.public_key

    def find(self, public_key: bytes) -> Opener | None:
        """Return what opens reports sealed to this key; None if its private half is lost or damaged."""
        if opener := self._openers.get(public_key):
            return opener
        with self._erasing:  # another thread may be destroying it
            if public_key not in self._doomed and (opener := self._read(public_key)):
                self._openers[public_key] = opener
        return opener

    def _read(self, public_key: bytes) -> Opener | None:
        raw = self._place.read(public_key)
        opener = Opener.of(raw) if raw and len(raw) == _KEY_SIZE else None
        return opener if opener and opener.public_key == public_key else None

    def destroy(self, public_key: bytes) -> None:
        """Forget a key and erase it; what cannot be erased now, `retry` erases later."""
        with self._erasing:
            self._openers.pop(public_key, None)
            self._doomed.add(public_key)
        self.retry()

    def retry(self) -> None:
        """Erase the keys that could not be erased."""
        with self._erasing:
            for public_key in list(self._doomed):
                try:
                    self._place.erase(public_key)
                except OSError as error:
                    _log.error("the key of a closed round is not destroyed yet (%s)", trace(error))
                else:
                    self._doomed.discard(public_key)

    @property
    def unerased(self) -> int:
        """Keys of closed rounds that could not be erased yet."""
        return len(self._doomed)

    def keep(self, public_keys: Collection[bytes]) -> None:
        """Erase every key but these, and but those that another server may just have made."""
        self._place.keep(public_keys)


class KeyFolder(KeyPlace):
    """A folder with a file for each key, named by its public half; other files in it are not ours.

    folder: made if it is missing, for the server's user alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        _sync(folder.parent)

    @override
    def write(self, opener: Opener) -> None:
        path = self._path(opener.public_key)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(opener.private_bytes())
            file.flush()
            os.fsync(file.fileno())
        _sync(self._folder)

    @override
    def read(self, public_key: bytes) -> bytes | None:
        try:
            return self._path(public_key).read_bytes()
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise SpecError(
                f"the key of an open round cannot be read: {error.strerror}",
                field="PRIVATEER_DATA",
                remedy=UNREADABLE_KEY,
            ) from None

    @override
    def erase(self, public_key: bytes) -> None:
        self._erase(self._path(public_key))

    def _erase(self, path: Path) -> None:
        """Overwrite, then unlink: a file system that writes in place keeps no copy."""
        try:
            with path.open("r+b") as file:
                file.write(os.urandom(_KEY_SIZE))
                file.flush()
                os.fsync(file.fileno())
        except FileNotFoundError:
            return
        path.unlink()
        _sync(self._folder)

    @override
    def keep(self, public_keys: Collection[bytes]) -> None:
        kept = {self._path(public_key) for public_key in public_keys}
        for path in self._folder.iterdir():
            if path not in kept and _NAME.fullmatch(path.name) and path.is_file():
                self._erase(path)

    def _path(self, public_key: bytes) -> Path:
        return self._folder / f"{public_key.hex()}{_SUFFIX}"


class KeyTable(KeyPlace):
    """A table in the journal's database, where the keys are encrypted (AES-256-GCM) under one that no database has."""

    def __init__(self, database: Database, store_key: bytes) -> None:
        self._database, self._store_key = database, StoreKey(store_key)
        self._store_key.check(database, SEAL)

    @override
    def write(self, opener: Opener) -> None:
        wrapped = self._store_key.wrapped(opener.private_bytes(), _LABEL + opener.public_key)
        with self._database.transaction() as db:
            db.execute(insert(KEYS).values(public_key=opener.public_key, wrapped=wrapped))

    @override
    def read(self, public_key: bytes) -> bytes | None:
        with self._database.connection() as db:
            wrapped = db.execute(select(KEYS.c.wrapped).where(KEYS.c.public_key == public_key)).scalar_one_or_none()
        return self._store_key.unwrapped(wrapped, _LABEL + public_key) if wrapped else None

    @override
    def erase(self, public_key: bytes) -> None:
        with self._database.transaction() as db:
            db.execute(delete(KEYS).where(KEYS.c.public_key == public_key))

    @override
    def keep(self, public_keys: Collection[bytes]) -> None:
        with self._database.transaction() as db:
            db.execute(delete(KEYS).where(KEYS.c.public_key.not_in(public_keys), _OLD))


def read_keys(folder: Path) -> tuple[dict[bytes, Opener], int]:
    """Return what a folder's keys open, by public key, and how many of its files are not the key of their name."""
    openers, broken = dict[bytes, Opener](), 0
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            raw = path.read_bytes() if path.is_file() or not path.exists() else b""  # a pipe would never end
        except FileNotFoundError:  # the round has closed
            continue
        except PermissionError:
            raise
        except OSError:
            raw = b""
        opener = Opener.of(raw) if len(raw) == _KEY_SIZE else None
        if opener and opener.public_key.hex() == path.stem:
            openers[opener.public_key] = opener
        else:
            broken += 1
    return openers, broken


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
