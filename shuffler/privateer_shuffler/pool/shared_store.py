"""The store of shuffler replicas behind a load balancer: a PostgreSQL database of their own."""

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
from privateer_core.serving.store.database import Database, Schema, Unreachable, insert, insert_or_get
from privateer_core.serving.store.leases import Leases
from privateer_core.serving.store.postgres import PostgresDatabase
from privateer_core.serving.store.store_key import StoreKey, read_store_key
from privateer_shuffler.pool.pool import Label, Pool, RoundProgress
from privateer_shuffler.pool.schema import FINGERPRINTS, PIECES, ROUNDS, SEAL, SERVER, SHARED_TABLES, SIGNER, TAKEN
from privateer_shuffler.pool.shared_round import SharedRound, SharedStorage
from privateer_shuffler.pool.spent_tokens import SharedTokens
from privateer_shuffler.pool.store import PoolFindings, PoolStore, describe_unknown_rounds
from privateer_shuffler.settings import ShufflerSettings

SHUFFLER: Final = Schema("shuffler", 2, SHARED_TABLES)
_SECRET_BYTES: Final = 32
_SECRET_PURPOSE: Final = b"privateer/shuffler-round/1"
_SELECT_ROUNDS: Final = select(ROUNDS)
_SELECT_UNOPENED: Final = _SELECT_ROUNDS.where(ROUNDS.c.digest.not_in(bindparam("opened", expanding=True)))
_SELECT_ROUND: Final = _SELECT_ROUNDS.where(ROUNDS.c.digest == bindparam("named"))
_LOCK_CURRENT_VERSION: Final = (
    select(TAKEN.c.experiment)
    .where(
        TAKEN.c.experiment == bindparam("name"),
        TAKEN.c.version == bindparam("version"),
        TAKEN.c.digest == bindparam("named"),
        ~TAKEN.c.over,
    )
    .with_for_update()
)
_INSERT_ROUND: Final = insert(ROUNDS).on_conflict_do_nothing()


class SharedStore(PoolStore):
    """The database of replicas.

    store_key: encryption key, which the database does not have.
    with_tokens: whether reports come with upload tokens.
    """

    shared = True

    def __init__(self, database: Database, store_key: StoreKey, with_tokens: bool) -> None:
        spent_tokens = SharedTokens(database, store_key) if with_tokens else None
        super().__init__(database, spent_tokens)
        self._key = store_key
        self._storage = SharedStorage(database, Leases(database), spent_tokens)

    @classmethod
    def connect(cls, settings: ShufflerSettings, public_key: bytes) -> "SharedStore":
        """Connect to the database, and migrate it to this version; refuse a key other than its replicas'."""
        store_key = StoreKey(read_store_key(settings.store_key_file))
        with ExitStack() as stack:
            database = PostgresDatabase(settings.database, SHUFFLER, "PRIVATEER_DATABASE")
            stack.callback(database.close)
            store_key.check(database, SEAL)
            _check_signer(database, public_key)
            stack.pop_all()
        return cls(database, store_key, settings.tokens.required)

    @override
    async def open_stored_rounds(self, opened: Collection[bytes]) -> list[Pool]:
        return [self._open_pool(row) for row in await asyncio.to_thread(self._select_unopened, list(opened))]

    def _select_unopened(self, opened: list[bytes]) -> Sequence[Any]:
        with self._database.connection() as db:
            return db.execute(_SELECT_UNOPENED, {"opened": opened}).fetchall()

    @override
    async def create_round(self, label: Label) -> Pool:
        return self._open_pool(await asyncio.to_thread(self._insert_round, label))

    def _insert_round(self, label: Label) -> Any:
        """Insert the row of a round, or return the row that another replica has inserted."""
        secret = self._key.encrypt(secrets.token_bytes(_SECRET_BYTES), _SECRET_PURPOSE + label.digest)
        current_version = {"name": label.round.experiment, "version": label.round.version, "named": label.digest}
        with self._database.transaction() as db:
            # The lock orders this and the end of the version: an erased round is not created again.
            if db.execute(_LOCK_CURRENT_VERSION, current_version).fetchone() is None:
                raise RoundClosed("this version takes no further batch", remedy="nothing to do")
            row = {"digest": label.digest, "label": msgspec.msgpack.encode(label), "secret": secret}
            db.execute(_INSERT_ROUND, row)
            return db.execute(_SELECT_ROUND, {"named": label.digest}).one()

    def _open_pool(self, row: Any) -> Pool:
        """Return the pool of a round's row, or refuse a row whose secret cannot be decrypted."""
        label = msgspec.msgpack.decode(row.label, type=prepared(Label))
        secret = self._key.decrypt(row.secret, _SECRET_PURPOSE + label.digest)
        if secret is None:
            remedy = "put the database back, or delete its row (docs/operations/scale-shufflers.md)"
            raise SpecError("the secret of a round is damaged", field="PRIVATEER_DATABASE", remedy=remedy)
        state = RoundProgress(row.batch, row.held, row.ended_at)
        return Pool(SharedRound(self._storage, row.id, label, secret, state))

    @override
    async def is_writable(self) -> bool:
        try:
            await asyncio.to_thread(self._write)
        except Unreachable:
            return False
        return True

    def _write(self) -> None:
        """Commit a transaction, to test the database."""
        with self._database.connection() as db:
            db.exec_driver_sql("SELECT txid_current()")

    @override
    def examine(self) -> PoolFindings:
        rows = self._select_unopened([])
        labels = [msgspec.msgpack.decode(row.label, type=prepared(Label)) for row in rows]
        disagreements = describe_unknown_rounds(self._database, labels)
        if any(self._key.decrypt(row.secret, _SECRET_PURPOSE + row.digest) is None for row in rows):
            disagreements.append("the secret of a round is damaged")
        with self._database.connection() as db:
            for column in (PIECES.c.round, FINGERPRINTS.c.round):
                if db.execute(select(column).where(column.not_in(select(ROUNDS.c.id))).limit(1)).fetchone():
                    disagreements.append(f"{column.table.name} has rows of no round")
        return PoolFindings({"PostgreSQL": self._database.examine()}, disagreements)

    def server_keys(self) -> frozenset[bytes]:
        """Return the key of the first server that a replica has met."""
        with self._database.connection() as db:
            return frozenset(db.execute(select(SERVER.c.public_key)).scalars())

    def keep_server_key(self, key: bytes) -> bytes:
        """Store the key of a server unless another is stored; return the stored one; `Unavailable` on failure."""
        try:
            with self._database.transaction() as db:
                return bytes(insert_or_get(db, SERVER.c.public_key, key))
        except Unreachable:
            detail = "the shuffler cannot keep the server's key"
            raise Unavailable(detail, remedy="its operator must check its database") from None


def _check_signer(database: Database, public_key: bytes) -> None:
    """Store the first signing key of replicas on this database, and refuse another: the server takes batches of one."""
    with database.transaction() as db:
        stored_key = insert_or_get(db, SIGNER.c.public_key, public_key)
    if stored_key != public_key:
        detail = "the shufflers on this database sign with another key"
        remedy = "give all replicas the same key file; docs/operations/scale-shufflers.md says how to replace it"
        raise SpecError(detail, field="PRIVATEER_SIGNING_KEY", remedy=remedy)
