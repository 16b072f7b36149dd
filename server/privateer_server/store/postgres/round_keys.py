"""The private keys of open rounds that servers share, encrypted under a key that no database has."""

import logging
from collections.abc import Collection
from threading import Lock
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from typing_extensions import override

from privateer_core.serving.logs import trace
from privateer_core.serving.store.postgres import ConnectionPool, Unreachable, row, run
from privateer_core.serving.store.store_key import StoreKey
from privateer_server.intake.opening import Opener
from privateer_server.store.protocol import KeyStore

_LABEL: Final = b"privateer/round-key/1"
_YOUNG: Final = "1 hour"
"""A key that no round names may be of one that another server is just about to publish, as long as it is this young."""
_log = logging.getLogger("privateer.server")


class PostgresKeyStore(KeyStore):
    """The keys (`privateer_server.store.protocol.KeyStore`) of servers that share data, in the journal's database.

    Parameters
    ----------
    store_key
        What encrypts them (AES-256-GCM).

    Raises
    ------
    SpecError
        If the keys there are encrypted under another one.
    """

    def __init__(self, pool: ConnectionPool, store_key: bytes) -> None:
        self._pool, self._store_key = pool, StoreKey(store_key)
        self._openers: dict[bytes, Opener] = {}
        self._doomed: set[bytes] = set()
        self._erasing = Lock()
        self._store_key.check(pool)

    @override
    def make(self) -> bytes:
        opener = Opener(X25519PrivateKey.generate())
        public_key = opener.public_key
        wrapped = self._store_key.wrapped(opener.private_bytes(), _LABEL + public_key)
        with self._pool.connection() as db:
            run(db, "INSERT INTO keys VALUES (%s, %s)", public_key, wrapped)
        self._openers[public_key] = opener
        return public_key

    @override
    def find(self, public_key: bytes) -> Opener | None:
        if opener := self._openers.get(public_key):
            return opener
        with self._pool.connection() as db:
            found = row(db, "SELECT wrapped FROM keys WHERE public_key = %s", public_key)
        raw = self._store_key.unwrapped(found[0], _LABEL + public_key) if found else None
        if raw is None:
            return None
        with self._erasing:  # another thread may be destroying it
            if public_key in self._doomed:
                return None
            return self._openers.setdefault(public_key, Opener.of(raw))

    @override
    def destroy(self, public_key: bytes) -> None:
        """Forget a key and delete its row; what the database refuses now, `retry` does later."""
        with self._erasing:
            self._openers.pop(public_key, None)
            self._doomed.add(public_key)
        self.retry()

    @override
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

    @override
    @property
    def unerased(self) -> int:
        """Keys of closed rounds that the database did not let go yet."""
        return len(self._doomed)

    @override
    def keep(self, public_keys: Collection[bytes]) -> None:
        """Delete every key but these, and but those that another server may just have made."""
        delete = "DELETE FROM keys WHERE public_key <> ALL(%b) AND made < clock_timestamp() - %s::interval"
        with self._pool.connection() as db:
            run(db, delete, list(public_keys), _YOUNG)
