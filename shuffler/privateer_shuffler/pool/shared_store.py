"""The store of shufflers that stand behind one balancer: a PostgreSQL database of their own."""

import asyncio
import secrets
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, select
from typing_extensions import override

from privateer_core.errors import RoundClosed, SpecError, Unavailable
from privateer_core.prepared_types import prepared
from privateer_core.serving.store.database import Database, Schema, Unreachable, insert, keep_first
from privateer_core.serving.store.leases import Leases
from privateer_core.serving.store.postgres import PostgresDatabase
from privateer_core.serving.store.store_key import StoreKey, read_store_key
from privateer_shuffler.pool.pool import Pool
from privateer_shuffler.pool.round import Label, RoundState
from privateer_shuffler.pool.schema import (
    FINGERPRINTS,
    PIECES,
    ROUNDS,
    SEAL,
    SERVER,
    SHARED_TABLES,
    SIGNER,
    TAKEN,
)
from privateer_shuffler.pool.shared_round import SharedRound, SharedStorage
from privateer_shuffler.pool.spent_tokens import SharedTokens
from privateer_shuffler.pool.store import PoolFindings, PoolStore, unknown_rounds
from privateer_shuffler.settings import ShufflerSettings

SHUFFLER: Final = Schema("shuffler", 2, SHARED_TABLES)
_SECRET_BYTES: Final = 32
_ABOUT: Final = b"privateer/shuffler-round/1"
_FACTS: Final = select(ROUNDS)
_OTHERS: Final = _FACTS.where(ROUNDS.c.digest.not_in(bindparam("opened", expanding=True)))
_FOUND: Final = _FACTS.where(ROUNDS.c.digest == bindparam("named"))
_CURRENT: Final = (
    select(TAKEN.c.experiment)
    .where(
        TAKEN.c.experiment == bindparam("name"),
        TAKEN.c.version == bindparam("version"),
        TAKEN.c.digest == bindparam("named"),
        ~TAKEN.c.over,
    )
    .with_for_update()
)
_MAKE: Final = insert(ROUNDS).on_conflict_do_nothing()


class SharedStore(PoolStore):
    """The database of replicas.

    store_key: the key that the database does not have.
    with_tokens: whether reports come with upload tokens.
    """

    shared = True

    def __init__(self, database: Database, store_key: StoreKey, with_tokens: bool) -> None:
        spent = SharedTokens(database, store_key) if with_tokens else None
        super().__init__(database, spent)
        self._key = store_key
        self._storage = SharedStorage(database, Leases(database), spent)

    @classmethod
    def connect(cls, settings: ShufflerSettings, public_key: bytes) -> "SharedStore":
        """Connect to the database, and bring it to this version.

        public_key: of the key that signs batches.
        """
        store_key = StoreKey(read_store_key(settings.store_key_file))
        with ExitStack() as stack:
            database = PostgresDatabase(settings.database, SHUFFLER, "PRIVATEER_DATABASE")
            stack.callback(database.close)
            store_key.check(database, SEAL)
            _check_signer(database, public_key)
            stack.pop_all()
        return cls(database, store_key, settings.tokens.required)

    @override
    async def find(self, opened: Collection[bytes]) -> list[Pool]:
        return [self._opened(found) for found in await asyncio.to_thread(self._others, list(opened))]

    def _others(self, opened: list[bytes]) -> Sequence[Any]:
        with self._database.connection() as db:
            return db.execute(_OTHERS, {"opened": opened}).fetchall()

    @override
    async def open(self, label: Label) -> Pool:
        return self._opened(await asyncio.to_thread(self._made, label))

    def _made(self, label: Label) -> Any:
        """Make the row of a round, or return the one that another replica has made."""
        secret = self._key.wrapped(secrets.token_bytes(_SECRET_BYTES), _ABOUT + label.digest)
        current = {"name": label.round.experiment, "version": label.round.version, "named": label.digest}
        with self._database.transaction() as db:
            # The lock orders this and the end of the version: a round that was erased is not made again.
            if db.execute(_CURRENT, current).fetchone() is None:
                raise RoundClosed("this version takes no further batch", remedy="nothing to do")
            row = {"digest": label.digest, "label": msgspec.msgpack.encode(label), "secret": secret}
            db.execute(_MAKE, row)
            return db.execute(_FOUND, {"named": label.digest}).one()

    def _opened(self, found: Any) -> Pool:
        label = msgspec.msgpack.decode(found.label, type=prepared(Label))
        secret = self._key.unwrapped(found.secret, _ABOUT + label.digest)
        if secret is None:
            remedy = "put the database back, or delete its row (docs/operations/scale-shufflers.md)"
            raise SpecError("the secret of a round is damaged", field="PRIVATEER_DATABASE", remedy=remedy)
        state = RoundState(found.batch, found.held, found.ended_at)
        return Pool(SharedRound(self._storage, found.id, label, secret, state))

    @override
    async def is_writable(self) -> bool:
        try:
            await asyncio.to_thread(self._write)
        except Unreachable:
            return False
        return True

    def _write(self) -> None:
        """Make a transaction durable."""
        with self._database.connection() as db:
            db.exec_driver_sql("SELECT txid_current()")

    @override
    def examine(self) -> PoolFindings:
        found = self._others([])
        labels = [msgspec.msgpack.decode(one.label, type=prepared(Label)) for one in found]
        wrong = unknown_rounds(self._database, labels)
        if any(self._key.unwrapped(one.secret, _ABOUT + one.digest) is None for one in found):
            wrong.append("the secret of a round is damaged")
        with self._database.connection() as db:
            for column in (PIECES.c.round, FINGERPRINTS.c.round):
                if db.execute(select(column).where(column.not_in(select(ROUNDS.c.id))).limit(1)).fetchone():
                    wrong.append(f"{column.table.name} has rows of no round")
        return PoolFindings({"PostgreSQL": self._database.examine()}, wrong)

    def server_keys(self) -> frozenset[bytes]:
        """Return the key of the first server that a replica has met."""
        with self._database.connection() as db:
            return frozenset(db.execute(select(SERVER.c.public_key)).scalars())

    def keep_server_key(self, key: bytes) -> bytes:
        """Keep the key of a server unless a replica has met another one; return the one that counts."""
        try:
            with self._database.transaction() as db:
                return bytes(keep_first(db, SERVER.c.public_key, key))
        except Unreachable:
            detail = "the shuffler cannot keep the server's key"
            raise Unavailable(detail, remedy="its operator must check its database") from None


def _check_signer(database: Database, public_key: bytes) -> None:
    """Refuse to sign with another key than the replicas on this database: the server takes batches of one."""
    with database.transaction() as db:
        known = keep_first(db, SIGNER.c.public_key, public_key)
    if known != public_key:
        raise SpecError(
            "the shufflers on this database sign with another key",
            field="PRIVATEER_SIGNING_KEY",
            remedy="give all replicas the same key file; docs/operations/scale-shufflers.md says how to replace it",
        )
