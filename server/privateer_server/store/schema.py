"""The tables of the server's database and of its journal, and what makes them of those of earlier versions."""

from typing import Final

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    func,
)

from privateer_core.codec import decode, encode
from privateer_core.serving.store.database import INTEGER, Schema
from privateer_core.serving.store.leases import leases_table
from privateer_core.serving.store.spent_tokens import spent_table
from privateer_core.serving.store.sqlite import FileKind
from privateer_core.serving.store.store_key import seal_table
from privateer_server.store.records import JournalEntry

FILE: Final = "server.db"
JOURNAL_FILE: Final = "journal.db"
_STORE, _JOURNAL, _SHARED_STORE, _SHARED_JOURNAL = MetaData(), MetaData(), MetaData(), MetaData()


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _integer(name: str) -> Column[int]:
    return Column(name, INTEGER, nullable=False)


def _blob(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


def _only() -> Column[int]:
    """Return the key of a table of one row."""
    return Column("id", Integer, primary_key=True, autoincrement=False)


EXPERIMENTS: Final = Table(
    "experiments",
    _STORE,
    Column("name", Text, primary_key=True),
    _blob("spec"),
    _text("shuffler"),
    _blob("plan"),
    Column("released_at", Double, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)
ROUNDS: Final = Table(
    "rounds",
    _STORE,
    Column("experiment", Text, ForeignKey("experiments.name"), nullable=False),
    _integer("version"),
    _integer("batch"),
    _integer("seen"),
    _integer("received"),
    Column("taken", Boolean, nullable=False),
    _blob("digest"),
    _blob("facts"),
    _blob("publication"),
    _blob("state"),
    _blob("total"),
    Column("given_up", Boolean, nullable=False),
    UniqueConstraint("experiment", "version"),
)
PARTS: Final = Table(
    "parts",
    _STORE,
    _text("experiment"),
    _integer("version"),
    _blob("part"),
    _blob("total"),
    PrimaryKeyConstraint("experiment", "version", "part"),
)
JOINED_IDS: Final = Table(
    "report_ids",
    _STORE,
    _text("experiment"),
    _integer("version"),
    _blob("ids"),
    Index("report_ids_of_round", "experiment", "version"),
)
"""The ids of the embedded store, a row for each group of reports."""
SINGLE_IDS: Final = Table(
    "report_ids",
    _SHARED_STORE,
    _text("experiment"),
    _integer("version"),
    _blob("id"),
    PrimaryKeyConstraint("experiment", "version", "id"),
)
"""The ids that servers share, a row for each."""
ANSWERS: Final = Table(
    "answers",
    _STORE,
    _text("experiment"),
    _integer("version"),
    _blob("digest"),
    _blob("answer"),
    PrimaryKeyConstraint("experiment", "version", "digest"),
    sqlite_with_rowid=False,
)
REFUSALS: Final = Table(
    "refusals",
    _STORE,
    _text("experiment"),
    _text("reason"),
    _integer("count"),
    PrimaryKeyConstraint("experiment", "reason"),
    sqlite_with_rowid=False,
)
LOG: Final = Table(
    "log",
    _STORE,
    Column("id", INTEGER, Identity(always=True), primary_key=True),
    _text("experiment"),
    Column("at", Double, nullable=False),
    _text("action"),
    _text("detail"),
    _text("who"),
    _integer("version"),
    Column("since", INTEGER),
    Index("log_of_experiment", "experiment"),
)
DELETED: Final = Table("deleted", _STORE, Column("experiment", Text, primary_key=True), sqlite_with_rowid=False)
LEAVES: Final = Table(
    "leaves",
    _STORE,
    Column("position", INTEGER, primary_key=True, autoincrement=False),
    _text("experiment"),
    _integer("version"),
    _blob("digest"),
    UniqueConstraint("experiment", "version"),
)
CLOSERS: Final = Table(
    "closers",
    _STORE,
    _text("experiment"),
    _integer("version"),
    _text("shuffler"),
    _text("organisation"),
    PrimaryKeyConstraint("experiment", "version"),
    sqlite_with_rowid=False,
)
SPENT_TOKENS: Final = spent_table("spent_tokens", _STORE, _blob("report"))
BACKUP: Final = Table(
    "backup",
    _STORE,
    _only(),
    Column("begun", Double, nullable=False),
    Column("completed", Double, nullable=False),
    Column("seconds", Double, nullable=False),
    _integer("bytes"),
)
"""The last backup that was begun, and the last one that was completed."""
PROBE: Final = Table("probe", _STORE, _only(), _integer("checks"))
LEASES: Final = leases_table(_SHARED_STORE)

PUBLICATIONS: Final = Table(
    "publications", _JOURNAL, Column("experiment", Text, primary_key=True), _blob("entry"), sqlite_with_rowid=False
)
BURIED: Final = Table(
    "deleted", _JOURNAL, Column("experiment", Text, primary_key=True), _blob("line"), sqlite_with_rowid=False
)
LOG_NAME: Final = Table("log", _JOURNAL, _only(), _text("origin"))
LOG_LEAVES: Final = Table(
    "leaves", _JOURNAL, Column("position", INTEGER, primary_key=True, autoincrement=False), _blob("leaf")
)
ORIGIN: Final = Table("origin", _SHARED_JOURNAL, _only(), _text("identity"))
"""Which copy of the journal's database it was last."""
KEYS: Final = Table(
    "keys",
    _SHARED_JOURNAL,
    Column("public_key", LargeBinary, primary_key=True),
    _blob("wrapped"),
    Column("made", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
)
SIGNER: Final = Table("signer", _SHARED_JOURNAL, _only(), _blob("public_key"))
SEAL: Final = seal_table(_SHARED_JOURNAL)

_EVERY_STORE: Final = (
    EXPERIMENTS,
    ROUNDS,
    PARTS,
    ANSWERS,
    REFUSALS,
    LOG,
    DELETED,
    LEAVES,
    CLOSERS,
    SPENT_TOKENS,
    BACKUP,
    PROBE,
)
_EVERY_JOURNAL: Final = (PUBLICATIONS, BURIED, LOG_NAME, LOG_LEAVES)

_LEAVES_OF_THE_LOG: Final = """
CREATE TABLE leaves (
    position INTEGER PRIMARY KEY, experiment TEXT NOT NULL, version INTEGER NOT NULL, digest BLOB NOT NULL,
    UNIQUE (experiment, version)
);
CREATE TABLE closers (
    experiment TEXT NOT NULL, version INTEGER NOT NULL, shuffler TEXT NOT NULL, organisation TEXT NOT NULL,
    PRIMARY KEY (experiment, version)
) WITHOUT ROWID;
INSERT INTO leaves (experiment, version, digest) SELECT experiment, version, digest FROM rounds ORDER BY rowid
"""
_PARTS_OF_ROUNDS: Final = """
ALTER TABLE experiments ADD COLUMN released_at REAL NOT NULL DEFAULT 0;
ALTER TABLE rounds ADD COLUMN given_up INTEGER NOT NULL DEFAULT 0;
CREATE TABLE parts (
    experiment TEXT NOT NULL, version INTEGER NOT NULL, part BLOB NOT NULL, total BLOB NOT NULL,
    PRIMARY KEY (experiment, version, part)
);
CREATE TABLE spent_tokens (token BLOB PRIMARY KEY, report BLOB NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID
"""
_SHORT_TOKENS: Final = """
ALTER TABLE spent_tokens RENAME TO long_tokens;
CREATE TABLE spent_tokens (
    expires {integer} NOT NULL, token {blob} NOT NULL, report {blob} NOT NULL, PRIMARY KEY (expires, token)
){without_rowid};
INSERT INTO spent_tokens SELECT expires, substr(token, 1, 12), substr(report, 1, 4) FROM long_tokens;
DROP TABLE long_tokens;
CREATE TABLE backup (
    id INTEGER PRIMARY KEY, begun {double} NOT NULL, completed {double} NOT NULL, seconds {double} NOT NULL,
    bytes {integer} NOT NULL
)
"""
_SQLITE: Final = {"integer": "INTEGER", "blob": "BLOB", "double": "REAL", "without_rowid": " WITHOUT ROWID"}
_POSTGRES: Final = {"integer": "bigint", "blob": "bytea", "double": "double precision", "without_rowid": ""}
_LOG_ON_RECORD: Final = """
CREATE TABLE log (id INTEGER PRIMARY KEY, origin TEXT NOT NULL);
CREATE TABLE leaves (position INTEGER PRIMARY KEY, leaf BLOB NOT NULL)
"""
STORE_KIND: Final = FileKind(
    application=0x50525653,
    version=6,
    schema=(*_EVERY_STORE, JOINED_IDS),
    field="PRIVATEER_DATA",
    # From 3 on, all that was published is in the log, in the order of time; from 4 on, the sums that a round had are
    # its first part; from 5 on, tokens are short, and stand in the order in which their keys expire.
    steps={3: _LEAVES_OF_THE_LOG, 4: _PARTS_OF_ROUNDS, 5: _SHORT_TOKENS.format_map(_SQLITE)},
)
JOURNAL_KIND: Final = FileKind(
    application=0x5052564A,
    version=4,
    schema=_EVERY_JOURNAL,
    field="PRIVATEER_JOURNAL",
    steps={3: _LOG_ON_RECORD},  # no head was signed for a journal of version 3
)

_ROUNDS_BY_NAME: Final = """
ALTER TABLE parts RENAME TO numbered_parts;
ALTER TABLE numbered_parts RENAME CONSTRAINT parts_pkey TO numbered_parts_pkey;
CREATE TABLE parts (
    experiment text NOT NULL, version bigint NOT NULL, part bytea NOT NULL, total bytea NOT NULL,
    PRIMARY KEY (experiment, version, part)
);
INSERT INTO parts
    SELECT experiment, version, part, numbered_parts.total FROM numbered_parts JOIN rounds ON round = rounds.id;
DROP TABLE numbered_parts;
ALTER TABLE report_ids RENAME TO numbered_ids;
ALTER TABLE numbered_ids RENAME CONSTRAINT report_ids_pkey TO numbered_ids_pkey;
CREATE TABLE report_ids (
    experiment text NOT NULL, version bigint NOT NULL, id bytea NOT NULL, PRIMARY KEY (experiment, version, id)
);
INSERT INTO report_ids
    SELECT experiment, version, numbered_ids.id FROM numbered_ids JOIN rounds ON round = rounds.id;
DROP TABLE numbered_ids;
ALTER TABLE rounds DROP COLUMN id
"""

_RENAMED_KEY: Final = "ALTER TABLE spent_tokens RENAME CONSTRAINT spent_tokens_pkey TO long_tokens_pkey;"


def _drop_digests(db: Connection) -> None:
    """Keep what a journal that may have gone back does not know in the entries alone."""
    marked = db.exec_driver_sql("SELECT experiment, entry FROM publications WHERE digest = ''").fetchall()
    for name, entry in marked:
        values = (encode(decode(entry, JournalEntry).without_digests), name)
        db.exec_driver_sql("UPDATE publications SET entry = %s WHERE experiment = %s", values)
    db.exec_driver_sql("ALTER TABLE publications DROP COLUMN digest")


STORE_SCHEMA: Final = Schema(
    "store",
    version=3,
    tables=(*_EVERY_STORE, SINGLE_IDS, LEASES),
    # From 2 on, parts and ids name their round by experiment and version, as in a file.
    steps={1: _ROUNDS_BY_NAME, 2: _RENAMED_KEY + _SHORT_TOKENS.format_map(_POSTGRES)},
)
JOURNAL_SCHEMA: Final = Schema(
    "journal",
    version=2,
    tables=(*_EVERY_JOURNAL, ORIGIN, KEYS, SIGNER, SEAL),
    steps={1: _drop_digests},
)
