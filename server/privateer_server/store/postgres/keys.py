"""The private keys of open rounds that servers share, encrypted under a key that no database has."""

import logging
import os
from collections.abc import Collection
from pathlib import Path
from threading import Lock
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from privateer.errors import SpecError
from privateer.serving.logs import trace
from privateer_server.opening import Opener
from privateer_server.store.postgres.pool import Pool, Unreachable, row, run

_SIZE: Final = 32
_NONCE_SIZE: Final = 12
_LABEL: Final = b"privateer/round-key/1"
_SEAL: Final = b"privateer/store-key/1"
_FIELD: Final = "PRIVATEER_STORE_KEY_FILE"
_YOUNG: Final = "1 hour"
"""A key that no round names may be of one that another server is just about to publish, as long as it is this young."""
_log = logging.getLogger("privateer.server")


def read_store_key(path: Path | None) -> bytes:
    """Return the key in a file of 32 bytes.

    Raises
    ------
    SpecError
        If there is no such file, or it holds something else.
    """
    remedy = "make one with openssl rand -out FILE 32, for the server's user alone, and give it to all servers"
    try:
        key = path.read_bytes() if path else b""
    except OSError as error:
        detail = f"the key file cannot be read: {error.strerror}"
        raise SpecError(detail, field=_FIELD, remedy=remedy) from None
    if len(key) != _SIZE:
        raise SpecError(f"the key file has {len(key)} bytes, and not {_SIZE}", field=_FIELD, remedy=remedy)
    return key


class PostgresKeys:
    """The keys (`privateer_server.store.protocol.Keys`) of servers that share their data, in the journal's database.

    Parameters
    ----------
    store_key
        What encrypts them (AES-256-GCM).

    Raises
    ------
    SpecError
        If the keys there are encrypted under another one.
    """

    def __init__(self, pool: Pool, store_key: bytes) -> None:
        self._pool, self._store_key = pool, AESGCM(store_key)
        self._openers: dict[bytes, Opener] = {}
        self._doomed: set[bytes] = set()
        self._erasing = Lock()
        with pool.transaction() as db:
            run(db, "INSERT INTO seal VALUES (1, %s) ON CONFLICT DO NOTHING", self._wrapped(b"", _SEAL))
            found = row(db, "SELECT sealed FROM seal")
        if found is None or self._unwrapped(found[0], _SEAL) is None:
            remedy = "name the file that the servers had; docs/operations.md says what to do if it is lost"
            detail = "the keys of open rounds are encrypted under another key"
            raise SpecError(detail, field=_FIELD, remedy=remedy)

    def make(self) -> bytes:
        """Return the public half of a new key, which is durable when this returns."""
        opener = Opener(X25519PrivateKey.generate())
        public_key = opener.public_key
        wrapped = self._wrapped(opener.private_bytes(), _LABEL + public_key)
        with self._pool.connection() as db:
            run(db, "INSERT INTO keys VALUES (%s, %s)", public_key, wrapped)
        self._openers[public_key] = opener
        return public_key

    def find(self, public_key: bytes) -> Opener | None:
        """Return what opens reports sealed to this key; None if its private half is lost or damaged."""
        if opener := self._openers.get(public_key):
            return opener
        with self._pool.connection() as db:
            found = row(db, "SELECT wrapped FROM keys WHERE public_key = %s", public_key)
        raw = self._unwrapped(found[0], _LABEL + public_key) if found else None
        if raw is None:
            return None
        with self._erasing:  # another thread may be destroying it
            if public_key in self._doomed:
                return None
            return self._openers.setdefault(public_key, Opener.of(raw))

    def destroy(self, public_key: bytes) -> None:
        """Forget a key and delete its row; what the database refuses now, `retry` does later."""
        with self._erasing:
            self._openers.pop(public_key, None)
            self._doomed.add(public_key)
        self.retry()

    def retry(self) -> None:
        """Delete the rows that the database did not let go."""
        with self._erasing:
            if not self._doomed:
                return
            try:
                with self._pool.connection() as db:
                    run(db, "DELETE FROM keys WHERE public_key = ANY(%b)", list(self._doomed))
            except Unreachable as error:
                _log.error("the key of a closed round is not destroyed yet (%s)", trace(error))
            else:
                self._doomed.clear()

    @property
    def unerased(self) -> int:
        """Keys of closed rounds that the database did not let go yet."""
        return len(self._doomed)

    def keep(self, public_keys: Collection[bytes]) -> None:
        """Delete every key but these, and but those that another server may just have made."""
        delete = "DELETE FROM keys WHERE public_key <> ALL(%b) AND made < clock_timestamp() - %s::interval"
        with self._pool.connection() as db:
            run(db, delete, list(public_keys), _YOUNG)

    def _wrapped(self, raw: bytes, about: bytes) -> bytes:
        nonce = os.urandom(_NONCE_SIZE)
        return nonce + self._store_key.encrypt(nonce, raw, about)

    def _unwrapped(self, wrapped: bytes, about: bytes) -> bytes | None:
        try:
            return self._store_key.decrypt(wrapped[:_NONCE_SIZE], wrapped[_NONCE_SIZE:], about)
        except (InvalidTag, ValueError):
            return None
