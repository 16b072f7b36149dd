"""The pool of a shuffler on disk, and the tokens that were spent."""

import asyncio
import errno
import os
import sqlite3
from pathlib import Path

import pytest

from privateer_core.errors import SpecError
from privateer_core.serving.store.database import SqliteDatabase
from privateer_shuffler.pool import spent_tokens as module
from privateer_shuffler.pool.round_file import RoundStore
from privateer_shuffler.pool.spent_tokens import TOKENS_FILE, FiledTokens
from tests.support.clocks import Hands
from tests.unit.shuffler.fake_server import SIZE
from tests.unit.shuffler.helpers import sealed_reports

SQLITE_FULL = 2


def write(store, reports):
    store.write(reports)
    store.commit()


def test_reports_come_back_in_the_order_of_their_places(new_store):
    store, reports = new_store(3), sealed_reports(3)
    write(store, [(reports[2], 2), (reports[0], 0)])
    assert list(store.iter_places()) == [(0, reports[0]), (1, None), (2, reports[2])]
    write(store, [(reports[1], 1)])
    assert store.read_batch() == b"".join(reports)
    store.close()


def test_a_round_is_loaded_with_its_reports(new_store, tmp_path):
    store, reports = new_store(3), sealed_reports(1)
    write(store, [(reports[0], 1)])
    store.close()
    (path,) = tmp_path.glob("*.db")
    reopened = RoundStore.load(path)
    assert reopened.label == store.label
    assert list(reopened.iter_places()) == [(0, None), (1, reports[0]), (2, None)]
    reopened.close()


def test_commits_wait_for_the_disk(new_store):
    store = new_store(3)
    settings = {
        name: store._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")
    }
    assert settings == {"synchronous": SQLITE_FULL, "journal_mode": "wal"}
    store.close()


@pytest.mark.parametrize("size", [SIZE, 700, 5000])
def test_a_report_overwrites_its_place_in_the_file(new_store, tmp_path, size):
    """Reports of any size lie in the file where their place is, also if they span pages."""
    store = new_store(30, size=size)
    (path,) = tmp_path.glob("*.db")
    reports = [os.urandom(size) for _ in range(30)]
    starts = {report: report[: min(size, 200)] for report in reports}
    write(store, [(reports[place], place) for place in reversed(range(30))])
    store.truncate_log()
    raw = path.read_bytes()
    backwards = [raw.find(starts[report]) for report in reports]
    store.close()
    path.unlink()
    store = new_store(30, size=size)
    for place in range(30):
        write(store, [(reports[place], place)])
    store.truncate_log()
    assert [path.read_bytes().find(starts[report]) for report in reports] == backwards
    assert -1 not in backwards
    store.close()


def test_only_the_owner_may_read_the_file(new_store, tmp_path):
    store = new_store(3)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    store.close()


def test_the_schema_has_no_room_for_origin_or_time(new_store):
    store = new_store(3)
    tables = {name for (name,) in store._connection.execute("SELECT name FROM sqlite_master")}
    columns = {row[1] for table in tables for row in store._connection.execute(f"PRAGMA table_info({table})")}
    assert tables == {"label", "place", "delivered"}
    assert columns == {"label", "key", "id", "taken", "sealed", "fingerprint"}
    store.close()


def test_an_erased_round_leaves_no_file_and_no_bytes(new_store, tmp_path):
    store, reports = new_store(40), sealed_reports(40)
    write(store, [(report, place) for place, report in enumerate(reports)])
    store.truncate_log()
    (path,) = tmp_path.glob("*.db")
    with path.open("rb") as kept_open:  # what a look at the freed blocks of the disk would find
        assert reports[0] in kept_open.read()
        store.erase()
        kept_open.seek(0)
        remains = kept_open.read()
    assert not any(report[:8] in remains for report in reports)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_deleted_is_erased_and_deleted_later(new_store, tmp_path, monkeypatch):
    """Somebody takes the right to write in the folder away for a while."""
    store, reports = new_store(40), sealed_reports(40)
    write(store, [(report, place) for place, report in enumerate(reports)])
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        for _ in range(2):
            with pytest.raises(PermissionError):
                store.erase()
    (path,) = tmp_path.glob("*.db")
    assert not any(report[:8] in path.read_bytes() for report in reports)
    store.erase()
    assert list(tmp_path.iterdir()) == []


def refuse(*_, **__):
    raise PermissionError(errno.EACCES, "Permission denied")


def test_creation_cut_short_leaves_nothing(tmp_path):
    path = tmp_path / "unfinished.db"
    path.touch()
    assert RoundStore.load(path) is None
    assert list(tmp_path.iterdir()) == []


