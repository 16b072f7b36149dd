"""The tables of the server's database and of its journal."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    Column,
    DateTime,
    Double,
    Enum,
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
from privateer_core.serving.store.leases import declare_leases_table
from privateer_core.serving.store.sqlite import FileKind
from privateer_core.serving.store.store_key import declare_seal_table
from privateer_core.serving.store.token_table import declare_spent_tokens_table
from privateer_server.rounds.states import RoundState

STORE_FILE: Final = "server.db"
JOURNAL_FILE: Final = "journal.db"
_STORE, _JOURNAL, _SHARED_STORE, _SHARED_JOURNAL = MetaData(), MetaData(), MetaData(), MetaData()


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _integer(name: str) -> Column[int]:
    return Column(name, INTEGER, nullable=False)


def _blob(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


def _single_row_key() -> Column[int]:
    return Column("id", Integer, primary_key=True, autoincrement=False)


def _round_table(name: str, metadata: MetaData, *columns: Column[Any], key: Sequence[str] = (), **kwargs: Any) -> Table:
    """Return a table with rows of rounds, of which further columns can be part of the primary key."""
    primary_key = PrimaryKeyConstraint("experiment", "version", *key)
    return Table(name, metadata, _text("experiment"), _integer("version"), *columns, primary_key, **kwargs)


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
    *map(_integer, ("version", "batch_size", "seen", "received")),
    Column("round_state", Enum(RoundState, native_enum=False, values_callable=list), nullable=False),
    *map(_blob, ("digest", "facts", "publication", "state", "total")),
    UniqueConstraint("experiment", "version"),
)
PARTS: Final = _round_table("parts", _STORE, _blob("part"), _blob("total"), key=["part"])
OPENINGS: Final = _round_table("openings", _STORE, *map(_blob, ("digest", "nonces", "reports")), key=["digest"])
"""Openings of batches in shares, as their shufflers signed them, until the round ends."""
JOINED_IDS: Final = Table(
    "report_ids",
    _STORE,
    _text("experiment"),
    _integer("version"),
    _blob("ids"),
    Index("report_ids_of_round", "experiment", "version"),
)
"""The ids of the embedded store, a row for each group of reports."""
SINGLE_IDS: Final = _round_table("report_ids", _SHARED_STORE, _blob("id"), key=["id"])
"""The ids that servers share, a row for each id."""
ANSWERS: Final = _round_table(
    "answers", _STORE, _blob("digest"), _blob("answer"), key=["digest"], sqlite_with_rowid=False
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
SHUFFLERS: Final = _round_table("shufflers", _STORE, _text("shuffler"), _text("organisation"), sqlite_with_rowid=False)
SPENT_TOKENS: Final = declare_spent_tokens_table("spent_tokens", _STORE, _blob("report"))
BACKUP: Final = Table(
    "backup",
    _STORE,
    _single_row_key(),
    *(Column(name, Double, nullable=False) for name in ("begun", "completed", "seconds")),
    _integer("bytes"),
)
"""The start of the last incomplete backup, and the last completed backup."""
PROBE: Final = Table("probe", _STORE, _single_row_key(), _integer("checks"))
LEASES: Final = declare_leases_table(_SHARED_STORE)

PUBLICATIONS: Final = Table(
    "publications", _JOURNAL, Column("experiment", Text, primary_key=True), _blob("entry"), sqlite_with_rowid=False
)
DELETIONS: Final = Table(
    "deleted", _JOURNAL, Column("experiment", Text, primary_key=True), _blob("line"), sqlite_with_rowid=False
)
LOG_NAME: Final = Table("log", _JOURNAL, _single_row_key(), _text("origin"))
LOG_LEAVES: Final = Table(
    "leaves", _JOURNAL, Column("position", INTEGER, primary_key=True, autoincrement=False), _blob("leaf")
)
ORIGIN: Final = Table("origin", _SHARED_JOURNAL, _single_row_key(), _text("identity"))
"""The identity of the journal's database at the last start."""
KEYS: Final = Table(
    "keys",
    _SHARED_JOURNAL,
    Column("public_key", LargeBinary, primary_key=True),
    _blob("wrapped"),
    Column("made", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
)
SIGNER: Final = Table("signer", _SHARED_JOURNAL, _single_row_key(), _blob("public_key"))
SEAL: Final = declare_seal_table(_SHARED_JOURNAL)

_TABLES: Final = (
    *(EXPERIMENTS, ROUNDS, PARTS, OPENINGS, ANSWERS, REFUSALS, LOG),
    *(DELETED, LEAVES, SHUFFLERS, SPENT_TOKENS, BACKUP, PROBE),
)
_JOURNAL_TABLES: Final = (PUBLICATIONS, DELETIONS, LOG_NAME, LOG_LEAVES)

STORE_KIND: Final = FileKind(application=0x50525653, version=10, schema=(*_TABLES, JOINED_IDS), field="PRIVATEER_DATA")
JOURNAL_KIND: Final = FileKind(application=0x5052564A, version=5, schema=_JOURNAL_TABLES, field="PRIVATEER_JOURNAL")

STORE_SCHEMA: Final = Schema("store", version=7, tables=(*_TABLES, SINGLE_IDS, LEASES))
JOURNAL_SCHEMA: Final = Schema("journal", version=3, tables=(*_JOURNAL_TABLES, ORIGIN, KEYS, SIGNER, SEAL))
