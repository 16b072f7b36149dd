"""The store of shuffler replicas behind a load balancer: a PostgreSQL database of their own.

A transaction takes the reports of many uploads: it locks the round's row, looks for the fingerprints of their messages,
spends their tokens, and adds one encrypted piece. The batch is in the order of hashes with a key of the round, so that
the order of pieces does not reveal it.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, bindparam, delete, select, update
from typing_extensions import override

from privateer_core.clock import Clock
from privateer_core.errors import RoundClosed, SpecError, Unavailable
from privateer_core.prepared_types import cache_decoder
from privateer_core.serving.store.database import Database, Schema, Unreachable, insert, insert_or_get
from privateer_core.serving.store.leases import Lease, Leases
from privateer_core.serving.store.postgres import PostgresDatabase
from privateer_core.serving.store.store_key import StoreKey, read_store_key
from privateer_core.wire.publication import split_bytes
from privateer_shuffler.pool.pool import Label, Pool, RoundProgress, StoredRound
from privateer_shuffler.pool.schema import FINGERPRINTS, PIECES, ROUNDS, SEAL, SERVER, SHARED_TABLES, SIGNER, TAKEN
from privateer_shuffler.pool.spent_tokens import SharedTokens
from privateer_shuffler.pool.store import PoolFindings, PoolStore, describe_unknown_rounds
from privateer_shuffler.pool.uploads import PendingUpload, Portion, batch_full_error, build_portions, select_accepted
from privateer_shuffler.settings import ShufflerSettings

_HASH_BYTES: Final = 16
_STATE: Final = select(ROUNDS.c.batch, ROUNDS.c.held, ROUNDS.c.ended_at)
# Statements of every transaction with reports use the driver's arrays: SQLAlchemy would make a parameter for each
# message, and its share of a report's time would be a tenth.
_LOCK: Final = "SELECT batch, held, ended_at FROM rounds WHERE id = %s FOR UPDATE"
_DISABLE_SEQUENTIAL_SCAN: Final = "SELECT set_config('enable_seqscan', 'off', true)"
"""Disables sequential scans, which PostgreSQL uses until a table is analyzed, and which took 200 times as long."""
_FIND_FINGERPRINTS: Final = "SELECT fingerprint FROM fingerprints WHERE fingerprint = ANY(%b)"
"""Finds fingerprints, without a condition for the round, since each round has different ones."""
_ADD_PIECE: Final = "INSERT INTO pieces VALUES (%s, %b)"
_ADD_FINGERPRINTS: Final = "INSERT INTO fingerprints SELECT unnest(%b::bytea[]), %s"
_UPDATE_PROGRESS: Final = "UPDATE rounds SET batch = %s, held = %s, ended_at = %s WHERE id = %s"


def keyed_hash(message: bytes, key: bytes) -> bytes:
    """Return a keyed hash of a message."""
    return hashlib.blake2b(message, digest_size=_HASH_BYTES, key=key).digest()


class SharedStorage(NamedTuple):
    """The storage of replicas' rounds."""

    database: Database
    leases: Leases  # leases of rounds; the holder delivers the batch
    spent_tokens: SharedTokens | None  # the upload tokens that were spent; None: reports come without


