"""Tables of the ledger's file, and their migrations."""

import sqlite3
from typing import Final

from privateer_core.errors import InputError

_APPLICATION: Final = 0x50764C67
"""SQLite's application id of a ledger: PvLg."""
VERSION: Final = 8
_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS payments (
    experiment TEXT PRIMARY KEY, version INTEGER NOT NULL, model TEXT NOT NULL,
    epsilon REAL NOT NULL, delta REAL NOT NULL, local_epsilon REAL NOT NULL, day INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE IF NOT EXISTS numbers (
    experiment TEXT PRIMARY KEY, seed INTEGER NOT NULL, people INTEGER NOT NULL, number INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS outbox (experiment TEXT PRIMARY KEY, endpoint TEXT NOT NULL, body BLOB NOT NULL)""",
)
_KEYED_TABLES: Final = ("payments", "numbers", "draws", "choices", "arms")
_MIGRATIONS: Final = {
    1: ("ALTER TABLE outbox RENAME COLUMN door TO endpoint",),
    2: (
        "CREATE TABLE choices (experiment TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE publications (experiment TEXT PRIMARY KEY, digest BLOB NOT NULL, body BLOB NOT NULL)",
    ),
    3: (
        "ALTER TABLE payments ADD COLUMN reports INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE payments ADD COLUMN made INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE payments ADD COLUMN period INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE payments ADD COLUMN pinned TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE outbox RENAME TO outbox_of_one",
        "CREATE TABLE outbox (experiment TEXT NOT NULL, endpoint TEXT NOT NULL, body BLOB NOT NULL)",
        "INSERT INTO outbox SELECT experiment, endpoint, body FROM outbox_of_one",
        "DROP TABLE outbox_of_one",
        """CREATE TABLE draws (experiment TEXT PRIMARY KEY, times INTEGER NOT NULL, seconds REAL NOT NULL,
        drawn INTEGER NOT NULL, come INTEGER NOT NULL, period INTEGER NOT NULL)""",
    ),
    4: (
        "CREATE TABLE servers (server TEXT PRIMARY KEY, key BLOB NOT NULL, head TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE evidence (server TEXT PRIMARY KEY, body TEXT NOT NULL)",
        "ALTER TABLE publications ADD COLUMN witnessed INTEGER NOT NULL DEFAULT 0",
    ),
    5: (
        "ALTER TABLE outbox ADD COLUMN token BLOB NOT NULL DEFAULT x''",
        """CREATE TABLE tokens (experiment TEXT NOT NULL, endpoint TEXT NOT NULL, input BLOB PRIMARY KEY,
        request BLOB NOT NULL, inverse BLOB NOT NULL, token BLOB NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID""",
    ),
    6: ("CREATE TABLE arms (experiment TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",),
    # Rows are in the order of the participants' pseudonyms, which does not depend on time.
    7: (
        *(f"ALTER TABLE {table} RENAME TO {table}_of_one" for table in _KEYED_TABLES),
        """CREATE TABLE payments (person BLOB NOT NULL, experiment TEXT NOT NULL, version INTEGER NOT NULL,
        model TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, local_epsilon REAL NOT NULL,
        day INTEGER NOT NULL, reports INTEGER NOT NULL, made INTEGER NOT NULL, period INTEGER NOT NULL,
        pinned TEXT NOT NULL, PRIMARY KEY (person, experiment)) WITHOUT ROWID""",
        """INSERT INTO payments SELECT x'', experiment, version, model, epsilon, delta, local_epsilon, day, reports,
        made, period, pinned FROM payments_of_one""",
        """CREATE TABLE numbers (person BLOB NOT NULL, experiment TEXT NOT NULL, seed INTEGER NOT NULL,
        people INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (person, experiment)) WITHOUT ROWID""",
        "INSERT INTO numbers SELECT x'', experiment, seed, people, number FROM numbers_of_one",
        """CREATE TABLE draws (person BLOB NOT NULL, experiment TEXT NOT NULL, times INTEGER NOT NULL,
        seconds REAL NOT NULL, drawn INTEGER NOT NULL, come INTEGER NOT NULL, period INTEGER NOT NULL,
        PRIMARY KEY (person, experiment)) WITHOUT ROWID""",
        "INSERT INTO draws SELECT x'', experiment, times, seconds, drawn, come, period FROM draws_of_one",
        """CREATE TABLE choices (person BLOB NOT NULL, experiment TEXT NOT NULL, due REAL NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (person, experiment)) WITHOUT ROWID""",
        "INSERT INTO choices SELECT x'', experiment, 0, body FROM choices_of_one",
        """CREATE TABLE arms (person BLOB NOT NULL, experiment TEXT NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (person, experiment)) WITHOUT ROWID""",
        "INSERT INTO arms SELECT x'', experiment, body FROM arms_of_one",
        *(f"DROP TABLE {table}_of_one" for table in _KEYED_TABLES),
        "ALTER TABLE outbox ADD COLUMN person BLOB NOT NULL DEFAULT x''",
        "CREATE INDEX outbox_of_person ON outbox (person, experiment)",
        "CREATE INDEX choices_by_due ON choices (due)",
        "ALTER TABLE tokens ADD COLUMN person BLOB NOT NULL DEFAULT x''",
        "CREATE INDEX tokens_of_person ON tokens (person, experiment, endpoint)",
        "CREATE TABLE people (mark BLOB NOT NULL)",
    ),
}
"""Statements that migrate a marked ledger from a version to the next."""
_FIRST_MARKED_VERSION: Final = 2
"""The version of `_SCHEMA`."""
_UNVERSIONED_COLUMNS: Final = {
    "payments": {"experiment", "version", "model", "epsilon", "delta", "local_epsilon"},
    "numbers": {"experiment", "seed", "people", "number"},
}
"""Tables of ledgers without a version, and the columns that all of them have."""


def bring_up_to_date(database: sqlite3.Connection, today: int) -> int:
    """Migrate a file to this version; return its old version, or 0 if it was current or empty."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if (application, version) == (_APPLICATION, VERSION):
        return 0
    if application == _APPLICATION and version > VERSION:
        raise InputError("a newer version wrote the ledger", field="ledger", remedy="update the application")
    is_new = not database.execute("SELECT 1 FROM sqlite_master").fetchone()
    if application == 0 and _is_unversioned(database):
        _mark_as_ledger(database, today)
        version = _FIRST_MARKED_VERSION
    elif not (application == _APPLICATION and version in _MIGRATIONS and _is_sound(database)):
        raise damaged_error()
    for old_version in range(version, VERSION):
        for statement in _MIGRATIONS[old_version]:
            database.execute(statement)
    database.execute(f"PRAGMA user_version={VERSION}")
    return 0 if is_new else version


def _mark_as_ledger(database: sqlite3.Connection, today: int) -> None:
    """Turn an empty file, or a ledger without a version, into a marked ledger."""
    for statement in _SCHEMA:
        database.execute(statement)
    if "day" not in _columns(database, "payments"):  # what was paid some day counts as paid today
        database.execute(f"ALTER TABLE payments ADD COLUMN day INTEGER NOT NULL DEFAULT {today}")
    database.execute(f"PRAGMA application_id={_APPLICATION}")


def _is_sound(database: sqlite3.Connection) -> bool:
    """Return whether a marked ledger has the columns that all ledgers have."""
    return all(columns <= _columns(database, table) for table, columns in _UNVERSIONED_COLUMNS.items())


def _is_unversioned(database: sqlite3.Connection) -> bool:
    """Return whether a file without a mark is empty, or a ledger of a version that wrote no mark."""
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return all(_UNVERSIONED_COLUMNS.get(table, {""}) <= _columns(database, table) for table in tables)


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def damaged_error() -> InputError:
    """Return the error about a file that is damaged or no ledger."""
    remedy = "put a copy of it back, or name another file: a new one does not know what was reported"
    return InputError("the file is damaged, or not a ledger", field="ledger", remedy=remedy)
