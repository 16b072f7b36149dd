"""Copies of databases in memory have what SQLite would recover, whoever holds the file and whatever is in motion."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from privateer_core.errors import SpecError
from privateer_core.serving.store import copies
from privateer_core.serving.store.copies import UnstableDatabase, is_open_elsewhere, open_view
from privateer_core.serving.store.database import SqliteDatabase
from privateer_core.serving.store.sqlite import FileKind, open_database
from privateer_core.serving.store.write_ahead_log import LOG_BYTES_MAX

KIND = FileKind(
    application=77,
    version=1,
    schema="CREATE TABLE rows (id INTEGER PRIMARY KEY, twin INTEGER, body BLOB)",
    field="SETTING",
    pragmas=("page_size=1024",),
)
WRITER = """
import sys
from pathlib import Path
from privateer_core.serving.store.database import SqliteDatabase
from privateer_core.serving.store.sqlite import open_database
from tests.unit.serving.test_copies import KIND
database = SqliteDatabase(open_database(Path(sys.argv[1]), KIND))
with database.driver() as db:
    db.execute("PRAGMA synchronous=OFF")
    for row in range(200):
        db.execute("INSERT INTO rows VALUES (?, ?, ?)", (row, row, bytes(300)))
    db.execute("BEGIN")
    db.execute("UPDATE rows SET twin = -1")
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "checkpoint\\n":
            db.execute("ROLLBACK")
            db.execute("DELETE FROM rows WHERE id >= 100")
            db.execute("VACUUM")
            print("ready", flush=True)
        if line == "busy\\n":
            print("ready", flush=True)
            break
for turn in range(10**9):
    if turn % 50 == 0:
        database.erase_old_states()
    with database.transaction() as db:
        db.exec_driver_sql("UPDATE rows SET twin = twin + 1")