def test_deletion_cut_short_is_completed(new_store, tmp_path):
    store = new_store(3)
    write(store, [(sealed_reports(1)[0], 0)])
    store._connection.execute("DELETE FROM label")
    store.close()
    (path,) = tmp_path.glob("*.db")
    assert RoundStore.load(path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_round_has_one_database(new_store, tmp_path):
    store, report = new_store(3), sealed_reports(1)[0]
    write(store, [(report, 0)])
    with pytest.raises(FileExistsError):
        new_store(3)
    assert next(store.iter_places()) == (0, report)
    store.close()


def test_no_file_remains_of_a_creation_without_disk_space(new_store, tmp_path, monkeypatch):
    connect = sqlite3.connect

    def limit_file_size(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA max_page_count=20")
        return connection

    monkeypatch.setattr(sqlite3, "connect", limit_file_size)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        new_store(10_000)
    assert list(tmp_path.iterdir()) == []


def test_two_shufflers_do_not_share_a_folder(new_store, tmp_path):
    store = new_store(3)
    (path,) = tmp_path.glob("*.db")
    with pytest.raises(SpecError, match="is in use"):
        RoundStore.load(path)
    store.close()


def test_a_damaged_file_is_reported(tmp_path):
    path, content = tmp_path / "damaged.db", b"no database at all" * 100
    path.write_bytes(content)
    with pytest.raises(SpecError, match="damaged") as caught:
        RoundStore.load(path)
    assert caught.value.field == "PRIVATEER_DATA"
    assert path.read_bytes() == content


def test_an_invalid_label_is_reported(new_store, tmp_path):
    store = new_store(3)
    store._connection.execute("UPDATE label SET label = X'00'")
    store.close()
    (path,) = tmp_path.glob("*.db")
    with pytest.raises(SpecError, match="damaged"):
        RoundStore.load(path)


DAY = 86_400


def test_expired_tokens_are_erased_while_the_round_is_open(tmp_path: Path) -> None:
    clock = Hands()
    filed_tokens, now = FiledTokens(tmp_path, clock), int(clock.now())
    old, young = filed_tokens.hash(b"old"), filed_tokens.hash(b"young")
    first, second = now + 10, now + 3 * DAY
    filed_tokens.store([(old, first), (young, second)])
    assert (tmp_path / f"{TOKENS_FILE}-wal").stat().st_size == 0
    clock.time += DAY  # the key has expired, and a clock may be wrong by a day
    assert not filed_tokens.delete_some_expired()
    assert (filed_tokens.is_known_spent(b"old", first), filed_tokens.is_known_spent(b"young", second)) == (True, True)
    clock.time += 11
    assert not filed_tokens.delete_some_expired()  # there are no more
    assert (filed_tokens.is_known_spent(b"old", first), filed_tokens.is_known_spent(b"young", second)) == (False, True)
    assert not any(old in path.read_bytes() for path in tmp_path.glob(f"{TOKENS_FILE}*"))
    filed_tokens.close()


async def test_expired_tokens_are_erased_in_the_background_also_after_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_FORGET_SECONDS", 0.01)
    clock = Hands()
    filed_tokens = FiledTokens(tmp_path, clock)
    expires = int(clock.now()) - 2 * DAY
    filed_tokens.store([(filed_tokens.hash(b"old"), expires)])
    real = filed_tokens._database
    broken = SqliteDatabase(sqlite3.connect(":memory:", check_same_thread=False))  # has no such table
    filed_tokens._database = broken
    forgetting = asyncio.create_task(filed_tokens.delete_expired_periodically())
    await asyncio.sleep(0.1)
    assert not forgetting.done()
    filed_tokens._database = real
    broken.close()
    async with asyncio.timeout(20):
        while filed_tokens.is_known_spent(b"old", expires):
            await asyncio.sleep(0.01)
    forgetting.cancel()
    await asyncio.wait([forgetting])
    filed_tokens.close()


def test_many_expired_tokens_are_deleted_in_slices(tmp_path: Path) -> None:
    clock = Hands()
    filed_tokens = FiledTokens(tmp_path, clock)
    expires = int(clock.now()) - 2 * DAY
    filed_tokens.store((number.to_bytes(16, "big"), expires) for number in range(6000))
    assert (filed_tokens.delete_some_expired(), filed_tokens.delete_some_expired()) == (True, False)
    assert not filed_tokens.is_spent((5999).to_bytes(16, "big"), expires)
    filed_tokens.close()
