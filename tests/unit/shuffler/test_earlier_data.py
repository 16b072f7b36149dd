"""Data of the version before the stores stood on SQLAlchemy opens unchanged, and stores find what is wrong with it."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite

from privateer_core.serving.store.database import create_sql
from privateer_core.serving.store.sqlite import FileKind, read_facts
from privateer_core.wire.publication import Round
from privateer_shuffler.pool.pool import Label
from privateer_shuffler.pool.round_file import ROUND_DATABASE
from privateer_shuffler.pool.schema import SHARED_TABLES
from privateer_shuffler.pool.spent_tokens import TOKENS_DATABASE, TOKENS_FILE, FiledTokens
from privateer_shuffler.pool.store import HISTORY_DATABASE, HISTORY_FILE, FolderStore, LastPublication, open_history
from tests.unit.shuffler.fake_server import SIZE
from tests.unit.shuffler.helpers import sealed_reports

HISTORY = """
CREATE TABLE taken (
    experiment TEXT PRIMARY KEY, version INTEGER NOT NULL, digest BLOB NOT NULL, over INTEGER NOT NULL
)
"""
TOKENS = """
CREATE TABLE secret (key BLOB NOT NULL);
CREATE TABLE spent (
    expires INTEGER NOT NULL, token BLOB NOT NULL, PRIMARY KEY (expires, token)
) WITHOUT ROWID
"""
ROUND = """
CREATE TABLE label (label BLOB NOT NULL, key BLOB NOT NULL);
CREATE TABLE place (id INTEGER PRIMARY KEY, taken INTEGER NOT NULL, sealed BLOB NOT NULL);
CREATE TABLE delivered (fingerprint BLOB PRIMARY KEY) WITHOUT ROWID
"""
SHARED = """
CREATE TABLE taken (
    experiment text PRIMARY KEY, version bigint NOT NULL, digest bytea NOT NULL, over boolean NOT NULL
);
CREATE TABLE rounds (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE,
    label bytea NOT NULL,
    secret bytea NOT NULL,
    batch bigint NOT NULL DEFAULT 0,
    held bigint NOT NULL DEFAULT 0,
    ended_at double precision NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE pieces (round bigint NOT NULL, piece bytea NOT NULL);
CREATE INDEX pieces_of_round ON pieces (round);
ALTER TABLE pieces ALTER piece SET STORAGE EXTERNAL;
CREATE TABLE fingerprints (fingerprint bytea PRIMARY KEY, round bigint NOT NULL);
CREATE INDEX fingerprints_of_round ON fingerprints (round);
CREATE TABLE leases (
    experiment text PRIMARY KEY, holder bytea NOT NULL, expires timestamptz NOT NULL, attempts integer NOT NULL
);
CREATE TABLE spent (
    expires bigint NOT NULL, token bytea NOT NULL, PRIMARY KEY (expires, token)
);
CREATE TABLE server (id integer PRIMARY KEY, public_key bytea NOT NULL);
CREATE TABLE signer (id integer PRIMARY KEY, public_key bytea NOT NULL);
CREATE TABLE seal (id integer PRIMARY KEY, sealed bytea NOT NULL)
"""


def make_file(folder: Path, name: str, kind: FileKind, schema: str, *rows: tuple[str, tuple[object, ...]]) -> None:
    """A file as the version made it that used no SQLAlchemy."""
    with closing(sqlite3.connect(folder / name)) as db:
        db.executescript(f"{schema}; PRAGMA application_id={kind.application}; PRAGMA user_version={kind.version}")
        for statement, values in rows:
            db.execute(statement, values)
        db.commit()


def columns(statements: str) -> dict[str, list[str]]:
    """The names of the columns of each table."""
    columns_by_table = {}
    for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)\n?\)(?: W|;|$|\n)", statements, re.S):
        cells = [cell.split()[0].strip('"') for cell in re.split(r",\s", body.strip())]
        columns_by_table[table] = [cell for cell in cells if cell not in ("PRIMARY", "UNIQUE")]
    return columns_by_table


def list_created_tables(tables: str | tuple[Table, ...], dialect: object) -> str:
    assert not isinstance(tables, str)
    return ";".join(create_sql(tables, dialect)) + ";"  # type: ignore[arg-type]


def test_tables_and_columns_have_the_names_that_they_had() -> None:
    assert columns(list_created_tables(HISTORY_DATABASE.schema, sqlite.dialect())) == columns(HISTORY)
    assert columns(list_created_tables(TOKENS_DATABASE.schema, sqlite.dialect())) == columns(TOKENS)
    assert ROUND_DATABASE.schema == ROUND.replace("\n", "\n    ")
    statements = list_created_tables(SHARED_TABLES, postgresql.dialect())  # type: ignore[no-untyped-call]
    assert columns(statements) == columns(SHARED)
    made_so = re.findall(r"CREATE INDEX .*|ALTER .*", SHARED)
    assert all(statement.rstrip(";") in statements for statement in made_so)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with a round of three, a single report, and a spent token of an earlier round."""
    label = Label(Round("spring", 2, "shuffle", 3, SIZE, bytes(32)), b"d" * 32)
    places = [("INSERT INTO place VALUES (?, 0, zeroblob(?))", (place, SIZE)) for place in (0, 2)]
    report = ("INSERT INTO place VALUES (1, 1, ?)", (sealed_reports(1)[0],))
    label_key = ("INSERT INTO label VALUES (?, ?)", (msgspec.msgpack.encode(label), b"k" * 32))
    make_file(tmp_path, f"{label.digest.hex()}.db", ROUND_DATABASE, ROUND, *places, report, label_key)
    row = ("INSERT INTO taken VALUES ('spring', 2, ?, 0)", (label.digest,))
    make_file(tmp_path, HISTORY_FILE, HISTORY_DATABASE, HISTORY, row)
    key, spent_token = ("INSERT INTO secret VALUES (?)", (b"s" * 32,)), "INSERT INTO spent VALUES (4000000000, ?)"
    make_file(tmp_path, TOKENS_FILE, TOKENS_DATABASE, TOKENS, key)
    (tmp_path / "other").mkdir()
    make_file(tmp_path / "other", TOKENS_FILE, TOKENS_DATABASE, TOKENS, key)
    tokens = FiledTokens(tmp_path / "other")
    token = tokens.hash(b"nonce")
    tokens.close()
    with closing(sqlite3.connect(tmp_path / TOKENS_FILE)) as db:
        db.execute(spent_token, (token,))
        db.commit()
    return tmp_path


async def test_a_folder_of_the_earlier_version_is_continued(folder: Path) -> None:
    store = FolderStore(folder, open_history(folder), FiledTokens(folder))
    assert store.load_last_publication("spring") == LastPublication(2, b"d" * 32)
    assert (store.is_known_spent(b"nonce", 4_000_000_000), store.is_known_spent(b"another", 4_000_000_000)) == (
        True,
        False,
    )
    (pool,) = await store.open_stored_rounds([])
    assert (pool.n_held, pool.round.experiment, pool.is_full) == (1, "spring", False)
    assert (await pool.hold(sealed_reports(3))).refused == {"unavailable": 1}
    assert pool.is_full
    store.store_publication("spring", LastPublication(1, b"e" * 32))  # an earlier one changes nothing
    store.end_version("spring", 2)
    assert store.load_last_publication("spring") == LastPublication(2, b"d" * 32, over=True)
    store.store_publication("spring", LastPublication(3, b"f" * 32))
    assert store.load_last_publication("spring") == LastPublication(3, b"f" * 32)
    await pool.forget()
    store.close()


async def test_a_checkup_of_a_sound_store_finds_nothing(folder: Path) -> None:
    store = FolderStore(folder, open_history(folder), FiledTokens(folder))
    checkup = store.examine()
    assert checkup.disagreements == []
    assert set(checkup.databases) == {HISTORY_FILE, TOKENS_FILE, f"{(b'd' * 32).hex()}.db"}
    assert all(database.is_whole and database.size >= 4096 for database in checkup.databases.values())
    assert {name for name, database in checkup.databases.items() if database.version != 1} == {TOKENS_FILE}
    await (await store.open_stored_rounds([]))[0].close()
    store.close()


@pytest.mark.parametrize("harm", ["DELETE FROM taken", "UPDATE taken SET version = 1", "UPDATE taken SET digest = 'x'"])
async def test_a_checkup_finds_a_restored_history(folder: Path, harm: str) -> None:
    with closing(sqlite3.connect(folder / HISTORY_FILE)) as db:
        db.execute(harm)
        db.commit()
    store = FolderStore(folder, open_history(folder))
    (wrong,) = store.examine().disagreements
    assert wrong.startswith("the history does not know the round of spring")
    await (await store.open_stored_rounds([]))[0].close()
    store.close()


def test_a_checkup_finds_damage(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        db.executescript("CREATE TABLE one (value); INSERT INTO one VALUES (NULL); PRAGMA user_version=7")
        assert (read_facts(db).version, read_facts(db).is_whole) == (7, True)
        db.executescript(
            "PRAGMA writable_schema=ON; UPDATE sqlite_schema SET sql = 'CREATE TABLE one (value NOT NULL)'"
        )
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        assert not read_facts(db).is_whole
