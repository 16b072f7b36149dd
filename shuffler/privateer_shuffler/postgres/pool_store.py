"""What replicas hold together, in one database, and the server's key that they know together."""

import asyncio
import secrets
from collections.abc import Collection
from typing import Any, Final

import msgspec
from sqlalchemy import Connection

from privateer_core.errors import RoundClosed, SpecError, Unavailable
from privateer_core.serving.store.database import Unreachable
from privateer_core.serving.store.leases import Leases
from privateer_core.serving.store.postgres import ConnectionPool, row, rows, run
from privateer_core.serving.store.store_key import StoreKey
from privateer_core.wire.identity import check_signed
from privateer_shuffler.pool.protocol import Label, Taken
from privateer_shuffler.postgres.pool import SharedPool
from privateer_shuffler.postgres.round import RoundState, SharedRound, SharedSpent

_SECRET_BYTES: Final = 32
_ABOUT: Final = b"privateer/shuffler-round/1"
_ROUND: Final = "SELECT id, label, secret, batch, held, ended_at FROM rounds"
_NOTE: Final = """
INSERT INTO taken VALUES (%s, %s, %s, false)
ON CONFLICT (experiment) DO UPDATE SET version = excluded.version, digest = excluded.digest, over = false
WHERE excluded.version > taken.version
"""
_LAST: Final = "SELECT version, digest, over FROM taken WHERE experiment = %s"


class SharedPin:
    """Checks who signs publications, as `privateer_shuffler.resources.Pin` does.

    The first key that a replica meets counts.

    Parameters
    ----------
    named
        The keys that the operator names; empty: the first one counts.
    """

    def __init__(self, pool: ConnectionPool, named: frozenset[bytes]) -> None:
        self._pool, self._known = pool, named
        if not named:
            with pool.connection() as db:
                found = row(db, "SELECT public_key FROM server")
            self._known = frozenset(found or ())

    def check(self, signed: str, body: bytes) -> None:
        """Refuse a publication that the server has not signed; the first key becomes the known one.

        Raises
        ------
        SignatureInvalid, KeyChanged
            If it is not signed, or by another key.
        Unavailable
            If the key cannot be kept.
        """
        key = check_signed(signed, body, self._known)
        if not self._known:
            self._known = frozenset({self._kept(key)})
            check_signed(signed, body, self._known)  # another replica may have met another server

    def _kept(self, key: bytes) -> bytes:
        try:
            with self._pool.transaction() as db:
                run(db, "INSERT INTO server VALUES (1, %s) ON CONFLICT DO NOTHING", key)
                found = row(db, "SELECT public_key FROM server")
        except Unreachable:
            detail = "the shuffler cannot keep the server's key"
            raise Unavailable(detail, remedy="its operator must check its database") from None
        assert found is not None, "it has just been put there"
        return bytes(found[0])


class SharedPoolStore:
    """The database of replicas (`privateer_shuffler.pool.protocol.PoolStore`).

    Parameters
    ----------
    store_key
        The key that the database does not have.
    with_tokens
        Whether reports come with upload tokens.
    """

    shared = True

    def __init__(self, pool: ConnectionPool, store_key: StoreKey, with_tokens: bool) -> None:
        self._pool, self._key, self._leases = pool, store_key, Leases(pool)
        self._spent = SharedSpent(store_key) if with_tokens else None

    def knows(self, nonce: bytes) -> bool:
        """Whether this replica has seen an upload token spent."""
        return self._spent is not None and self._spent.knows(nonce)

    async def find(self, opened: Collection[bytes]) -> list[SharedPool]:
        """Open the rounds in the database but for those with these digests."""
        return [self._opened(found) for found in await asyncio.to_thread(self._find, list(opened))]

    def _find(self, opened: list[bytes]) -> list[tuple[Any, ...]]:
        with self._pool.connection() as db:
            return rows(db, f"{_ROUND} WHERE digest <> ALL(%b)", opened)

    async def open(self, label: Label) -> SharedPool:
        """Make a round, or open the one that another replica has made.

        Raises
        ------
        RoundClosed
            If the version is over.
        """
        return self._opened(await asyncio.to_thread(self._made, label))

    def _made(self, label: Label) -> tuple[Any, ...]:
        secret = self._key.wrapped(secrets.token_bytes(_SECRET_BYTES), _ABOUT + label.digest)
        with self._pool.transaction() as db:
            # The lock orders this and the end of the version: a round that was erased is not made again.
            last = _taken(db, label.round.experiment, " FOR UPDATE")
            if last is None or last.over or (last.version, last.digest) != (label.round.version, label.digest):
                raise RoundClosed("this version takes no further batch", remedy="nothing to do")
            insert = "INSERT INTO rounds (digest, label, secret) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
            run(db, insert, label.digest, msgspec.msgpack.encode(label), secret)
            found = row(db, f"{_ROUND} WHERE digest = %s", label.digest)
        assert found is not None, "it has just been put there"
        return found

    def _opened(self, found: tuple[Any, ...]) -> SharedPool:
        number, encoded, wrapped, *state = found
        label = msgspec.msgpack.decode(encoded, type=Label)
        secret = self._key.unwrapped(wrapped, _ABOUT + label.digest)
        if secret is None:
            remedy = "put the database back, or delete its row and lose what it holds: docs/operations.md"
            raise SpecError("the secret of a round is damaged", field="PRIVATEER_DATABASE", remedy=remedy)
        return SharedPool(SharedRound(self._pool, number, label, secret, self._spent), RoundState(*state), self._leases)

    async def last(self, experiment: str) -> Taken | None:
        """Return the newest publication that any replica took reports for."""
        return await asyncio.to_thread(self._last, experiment)

    def _last(self, experiment: str) -> Taken | None:
        with self._pool.connection() as db:
            return _taken(db, experiment)

    async def note(self, experiment: str, taken: Taken) -> None:
        """Remember a publication unless a newer one is known; durable when this returns."""
        await asyncio.to_thread(self._run, _NOTE, experiment, taken.version, taken.digest)

    async def end(self, experiment: str, version: int) -> None:
        """Remember that a version takes no further batch; durable when this returns."""
        update = "UPDATE taken SET over = true WHERE experiment = %s AND version = %s"
        await asyncio.to_thread(self._run, update, experiment, version)

    def _run(self, statement: str, *values: object) -> None:
        with self._pool.connection() as db:
            run(db, statement, *values)

    async def is_writable(self) -> bool:
        """Whether the database makes a transaction durable now."""
        try:
            await asyncio.to_thread(self._run, "SELECT txid_current()")
        except Unreachable:
            return False
        return True

    async def tidy(self) -> None:
        """Do nothing: the end of every round forgets the tokens whose key has expired."""

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()


def _taken(db: Connection, experiment: str, lock: str = "") -> Taken | None:
    found = row(db, _LAST + lock, experiment)
    return Taken(*found) if found else None
