"""The embedded store: one SQLite file, write-ahead log, fsynced at every commit."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, fields, replace
from pathlib import Path
from threading import Lock
from typing import Any, Final

from privateer.codec import decode, encode
from privateer.serving.database import Kind, open_database
from privateer_server.opening import REPORT_ID_SIZE
from privateer_server.store import NO_PLAN, Change, ExperimentRecord, Leaf, LogLine, Plan, RoundRecord, ShufflerKey
from privateer_server.store.backup import copied

FILE: Final = "server.db"
DATABASE: Final = Kind(
    application=0x50525653,
    version=4,
    schema="""
    CREATE TABLE experiments (
        name TEXT PRIMARY KEY, spec BLOB NOT NULL, shuffler TEXT NOT NULL, plan BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE rounds (
        experiment TEXT NOT NULL REFERENCES experiments (name),
        version INTEGER NOT NULL,
        batch INTEGER NOT NULL,
        seen INTEGER NOT NULL,
        received INTEGER NOT NULL,
        taken INTEGER NOT NULL,
        digest BLOB NOT NULL,
        facts BLOB NOT NULL,
        publication BLOB NOT NULL,
        state BLOB NOT NULL,
        total BLOB NOT NULL,
        UNIQUE (experiment, version)
    );
    CREATE TABLE report_ids (experiment TEXT NOT NULL, version INTEGER NOT NULL, ids BLOB NOT NULL);
    CREATE INDEX report_ids_of_round ON report_ids (experiment, version);
    CREATE TABLE answers (
        experiment TEXT NOT NULL,
        version INTEGER NOT NULL,
        digest BLOB NOT NULL,
        answer BLOB NOT NULL,
        PRIMARY KEY (experiment, version, digest)
    ) WITHOUT ROWID;
    CREATE TABLE refusals (
        experiment TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (experiment, reason)
    ) WITHOUT ROWID;
    CREATE TABLE log (
        id INTEGER PRIMARY KEY,
        experiment TEXT NOT NULL,
        at REAL NOT NULL,
        action TEXT NOT NULL,
        detail TEXT NOT NULL,
        who TEXT NOT NULL,
        version INTEGER NOT NULL,
        since INTEGER
    );
    CREATE INDEX log_of_experiment ON log (experiment);
    CREATE TABLE deleted (experiment TEXT PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE leaves (
        position INTEGER PRIMARY KEY,
        experiment TEXT NOT NULL,
        version INTEGER NOT NULL,
        digest BLOB NOT NULL,
        UNIQUE (experiment, version)
    );
    CREATE TABLE closers (
        experiment TEXT NOT NULL,
        version INTEGER NOT NULL,
        shuffler TEXT NOT NULL,
        organisation TEXT NOT NULL,
        PRIMARY KEY (experiment, version)
    ) WITHOUT ROWID;
    CREATE TABLE probe (id INTEGER PRIMARY KEY, checks INTEGER NOT NULL)
    """,
    field="PRIVATEER_DATA",
)
SPENT_TOKENS: Final = """
CREATE TABLE IF NOT EXISTS spent_tokens (
    token BLOB PRIMARY KEY, report BLOB NOT NULL, expires INTEGER NOT NULL
) WITHOUT ROWID
"""
"""A table that databases of this version may lack: they were made before there were upload tokens."""
_COLUMNS: Final = "version, batch, seen, received, taken, digest, facts"
_LAST_ROUND: Final = f"""
SELECT {_COLUMNS}, publication, state, total FROM rounds WHERE experiment = ? ORDER BY version DESC LIMIT 1
"""  # noqa: S608 - our own
_ALL_ROUNDS: Final = f"SELECT {_COLUMNS}, x'', x'', x'' FROM rounds WHERE experiment = ? ORDER BY version"  # noqa: S608
_ADD_REFUSALS: Final = """
INSERT INTO refusals VALUES (?, ?, ?) ON CONFLICT (experiment, reason) DO UPDATE SET count = count + excluded.count
"""


class SqliteStore:
    """Durable state. Every writing method is one transaction, durable when it returns.

    One connection holds the file's exclusive lock: a second server on the same data is refused.

    Parameters
    ----------
    data
        The folder of the file; or a database that is open already, such as a copy that is only read.

    Raises
    ------
    SpecError
        If the file cannot be opened, is damaged or of another version, or another server has it.
    """

    def __init__(self, data: Path | sqlite3.Connection) -> None:
        self._lock = Lock()
        self._db = data if isinstance(data, sqlite3.Connection) else open_database(data / FILE, DATABASE)
        self._written = True
        if isinstance(data, Path):
            self._db.execute(SPENT_TOKENS)

    def forget_tokens(self, now: float) -> None:
        """Forget spent upload tokens whose key has expired."""
        with self._transaction() as db:
            db.execute("DELETE FROM spent_tokens WHERE expires <= ?", (int(now),))

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

    def create(self, name: str, spec: bytes, first: RoundRecord, line: LogLine | None = None) -> None:
        """Add an experiment with its first round, and the first line of its log."""
        with self._transaction() as db:
            db.execute("INSERT INTO experiments VALUES (?, ?, '', ?)", (name, spec, encode(NO_PLAN)))
            _insert_round(db, name, first)
            if line:
                _insert_line(db, name, line)

    def plan(self, name: str, plan: Plan, line: LogLine) -> None:
        """Keep what an operator wants of an experiment, with its line in the log."""
        with self._transaction() as db:
            db.execute("UPDATE experiments SET plan = ? WHERE name = ?", (encode(plan), name))
            _insert_line(db, name, line)

    def log(self, name: str) -> list[LogLine]:
        """Return the changes to an experiment in order, a deleted one included."""
        select = "SELECT at, action, detail, who, version, since FROM log WHERE experiment = ? ORDER BY id"
        with self._lock:
            return [LogLine(*row) for row in self._db.execute(select, (name,))]

    def delete(self, name: str, line: LogLine) -> None:
        """Erase an experiment but for its name and log; erasing it again changes nothing."""
        with self._transaction() as db:
            if db.execute("INSERT OR IGNORE INTO deleted VALUES (?)", (name,)).rowcount:
                _insert_line(db, name, line)
            for table in ("rounds", "report_ids", "answers", "refusals", "closers"):
                db.execute(f"DELETE FROM {table} WHERE experiment = ?", (name,))  # noqa: S608 - our own names
            db.execute("DELETE FROM experiments WHERE name = ?", (name,))
        self.tidy()

    def deleted(self) -> list[str]:
        """Return the names of deleted experiments."""
        with self._lock:
            return [row[0] for row in self._db.execute("SELECT experiment FROM deleted ORDER BY experiment")]

    def commit(self, changes: Sequence[Change]) -> None:
        """Apply all changes or none."""
        with self._transaction() as db:
            for change in changes:
                _apply(db, change)
        if any(change.following for change in changes):
            self.tidy()

    def claim(self, experiment: str, shuffler: str) -> None:
        """Note which shuffler brings the batches of an experiment; empty: none has claimed it."""
        with self._transaction() as db:
            db.execute("UPDATE experiments SET shuffler = ? WHERE name = ?", (shuffler, experiment))

    def answer(self, experiment: str, version: int, digest: bytes) -> bytes | None:
        """Return the answer to a batch, if it was counted."""
        where = "FROM answers WHERE experiment = ? AND version = ? AND digest = ?"
        return self._blob(f"SELECT answer {where}", experiment, version, digest)

    def experiments(self) -> list[ExperimentRecord]:
        """Return all experiments, by name."""
        with self._lock:
            rows = self._db.execute("SELECT name, spec, shuffler, plan FROM experiments ORDER BY name").fetchall()
            return [self._experiment(*row) for row in rows]

    def _experiment(self, name: str, spec: bytes, shuffler: str, plan: bytes) -> ExperimentRecord:
        current = self._db.execute(_LAST_ROUND, (name,)).fetchone()
        accepted = self._db.execute("SELECT sum(received) FROM rounds WHERE experiment = ?", (name,)).fetchone()[0]
        refused = self._db.execute("SELECT reason, count FROM refusals WHERE experiment = ?", (name,)).fetchall()
        chunks = self._db.execute(
            "SELECT ids FROM report_ids WHERE experiment = ? AND version = ?", (name, current[0])
        ).fetchall()
        ids = frozenset(
            chunk[start : start + REPORT_ID_SIZE]
            for (chunk,) in chunks
            for start in range(0, len(chunk), REPORT_ID_SIZE)
        )
        wanted = decode(plan, Plan)
        return ExperimentRecord(name, spec, shuffler, accepted, dict(refused), _round(current), ids, wanted)

    def publication(self, experiment: str, version: int) -> bytes | None:
        """Return the publication of a version, if there is one."""
        return self._blob("SELECT publication FROM rounds WHERE experiment = ? AND version = ?", experiment, version)

    def _blob(self, select: str, *values: object) -> bytes | None:
        with self._lock:
            row = self._db.execute(select, values).fetchone()
        return row[0] if row else None

    def rounds(self, experiment: str) -> list[RoundRecord]:
        """Return all rounds by version, without publication, state and total."""
        with self._lock:
            rows = self._db.execute(_ALL_ROUNDS, (experiment,)).fetchall()
        return [_round(row) for row in rows]

    def closers(self, experiment: str) -> dict[int, ShufflerKey]:
        """Return whose batches the rounds of an experiment took last, by version."""
        select = "SELECT version, shuffler, organisation FROM closers WHERE experiment = ?"
        with self._lock:
            return {version: ShufflerKey(*names) for version, *names in self._db.execute(select, (experiment,))}

    def leaves(self, start: int) -> list[Leaf]:
        """Return the leaves of the public log from a place on; they are never changed."""
        select = "SELECT experiment, version, digest FROM leaves WHERE position > ? ORDER BY position"
        with self._lock:
            return [Leaf(*row) for row in self._db.execute(select, (start,))]

    def place(self, experiment: str, version: int) -> int | None:
        """Return the place of a publication in the public log, if it is there."""
        select = "SELECT position FROM leaves WHERE experiment = ? AND version = ?"
        with self._lock:
            row = self._db.execute(select, (experiment, version)).fetchone()
        return row[0] - 1 if row else None

    def recall(self, leaves: Sequence[Leaf]) -> None:
        """Add leaves that an earlier copy of the database does not have."""
        with self._transaction() as db:
            for leaf in leaves:
                _insert_leaf(db, leaf)

    def check(self) -> None:
        """Write a row, or raise what keeps the store from writing."""
        with self._transaction() as db:
            db.execute("INSERT INTO probe VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET checks = checks + 1")

    def tidy(self) -> None:
        """Empty the write-ahead log, which keeps earlier states of the data; if the disk is full, a later call does."""
        with self._lock, suppress(sqlite3.Error):
            if self._written:
                busy, *_ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._written = bool(busy)

    def backup(self) -> bytes:
        """Return a copy of the database without the sums and the ids of reports, whose open rounds cannot go on."""
        with self._lock:
            return copied(self._db, DATABASE)

    def close(self) -> None:
        """Close the file and give up its lock."""
        with self._lock:
            self._db.close()


def _round(row: tuple[Any, ...]) -> RoundRecord:
    stored = RoundRecord(*row)
    return replace(stored, taken=bool(stored.taken))


def _insert_round(db: sqlite3.Connection, experiment: str, new: RoundRecord) -> None:
    values = (experiment, *(getattr(new, column.name) for column in fields(new)))
    db.execute("INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    _insert_leaf(db, Leaf(experiment, new.version, new.digest))


def _insert_leaf(db: sqlite3.Connection, leaf: Leaf) -> None:
    """Add a leaf at the end of the log; what an earlier copy of the database had to recall is there already."""
    db.execute("INSERT OR IGNORE INTO leaves (experiment, version, digest) VALUES (?, ?, ?)", astuple(leaf))


def _insert_line(db: sqlite3.Connection, experiment: str, line: LogLine) -> None:
    columns = "experiment, at, action, detail, who, version, since"
    db.execute(f"INSERT INTO log ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", (experiment, *astuple(line)))  # noqa: S608


def _carry_out(db: sqlite3.Connection, experiment: str, version: int) -> None:
    """Note that what an operator wanted holds from this version on."""
    (plan,) = db.execute("SELECT plan FROM experiments WHERE name = ?", (experiment,)).fetchone()
    left = encode(decode(plan, Plan).carried_out)
    db.execute("UPDATE experiments SET plan = ? WHERE name = ?", (left, experiment))
    db.execute("UPDATE log SET since = ? WHERE experiment = ? AND since IS NULL", (version, experiment))


def _apply(db: sqlite3.Connection, change: Change) -> None:
    where = (change.experiment, change.version)
    db.execute(
        "UPDATE rounds SET received = ?, taken = ?, total = coalesce(?, total) WHERE experiment = ? AND version = ?",
        (change.received, change.taken, change.total, *where),
    )
    if change.report_ids:
        # One row for all: a row or an index entry for each id would cost more than everything else the store does.
        db.execute("INSERT INTO report_ids VALUES (?, ?, ?)", (*where, b"".join(change.report_ids)))
    db.executemany("INSERT INTO spent_tokens VALUES (?, ?, ?)", change.tokens)
    rows = [(*where, digest, answer) for digest, answer in change.answers.items()]
    db.executemany("INSERT INTO answers VALUES (?, ?, ?, ?)", rows)
    db.executemany(_ADD_REFUSALS, [(change.experiment, reason, count) for reason, count in change.refused.items()])
    if change.closer:
        db.execute("INSERT OR REPLACE INTO closers VALUES (?, ?, ?, ?)", (*where, *astuple(change.closer)))
    if change.following:
        db.execute("UPDATE rounds SET state = x'', total = x'' WHERE experiment = ? AND version = ?", where)
        db.execute("DELETE FROM report_ids WHERE experiment = ? AND version = ?", where)
        _insert_round(db, change.experiment, change.following)
        _carry_out(db, change.experiment, change.following.version)
