"""The tables of the server's database and of its journal."""

from typing import Final

from sqlalchemy import (
    Boolean,
    Column,
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

from privateer_core.serving.store.database import INTEGER, Schema
from privateer_core.serving.store.leases import leases_table
from privateer_core.serving.store.spent_tokens import spent_table
from privateer_core.serving.store.sqlite import FileKind
from privateer_core.serving.store.store_key import seal_table

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

STORE_KIND: Final = FileKind(
    application=0x50525653,
    version=6,
    schema=(*_EVERY_STORE, JOINED_IDS),
    field="PRIVATEER_DATA",
)
JOURNAL_KIND: Final = FileKind(
    application=0x5052564A,
    version=4,
    schema=_EVERY_JOURNAL,
    field="PRIVATEER_JOURNAL",
)

STORE_SCHEMA: Final = Schema(
    "store",
    version=3,
    tables=(*_EVERY_STORE, SINGLE_IDS, LEASES),
)
JOURNAL_SCHEMA: Final = Schema(
    "journal",
    version=2,
    tables=(*_EVERY_JOURNAL, ORIGIN, KEYS, SIGNER, SEAL),
)
