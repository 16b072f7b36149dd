"""The journal of what each experiment published last: written before the database has it, and outside its backups."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, delete, select, update

from privateer_core.codec import decode, encode
from privateer_core.serving.store.database import Database, insert, keep_first
from privateer_server.store.records import Behind, JournalEntry, Leaf, LogLine
from privateer_server.store.schema import BURIED, LOG_LEAVES, LOG_NAME, ORIGIN, PUBLICATIONS, SIGNER

_WRITING, _EXTENDING = 1, 2
_log: Final = logging.getLogger("privateer.server")


class Journal:
    """A journal of what was published last. It is outside backups: it never goes back, and shows when the store did.

    It is a file beside the store's, or on another disk; or a database that servers share. That one knows which copy of
    its database it is. If it has become another one, it may have gone back: what it has counts for versions only then,
    so that every open round is given up at the start.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        if database.is_shared and not database.is_read_only:
            self._find_out_whether_it_went_back()

    def _find_out_whether_it_went_back(self) -> None:
        with self._database.transaction() as db:
            keep_first(db, ORIGIN.c.identity, self._database.identity)
            if db.execute(select(ORIGIN.c.identity).with_for_update()).scalar_one() == self._database.identity:
                return
            db.execute(update(ORIGIN).values(identity=self._database.identity))
            for (encoded,) in db.execute(select(PUBLICATIONS.c.entry).with_for_update()).all():
                _put(db, decode(encoded, JournalEntry).without_digests)
        _log.warning("the journal's database was put back or moved: it may have gone back, so rounds are given up")

    def last(self, experiment: str) -> JournalEntry | None:
        """Return the last publication of an experiment, if there is one; one that may have gone back has no digests."""
        with self._database.connection() as db:
            return _last(db, experiment)

    def experiments(self) -> list[str]:
        """Return the names of all experiments that were ever published, in alphabetical order."""
        with self._database.connection() as db:
            return list(db.execute(select(PUBLICATIONS.c.experiment).order_by(PUBLICATIONS.c.experiment)).scalars())

    def write(self, entry: JournalEntry, after: JournalEntry | None) -> JournalEntry:
        """Put a publication on record, if the last one still is ``after``; return the one that is on record then.

        The first of several writers wins, and the others publish what it has written. It is durable when this returns.
        """
        with self._database.transaction() as db:
            if self._database.is_shared:
                self._database.lock(db, _WRITING, entry.experiment)
                last = _last(db, entry.experiment)
                if _digest(last) != _digest(after) or _is_buried(db, entry.experiment):
                    if last is None:
                        raise Behind("the experiment was deleted")
                    return last
            _put(db, entry)
        return entry

    def shut(self, experiment: str, digest: bytes) -> None:
        """Put on record that a round takes no further batch, before its shuffler hears of that and erases its reports.

        It is durable when this returns. If another publication is the last one, nothing changes.
        """
        with self._database.transaction() as db:
            self._database.lock(db, _WRITING, experiment)
            last = _last(db, experiment)
            if last and last.following.digest == digest and not last.shut:
                _put(db, replace(last, shut=True))

    def bury(self, experiment: str, line: LogLine) -> None:
        """Put on record that an experiment is deleted, and erase its publication; durable when this returns."""
        with self._database.transaction() as db:
            self._database.lock(db, _WRITING, experiment)
            db.execute(insert(BURIED).values(experiment=experiment, line=encode(line)).on_conflict_do_nothing())
            db.execute(delete(PUBLICATIONS).where(PUBLICATIONS.c.experiment == experiment))
        self.tidy()

    def tidy(self) -> None:
        """Erase what is left of earlier states of the journal, as far as it can."""
        self._database.tidy()

    def buried(self) -> dict[str, LogLine]:
        """Return the deleted experiments, with the lines of their deletion."""
        with self._database.connection() as db:
            rows = db.execute(select(BURIED.c.experiment, BURIED.c.line).order_by(BURIED.c.experiment)).all()
        return {name: decode(line, LogLine) for name, line in rows}

    def signer(self, public_key: bytes) -> bytes:
        """Put the key that signs publications on record, unless there is one; return the one that is on record then.

        No other server signs where the journal is a file.
        """
        if not self._database.is_shared:
            return public_key
        with self._database.transaction() as db:
            return bytes(keep_first(db, SIGNER.c.public_key, public_key))

    def origin(self) -> str:
        """Return the name of the log of publications; empty: none has begun."""
        with self._database.connection() as db:
            return db.execute(select(LOG_NAME.c.origin)).scalar_one_or_none() or ""

    def leaves(self, start: int, most: int | None = None) -> list[Leaf]:
        """Return the leaves of the log that a head may have been signed for, from a place on; at most so many."""
        with self._database.connection() as db:
            return _leaves(db, start, most)

    def extend(self, origin: str, start: int, leaves: Sequence[Leaf]) -> None:
        """Put leaves on record before a head is signed for them, and the name of the log, if it has none yet.

        It is durable when this returns. What another server has put on record already stays as it is.
        """
        rows = [{"position": place, "leaf": encode(leaf)} for place, leaf in enumerate(leaves, start + 1)]
        with self._database.transaction() as db:
            self._database.lock(db, _EXTENDING)
            keep_first(db, LOG_NAME.c.origin, origin)
            if rows:
                db.execute(insert(LOG_LEAVES).on_conflict_do_nothing(), rows)
            reaches = not start or db.execute(select(1).where(LOG_LEAVES.c.position == start)).first()
            if not reaches or _leaves(db, start, len(leaves)) != list(leaves):
                raise Behind("the log in the journal's database is not the one that goes on here")

    def close(self) -> None:
        """Let go of the journal; nothing here is used again."""
        self._database.close()


def _last(db: Connection, experiment: str) -> JournalEntry | None:
    found = db.execute(select(PUBLICATIONS.c.entry).where(PUBLICATIONS.c.experiment == experiment))
    encoded = found.scalar_one_or_none()
    return decode(encoded, JournalEntry) if encoded else None


def _digest(entry: JournalEntry | None) -> bytes | None:
    return entry.following.digest if entry else None


def _is_buried(db: Connection, experiment: str) -> bool:
    return db.execute(select(1).where(BURIED.c.experiment == experiment)).first() is not None


def _put(db: Connection, entry: JournalEntry) -> None:
    row = {"experiment": entry.experiment, "entry": encode(entry)}
    put = insert(PUBLICATIONS).values(row)
    db.execute(put.on_conflict_do_update(index_elements=["experiment"], set_={"entry": row["entry"]}))


def _leaves(db: Connection, start: int, most: int | None) -> list[Leaf]:
    found = select(LOG_LEAVES.c.leaf).where(LOG_LEAVES.c.position > start).order_by(LOG_LEAVES.c.position).limit(most)
    return [decode(leaf, Leaf) for leaf in db.execute(found).scalars()]
