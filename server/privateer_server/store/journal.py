"""The journal of each experiment's last publication: written before the database, and outside its backups."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, delete, select, update

from privateer_core.codec import decode, encode
from privateer_core.serving.store.database import Database, insert, insert_or_get
from privateer_server.store.records import JournalEntry, Leaf, LogLine, OutdatedState
from privateer_server.store.schema import DELETIONS, LOG_LEAVES, LOG_NAME, ORIGIN, PUBLICATIONS, SIGNER

_WRITE_LOCK, _EXTEND_LOCK = 1, 2
_log: Final = logging.getLogger("privateer.server")


class Journal:
    """A journal of last publications, outside backups: it is never rolled back, and shows if the store was.

    It is a file beside the store's or on another disk, or a database that servers share. A shared journal stores the
    identity of its database. If that identity has changed, the journal may have been rolled back: then its entries
    count for versions only, so that every open round is given up at the start.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        if database.is_shared and not database.is_read_only:
            self._clear_digests_after_rollback()

    def _clear_digests_after_rollback(self) -> None:
        """Empty the digests of all entries if the database's identity has changed, and record the new identity."""
        with self._database.transaction() as db:
            insert_or_get(db, ORIGIN.c.identity, self._database.identity)
            if db.execute(select(ORIGIN.c.identity).with_for_update()).scalar_one() == self._database.identity:
                return
            db.execute(update(ORIGIN).values(identity=self._database.identity))
            for (encoded,) in db.execute(select(PUBLICATIONS.c.entry).with_for_update()).all():
                # The entry counts for versions alone.
                entry = decode(encoded, JournalEntry)
                _write_entry(db, replace(entry, closed=b"", following=replace(entry.following, digest=b"")))
        _log.warning("the journal's database was put back or moved: it may have gone back, so rounds are given up")

    def last_entry(self, experiment: str) -> JournalEntry | None:
        """Return the last publication of an experiment, if any; after a possible rollback it has no digests."""
        with self._database.connection() as db:
            return _read_last_entry(db, experiment)

    def experiments(self) -> list[str]:
        """Return the names of all experiments that were ever published, sorted."""
        with self._database.connection() as db:
            return list(db.execute(select(PUBLICATIONS.c.experiment).order_by(PUBLICATIONS.c.experiment)).scalars())

    def record_publication(self, entry: JournalEntry, previous: JournalEntry | None) -> JournalEntry:
        """Record a publication unless the last entry differs from ``previous``, and return the recorded entry.

        The first of several writers wins, and the others publish its entry. The entry is durable when this returns.
        """
        with self._database.transaction() as db:
            if self._database.is_shared:
                self._database.lock(db, _WRITE_LOCK, entry.experiment)
                last = _read_last_entry(db, entry.experiment)
                is_deleted = db.execute(select(1).where(DELETIONS.c.experiment == entry.experiment)).first() is not None
                if is_deleted or (last and last.following.digest) != (previous and previous.following.digest):
                    if last is None:
                        raise OutdatedState("the experiment was deleted")
                    return last
            _write_entry(db, entry)
        return entry

    def record_end_of_batches(self, experiment: str, digest: bytes) -> None:
        """Record that a round takes no further batch, before its shuffler learns of that and erases its reports.

        The record is durable when this returns. If another publication is the last, nothing changes.
        """
        with self._database.transaction() as db:
            self._database.lock(db, _WRITE_LOCK, experiment)
            last = _read_last_entry(db, experiment)
            if last and last.following.digest == digest and not last.shut:
                _write_entry(db, replace(last, shut=True))

    def record_deletion(self, experiment: str, line: LogLine) -> None:
        """Record that an experiment is deleted, and erase its publication; durable when this returns."""
        with self._database.transaction() as db:
            self._database.lock(db, _WRITE_LOCK, experiment)
            db.execute(insert(DELETIONS).values(experiment=experiment, line=encode(line)).on_conflict_do_nothing())
            db.execute(delete(PUBLICATIONS).where(PUBLICATIONS.c.experiment == experiment))
        self.erase_old_states()

    def erase_old_states(self) -> None:
        """Erase remains of earlier states of the journal, as far as the database can."""
        self._database.erase_old_states()

    def deletions(self) -> dict[str, LogLine]:
        """Return the log lines of deletions, by experiment."""
        with self._database.connection() as db:
            rows = db.execute(select(DELETIONS.c.experiment, DELETIONS.c.line).order_by(DELETIONS.c.experiment)).all()
        return {name: decode(line, LogLine) for name, line in rows}

    def register_signer(self, public_key: bytes) -> bytes:
        """Record the key that signs publications unless a key is recorded, and return the recorded key.

        If the journal is a file, no other server signs.
        """
        if not self._database.is_shared:
            return public_key
        with self._database.transaction() as db:
            return bytes(insert_or_get(db, SIGNER.c.public_key, public_key))

    def origin(self) -> str:
        """Return the name of the log of publications, or an empty string if no log exists."""
        with self._database.connection() as db:
            return db.execute(select(LOG_NAME.c.origin)).scalar_one_or_none() or ""

    def leaves(self, start: int, limit: int | None = None) -> list[Leaf]:
        """Return at most ``limit`` leaves of the log from an index on, for which a head may have been signed."""
        with self._database.connection() as db:
            return _read_leaves(db, start, limit)

    def extend_log(self, origin: str, start: int, leaves: Sequence[Leaf]) -> None:
        """Record leaves before a head is signed for them, and the name of the log; `OutdatedState` for another log.

        The record is durable when this returns. Leaves that another server has recorded already stay unchanged.
        """
        rows = [{"position": position, "leaf": encode(leaf)} for position, leaf in enumerate(leaves, start + 1)]
        with self._database.transaction() as db:
            self._database.lock(db, _EXTEND_LOCK)
            insert_or_get(db, LOG_NAME.c.origin, origin)
            if rows:
                db.execute(insert(LOG_LEAVES).on_conflict_do_nothing(), rows)
            has_previous_leaf = not start or db.execute(select(1).where(LOG_LEAVES.c.position == start)).first()
            if not has_previous_leaf or _read_leaves(db, start, len(leaves)) != list(leaves):
                raise OutdatedState("the log in the journal's database is not the one that goes on here")

    def close(self) -> None:
        """Close the journal's database."""
        self._database.close()


def _read_last_entry(db: Connection, experiment: str) -> JournalEntry | None:
    rows = db.execute(select(PUBLICATIONS.c.entry).where(PUBLICATIONS.c.experiment == experiment))
    encoded = rows.scalar_one_or_none()
    return decode(encoded, JournalEntry) if encoded else None


def _write_entry(db: Connection, entry: JournalEntry) -> None:
    row = {"experiment": entry.experiment, "entry": encode(entry)}
    statement = insert(PUBLICATIONS).values(row)
    db.execute(statement.on_conflict_do_update(index_elements=["experiment"], set_={"entry": row["entry"]}))


def _read_leaves(db: Connection, start: int, limit: int | None) -> list[Leaf]:
    query = select(LOG_LEAVES.c.leaf).where(LOG_LEAVES.c.position > start).order_by(LOG_LEAVES.c.position).limit(limit)
    return [decode(leaf, Leaf) for leaf in db.execute(query).scalars()]
