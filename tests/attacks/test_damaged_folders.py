"""A server is started on what is no data folder of its own: one line, exit code 2, and nothing is touched."""

import hashlib
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from privateer_core.errors import SpecError
from privateer_lab.services.processes import free_port
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.schema import JOURNAL_KIND, STORE_KIND
from tests.support.asgi import serving
from tests.support.next_versions import next_versions
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SMALL, TOKEN, Api


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
async def test_a_database_that_cannot_be_used_is_refused_and_the_keys_stay(
    settings: ServerSettings, harm: Callable[[Path], None], file: str
) -> None:
    await filled(settings)
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
async def test_a_folder_of_another_age_is_untouched(
    settings: ServerSettings, harm: Callable[[Path], None], says: str, file: str
) -> None:
    """Nor is a file in it migrated whose own version is fine."""
    await filled(settings)
    harm(settings.data / file)
    before = digests(settings.data)
    assert len(before) == 4  # two databases, the key that signs, and that of the open round
    with next_versions(STORE_KIND, JOURNAL_KIND), pytest.raises(SpecError, match=f"{file} {says}"):
        create_app(settings)
    assert digests(settings.data) == before


@pytest.mark.parametrize("harm", [scribbled, earlier_schema])
async def test_a_refused_database_is_one_line_and_code_2(
    settings: ServerSettings, harm: Callable[[Path], None]
) -> None:
    await filled(settings)
    harm(settings.data / "server.db")
    done = start(settings.data)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("privateer-server: PRIVATEER_DATA: server.db ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("harm", [without_rounds, unreadable_round])
async def test_an_experiment_that_cannot_be_read_is_one_line(
    settings: ServerSettings, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    await filled(settings)
    harm(settings.data / "server.db")
    with pytest.raises(SpecError, match="cannot be read") as caught:
        create_app(settings)
    assert (caught.value.field, bool(caught.value.remedy)) == ("PRIVATEER_DATA", True)


async def test_a_second_server_touches_nothing(settings: ServerSettings) -> None:
    """Above all it destroys no key of the first, and it makes none of its own."""
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        first = await api.publication()
        await client.post("/reports", content=body_of(first, sealed_reports(first, 12)))
        (settings.data / "keys" / ("0" * 64 + ".key")).write_bytes(bytes(32))
        before = digests(settings.data / "keys")
        done = start(settings.data)
        assert (done.returncode, "server.db is in use" in done.stderr) == (2, True)
        assert digests(settings.data / "keys") == before
        sent = await client.post("/reports", content=body_of(first, sealed_reports(first, 8, seed=1)))
        assert (sent.json()["accepted"], (await api.facts())["version"]) == (8, 2)


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


async def filled(settings: ServerSettings) -> None:
    """A data folder with an experiment whose round is open."""
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
        first = await Api(client).publication()
        await client.post("/reports", content=body_of(first, sealed_reports(first, 12)))


async def test_what_else_is_beside_the_keys_stays(tmp_path: Path) -> None:
    """``keys/`` is a file system of its own, with the folder that such a one has."""
    found = tmp_path / "data" / "keys" / "lost+found"
    found.mkdir(parents=True)
    (found.parent / "ours.txt").write_text("of the operator")
    async with serving(create_app(ServerSettings(data=tmp_path / "data", admin_token=TOKEN))):
        assert found.is_dir()
    assert (found.parent / "ours.txt").read_text() == "of the operator"
