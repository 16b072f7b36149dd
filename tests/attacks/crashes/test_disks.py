"""Disks that fill up, folders that are damaged and logs that cannot be written."""

import asyncio
import errno
import hashlib
import logging
import os
import random
import resource
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.errors import SpecError
from privateer_lab.services.processes import free_port
from privateer_server.app import create_app
from privateer_server.intake.decryption import RoundKeys
from privateer_server.settings import ServerSettings
from privateer_server.store.journal import Journal
from privateer_server.store.schema import JOURNAL_KIND, STORE_KIND
from privateer_server.store.store import Store
from tests.support.asgi import serving
from tests.support.next_versions import next_versions
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import Signing
from tests.support.servers import SMALL, TOKEN, Api, assert_problem
from tests.support.stores import driver
from tests.unit.shuffler.fake_server import FakeServer, listening
from tests.unit.shuffler.fake_server import body_of as body_of_shuffler
from tests.unit.shuffler.helpers import assert_problem as assert_problem_of_shuffler
from tests.unit.shuffler.helpers import sealed_reports as sealed_reports_of_shuffler
from tests.unit.shuffler.helpers import until
from tests.unit.shuffler.test_process import start_process

# The disk fills up, at any step: nothing acknowledged is lost, and once there is room the server goes on by itself.


FULL = {
    RoundKeys: OSError(errno.ENOSPC, "No space left on device"),
    Journal: sqlite3.OperationalError("database or disk is full"),
    Store: sqlite3.OperationalError("database or disk is full"),
}


