"""The journal that servers share, in a database of its own."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from typing_extensions import override

from privateer_core.codec import decode, encode
from privateer_core.serving.store.postgres import Connection, ConnectionPool, row, rows, run
from privateer_server.store.protocol import PublicationJournal
from privateer_server.store.records import Behind, JournalEntry, Leaf, LogLine

_log = logging.getLogger("privateer.server")
_ONE_AT_A_TIME: Final = "SELECT pg_advisory_xact_lock(1, hashtext(%s))"
_ONE_EXTENDS: Final = "SELECT pg_advisory_xact_lock(2, 0)"


class PostgresJournal(PublicationJournal):
    """The journal (`privateer_server.store.protocol.PublicationJournal`) of servers that share their data.

    It knows which copy of its database it is. If it has become another one, it may have gone back: what it has counts
    for versions only then, so that every open round is given up at the start.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        with pool.transaction() as db:
            run(db, "INSERT INTO origin VALUES (1, %s) ON CONFLICT DO NOTHING", pool.identity)
            if row(db, "SELECT identity FROM origin FOR UPDATE") != (pool.identity,):
                run(db, "UPDATE origin SET identity = %s", pool.identity)
                run(db, "UPDATE publications SET digest = ''")
                _log.warning(
                    "the journal's database was put back or moved: it may have gone back, so rounds are given up"
                )

    @override
    def last(self, experiment: str) -> JournalEntry | None:
        """Return the last publication of an experiment, if there is one; one that may have gone back has no digests."""
        with self._pool.connection() as db:
            return _last(db, experiment)

    @override
    def experiments(self) -> list[str]:
        with self._pool.connection() as db:
            return [name for (name,) in rows(db, "SELECT experiment FROM publications ORDER BY experiment")]

    @override
    def write(self, entry: JournalEntry, after: JournalEntry | None) -> JournalEntry:
        name, values = entry.experiment, (entry.following.digest, encode(entry))
        with self._pool.transaction() as db:
            run(db, _ONE_AT_A_TIME, name)
            if not row(db, "SELECT 1 FROM deleted WHERE experiment = %s", name):
                if after is None:
                    run(db, "INSERT INTO publications VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", name, *values)
                else:
                    update = "UPDATE publications SET digest = %s, entry = %s WHERE experiment = %s AND digest = %s"
                    run(db, update, *values, name, after.following.digest)
            stands = _last(db, name)
        if stands is None:
            raise Behind("the experiment was deleted")
        return stands

    @override
    def shut(self, experiment: str, digest: bytes) -> None:
        """Put on record that a round takes no further batch, if it is the last one; durable when this returns."""
        update = "UPDATE publications SET entry = %s WHERE experiment = %s AND digest = %s"
        with self._pool.transaction() as db:
            run(db, _ONE_AT_A_TIME, experiment)
            last = _last(db, experiment)
            if last and last.following.digest == digest and not last.shut:
                run(db, update, encode(replace(last, shut=True)), experiment, digest)

    @override
    def bury(self, experiment: str, line: LogLine) -> None:
        with self._pool.transaction() as db:
            run(db, _ONE_AT_A_TIME, experiment)
            run(db, "INSERT INTO deleted VALUES (%s, %s) ON CONFLICT DO NOTHING", experiment, encode(line))
            run(db, "DELETE FROM publications WHERE experiment = %s", experiment)

    @override
    def buried(self) -> dict[str, LogLine]:
        with self._pool.connection() as db:
            found = rows(db, "SELECT experiment, line FROM deleted ORDER BY experiment")
        return {name: decode(line, LogLine) for name, line in found}

    @override
    def signer(self, public_key: bytes) -> bytes:
        with self._pool.transaction() as db:
            run(db, "INSERT INTO signer VALUES (1, %s) ON CONFLICT DO NOTHING", public_key)
            found = row(db, "SELECT public_key FROM signer")
        assert found is not None, "it has just been put there"
        return bytes(found[0])

    @override
    def origin(self) -> str:
        with self._pool.connection() as db:
            found = row(db, "SELECT origin FROM log")
        return str(found[0]) if found else ""

    @override
    def leaves(self, start: int, most: int = -1) -> list[Leaf]:
        with self._pool.connection() as db:
            return _leaves(db, start, most)

    @override
    def extend(self, origin: str, start: int, leaves: Sequence[Leaf]) -> None:
        places = range(start + 1, start + len(leaves) + 1)
        with self._pool.transaction() as db:
            run(db, _ONE_EXTENDS)
            run(db, "INSERT INTO log VALUES (1, %s) ON CONFLICT DO NOTHING", origin)
            insert = "INSERT INTO leaves SELECT * FROM unnest(%s::bigint[], %b::bytea[]) ON CONFLICT DO NOTHING"
            run(db, insert, list(places), [encode(leaf) for leaf in leaves])
            reaches = not start or row(db, "SELECT 1 FROM leaves WHERE position = %s", start)
            if not reaches or _leaves(db, start, len(leaves)) != list(leaves):
                raise Behind("the log in the journal's database is not the one that goes on here")

    @override
    def close(self) -> None:
        """Let go of the database."""
        self._pool.close()


def _last(db: Connection, experiment: str) -> JournalEntry | None:
    found = row(db, "SELECT digest, entry FROM publications WHERE experiment = %s", experiment)
    if found is None:
        return None
    digest, encoded = found
    entry = decode(encoded, JournalEntry)
    return entry if digest else replace(entry, closed=b"", following=replace(entry.following, digest=b""))


def _leaves(db: Connection, start: int, most: int) -> list[Leaf]:
    select = "SELECT leaf FROM leaves WHERE position > %s ORDER BY position LIMIT %s"
    return [decode(leaf, Leaf) for (leaf,) in rows(db, select, start, None if most < 0 else most)]
