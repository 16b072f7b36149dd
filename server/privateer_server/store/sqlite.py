"""The embedded store: one SQLite file, write-ahead log, fsynced at every commit."""

import sqlite3
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from pathlib import Path
from threading import Lock
from typing import Any, Final

from typing_extensions import override

from privateer_core.codec import decode, encode
from privateer_core.serving.store.sqlite import open_database
from privateer_server.intake.opening import REPORT_ID_SIZE
from privateer_server.store.backup import copied
from privateer_server.store.protocol import Locked, Store
from privateer_server.store.records import (
    NO_PLAN,
    Behind,
    Change,
    ExperimentRecord,
    ExperimentState,
    Leaf,
    LogLine,
    Plan,
    PlanBefore,
    RoundRecord,
    ShufflerKey,
)
from privateer_server.store.sqlite_schema import DATABASE

FILE: Final = "server.db"
_COLUMNS: Final = "version, batch, seen, received, taken, digest, facts"
_OF: Final = "FROM rounds WHERE experiment = ?"
_LAST: Final = f"{_OF} ORDER BY version DESC LIMIT 1"
_ADD_REFUSALS: Final = """
INSERT INTO refusals VALUES (?, ?, ?) ON CONFLICT (experiment, reason) DO UPDATE SET count = count + excluded.count
"""
_ADD: Final = """
UPDATE rounds SET received = received + ?, taken = taken OR ?, given_up = given_up OR ?
WHERE experiment = ? AND version = ? AND (NOT ? OR NOT (taken OR given_up)) AND (NOT ? OR received + ? <= batch)
"""


