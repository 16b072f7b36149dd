"""Ledgers of earlier versions are brought up to date; damaged, foreign and newer files are refused in one line."""

import logging
import os
import re
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from privateer_client.ledger import ledger_schema
from privateer_client.ledger.account_protocol import Payment
from privateer_client.ledger.ledger import Ledger
from privateer_client.ledger.ledger_file import LedgerFile
from privateer_client.participation import SealedReport
from privateer_core.errors import AlreadyReported, InputError
from tests.support.devices import ENDPOINT, pay

COLUMNS = "experiment TEXT PRIMARY KEY, version INTEGER NOT NULL, model TEXT NOT NULL"
COSTS = "epsilon REAL NOT NULL, delta REAL NOT NULL, local_epsilon REAL NOT NULL"


def write(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


def without_days(path: Path) -> None:
    write(path, f"CREATE TABLE payments ({COLUMNS}, {COSTS})", "INSERT INTO payments VALUES ('a',1,'local',1,0,1)")


def without_outbox(path: Path) -> None:
    write(
        path,
        f"CREATE TABLE payments ({COLUMNS}, {COSTS}, day INTEGER NOT NULL DEFAULT 0)",
        "CREATE TABLE numbers (experiment TEXT PRIMARY KEY, seed INTEGER NOT NULL, people INTEGER NOT NULL,"
        " number INTEGER NOT NULL)",
        "INSERT INTO payments VALUES ('a', 1, 'local', 1, 0, 1, 20000)",
        "INSERT INTO numbers VALUES ('a', 5, 1000, 77)",
    )


def with_doors(path: Path) -> None:
    """A ledger of version 1, in which a report waits."""
    without_outbox(path)
    write(
        path,
        "CREATE TABLE outbox (experiment TEXT PRIMARY KEY, door TEXT NOT NULL, body BLOB NOT NULL)",
        f"INSERT INTO outbox VALUES ('a', '{ENDPOINT}', CAST('waits' AS BLOB))",
        f"PRAGMA application_id={0x50764C67}",
        "PRAGMA user_version=1",
    )


def of_version_2(path: Path) -> None:
    """A ledger from before choices were kept, in which a report waits."""
    with_doors(path)
    write(path, "ALTER TABLE outbox RENAME COLUMN door TO endpoint", "PRAGMA user_version=2")


@pytest.mark.parametrize("earlier", [without_days, without_outbox, with_doors, of_version_2])
def test_earlier_ledgers_keep_their_rows(tmp_path, earlier, caplog):
    caplog.set_level(logging.INFO, "privateer.client")
    path = tmp_path / "ledger.db"
    earlier(path)
    with ThreadPoolExecutor(4) as pool:
        ledgers = list(pool.map(lambda _: Ledger(path), range(4)))
    (line,) = caplog.messages  # whoever is first brings it up to date, and says so
    assert re.fullmatch("the ledger is brought from schema [12] to 8", line)
    with pytest.raises(AlreadyReported):
        pay(ledgers[0], Payment("a", 2, "local", 1.0, 0.0, 1.0))
    pay(ledgers[1], Payment("b", 2, "local", 1.0, 0.0, 1.0))
    assert [payment.experiment for payment in Ledger(path).payments()] == ["a", "b"]
    before = [SealedReport("a", ENDPOINT, b"waits")] if earlier in (with_doors, of_version_2) else []
    assert Ledger(path).pending_reports() == [*before, SealedReport("b", ENDPOINT, b"sealed")]
    assert (ledgers[2].experiments_with_choice(), ledgers[2].publication("a")) == ([], None)
    ledgers[3].store_publication("a", b"published")
    assert Ledger(path).publication("a") == b"published"
    if earlier is not without_days:
        assert Ledger(path).draw_number("a", 5, 1000) == 77


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


def write_bookmarks(path: Path) -> None:
    path.unlink()
    write(path, "CREATE TABLE bookmarks (url TEXT)")


def set_other_id(path: Path) -> None:
    path.unlink()
    write(path, "PRAGMA application_id=77")


def write_amounts(path: Path) -> None:
    path.unlink()
    write(path, "CREATE TABLE payments (amount REAL)")


def drop_v1(path: Path) -> None:
    path.unlink()
    with_doors(path)
    drop_payments(path)


def drop_v2(path: Path) -> None:
    path.unlink()
    of_version_2(path)
    drop_payments(path)


def set_newer_version(path: Path) -> None:
    write(path, "PRAGMA user_version=99")


WRONG = [
    overwrite_file,
    truncate_file,
    overwrite_page,
    drop_payments,
    drop_v1,
    drop_v2,
    write_bookmarks,
    set_other_id,
    write_amounts,
]


@pytest.mark.parametrize("harm", [*WRONG, set_newer_version])
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


def test_a_ledger_of_one_person_goes_on_when_rows_get_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    with monkeypatch.context() as before:
        before.setattr(ledger_schema, "VERSION", 7)
        Ledger(path)
    write(
        path,
        "INSERT INTO payments VALUES ('a', 3, 'local', 1, 0, 1, 20000, 2, 1, 5, 'p')",
        "INSERT INTO choices VALUES ('b', x'00')",
        "INSERT INTO arms VALUES ('b', x'00')",
        "INSERT INTO draws VALUES ('a', 3, 60, 1, 0, 5)",
        f"INSERT INTO outbox VALUES ('a', '{ENDPOINT}', CAST('waits' AS BLOB), x'')",
    )
    ledger = Ledger(path)
    assert ledger.payments() == [Payment("a", 3, "local", 1.0, 0.0, 1.0, 20000, 2, 1, 5, "p")]
    assert ledger.pending_reports() == [SealedReport("a", ENDPOINT, b"waits")]
    assert ledger.experiments_with_choice() == ["b"]
    assert ledger.count_visit("a", 3, 60.0, 6)
    person = ledger.person("x")
    assert (person.payments(), person.pending_reports(), person.experiments_with_choice()) == ([], [], [])


def test_a_transaction_reads_a_row_again_after_a_change_alone(tmp_path: Path) -> None:
    file, queries = LedgerFile(tmp_path / "x.db", 0), list[str]()
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