@asynccontextmanager
async def serving_api(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    monkeypatch.setattr("privateer_server.rounds.background_checks._CHECK_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr("privateer_server.experiments.experiment._RETRY_DELAY_SECONDS", 0.01)
    async with serving(create_app(settings)) as client:
        yield Api(client)


def fill_disk(patched: pytest.MonkeyPatch, owner: Any, method: str, *, calls_before: int = 0) -> list[int]:
    """Have a method find the disk full, from some call on; the list counts how often it did."""
    original, calls, failures = getattr(owner, method), [], []

    def full(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) > calls_before:
            failures.append(1)
            raise FULL[owner]
        return original(*arguments)

    patched.setattr(owner, method, full)
    return failures


def opened_stores(monkeypatch: pytest.MonkeyPatch) -> list[Store]:
    """Return a list that collects every store opened from now on."""
    stores: list[Store] = []
    init = Store.__init__

    def init_and_note(self: Store, *arguments: Any) -> None:
        init(self, *arguments)
        stores.append(self)

    monkeypatch.setattr(Store, "__init__", init_and_note)
    return stores


def limit(store: Store, pages: int) -> None:
    """Limit a database to this number of pages, or to its present size if that is larger."""
    with driver(store) as db:
        db.execute(f"PRAGMA max_page_count = {pages}")


async def wait_for_version(api: Api, version: int) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while (facts := await api.facts())["version"] != version:
            await asyncio.sleep(0.01)
    return facts


@pytest.mark.parametrize(
    ("owner", "method", "calls_before"),
    [(RoundKeys, "create_key", 0), (Journal, "record_publication", 0), (Store, "commit", 1)],
)
async def test_a_round_closes_once_a_full_disk_has_space(settings, monkeypatch, owner, method, calls_before):
    async with serving_api(settings, monkeypatch) as api:
        await api.create(SMALL)
        first = await api.publication()
        with monkeypatch.context() as patched:
            failures = fill_disk(patched, owner, method, calls_before=calls_before)
            response = await api.client.post("/reports", content=body_of(first, sealed_reports(first, 20)))
            assert (response.status_code, response.json()["accepted"]) == (202, 20)
            await until(lambda: len(failures) > 2)
            facts = await api.facts()
            assert facts | {"version": 1, "received": 20, "accepted": 20} == facts
        facts = await wait_for_version(api, 2)
        assert facts | {"received": 0, "accepted": 20} == facts
        rounds = (await api.client.get("/experiments/test/privacy")).json()["rounds"]
        assert (rounds[0]["received"], rounds[0]["released"]) == (20, True)
        await until(lambda: len(list((settings.data / "keys").iterdir())) == 1)


async def test_noise_on_record_survives_a_full_disk(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal has the release and the database has no room for it: what is published then is that release."""
    async with serving_api(settings, monkeypatch) as api:
        await api.create(SMALL | {"privacy.model": "central", "privacy.delta": 1e-6})
        first = await api.publication()
        with monkeypatch.context() as patched:
            failures = fill_disk(patched, Store, "commit", calls_before=1)
            entered: list[Any] = []
            write = Journal.record_publication

            def noted(journal: Journal, *entries: Any) -> Any:
                entered.append(entries[0])
                return write(journal, *entries)

            patched.setattr(Journal, "record_publication", noted)
            await api.client.post("/reports", content=body_of(first, sealed_reports(first, 20)))
            await until(lambda: len(failures) > 2)
        await wait_for_version(api, 2)
        (entry,) = entered
        assert await api.publication() == entry.following.publication


async def test_reports_refused_on_a_full_disk_count_later(settings, monkeypatch, caplog):
    """A real limit on the database's pages. What was refused with 503 counts once when it is sent again."""
    stores = opened_stores(monkeypatch)
    async with serving_api(settings, monkeypatch) as api:
        await api.create({"experiment.round_size": 4000, "experiment.horizon": 8000})
        first = await api.publication()
        sealed = sealed_reports(first, 3000)
        bodies = [body_of(first, sealed[at : at + 100]) for at in range(0, 3000, 100)]
        with caplog.at_level(logging.WARNING):
            limit(stores[0], pages=1)
            answers = [await api.client.post("/reports", content=body) for body in bodies]
            refused = [body for body, answer in zip(bodies, answers, strict=True) if answer.status_code == 503]
            assert refused
            assert_problem(next(answer for answer in answers if answer.status_code == 503), 503, "unavailable")
            accepted = sum(answer.json().get("accepted", 0) for answer in answers)
            assert (await api.facts())["accepted"] == accepted
            limit(stores[0], pages=1 << 20)
            for body in refused:
                assert (await api.client.post("/reports", content=body)).json()["accepted"] == 100
        assert (await api.facts())["accepted"] == 3000
        assert caplog.text.count("the data cannot be written") == 1
        assert caplog.text.count("the data can be written again") == 1


# A server is started on what is no data folder of its own: one line, exit code 2, and nothing is touched.


def start(data: Path) -> subprocess.CompletedProcess[str]:
    """A server that is expected to end at once."""
    ports = {"PRIVATEER_PORT": str(free_port()), "PRIVATEER_ADMIN_PORT": str(free_port())}
    environment = os.environ | {"PRIVATEER_DATA": str(data), "PRIVATEER_ADMIN_TOKEN": TOKEN} | ports
    code = "from privateer_server.app import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scribbled(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[4096:] = random.Random(1).randbytes(len(body) - 4096)
    path.write_bytes(body)


def garbage(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE bookmarks (url TEXT)")


def earlier_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA application_id = 0")
        db.execute("PRAGMA user_version = 0")


def schema_before_this_one(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 1")


def later_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


def without_rounds(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM rounds")
        db.commit()


def unreadable_round(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE rounds SET publication = x'c1'")
        db.commit()


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("file", ["server.db", "journal.db"])
@pytest.mark.parametrize(
    "harm", [truncated, scribbled, garbage, foreign, earlier_schema, schema_before_this_one, later_schema]
)
async def test_a_database_that_cannot_be_used_is_refused_and_the_keys_stay(settings, harm, file):
    await fill_data_folder(settings)
    harm(settings.data / file)
    before = digests(settings.data / "keys")
    with pytest.raises(SpecError, match=file) as caught:
        create_app(settings)
    assert caught.value.field == {"server.db": "PRIVATEER_DATA", "journal.db": "PRIVATEER_JOURNAL"}[file]
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
    assert digests(settings.data / "keys") == before != {}


@pytest.mark.parametrize("file", ["server.db", "journal.db"])
@pytest.mark.parametrize(
    ("harm", "says"), [(schema_before_this_one, "is too old"), (later_schema, "was made by a newer Privateer")]
)
async def test_a_folder_of_another_schema_is_untouched(settings, harm, says, file):
    """Nor is a file in it migrated whose own version is fine."""
    await fill_data_folder(settings)
    harm(settings.data / file)
    before = digests(settings.data)
    assert len(before) == 4  # two databases, the key that signs, and that of the open round
    with next_versions(STORE_KIND, JOURNAL_KIND), pytest.raises(SpecError, match=f"{file} {says}"):
        create_app(settings)
    assert digests(settings.data) == before


@pytest.mark.parametrize("harm", [scribbled, earlier_schema])
async def test_a_refused_database_is_one_line_and_code_2(settings, harm):
    await fill_data_folder(settings)
    harm(settings.data / "server.db")
    process = start(settings.data)
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("privateer-server: PRIVATEER_DATA: server.db ")
    assert process.stderr.count("\n") == 1


@pytest.mark.parametrize("harm", [without_rounds, unreadable_round])
async def test_an_experiment_that_cannot_be_read_is_one_line(settings, harm, caplog):
    await fill_data_folder(settings)
    harm(settings.data / "server.db")
    with pytest.raises(SpecError, match="cannot be read") as caught:
        create_app(settings)
    assert (caught.value.field, bool(caught.value.remedy)) == ("PRIVATEER_DATA", True)


async def test_a_second_server_leaves_keys_and_data_alone(settings: ServerSettings) -> None:
    """Above all it destroys no key of the first, and it makes none of its own."""
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        first = await api.publication()
        await client.post("/reports", content=body_of(first, sealed_reports(first, 12)))
        (settings.data / "keys" / ("0" * 64 + ".key")).write_bytes(bytes(32))
        before = digests(settings.data / "keys")
        process = start(settings.data)
        assert (process.returncode, "server.db is in use" in process.stderr) == (2, True)
        assert digests(settings.data / "keys") == before
        response = await client.post("/reports", content=body_of(first, sealed_reports(first, 8, seed=1)))
        assert (response.json()["accepted"], (await api.facts())["version"]) == (8, 2)


async def test_a_finished_experiment_keeps_no_key_and_lets_the_server_start(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create({"experiment.round_size": 20, "experiment.horizon": 20})
        first = await api.publication()
        await client.post("/reports", content=body_of(first, sealed_reports(first, 20)))
        assert (await api.facts())["status"] == "finished"
        assert list((settings.data / "keys").iterdir()) == []
    (settings.data / "keys").rmdir()
    async with serving(create_app(settings)) as client:
        assert (await Api(client).facts())["status"] == "finished"
        assert (await client.get("/keys")).json() == {"keys": []}


async def fill_data_folder(settings: ServerSettings) -> None:
    """A data folder with an experiment whose round is open."""
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
        first = await Api(client).publication()
        await client.post("/reports", content=body_of(first, sealed_reports(first, 12)))


async def test_a_start_leaves_other_files_beside_the_keys(tmp_path: Path) -> None:
    """``keys/`` is the root of a file system, with its folder ``lost+found``."""
    folder = tmp_path / "data" / "keys" / "lost+found"
    folder.mkdir(parents=True)
    (folder.parent / "ours.txt").write_text("of the operator")
    async with serving(create_app(ServerSettings(data=tmp_path / "data", admin_token=TOKEN))):
        assert folder.is_dir()
    assert (folder.parent / "ours.txt").read_text() == "of the operator"


# Somebody fills the shuffler's disk for a while: it refuses, forgets nothing, and goes on by itself.


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


def limit_files(pid: int, size: int) -> None:
    """Let a process write no file beyond a size: its writes then fail, as on a disk that is full."""
    hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


async def wait_for_status(client: httpx.AsyncClient, status: int) -> httpx.Response:
    """Return the readiness response once it has this status: the service checks the disk once a second."""
    async with asyncio.timeout(20):
        while (response := await client.get("/readyz")).status_code != status:
            await asyncio.sleep(0.05)
    return response


async def test_the_shuffler_recovers_from_a_full_disk(server: FakeServer, tmp_path: object) -> None:
    header, reports = server.publish(batch=40), sealed_reports_of_shuffler(40)
    with listening(server) as address, start_process(address, tmp_path) as process:
        await process.ready()
        async with httpx.AsyncClient(base_url=process.url, auth=Signing()) as client:

            async def post(start: int, stop: int) -> httpx.Response:
                body = body_of_shuffler(header, reports[start:stop])
                return await client.post("/experiments/spring/reports", content=body)

            assert (await post(0, 10)).status_code == 202
            limit_files(process.pid, 1)
            for _ in range(3):
                assert_problem_of_shuffler(await post(10, 20), 503, "unavailable")
            assert_problem_of_shuffler(await wait_for_status(client, 503), 503, "unavailable")
            limit_files(process.pid, resource.RLIM_INFINITY)
            assert (await post(10, 20)).json() == {"accepted": 10, "refused": {}}
            await wait_for_status(client, 200)
            assert (await post(0, 20)).json()["refused"] == {"duplicate-report": 20}
            assert (await post(20, 40)).status_code == 202
            await until(lambda: bool(server.delivered))
    assert sorted(server.received()) == sorted(reports)
