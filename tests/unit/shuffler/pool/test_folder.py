"""The data folder: one process, readable by its owner alone, with valid databases."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from privateer_core.errors import SpecError
from privateer_core.serving.settings import TokenSettings
from privateer_shuffler.app import create_app, main
from privateer_shuffler.pool.store import open_history
from tests.support.asgi import serving
from tests.support.senders import Signing
from tests.unit.shuffler.fake_server import body_of, listening
from tests.unit.shuffler.helpers import sealed_reports
from tests.unit.shuffler.test_process import start_process


async def test_a_second_shuffler_on_the_folder_is_refused(settings):
    """Not even a key that is missing: the first one may be about to make it."""
    settings.data.mkdir()
    database = open_history(settings.data)
    with pytest.raises(SpecError, match="is in use"):
        create_app(settings)
    assert {path.suffix for path in settings.data.iterdir()} <= {".sqlite", ".sqlite-wal"}
    database.close()
    async with serving(create_app(settings)):
        assert (settings.data / "shuffler.key").exists()


def test_a_start_that_fails_gives_the_folder_back(settings):
    settings.data.mkdir()
    (settings.data / "shuffler.key").write_text("no key")
    for _ in range(2):
        with pytest.raises(SpecError, match="holds no key"):
            create_app(settings)


def test_files_of_a_killed_doctor_are_deleted_at_the_next_start(settings):
    copies = settings.data / ".privateer-left"
    copies.mkdir(parents=True)
    (copies / "taken.sqlite").write_bytes(b"a copy of what was taken")
    open_history(settings.data).close()
    assert not copies.exists()


async def test_files_are_their_owners_alone(server, tmp_path):
    """Whatever the mask that the process was started with; the public half of the key is for everybody."""
    header, data = server.publish(batch=50), tmp_path / "data"
    mask = os.umask(0)
    try:
        with listening(server) as address, start_process(address, data) as process:
            await process.ready()
            async with httpx.AsyncClient(auth=Signing()) as client:
                url = f"{process.url}/experiments/spring/reports"
                await client.post(url, content=body_of(header, sealed_reports(3)))
            modes = {path.name: path.stat().st_mode & 0o777 for path in data.iterdir()}
    finally:
        os.umask(mask)
    assert data.stat().st_mode & 0o777 == 0o700
    assert modes.pop("shuffler.pub") == 0o644
    assert {"shuffler.key", "taken.sqlite"} < set(modes)
    assert any(name.endswith(".db-wal") for name in modes)
    assert set(modes.values()) == {0o600}


def write_garbage(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def write_older_database(path: Path) -> None:
    """As written before databases had a version."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE place (id INTEGER PRIMARY KEY, taken INTEGER, sealed BLOB)")
    database.close()


def write_newer_database(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version=77")
    database.close()


def write_foreign_database(path: Path) -> None:
    """Another program's, which happens to have our number."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE notes (text)")
        database.execute("PRAGMA user_version=2")
    database.close()


@pytest.mark.parametrize("broken", ["taken.sqlite", "spent.sqlite", "*.db"])
@pytest.mark.parametrize(("version", "says"), [(0, "is too old: schema 0"), (77, "was made by a newer Privateer")])
async def test_a_folder_of_another_age_is_untouched(settings, server, broken, version, says):
    """No key is made, no other file is opened."""
    with_tokens = settings.model_copy(update={"tokens": TokenSettings(required=True, keys="/nowhere")})
    async with serving(create_app(with_tokens, httpx.ASGITransport(server.app))) as client:
        header = server.publish(batch=50)
        answer = await client.get("/experiments/spring")
        assert (answer.status_code, answer.json()["version"]) == (200, header.version)
    (path,) = settings.data.glob(broken)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version={version}")
    before = {file.name: file.read_bytes() for file in settings.data.iterdir()}
    assert len(before) == 6
    with pytest.raises(SpecError, match=says) as caught:
        create_app(with_tokens, httpx.ASGITransport(server.app))
    assert caught.value.field == "PRIVATEER_DATA"
    assert {file.name: file.read_bytes() for file in settings.data.iterdir()} == before


@pytest.mark.parametrize("name", ["taken.sqlite", "a.db"])
@pytest.mark.parametrize("damage", [write_garbage, write_older_database, write_newer_database, write_foreign_database])
def test_a_database_that_cannot_be_used_is_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path, name, damage):
    damage(tmp_path / name)
    before = (tmp_path / name).read_bytes()
    monkeypatch.setenv("PRIVATEER_DATA", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["privateer-shuffler"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith(f"privateer-shuffler: PRIVATEER_DATA: {name} ")
    assert err.rstrip().endswith(")")  # the remedy
    assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize("harm", ["places", "sizes", "label", "pages"])
def test_a_damaged_round_database_is_reported(new_store, tmp_path, settings, harm):
    settings.data.mkdir()
    store = new_store(200, folder=settings.data)
    store.close()
    (path,) = settings.data.glob("*.db")
    if harm == "pages":
        with path.open("r+b") as file:
            file.seek(8 * 1024)
            file.write(os.urandom(4096))
    else:
        statement = {
            "places": "DELETE FROM place WHERE id = 7",
            "sizes": "UPDATE place SET sealed = x'00' WHERE id = 7",
            "label": "UPDATE label SET label = 'text'",
        }[harm]
        with sqlite3.connect(path) as database:
            database.execute(statement)
        database.close()
    with pytest.raises(SpecError, match="damaged"):
        create_app(settings)
