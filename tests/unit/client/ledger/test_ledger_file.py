"""Ledgers on the disk: damaged files, foreign files and files of another version are refused in a line."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from privateer_client.ledger.account_protocol import Payment
from privateer_client.ledger.ledger import Ledger
from privateer_client.ledger.ledger_file import LedgerFile
from privateer_core.errors import InputError
from tests.support.devices import pay


def write(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


def overwrite_file(path: Path) -> None:
    path.write_text("payments: none\n")


def truncate_file(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def overwrite_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)


def drop_payments(path: Path) -> None:
    write(path, "DROP TABLE payments")


def drop_everything(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    write(path, *(f"DROP TABLE {table}" for (table,) in tables))


def drop_index(path: Path) -> None:
    write(path, "DROP INDEX choices_by_due")


def write_bookmarks(path: Path) -> None:
    path.unlink()
    write(path, "CREATE TABLE bookmarks (url TEXT)")


def set_other_id(path: Path) -> None:
    path.unlink()
    write(path, "PRAGMA application_id=77")


def write_amounts(path: Path) -> None:
    path.unlink()
    write(path, "CREATE TABLE payments (amount REAL)")


def set_earlier_version(path: Path) -> None:
    write(path, "PRAGMA user_version=7")


def set_newer_version(path: Path) -> None:
    write(path, "PRAGMA user_version=99")


WRONG = [
    overwrite_file,
    truncate_file,
    overwrite_page,
    drop_payments,
    write_bookmarks,
    set_other_id,
    write_amounts,
]


@pytest.mark.parametrize("harm", [*WRONG, set_earlier_version, set_newer_version])
def test_a_file_that_is_not_a_sound_ledger_is_refused_and_left_alone(tmp_path, harm):
    path = tmp_path / "ledger.db"
    pay(Ledger(path), Payment("a", 2, "local", 1.0, 0.0, 1.0))
    harm(path)
    before = path.read_bytes()
    with pytest.raises(InputError) as refusal:
        Ledger(path).payments()
    assert refusal.value.field == "ledger"
    assert refusal.value.remedy
    assert path.read_bytes() == before


@pytest.mark.parametrize("harm", WRONG)
def test_a_ledger_damaged_while_open_is_an_error(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger(path)
    pay(ledger, Payment("a", 2, "local", 1.0, 0.0, 1.0))
    harm(path)
    with pytest.raises(InputError) as refusal:
        pay(ledger, Payment("b", 2, "local", 1.0, 0.0, 1.0))
    assert refusal.value.field == "ledger"


@pytest.mark.parametrize("harm", [drop_everything, drop_payments, drop_index])
def test_a_ledger_that_lacks_tables_is_not_opened(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    path = tmp_path / "ledger.db"
    LedgerFile(path)
    harm(path)
    with pytest.raises(InputError, match="the file is damaged, or not a ledger"):
        LedgerFile(path)


def test_a_disk_without_room_pays_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, connect = Ledger(tmp_path / "ledger.db"), sqlite3.connect

    def full(*arguments: Any, **options: Any) -> sqlite3.Connection:
        database = connect(*arguments, **options)
        database.execute("PRAGMA max_page_count=12")
        return database

    monkeypatch.setattr(sqlite3, "connect", full)
    with pytest.raises(InputError, match="room"):
        pay(ledger, Payment("a", 2, "local", 1.0, 0.0, 1.0), b"x" * 100_000)
    assert (ledger.payments(), ledger.pending_reports()) == ([], [])
    pay(ledger, Payment("a", 2, "local", 1.0, 0.0, 1.0), b"x" * 100)


def test_discarded_reports_leave_no_trace_in_the_file(tmp_path: Path) -> None:
    """A long report, which the database stores on overflow pages, is erased, too."""
    ledger = Ledger(tmp_path / "ledger.db")
    marks = [os.urandom(40), os.urandom(40) * 5000]
    for name, mark in zip("ab", marks, strict=True):
        pay(ledger, Payment(name, 2, "local", 1.0, 0.0, 1.0), mark)
        assert mark[:40] in ledger.path.read_bytes()
        ledger.discard(name)
        ledger.discard(name)
    assert all(mark[:40] not in ledger.path.read_bytes() for mark in marks)
    assert ledger.pending_reports() == []
    assert [payment.experiment for payment in ledger.payments()] == ["a", "b"]


def test_a_transaction_reads_a_row_again_after_a_change_alone(tmp_path: Path) -> None:
    file, queries = LedgerFile(tmp_path / "x.db"), list[str]()
    query = "SELECT key FROM servers WHERE server = ?"
    with file.transaction() as database:
        database.set_trace_callback(queries.append)
        assert [file.fetch_row(query, ("a",)) for _ in range(3)] == [None] * 3
        database.execute("INSERT INTO servers VALUES ('a', 'key', 'head')")
        assert [file.fetch_row(query, ("a",)) for _ in range(3)] == [("key",)] * 3
        database.execute("UPDATE servers SET key = 'other'")
        assert file.fetch_row(query, ("a",)) == ("other",)
    assert sum(text.startswith("SELECT") for text in queries) == 3
    write(file.path, "UPDATE servers SET key = 'of another process'")
    with file.transaction():
        assert file.fetch_row(query, ("a",)) == ("of another process",)