class SqliteStore(Store, Locked):
    """The store (`privateer_server.store.protocol.Store`) of a server that is alone with its data.

    One connection holds the file's exclusive lock: a second server on the same data is refused.

    Parameters
    ----------
    data
        The folder of the file; or a database that is open already, such as a copy that is only read.

    Raises
    ------
    SpecError
        If the file cannot be opened, is damaged, too old or too new, or another server has it.
    """

    def __init__(self, data: Path | sqlite3.Connection) -> None:
        self._lock = Lock()
        self._db = data if isinstance(data, sqlite3.Connection) else open_database(data / FILE, DATABASE)
        self._written = True
        self._ids: dict[str, tuple[int, set[bytes]]] = {}

    @override
    def forget_tokens(self, now: float) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM spent_tokens WHERE expires <= ?", (int(now),))

    @override
    def spent(self, token: bytes) -> bytes | None:
        """Return the hash of the report that a spent token came with, if it was spent."""
        return self._blob("SELECT report FROM spent_tokens WHERE token = ?", token)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._written = True
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk may have rolled back already
                    self._db.execute("ROLLBACK")
                raise

    @override
    def create(self, name: str, spec: bytes, first: RoundRecord, line: LogLine | None = None) -> None:
        with self._transaction() as db:
            if db.execute("SELECT 1 FROM experiments WHERE name = ?", (name,)).fetchone():
                raise Behind("there is an experiment of this name")
            db.execute("INSERT INTO experiments VALUES (?, ?, '', ?, 0)", (name, spec, encode(NO_PLAN)))
            _insert_round(db, name, first)
            if line:
                _insert_line(db, name, line)

    @override
    def plan(self, name: str, before: PlanBefore, plan: Plan, line: LogLine) -> None:
        with self._transaction() as db:
            now = _standing(db, name)
            if now is None or PlanBefore(now.digest, now.plan) != before or now.taken or now.given_up:
                raise Behind("the experiment has changed")
            db.execute("UPDATE experiments SET plan = ? WHERE name = ?", (encode(plan), name))
            _insert_line(db, name, line)

    @override
    def log(self, name: str) -> list[LogLine]:
        select = "SELECT at, action, detail, who, version, since FROM log WHERE experiment = ? ORDER BY id"
        with self._lock:
            return [LogLine(*row) for row in self._db.execute(select, (name,))]

    @override
    def delete(self, name: str, line: LogLine) -> None:
        with self._transaction() as db:
            if db.execute("INSERT OR IGNORE INTO deleted VALUES (?)", (name,)).rowcount:
                _insert_line(db, name, line)
            for table in ("rounds", "parts", "report_ids", "answers", "refusals", "closers"):
                db.execute(f"DELETE FROM {table} WHERE experiment = ?", (name,))  # noqa: S608 - our own names
            db.execute("DELETE FROM experiments WHERE name = ?", (name,))
        self._ids.pop(name, None)
        self.tidy()

    @override
    def deleted(self) -> list[str]:
        with self._lock:
            return [row[0] for row in self._db.execute("SELECT experiment FROM deleted ORDER BY experiment")]

    @override
    @contextmanager
    def locked(self, names: Sequence[str]) -> Iterator["SqliteStore"]:
        """Return itself: this process is the only one, and one thread of it counts."""
        del names
        yield self

    @override
    @contextmanager
    def lease(self, experiment: str) -> Iterator[bool]:
        """Say that the caller has the lease: there is no other server."""
        del experiment
        yield True

    @override
    def seen(self, experiment: str, opened: Sequence[bytes]) -> Set[bytes]:
        """Return all ids that are counted in the experiment's last round; they stay in memory."""
        del opened
        with self._lock:
            version = self._db.execute(f"SELECT version {_LAST}", (experiment,)).fetchone()
            known = self._ids.get(experiment)
            if version and (known is None or known[0] != version[0]):
                known = self._ids[experiment] = version[0], self._read_ids(experiment, version[0])
        return known[1] if known else frozenset()

    def _read_ids(self, experiment: str, version: int) -> set[bytes]:
        select = "SELECT ids FROM report_ids WHERE experiment = ? AND version = ?"
        chunks = [row[0] for row in self._db.execute(select, (experiment, version))]
        return {chunk[at : at + REPORT_ID_SIZE] for chunk in chunks for at in range(0, len(chunk), REPORT_ID_SIZE)}

    @override
    def commit(self, changes: Sequence[Change]) -> None:
        """Apply all changes or none; a round that is closed already stays as it is."""
        with self._transaction() as db:
            for change in changes:
                _apply(db, change)
        for change in changes:
            known = self._ids.get(change.experiment)
            if known and known[0] == change.version:
                known[1].update(change.report_ids)
        if any(change.following for change in changes):
            self.tidy()

    @override
    def claim(self, experiment: str, shuffler: str, signed_at: float) -> bool:
        """Note which shuffler brings the batches of an experiment; false if another has claimed it, or a release."""
        update = "UPDATE experiments SET shuffler = ? WHERE name = ? AND shuffler IN ('', ?) AND released_at < ?"
        with self._transaction() as db:
            return db.execute(update, (shuffler, experiment, shuffler, signed_at)).rowcount == 1

    @override
    def release(self, experiment: str, line: LogLine) -> None:
        with self._transaction() as db:
            db.execute("UPDATE experiments SET shuffler = '', released_at = ? WHERE name = ?", (line.at, experiment))
            _insert_line(db, experiment, line)

    @override
    def answer(self, experiment: str, version: int, digest: bytes) -> bytes | None:
        where = "FROM answers WHERE experiment = ? AND version = ? AND digest = ?"
        return self._blob(f"SELECT answer {where}", experiment, version, digest)

    @override
    def standing(self, experiment: str) -> ExperimentState | None:
        with self._lock:
            return _standing(self._db, experiment)

    @override
    def standings(self) -> dict[str, ExperimentState]:
        with self._lock:
            names = [row[0] for row in self._db.execute("SELECT name FROM experiments ORDER BY name")]
            found = {name: _standing(self._db, name) for name in names}
        if None in found.values():
            raise ValueError("an experiment has no round")
        return {name: standing for name, standing in found.items() if standing}

    @override
    def experiment(self, name: str) -> ExperimentRecord | None:
        with self._lock:
            row = self._db.execute("SELECT spec FROM experiments WHERE name = ?", (name,)).fetchone()
            standing = _standing(self._db, name)
            if row is None or standing is None:
                return None
            stored = self._db.execute(f"SELECT {_COLUMNS}, publication, state, total, given_up {_LAST}", (name,))
            current = _round(stored.fetchone())
            accepted = self._db.execute(f"SELECT sum(received) {_OF}", (name,)).fetchone()[0]
            parts = self._parts(name, current.version)
        return ExperimentRecord(name, row[0], accepted, current, parts, standing)

    @override
    def experiments(self) -> list[ExperimentRecord]:
        return [record for name in self.standings() if (record := self.experiment(name))]

    @override
    def sums(self, experiment: str, version: int) -> list[bytes]:
        with self._lock:
            begun = self._db.execute(f"SELECT total {_OF} AND version = ?", (experiment, version)).fetchone()
            return [*(begun or ()), *self._parts(experiment, version)]

    def _parts(self, experiment: str, version: int) -> tuple[bytes, ...]:
        select = "SELECT total FROM parts WHERE experiment = ? AND version = ? ORDER BY part"
        return tuple(row[0] for row in self._db.execute(select, (experiment, version)))

    @override
    def publication(self, experiment: str, version: int) -> bytes | None:
        return self._blob(f"SELECT publication {_OF} AND version = ?", experiment, version)

    def _blob(self, select: str, *values: object) -> bytes | None:
        with self._lock:
            row = self._db.execute(select, values).fetchone()
        return row[0] if row else None

    @override
    def rounds(self, experiment: str) -> list[RoundRecord]:
        select = f"SELECT {_COLUMNS}, x'', x'', x'', given_up {_OF} ORDER BY version"
        with self._lock:
            rows = self._db.execute(select, (experiment,)).fetchall()
        return [_round(row) for row in rows]

    @override
    def closers(self, experiment: str) -> dict[int, ShufflerKey]:
        select = "SELECT version, shuffler, organisation FROM closers WHERE experiment = ?"
        with self._lock:
            return {version: ShufflerKey(*names) for version, *names in self._db.execute(select, (experiment,))}

    @override
    def leaves(self, start: int) -> list[Leaf]:
        """Return the leaves of the public log from a place on; they are never changed."""
        select = "SELECT experiment, version, digest FROM leaves WHERE position > ? ORDER BY position"
        with self._lock:
            return [Leaf(*row) for row in self._db.execute(select, (start,))]

    @override
    def place(self, experiment: str, version: int) -> int | None:
        select = "SELECT position FROM leaves WHERE experiment = ? AND version = ?"
        with self._lock:
            row = self._db.execute(select, (experiment, version)).fetchone()
        return row[0] - 1 if row else None

    @override
    def recall(self, leaves: Sequence[Leaf]) -> None:
        with self._transaction() as db:
            for leaf in leaves:
                _insert_leaf(db, leaf)

    @override
    def check(self) -> None:
        with self._transaction() as db:
            db.execute("INSERT INTO probe VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET checks = checks + 1")

    @override
    def tidy(self) -> None:
        """Empty the write-ahead log, which keeps earlier states of the data; if the disk is full, a later call does."""
        with self._lock, suppress(sqlite3.Error):
            if self._written:
                busy, *_ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._written = bool(busy)

    @override
    def backup(self) -> bytes:
        with self._lock:
            return copied(self._db, DATABASE)

    @override
    def close(self) -> None:
        """Close the file and give up its lock."""
        with self._lock:
            self._db.close()