"""


class Writer:
    """Another process that holds a database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.wait_until()

    def wait_until(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def do(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        self.wait_until()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    process_writer = Writer(tmp_path / "held.db")
    yield process_writer
    process_writer.process.kill()
    process_writer.process.communicate()


def rows(path: Path) -> list[tuple[int, int]]:
    view = open_view(path, KIND)
    assert view is not None
    with closing(view), view.driver() as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return db.execute("SELECT id, twin FROM rows ORDER BY id").fetchall()


def test_a_copy_has_committed_rows_alone(writer: Writer) -> None:
    assert writer.path.with_name("held.db-wal").stat().st_size > 10_000
    assert rows(writer.path) == [(row, row) for row in range(200)]
    writer.do("checkpoint")
    assert rows(writer.path) == [(row, row) for row in range(100)]


def test_a_copy_during_writes_is_consistent(writer: Writer) -> None:
    """All twins are as many ahead, whichever transaction is the last one."""
    writer.do("checkpoint")
    writer.do("busy")
    seen_offsets, reads, deadline = set[int](), 0, time.monotonic() + 60
    while reads < 20 or (len(seen_offsets) < 2 and time.monotonic() < deadline):
        offsets = {twin - row for row, twin in rows(writer.path)}
        assert len(offsets) == 1
        seen_offsets, reads = seen_offsets | offsets, reads + 1
    assert len(seen_offsets) > 1


def test_a_copy_equals_the_recovery_by_sqlite(writer: Writer, tmp_path: Path) -> None:
    """Also from a log that was cut anywhere, or whose bytes were changed."""
    files = {path.name: path.read_bytes() for path in tmp_path.glob("held.db*")}
    size = len(files["held.db-wal"])
    for number, (cut, changed) in enumerate([(size, 0), (size // 2, 0), (size - 5, 0), (size, size // 3), (31, 0)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        log = bytearray(files["held.db-wal"][:cut])
        log[changed] ^= 1 if changed else 0
        (folder / "held.db").write_bytes(files["held.db"])
        (folder / "held.db-wal").write_bytes(log)
        shutil.copytree(folder, tmp_path / f"sqlite-{number}")
        try:
            own_rows = rows(folder / "held.db")
        except SpecError:
            own_rows = None
        with closing(sqlite3.connect(tmp_path / f"sqlite-{number}" / "held.db")) as recovered:
            try:
                expected = recovered.execute("SELECT id, twin FROM rows ORDER BY id").fetchall()
            except sqlite3.Error:
                expected = None
        assert own_rows == expected
        assert sorted(path.name for path in folder.iterdir()) == ["held.db", "held.db-wal"]


def test_the_holder_of_a_database_is_found_without_opening_it(writer: Writer, tmp_path: Path) -> None:
    before = writer.path.stat()
    assert is_open_elsewhere(writer.path) is True
    assert writer.path.stat() == before
    shutil.copy(writer.path, tmp_path / "free.db")
    assert is_open_elsewhere(tmp_path / "free.db") is False
    assert is_open_elsewhere(tmp_path / "none.db") is None
    writer.process.kill()
    writer.process.wait()
    assert is_open_elsewhere(writer.path) is False


def test_the_copy_of_a_changing_file_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.db"
    open_database(path, KIND).close()
    states = iter(range(1000))
    monkeypatch.setattr(copies, "_fingerprint_file", lambda _: (next(states),))
    monkeypatch.setattr(copies, "_PAUSE_SECONDS", 0)
    with pytest.raises(UnstableDatabase):
        open_view(path, KIND)


def test_files_other_than_databases_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.db").write_bytes(b"")
    assert open_view(tmp_path / "empty.db", KIND) is None
    (tmp_path / "other.db").write_bytes(os.urandom(5000))
    with pytest.raises(SpecError, match="damaged, or no database"):
        open_view(tmp_path / "other.db", KIND)


def test_a_service_leaves_the_file_as_it_is_while_somebody_reads_it(tmp_path: Path) -> None:
    path, log = tmp_path / "some.db", tmp_path / "some.db-wal"
    database = SqliteDatabase(open_database(path, KIND))

    def put(row: int, size: int) -> None:
        with database.transaction() as db:
            db.exec_driver_sql("INSERT INTO rows VALUES (?, ?, zeroblob(?))", (row, row, size))

    put(1, 10)
    view = open_view(path, KIND)
    before = path.read_bytes()
    put(2, LOG_BYTES_MAX + 1)
    database.erase_old_states()
    with view.driver() as db:
        assert (path.read_bytes(), db.execute("SELECT id FROM rows").fetchall()) == (before, [(1,)])
    assert (log.stat().st_size > LOG_BYTES_MAX, sorted(entry.name for entry in tmp_path.iterdir())) == (
        True,
        ["some.db", "some.db-wal"],
    )
    view.close()
    database.erase_old_states()
    assert log.stat().st_size == 0
    put(3, LOG_BYTES_MAX + 1)
    assert log.stat().st_size == 0
    database.close()


LOOKER = """
import resource, sys
from pathlib import Path
from privateer_core.serving.store.copies import open_view
from tests.unit.serving.test_copies import KIND
begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
view = open_view(Path(sys.argv[1]), KIND)
print(view.facts.is_whole, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun)
"""


@pytest.mark.parametrize("with_log", [False, True])
def test_a_large_database_is_examined_in_little_memory(tmp_path: Path, with_log: bool) -> None:
    path = tmp_path / "large.db"
    database = SqliteDatabase(open_database(path, KIND))
    with database.transaction() as db:
        for row in range(64):
            db.exec_driver_sql("INSERT INTO rows VALUES (?, 0, zeroblob(1000000))", (row,))
    database.erase_old_states()
    if with_log:
        with database.transaction() as db:
            db.exec_driver_sql("INSERT INTO rows VALUES (100, 0, zeroblob(1000))")
    arguments = [sys.executable, "-c", LOOKER, str(path)]
    whole, kibibytes = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split()
    assert (whole, path.stat().st_size > 64_000_000) == ("True", True)
    assert int(kibibytes) < 16 << 10
    database.close()
