"""The private keys of open rounds: one a round, made before the round is published, destroyed when it closes."""

import logging
import os
import re
from collections.abc import Collection
from pathlib import Path
from threading import Lock
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from typing_extensions import override

from privateer_core.serving.logs import trace
from privateer_server.intake.opening import Opener
from privateer_server.store.protocol import KeyStore

_KEY_SIZE: Final = 32
_SUFFIX: Final = ".key"
_NAME: Final = re.compile(r"[0-9a-f]{64}\.key", re.ASCII)
_log = logging.getLogger("privateer.server")


class RoundKeys(KeyStore):
    """A folder with a file for each key, named by its public half; outside the database, whose copies hold none.

    A file whose key no open round names is either of a round that was about to open or of one that has closed. When
    the server starts, `keep` destroys both kinds.

    Parameters
    ----------
    folder
        Made if it is missing, for the server's user alone.

    Raises
    ------
    OSError
        If the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._openers: dict[bytes, Opener] = {}
        self._doomed: set[bytes] = set()
        self._erasing = Lock()
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        _sync(folder.parent)

    @override
    def make(self) -> bytes:
        """Return the public half of a new key, which is on disk when this returns."""
        opener = Opener(X25519PrivateKey.generate())
        path = self._path(opener.public_key)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(opener.private_bytes())
            file.flush()
            os.fsync(file.fileno())
        _sync(self._folder)
        self._openers[opener.public_key] = opener
        return opener.public_key

    @override
    def find(self, public_key: bytes) -> Opener | None:
        if opener := self._openers.get(public_key):
            return opener
        with self._erasing:  # another thread may be destroying it
            if public_key not in self._doomed and (opener := self._read(public_key)):
                self._openers[public_key] = opener
        return opener

    def _read(self, public_key: bytes) -> Opener | None:
        try:
            raw = self._path(public_key).read_bytes()
        except FileNotFoundError:
            return None
        opener = Opener.of(raw) if len(raw) == _KEY_SIZE else None
        return opener if opener and opener.public_key == public_key else None

    @override
    def destroy(self, public_key: bytes) -> None:
        """Forget a key and erase its file; what the disk refuses now, `retry` does later."""
        with self._erasing:
            self._openers.pop(public_key, None)
            self._doomed.add(public_key)
        self.retry()

    @override
    def retry(self) -> None:
        """Erase the files that a disk did not let go."""
        with self._erasing:
            for public_key in list(self._doomed):
                try:
                    self._erase(self._path(public_key))
                except OSError as error:
                    _log.error("the key of a closed round is not destroyed yet (%s)", trace(error))
                else:
                    self._doomed.discard(public_key)

    @override
    @property
    def unerased(self) -> int:
        """Keys of closed rounds that the disk did not let go yet."""
        return len(self._doomed)

    @override
    def keep(self, public_keys: Collection[bytes]) -> None:
        """Erase the file of every key but these; other files in the folder are not ours.

        Raises
        ------
        OSError
            If a file cannot be erased.
        """
        kept = {self._path(public_key) for public_key in public_keys}
        for path in self._folder.iterdir():
            if path not in kept and _NAME.fullmatch(path.name) and path.is_file():
                self._erase(path)

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

    def _path(self, public_key: bytes) -> Path:
        return self._folder / f"{public_key.hex()}{_SUFFIX}"


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