def _standing(db: sqlite3.Connection, experiment: str) -> ExperimentState | None:
    select = """
    SELECT version, digest, received, taken, given_up, plan, shuffler, released_at
    FROM experiments JOIN rounds ON experiment = name WHERE name = ? ORDER BY version DESC LIMIT 1
    """
    row = db.execute(select, (experiment,)).fetchone()
    if row is None:
        return None
    version, digest, received, taken, given_up, plan, shuffler, released_at = row
    refused = dict(db.execute("SELECT reason, count FROM refusals WHERE experiment = ?", (experiment,)))
    wanted = decode(plan, Plan)
    return ExperimentState(
        version, digest, received, bool(taken), bool(given_up), wanted, shuffler, released_at, refused
    )


def _round(row: tuple[Any, ...]) -> RoundRecord:
    stored = RoundRecord(*row)
    return replace(stored, taken=bool(stored.taken), given_up=bool(stored.given_up))


def _insert_round(db: sqlite3.Connection, experiment: str, new: RoundRecord) -> None:
    columns = f"experiment, {_COLUMNS}, publication, state, total, given_up"
    values = (experiment, *astuple(new))
    db.execute(f"INSERT INTO rounds ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)  # noqa: S608
    _insert_leaf(db, Leaf(experiment, new.version, new.digest))


def _insert_leaf(db: sqlite3.Connection, leaf: Leaf) -> None:
    """Add a leaf at the end of the log; what an earlier copy of the database had to recall is there already."""
    db.execute("INSERT OR IGNORE INTO leaves (experiment, version, digest) VALUES (?, ?, ?)", astuple(leaf))


def _insert_line(db: sqlite3.Connection, experiment: str, line: LogLine) -> None:
    columns = "experiment, at, action, detail, who, version, since"
    db.execute(f"INSERT INTO log ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", (experiment, *astuple(line)))  # noqa: S608


def _apply(db: sqlite3.Connection, change: Change) -> None:
    if change.following:
        _publish(db, change, change.following)
        return
    where, counted = (change.experiment, change.version), change.counted
    # Only a shuffler's batches may hold more people than the round asked for.
    room = (counted and not change.answers, counted)
    if not db.execute(_ADD, (counted, change.taken, change.given_up, *where, counted, *room)).rowcount:
        raise Behind("the round takes no more reports")
    if change.total is not None:
        insert = "INSERT INTO parts VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET total = excluded.total"
        db.execute(insert, (*where, change.part, change.total))
    if change.report_ids:
        # One row for all: a row or an index entry for each id would cost more than everything else the store does.
        db.execute("INSERT INTO report_ids VALUES (?, ?, ?)", (*where, b"".join(change.report_ids)))
    db.executemany("INSERT INTO spent_tokens VALUES (?, ?, ?)", change.tokens)
    rows = [(*where, digest, answer) for digest, answer in change.answers.items()]
    db.executemany("INSERT INTO answers VALUES (?, ?, ?, ?)", rows)
    db.executemany(_ADD_REFUSALS, [(change.experiment, reason, count) for reason, count in change.refused.items()])
    if change.closer:
        db.execute("INSERT OR REPLACE INTO closers VALUES (?, ?, ?, ?)", (*where, *astuple(change.closer)))


def _publish(db: sqlite3.Connection, change: Change, following: RoundRecord) -> None:
    """Close the round, open the next one, and note that what an operator wanted holds from then on."""
    name, where = change.experiment, (change.experiment, change.version)
    there = db.execute(f"SELECT digest {_OF} AND version = ?", (name, following.version)).fetchone()
    if there == (following.digest,):
        return
    update = "UPDATE rounds SET taken = ?, given_up = ?, state = x'', total = x'' WHERE experiment = ? AND version = ?"
    db.execute(update, (change.taken, not change.taken, *where))
    for table in ("parts", "report_ids"):
        db.execute(f"DELETE FROM {table} WHERE experiment = ? AND version = ?", where)  # noqa: S608 - our own names
    _insert_round(db, name, following)
    (plan,) = db.execute("SELECT plan FROM experiments WHERE name = ?", (name,)).fetchone()
    left = encode(decode(plan, Plan).carried_out)
    db.execute("UPDATE experiments SET plan = ? WHERE name = ?", (left, name))
    db.execute("UPDATE log SET since = ? WHERE experiment = ? AND since IS NULL", (following.version, name))
