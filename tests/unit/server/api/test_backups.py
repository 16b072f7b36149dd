"""A backup is made of a snapshot: nobody waits for it, its memory is constant, and how it ended is on record."""

import asyncio
import logging
import shutil
import sqlite3
import subprocess
import sys
import tracemalloc
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from privateer_core.serving.store import write_ahead_log
from privateer_core.serving.store.copies import is_open_elsewhere
from privateer_core.serving.store.write_ahead_log import hold_log
from privateer_server.api import operators as module
from privateer_server.app import create_app
from privateer_server.data import open_data
from privateer_server.rounds.states import RoundState
from privateer_server.settings import ServerSettings
from privateer_server.store import backup as copying
from privateer_server.store.records import RoundRecord, RoundUpdate, TokenRow
from privateer_server.store.store import Store
from tests.support.asgi import serving
from tests.support.clocks import Hands
from tests.support.servers import ADMIN
from tests.support.stores import embedded_store

FIRST = RoundRecord(1, 10, 0, 0, RoundState.OPEN, b"digest-1", b"{}", b"publication-1", b"state-1", b"first sums")
IDS = [b"id of a report-" + bytes([number]) for number in range(5)]


def change(counted: int) -> RoundUpdate:
    tokens = [TokenRow(4_000_000_000 + counted, b"twelve bytes", b"four")]
    sums = b"sums of a part"
    return RoundUpdate("test", 1, counted, part=b"one", total=sums, report_ids=IDS[:counted], tokens=tokens)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = embedded_store(tmp_path)
    store.create("test", b"spec", FIRST)
    return store