class SharedRound(StoredRound):
    """A round in the database.

    number: id of the round's row.
    secret: secret from which all keys of the round are derived.
    """

    shared: ClassVar[bool] = True

    def __init__(
        self,
        storage: SharedStorage,
        number: int,
        label: Label,
        secret: bytes,
        state: RoundProgress,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(label, state, clock)
        self._database, self._leases, self._spent_tokens = storage
        self._number, self._key = number, StoreKey(secret)
        self._fingerprint_key = self._key.derive_key(b"fingerprint")
        self._lease: Lease | None = None

    def _fingerprints(self, messages: list[bytes]) -> list[bytes]:
        size = self.label.round.identity_size
        return [keyed_hash(message[:size], self._fingerprint_key) for message in messages]

    @override
    async def add(self, group: Sequence[PendingUpload], closed: bool) -> int:
        if closed:
            for upload in group:
                upload.refuse_all(batch_full_error())
            return 0
        accepted, self.state = await self.in_thread(lambda: self._add_group(group))
        if self.state is None:
            for upload in group:
                upload.refuse_all(RoundClosed("this version takes no further batch", remedy="nothing to do"))
        return sum(portion.n_participants for portion in accepted)

    def _add_group(self, group: Sequence[PendingUpload]) -> tuple[list[Portion], RoundProgress | None]:
        """Store the accepted portions of uploads in a transaction; return them and the progress, None: it is over."""
        hash_nonce = self._spent_tokens.hash if self._spent_tokens else None
        portions = build_portions(group, self.label.round.sealed_size, self._fingerprints, hash_nonce)
        with self._database.transaction() as db:
            row = db.exec_driver_sql(_LOCK, (self._number,)).fetchone()
            if row is None:
                return [], None
            state = RoundProgress(*row)
            if accepted := self._select_accepted(db, portions, state):
                state = self._write_portions(db, accepted, state)
        if self._spent_tokens:
            self._spent_tokens.cache(accepted)
        return accepted, state

    def _select_accepted(self, db: Connection, portions: list[Portion], state: RoundProgress) -> list[Portion]:
        """Select the accepted portions, and spend their tokens."""
        fingerprints = [fingerprint for portion in portions for fingerprint in portion.fingerprints]
        db.exec_driver_sql(_DISABLE_SEQUENTIAL_SCAN)
        known_fingerprints = {match for (match,) in db.exec_driver_sql(_FIND_FINGERPRINTS, (fingerprints,))}
        spent_tokens = self._spent_tokens.find_spent(db, portions) if self._spent_tokens else set[bytes]()
        capacity = 0 if state.ended_at else self.label.round.batch_size - state.n_held
        accepted = select_accepted(
            portions,
            capacity,
            lambda candidates: not known_fingerprints.isdisjoint(candidates),
            lambda match: match.token in spent_tokens,
        )
        return self._spent_tokens.spend(db, accepted) if self._spent_tokens else accepted

    def _write_portions(self, db: Connection, accepted: Sequence[Portion], state: RoundProgress) -> RoundProgress:
        """Store accepted messages, encrypted, and fingerprints of tokens; return the progress after them."""
        piece = b"".join(message for portion in accepted for message in portion.messages)
        db.exec_driver_sql(_ADD_PIECE, (self._number, self._key.encrypt(piece, self._encryption_context(state.batch))))
        fingerprints = sorted(fingerprint for portion in accepted for fingerprint in portion.fingerprints)
        db.exec_driver_sql(_ADD_FINGERPRINTS, (fingerprints, self._number))
        progress = self.advance_progress(state.n_held + sum(portion.n_participants for portion in accepted), state)
        db.exec_driver_sql(_UPDATE_PROGRESS, (*progress, self._number))
        return progress

    def _read(self) -> RoundProgress | None:
        with self._database.connection() as db:
            row = db.execute(_STATE.where(ROUNDS.c.id == self._number)).fetchone()
        return RoundProgress(*row) if row else None

    @override
    async def refresh(self) -> None:
        self.state = await self.in_thread(self._read_or_end)

    def _read_or_end(self) -> RoundProgress | None:
        """Return the progress of the round, which ends if it is full or late; None if the row is gone."""
        state = self._read()
        if state is None or self.advance_progress(state.n_held, state) == state:
            return state
        end_round = update(ROUNDS).where(ROUNDS.c.id == self._number, ROUNDS.c.ended_at == 0)
        with self._database.transaction() as db:
            db.execute(end_round.values(ended_at=self.clock.now()))
        return self._read()

    @override
    async def claim_delivery(self) -> bool:
        return await self.in_thread(self._take_lease)

    def _take_lease(self) -> bool:
        """Take the lease of an ended round, and return whether this replica holds it."""
        self._lease = self._lease or self._leases.take(self.label.digest.hex())
        if self._lease:  # another replica may have delivered the batch between the look and the lease
            self.state = self._read()
            if self.state is None or not self.state.ended_at:
                self._release_lease()
        return self._lease is not None

    def _release_lease(self) -> None:
        if self._lease:
            self._lease.give_back()
        self._lease = None

    @override
    def read_batch(self) -> bytes:
        """Return the held messages in a secret order; OSError if the database lacks any."""
        state, round_ = self.state or RoundProgress(), self.label.round
        with self._database.connection() as db:
            pieces = db.execute(select(PIECES.c.piece).where(PIECES.c.round == self._number)).scalars().all()
        kinds: list[list[bytes]] = [[] for _ in range(round_.groups)]
        for encrypted in pieces:
            piece = self._key.decrypt(encrypted, self._encryption_context(state.batch)) or b""
            for index, message in enumerate(split_bytes(piece, round_.sealed_size)):
                kinds[index // round_.messages_of_kind % len(kinds)].append(message)
        n_participants = len(set().union(*kinds)) / round_.messages
        if n_participants != state.n_held or n_participants < round_.fewest:
            raise OSError("the database has not the people that were taken")
        order = self._key.derive_key(b"order" + state.batch.to_bytes(8))
        return b"".join(
            message for kind in kinds for message in sorted(kind, key=lambda sealed: keyed_hash(sealed, order))
        )

    @override
    def find_closing(self) -> bytes | None:
        with self._database.connection() as db:
            return db.execute(select(ROUNDS.c.closing).where(ROUNDS.c.id == self._number)).scalar_one_or_none()

    @override
    def store_closing(self, body: bytes) -> bytes:
        """Store the first closing of this batch: a slow replica may have lost its lease to another."""
        batch = self.state.batch if self.state else 0
        is_first = ROUNDS.c.id == self._number, ROUNDS.c.batch == batch, ROUNDS.c.closing.is_(None)
        with self._database.transaction() as db:
            db.execute(update(ROUNDS).where(*is_first).values(closing=body))
        stored = self.find_closing()
        if stored is None:
            raise OSError("another replica has ended the batch")
        return stored

    @override
    def start_next_batch(self) -> None:
        progress = self.state or RoundProgress()
        with self._database.transaction() as db:
            state = self._lock_row(db)
            if state and state.batch == progress.batch:
                db.execute(delete(PIECES).where(PIECES.c.round == self._number))
                reset_row = update(ROUNDS).where(ROUNDS.c.id == self._number)
                db.execute(reset_row.values(batch=progress.batch + 1, held=0, ended_at=0.0, closing=None))
        self._vacuum()
        self.state = RoundProgress(progress.batch + 1)
        self._release_lease()

    @override
    def erase(self) -> int:
        with self._database.transaction() as db:
            state = self._lock_row(db)
            if state is None or (state.ended_at and self._lease is None):
                n_participants = 0
            else:
                n_participants = state.n_held
                for column in (ROUNDS.c.id, PIECES.c.round, FINGERPRINTS.c.round):
                    db.execute(delete(column.table).where(column == self._number))
        self._vacuum()
        self._release_lease()
        return n_participants

    def _lock_row(self, db: Connection) -> RoundProgress | None:
        row = db.execute(_STATE.where(ROUNDS.c.id == self._number).with_for_update()).fetchone()
        return RoundProgress(*row) if row else None

    def _vacuum(self) -> None:
        """Remove deleted rows from the database's files now, if possible; it does so later in any case."""
        with suppress(OSError), self._database.connection() as db:
            db.exec_driver_sql("VACUUM (SKIP_LOCKED) rounds, pieces, fingerprints")

    def _encryption_context(self, batch: int) -> bytes:
        return self.label.digest + batch.to_bytes(8)

    @override
    def close(self) -> None:
        self._release_lease()
        super().close()


SHUFFLER: Final = Schema("shuffler", 3, SHARED_TABLES)
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
        label = msgspec.msgpack.decode(row.label, type=cache_decoder(Label))
        secret = self._key.decrypt(row.secret, _SECRET_PURPOSE + label.digest)
        if secret is None:
            remedy = "put the database back, or delete its row (docs/operations/scale-shufflers.md)"
            raise SpecError("the secret of a round is damaged", field="PRIVATEER_DATABASE", remedy=remedy)
        state = RoundProgress(row.batch, row.held, row.ended_at)
        return Pool(SharedRound(self._storage, row.id, label, secret, state))

    @override
    async def is_writable(self) -> bool:
        try:
            await asyncio.to_thread(self._commit_probe)
        except Unreachable:
            return False
        return True

    def _commit_probe(self) -> None:
        """Commit a transaction, to test the database."""
        with self._database.connection() as db:
            db.exec_driver_sql("SELECT txid_current()")

    @override
    def examine(self) -> PoolFindings:
        rows = self._select_unopened([])
        labels = [msgspec.msgpack.decode(row.label, type=cache_decoder(Label)) for row in rows]
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
