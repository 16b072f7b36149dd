"""A round in a database that replicas share: encrypted pieces, in whose order of arrival nobody finds a place.

One transaction takes the reports of many requests: it locks the round's row, looks for the fingerprints of their
messages, spends their tokens, and adds one piece. The batch is in the order of hashes with a key of the round.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar, Final, NamedTuple

from sqlalchemy import Connection, delete, select, update
from typing_extensions import override

from privateer_core.clock import Clock
from privateer_core.errors import RoundClosed
from privateer_core.serving.store.database import Database
from privateer_core.serving.store.leases import Lease, Leases
from privateer_core.serving.store.store_key import StoreKey
from privateer_core.wire.envelope import pieces
from privateer_shuffler.pool.round import Label, RoundState, StoredRound
from privateer_shuffler.pool.schema import FINGERPRINTS, PIECES, ROUNDS
from privateer_shuffler.pool.spent_tokens import SharedTokens
from privateer_shuffler.pool.uploads import Portion, WaitingUpload, decide, portions_of, waiting

_HASH_BYTES: Final = 16
_STATE: Final = select(ROUNDS.c.batch, ROUNDS.c.held, ROUNDS.c.ended_at)
# What every transaction with reports does is in the driver's words: arrays, of which SQLAlchemy would make a parameter
# for each message, and half of its time for a statement, of which a report's share would be a tenth of what it costs.
_LOCK: Final = "SELECT batch, held, ended_at FROM rounds WHERE id = %s FOR UPDATE"
_BY_INDEX: Final = "SELECT set_config('enable_seqscan', 'off', true)"
"""Until a table is analyzed PostgreSQL takes it for small, and reads all of it: that took 200 times as long."""
_KNOWN: Final = "SELECT fingerprint FROM fingerprints WHERE fingerprint = ANY(%b)"
"""Each round has fingerprints of its own, so that the round needs no naming."""
_ADD_PIECE: Final = "INSERT INTO pieces VALUES (%s, %b)"
_ADD_FINGERPRINTS: Final = "INSERT INTO fingerprints SELECT unnest(%b::bytea[]), %s"
_SET: Final = "UPDATE rounds SET batch = %s, held = %s, ended_at = %s WHERE id = %s"


def keyed_hash(message: bytes, key: bytes) -> bytes:
    """Return a hash of a message that nobody computes without the key."""
    return hashlib.blake2b(message, digest_size=_HASH_BYTES, key=key).digest()


class SharedStorage(NamedTuple):
    """The storage of replicas' rounds."""

    database: Database
    leases: Leases  # who has one delivers the batch
    spent: SharedTokens | None  # the upload tokens that were spent; None: reports come without