def test_reports_are_counted_while_a_backup_is_read(store: Store, tmp_path: Path) -> None:
    """And the copy has what was committed before, but no sums and no ids of its open round."""
    store.commit([change(1)])
    with store.backup() as copy:
        half = copy.read(8192)
        store.commit([change(2)])
        body = half + copy.read()
    assert store.experiments()[0].accepted == 3
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert not [secret for secret in (b"sums of", *IDS) if secret in body]
    (tmp_path / "copy.db").write_bytes(body)
    with closing(sqlite3.connect(tmp_path / "copy.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("SELECT received, total FROM rounds").fetchall() == [(1, b"")]
        assert db.execute("SELECT count(*) FROM spent_tokens").fetchall() == [(1,)]
        assert db.execute("SELECT count(*) FROM report_ids").fetchall() == [(0,)]
    store.close()


def test_a_commit_goes_through_while_the_copy_is_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot holds no connection of the store, and the file that it is of does not change."""
    write, counted = copying._write_copy, list[int]()

    def writing(source: str, target: Path, kind: object) -> None:
        store.commit([change(2)])
        store.erase_old_states()
        counted.append(store.experiments()[0].accepted)
        write(source, target, kind)

    monkeypatch.setattr(copying, "_write_copy", writing)
    with store.backup() as copy:
        body = copy.read()
    assert (counted, b"twelve bytes" in body) == ([2], False)
    store.close()


def test_another_process_cannot_open_the_database_after_a_backup(store: Store, tmp_path: Path) -> None:
    """The copy is read in the same process: when it closes the file, the lock must stay."""
    store.backup().close()
    code = f"import sqlite3; sqlite3.connect({str(tmp_path / 'server.db')!r}, timeout=0).execute('SELECT * FROM log')"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "database is locked" in process.stderr
    store.close()
    assert not is_open_elsewhere(tmp_path / "server.db")


def test_a_backup_takes_constant_memory(store: Store) -> None:
    for number in range(2, 6):
        blob = bytes([number]) * (4 << 20)
        store.create(f"large-{number}", blob, FIRST)
    tracemalloc.start()
    with store.backup() as copy:
        size = sum(len(chunk) for chunk in iter(lambda: copy.read(1 << 16), b""))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 16 << 20
    assert peak < 4 << 20
    store.close()


def test_a_backup_without_disk_space_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(copying.shutil, "disk_usage", lambda _: usage._replace(free=512 << 20))
    with pytest.raises(Exception, match="has no room for the backup"):
        store.backup()
    store.write_probe()
    store.close()


def storage_figures(page: str) -> dict[str, float]:
    lines = (line.split() for line in page.splitlines() if line.startswith("privateer_last_backup"))
    return {name.removeprefix("privateer_last_backup_"): float(value) for name, value in lines}


async def metrics(client: httpx.AsyncClient) -> dict[str, float]:
    return storage_figures((await client.get("/metrics")).text)


async def test_the_last_backup_is_in_the_metrics_also_after_a_restart(settings, caplog):
    caplog.set_level(logging.INFO, "privateer.admin")
    clock = Hands()
    began = clock.now()
    async with serving(create_app(settings, clock)) as client:
        assert await metrics(client) == {"timestamp_seconds": 0, "duration_seconds": 0, "bytes": 0, "failed": 0}
        answer = await client.get("/backup", headers=ADMIN)
        assert int(answer.headers["content-length"]) == len(answer.content)
        expected = {"timestamp_seconds": began, "duration_seconds": 0, "bytes": len(answer.content), "failed": 0}
        assert await metrics(client) == expected
    assert [record.getMessage() for record in caplog.records] == ["backup fetched"]
    async with serving(create_app(settings, clock)) as client:
        assert await metrics(client) == expected


@pytest.mark.parametrize("hangs_up", [True, False])
async def test_a_broken_off_backup_counts_as_failed_and_the_next_one_succeeds(hangs_up, settings, caplog, monkeypatch):
    """A receiver that neither reads nor leaves breaks off a backup, too."""
    monkeypatch.setattr(module, "_CHUNK_BYTES", 4096)
    if not hangs_up:
        monkeypatch.setattr(module, "_STALL_TIMEOUT_SECONDS", 0.5)
    app = create_app(settings)
    async with serving(app) as client:
        event, chunk_sizes = asyncio.Event(), list[int]()

        async def receive() -> dict[str, object]:
            await event.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, object]) -> None:
            chunk_sizes.append(len(message.get("body", b"")))  # type: ignore[arg-type]
            if len(chunk_sizes) == 3:
                if hangs_up:
                    event.set()
                await asyncio.sleep(60)

        headers = [(name.lower().encode(), value.encode()) for name, value in ADMIN.items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "path": "/backup",
            "raw_path": b"/backup",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        await app(scope, receive, send)
        gauges = await metrics(client)
        assert (gauges["failed"], gauges["timestamp_seconds"]) == (1, 0)
        assert [record.getMessage() for record in caplog.records] == ["backup broke off"]
        assert (await client.get("/backup", headers=ADMIN)).status_code == 200
        assert (await metrics(client))["failed"] == 0
    assert not list(settings.data.glob(".privateer-*"))


@pytest.mark.parametrize("is_complete", [True, False])
async def test_a_clock_set_back_during_a_backup_does_not_change_the_gauges(is_complete, settings, monkeypatch):
    """What was begun is a flag, and no time that is compared with that of the last complete backup."""
    clock, write = Hands(), copying._write_copy

    def writing(*arguments: object) -> None:
        clock.step(-3600)
        if not is_complete:
            raise sqlite3.OperationalError("database or disk is full")
        write(*arguments)

    async with serving(create_app(settings, clock)) as client:
        assert (await client.get("/backup", headers=ADMIN)).status_code == 200
        first = await metrics(client)
        monkeypatch.setattr(copying, "_write_copy", writing)
        assert (await client.get("/backup", headers=ADMIN)).status_code == (200 if is_complete else 503)
        gauges = await metrics(client)
        assert (gauges["failed"], gauges["duration_seconds"]) == (0 if is_complete else 1, 0)
        assert gauges["timestamp_seconds"] == first["timestamp_seconds"] - (3600 if is_complete else 0)
    async with serving(create_app(settings, clock)) as client:
        assert await metrics(client) == gauges


async def test_a_backup_succeeds_where_blocks_cannot_be_freed(settings, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "privateer.admin")
    tried = list[int]()

    def failing(_: int, size: int) -> None:
        tried.append(size)
        raise OSError("the disk fails")

    monkeypatch.setattr(module.os, "truncate", failing)
    async with serving(create_app(settings)) as client:
        for _ in range(2):
            answer = await client.get("/backup", headers=ADMIN)
            assert answer.status_code == 200
        assert tried == [len(answer.content)] * 2
        assert (await metrics(client))["failed"] == 0
    assert [record.getMessage() for record in caplog.records] == ["backup fetched"] * 2
    assert not list(settings.data.glob(".privateer-*"))


async def test_a_failing_disk_is_a_problem_response(settings, caplog, monkeypatch):
    def failing(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async with serving(create_app(settings)) as client:
        monkeypatch.setattr(copying, "_write_copy", failing)
        answer = await client.get("/backup", headers=ADMIN)
        assert (answer.status_code, answer.json()["detail"]) == (503, "the database cannot be copied now")
        assert (await metrics(client))["failed"] == 1
        lines = [record.getMessage()[:13] for record in caplog.records if record.name == "privateer.admin"]
        assert lines == ["backup failed"]
        assert (await client.get("/readyz")).status_code == 200
    async with serving(create_app(settings)) as client:
        assert (await metrics(client))["failed"] == 1


async def test_a_second_backup_at_once_is_refused(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    write, second = copying._write_copy, list[httpx.Response]()
    async with serving(create_app(settings)) as client:
        loop = asyncio.get_running_loop()

        def writing(source: str, target: Path, kind: object) -> None:
            asking = asyncio.run_coroutine_threadsafe(client.get("/backup", headers=ADMIN), loop)
            second.append(asking.result(30))
            write(source, target, kind)

        monkeypatch.setattr(copying, "_write_copy", writing)
        assert (await client.get("/backup", headers=ADMIN)).status_code == 200
    assert (second[0].status_code, second[0].json()["detail"]) == (503, "another backup is under way")


@pytest.mark.parametrize("place", ["data", "elsewhere"])
def test_files_of_a_killed_process_are_deleted_at_the_next_start(place: str, settings: ServerSettings) -> None:
    """Beside the database a backup has its copy, and beside the journal, which may be on another disk, the doctor."""
    elsewhere = settings.data.with_name("elsewhere")
    split_settings = settings.model_copy(update={"journal": elsewhere / "journal.db"})
    copies = (settings.data if place == "data" else elsewhere) / ".privateer-left"
    elsewhere.mkdir()
    copies.mkdir(parents=True)
    (copies / "server.db").write_bytes(b"a copy")
    data = open_data(split_settings)
    assert not copies.exists()
    data.close()


def test_a_backup_during_a_read_has_the_last_commits_or_fails(store: Store, tmp_path: Path) -> None:
    """The doctor holds the log: what was committed since is in the log alone, where no copy would find it."""
    with hold_log(tmp_path / "server.db"):
        store.commit([change(1)])
        with pytest.raises(sqlite3.OperationalError, match="somebody else reads the database"):
            store.backup()
    with store.backup() as copy:
        assert b"twelve bytes" in copy.read()


def test_a_file_that_changes_while_it_is_copied_is_no_backup(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that grows beyond all bounds is emptied although somebody reads."""

    def write(*arguments: object) -> None:
        monkeypatch.setattr(write_ahead_log, "_HELD_BYTES_MAX", 0)
        store.commit([change(1)])
        store.erase_old_states()
        usual(*arguments)

    usual = copying._write_copy
    monkeypatch.setattr(copying, "_write_copy", write)
    with pytest.raises(sqlite3.OperationalError, match="emptied meanwhile"):
        store.backup()
