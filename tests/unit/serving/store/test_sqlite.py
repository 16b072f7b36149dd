"""SQLite files of an earlier version are migrated; too old or too new files stay unchanged."""

import hashlib
import logging
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from privateer_core.errors import SpecError
from privateer_core.serving.store.database import SqliteDatabase
from privateer_core.serving.store.sqlite import FileKind, connect, open_database, was_cut_short

STEPS = {3: "ALTER TABLE person ADD COLUMN born INTEGER; CREATE TABLE place (id)", 4: "CREATE TABLE pet (id)"}
NOW = FileKind(77, 5, "CREATE TABLE person (id, born INTEGER); CREATE TABLE place (id)", "SETTING", steps=STEPS)


def make_file(path: Path, version: int, application: int = 77) -> None:
    """A file of a version, and rows in its write-ahead log, as a process leaves it that was killed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in ("CREATE TABLE person (id)", f"PRAGMA user_version = {version}"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {application}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("INSERT INTO person VALUES (1)")
        body, log = path.read_bytes(), path.with_name(f"{path.name}-wal").read_bytes()
    path.write_bytes(body)
    path.with_name(f"{path.name}-wal").write_bytes(log)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.parametrize(("version", "n_steps"), [(3, 2), (4, 1)])
def test_an_earlier_version_becomes_this_one_and_the_log_has_one_line(version, n_steps, tmp_path, caplog):
    caplog.set_level(logging.INFO, "privateer.data")
    make_file(tmp_path / "some.db", version)
    kind = NOW if n_steps == 2 else FileKind(77, 5, NOW.schema, "SETTING", steps={4: STEPS[4]})
    with closing(open_database(tmp_path / "some.db", kind)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (5,)
        assert db.execute("SELECT id FROM person").fetchall() == [(1,)]
        assert db.execute("SELECT count(*) FROM pet").fetchone() == (0,)
    (line,) = caplog.records
    assert (line.getMessage(), line.__dict__["fields"]) == (
        "migrated",
        {"file": "some.db", "from_schema": version, "to_schema": 5},
    )
    open_database(tmp_path / "some.db", kind).close()
    assert len(caplog.records) == 1  # a file of this version is opened without a word


@pytest.mark.parametrize(
    ("version", "says", "remedy"),
    [
        (2, "some.db is too old: schema 2, and this Privateer migrates from 3 on", "run the version that made it"),
        (6, "some.db was made by a newer Privateer: schema 6, and this one reads 5", "install the newer version again"),
    ],
)
def test_a_file_that_is_too_old_or_too_new_is_refused_and_unchanged(version, says, remedy, tmp_path):
    make_file(tmp_path / "some.db", version)
    before = digests(tmp_path)
    assert before.keys() == {"some.db", "some.db-wal"}
    with pytest.raises(SpecError) as caught:
        open_database(tmp_path / "some.db", NOW)
    assert (caught.value.field, caught.value.detail) == ("SETTING", says)
    assert remedy in (caught.value.remedy or "")
    assert digests(tmp_path) == before


def test_a_file_of_another_service_is_not_migrated(tmp_path: Path) -> None:
    make_file(tmp_path / "some.db", 3, application=78)
    with pytest.raises(SpecError, match=r"some\.db is not a database of this service"):
        open_database(tmp_path / "some.db", NOW)


def test_a_migration_that_fails_leaves_the_earlier_version(tmp_path: Path) -> None:
    """All steps are one transaction."""
    make_file(tmp_path / "some.db", 3)
    broken = FileKind(77, 5, NOW.schema, "SETTING", steps={3: STEPS[3], 4: "CREATE TABLE place (id)"})
    with pytest.raises(SpecError, match=r"some\.db does not open"):
        open_database(tmp_path / "some.db", broken)
    with closing(open_database(tmp_path / "some.db", NOW)) as db:
        assert db.execute("SELECT id FROM person").fetchall() == [(1,)]


def test_a_clean_stop_leaves_no_write_ahead_log(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    assert not was_cut_short(path)
    db = connect(path, NOW)
    db.execute("INSERT INTO place VALUES (1)")
    assert was_cut_short(path)  # as a process that is killed now leaves it
    db.close()
    assert not was_cut_short(path)


def test_a_failed_commit_leaves_no_transaction_open(tmp_path: Path) -> None:
    """Uncommitted rows are invisible, and the next transaction begins."""
    later = "CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE b (a REFERENCES a DEFERRABLE INITIALLY DEFERRED)"
    database = SqliteDatabase(open_database(tmp_path / "a.db", FileKind(78, 1, later, "SETTING")))
    with database.driver() as raw:
        raw.execute("PRAGMA foreign_keys = ON")
    for _ in range(2):
        with pytest.raises(sqlite3.IntegrityError), database.transaction() as db:
            db.execute(text("INSERT INTO b VALUES (1)"))
    with database.connection() as db:
        assert db.execute(text("SELECT count(*) FROM b")).scalar_one() == 0
    with database.transaction() as db:
        db.execute(text("INSERT INTO a VALUES (1)"))
    database.close()


def test_a_transaction_waiting_at_close_is_refused(tmp_path: Path) -> None:
    """Nobody uses a connection at the moment at which another thread closes it."""
    database = SqliteDatabase(open_database(tmp_path / "some.db", NOW))
    refusals = list[str]()

    def read() -> None:
        try:
            with database.connection() as db:
                db.execute(text("SELECT count(*) FROM person"))
        except sqlite3.ProgrammingError as error:
            refusals.append(str(error))

    with database.connection():
        closer = threading.Thread(target=database.close)
        closer.start()
        time.sleep(0.1)
        readers = [threading.Thread(target=read) for _ in range(4)]
        for reader in readers:
            reader.start()
        time.sleep(0.1)
    for thread in (closer, *readers):
        thread.join(30)
        assert not thread.is_alive()
    database.close()
    with pytest.raises(sqlite3.ProgrammingError), database.connection():
        pass
    assert refusals == ["the database is closed"] * len(readers)
    open_database(tmp_path / "some.db", NOW).close()  # its lock is given up
