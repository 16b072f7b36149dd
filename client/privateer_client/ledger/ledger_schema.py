"""Tables of the ledger's file."""

import sqlite3
from typing import Final

from privateer_core.errors import InputError

_APPLICATION: Final = 0x50764C67
"""SQLite's application id of a ledger: PvLg."""
VERSION: Final = 8
_TABLES: Final = (
    # Rows are in the order of the participants' pseudonyms, which does not depend on time.
    """CREATE TABLE payments (person BLOB NOT NULL, experiment TEXT NOT NULL, version INTEGER NOT NULL,
    model TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, local_epsilon REAL NOT NULL, day INTEGER NOT NULL,
    reports INTEGER NOT NULL, made INTEGER NOT NULL, period INTEGER NOT NULL, pinned TEXT NOT NULL,
    PRIMARY KEY (person, experiment)) WITHOUT ROWID""",
    """CREATE TABLE numbers (person BLOB NOT NULL, experiment TEXT NOT NULL, seed INTEGER NOT NULL,
    people INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (person, experiment)) WITHOUT ROWID""",
    """CREATE TABLE draws (person BLOB NOT NULL, experiment TEXT NOT NULL, times INTEGER NOT NULL,
    seconds REAL NOT NULL, drawn INTEGER NOT NULL, come INTEGER NOT NULL, period INTEGER NOT NULL,
    PRIMARY KEY (person, experiment)) WITHOUT ROWID""",
    """CREATE TABLE choices (person BLOB NOT NULL, experiment TEXT NOT NULL, due REAL NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (person, experiment)) WITHOUT ROWID""",
    "CREATE INDEX choices_by_due ON choices (due)",
    """CREATE TABLE arms (person BLOB NOT NULL, experiment TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (person, experiment)) WITHOUT ROWID""",
    """CREATE TABLE outbox (experiment TEXT NOT NULL, endpoint TEXT NOT NULL, body BLOB NOT NULL,
    token BLOB NOT NULL DEFAULT x'', person BLOB NOT NULL)""",
    "CREATE INDEX outbox_of_person ON outbox (person, experiment)",
    """CREATE TABLE tokens (experiment TEXT NOT NULL, endpoint TEXT NOT NULL, input BLOB PRIMARY KEY,
    request BLOB NOT NULL, inverse BLOB NOT NULL, token BLOB NOT NULL, expires INTEGER NOT NULL,
    person BLOB NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX tokens_of_person ON tokens (person, experiment, endpoint)",
    """CREATE TABLE publications (experiment TEXT PRIMARY KEY, digest BLOB NOT NULL, body BLOB NOT NULL,
    witnessed INTEGER NOT NULL)""",
    "CREATE TABLE servers (server TEXT PRIMARY KEY, key BLOB NOT NULL, head TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE evidence (server TEXT PRIMARY KEY, body TEXT NOT NULL)",
    "CREATE TABLE people (mark BLOB NOT NULL)",
)
_NAMES: Final = frozenset(statement.split()[2] for statement in _TABLES)


def prepare_tables(database: sqlite3.Connection) -> None:
    """Create the tables in an empty file, and refuse a file that is not a ledger of this version."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    if (application, version) == (_APPLICATION, VERSION) and names.issuperset(_NAMES):
        return
    if application == _APPLICATION and version > VERSION:
        raise InputError("a newer version wrote the ledger", field="ledger", remedy="update the application")
    if application == _APPLICATION and version < VERSION:
        remedy = "name another file: a new one does not know what was reported"
        raise InputError("an earlier version wrote the ledger", field="ledger", remedy=remedy)
    if application or names:
        raise damaged_error()
    for statement in (*_TABLES, f"PRAGMA application_id={_APPLICATION}", f"PRAGMA user_version={VERSION}"):
        database.execute(statement)


def damaged_error() -> InputError:
    """Return the error about a file that is damaged or no ledger."""
    remedy = "put a copy of it back, or name another file: a new one does not know what was reported"
    return InputError("the file is damaged, or not a ledger", field="ledger", remedy=remedy)