class SharedRound(StoredRound):
    """A round in the database.

    number: its row.
    secret: from which all keys of the round are derived.
    """

    shared: ClassVar[bool] = True

    def __init__(
        self,
        storage: SharedStorage,
        number: int,
        label: Label,
        secret: bytes,
        state: RoundState,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(label, state, clock)
        self._database, self._leases, self._spent = storage
        self._number, self._key = number, StoreKey(secret)
        self._fingerprint_key = self._key.derived(b"fingerprint")
        self._lease: Lease | None = None

    def _fingerprints(self, messages: list[bytes]) -> list[bytes]:
        return [keyed_hash(message, self._fingerprint_key) for message in messages]

    @override
    async def add(self, group: Sequence[WaitingUpload], closed: bool) -> int:
        if closed:
            for upload in group:
                upload.refuse_all(waiting())
            return 0
        taken, self.state = await self.in_thread(lambda: self._add(group))
        if self.state is None:
            for upload in group:
                upload.refuse_all(RoundClosed("this version takes no further batch", remedy="nothing to do"))
        return sum(portion.people for portion in taken)

    def _add(self, group: Sequence[WaitingUpload]) -> tuple[list[Portion], RoundState | None]:
        hashed = self._spent.hash if self._spent else None
        portions = portions_of(group, self.label.round.sealed_size, self._fingerprints, hashed)
        with self._database.transaction() as db:
            found = db.exec_driver_sql(_LOCK, (self._number,)).fetchone()
            if found is None:
                return [], None
            state = RoundState(*found)
            if taken := self._decided(db, portions, state):
                state = self._write(db, taken, state)
        if self._spent:
            self._spent.note(taken)
        return taken, state

    def _decided(self, db: Connection, portions: list[Portion], state: RoundState) -> list[Portion]:
        """Return what is to be held, and spend its tokens."""
        asked = [fingerprint for portion in portions for fingerprint in portion.fingerprints]
        db.exec_driver_sql(_BY_INDEX)
        known = {one for (one,) in db.exec_driver_sql(_KNOWN, (asked,))}
        spent = self._spent.among(db, portions) if self._spent else set[bytes]()
        room = 0 if state.ended_at else self.label.round.batch - state.held
        taken = decide(portions, room, lambda those: not known.isdisjoint(those), lambda one: one.token in spent)
        return self._spent.spend(db, taken) if self._spent else taken

    def _write(self, db: Connection, taken: Sequence[Portion], state: RoundState) -> RoundState:
        piece = b"".join(message for portion in taken for message in portion.messages)
        db.exec_driver_sql(_ADD_PIECE, (self._number, self._key.wrapped(piece, self._about(state.batch))))
        fingerprints = sorted(fingerprint for portion in taken for fingerprint in portion.fingerprints)
        db.exec_driver_sql(_ADD_FINGERPRINTS, (fingerprints, self._number))
        after = self.after(state.held + sum(portion.people for portion in taken), state)
        db.exec_driver_sql(_SET, (*after, self._number))
        return after

    def _read(self) -> RoundState | None:
        with self._database.connection() as db:
            found = db.execute(_STATE.where(ROUNDS.c.id == self._number)).fetchone()
        return RoundState(*found) if found else None

    @override
    async def look(self) -> None:
        self.state = await self.in_thread(self._looked)

    def _looked(self) -> RoundState | None:
        state = self._read()
        if state is None or self.after(state.held, state) == state:
            return state
        ends = update(ROUNDS).where(ROUNDS.c.id == self._number, ROUNDS.c.ended_at == 0)
        with self._database.transaction() as db:
            db.execute(ends.values(ended_at=self.clock.now()))
        return self._read()

    @override
    async def claim(self) -> bool:
        return await self.in_thread(self._claimed)

    def _claimed(self) -> bool:
        self._lease = self._lease or self._leases.take(self.label.digest.hex())
        if self._lease:  # another replica may have delivered the batch between the look and the lease
            self.state = self._read()
            if self.state is None or not self.state.ended_at:
                self._let_go()
        return self._lease is not None

    def _let_go(self) -> None:
        """Let another replica have the lease."""
        if self._lease:
            self._lease.give_back()
        self._lease = None

    @override
    def batch(self) -> bytes:
        """Return the messages that are held."""
        state, facts = self.state or RoundState(), self.label.round
        with self._database.connection() as db:
            found = db.execute(select(PIECES.c.piece).where(PIECES.c.round == self._number)).scalars().all()
        kinds: list[list[bytes]] = [[] for _ in range(facts.groups)]
        for wrapped in found:
            piece = self._key.unwrapped(wrapped, self._about(state.batch)) or b""
            for index, message in enumerate(pieces(piece, facts.sealed_size)):
                kinds[index // facts.messages_of_kind % len(kinds)].append(message)
        people = len(set().union(*kinds)) / facts.messages
        if people != state.held or people < facts.fewest:
            raise OSError("the database has not the people that were taken")
        order = self._key.derived(b"order" + state.batch.to_bytes(8))
        return b"".join(message for kind in kinds for message in sorted(kind, key=lambda one: keyed_hash(one, order)))

    @override
    def renew(self) -> None:
        own = self.state or RoundState()
        with self._database.transaction() as db:
            state = self._locked(db)
            if state and state.batch == own.batch:
                db.execute(delete(PIECES).where(PIECES.c.round == self._number))
                empty = update(ROUNDS).where(ROUNDS.c.id == self._number)
                db.execute(empty.values(batch=own.batch + 1, held=0, ended_at=0.0))
        self._vacuum()
        self.state = RoundState(own.batch + 1)
        self._let_go()

    @override
    def erase(self) -> int:
        with self._database.transaction() as db:
            state = self._locked(db)
            if state is None or (state.ended_at and self._lease is None):
                people = 0
            else:
                people = state.held
                for column in (ROUNDS.c.id, PIECES.c.round, FINGERPRINTS.c.round):
                    db.execute(delete(column.table).where(column == self._number))
        self._vacuum()
        self._let_go()
        return people

    def _locked(self, db: Connection) -> RoundState | None:
        found = db.execute(_STATE.where(ROUNDS.c.id == self._number).with_for_update()).fetchone()
        return RoundState(*found) if found else None

    def _vacuum(self) -> None:
        """Have the database let go of deleted rows now, if it can; it does so later in any case."""
        with suppress(OSError), self._database.connection() as db:
            db.exec_driver_sql("VACUUM (SKIP_LOCKED) rounds, pieces, fingerprints")

    def _about(self, batch: int) -> bytes:
        return self.label.digest + batch.to_bytes(8)

    @override
    def close(self) -> None:
        self._let_go()
        super().close()
