"""What stores ask of a database: it is the same of an SQLite file and of PostgreSQL."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Integer, LargeBinary, MetaData, Table, Text, select, text

from privateer_core.serving.store.database import (
    INTEGER,
    Database,
    DriverStatement,
    Schema,
    SqliteDatabase,
    insert,
    insert_or_get,
)
from privateer_core.serving.store.sqlite import FileKind, open_database

TABLES = MetaData()
PETS = Table(
    "pets",
    TABLES,
    Column("name", Text, primary_key=True),
    Column("legs", INTEGER, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
OWNER = Table(
    "owner", TABLES, Column("id", Integer, primary_key=True, autoincrement=False), Column("name", Text, nullable=False)
)
CAT = {"name": "cat", "legs": 4, "body": b"\0 secret"}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    opened: Database
    if request.param == "sqlite":
        kind = FileKind(77, 1, (PETS, OWNER), "SETTING")
        opened = SqliteDatabase(open_database(tmp_path / "some.db", kind))
    else:
        from privateer_core.serving.store.postgres import PostgresDatabase

        cluster: Any = request.getfixturevalue("postgres")
        opened = PostgresDatabase(cluster.make(), Schema("pets", 1, (PETS, OWNER)), "SETTING")
    yield opened
    opened.close()
    opened.close()


def pets(database: Database) -> list[tuple[str, int, bytes]]:
    with database.connection() as db:
        return [tuple(row) for row in db.execute(select(PETS).order_by(PETS.c.name))]


def test_a_transaction_is_atomic(database: Database) -> None:
    with suppress(ZeroDivisionError), database.transaction() as db:
        db.execute(insert(PETS), CAT)
        raise ZeroDivisionError
    assert pets(database) == []
    with database.transaction() as db:
        database.lock(db, 1, "pets")
        db.execute(insert(PETS), CAT)
        db.rollback()
    assert pets(database) == []
    with database.transaction() as db:
        db.execute(insert(PETS), CAT)
    assert pets(database) == [("cat", 4, b"\0 secret")]


def test_an_existing_row_stays_or_is_replaced(database: Database) -> None:
    new = insert(PETS).values(CAT | {"legs": 3})
    changed = new.on_conflict_do_update(index_elements=["name"], set_={"legs": PETS.c.legs * 10 + new.excluded.legs})
    for statement, legs in ((insert(PETS).values(CAT), 4), (new.on_conflict_do_nothing(), 4), (changed, 43)):
        with database.transaction() as db:
            db.execute(statement)
        assert pets(database)[0][1] == legs


def test_the_first_value_of_a_single_row_is_kept(database: Database) -> None:
    with database.transaction() as db:
        assert [insert_or_get(db, OWNER.c.name, name) for name in ("one", "two")] == ["one", "one"]


def test_the_driver_runs_what_it_is_given_in_the_transaction(database: Database) -> None:
    add = DriverStatement("INSERT INTO pets VALUES (:name, :legs, :body)")
    with suppress(ZeroDivisionError), database.transaction() as db:
        assert add.run(db, CAT) == 1
        raise ZeroDivisionError
    assert pets(database) == []
    with database.transaction() as db:
        assert add.run(db, CAT) == 1
    assert pets(database) == [("cat", 4, b"\0 secret")]


@pytest.mark.parametrize("use", [Database.connection, Database.transaction, Database.snapshot])
def test_errors_are_those_of_the_driver_without_values(database: Database, use: Callable[[Database], Any]) -> None:
    with database.transaction() as db:
        db.execute(insert(PETS), CAT)
    with pytest.raises(Exception, match=r"(?i)unique|23505") as raised, use(database) as db:
        db.execute(insert(PETS), CAT)
    assert type(raised.value).__module__.split(".")[0] in ("sqlite3", "psycopg")
    assert raised.value.__suppress_context__
    assert "secret" not in str(raised.value)
    with pytest.raises(Exception, match=r"nowhere|42P01"), use(database) as db:
        db.execute(text("SELECT * FROM nowhere"))
    assert len(pets(database)) == 1


def test_a_checkup_has_version_size_and_integrity(database: Database) -> None:
    checkup = database.examine()
    assert (checkup.version, checkup.is_whole) == (1, True)
    assert checkup.size > 1000


def test_a_checkup_finds_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    kind = FileKind(77, 1, (PETS, OWNER), "SETTING")
    database = SqliteDatabase(open_database(path, kind))
    with database.transaction() as db:
        db.execute(insert(PETS), [CAT | {"name": f"{number}", "body": bytes(3000)} for number in range(50)])
    database.erase_old_states()
    with path.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(bytes([77]) * 4096 * 8)
    damaged = sqlite3.connect(":memory:", isolation_level=None)
    damaged.deserialize(path.read_bytes()[:18] + b"\1\1" + path.read_bytes()[20:])
    copy = SqliteDatabase(damaged)
    assert not copy.examine().is_whole
    copy.close()
    database.close()


def test_erased_rows_leave_no_bytes_after_tidying(tmp_path: Path) -> None:
    """A planted one would be found: it is there until then."""
    path, secret = tmp_path / "some.db", b"a secret of many bytes" * 50
    database = SqliteDatabase(open_database(path, FileKind(77, 1, (PETS, OWNER), "SETTING")))
    with database.transaction() as db:
        db.execute(insert(PETS), CAT | {"body": secret})
    assert any(secret in file.read_bytes() for file in tmp_path.iterdir())
    with database.transaction() as db:
        db.execute(PETS.delete())
    database.erase_old_states()
    assert not any(secret in file.read_bytes() for file in tmp_path.iterdir())
    database.close()
