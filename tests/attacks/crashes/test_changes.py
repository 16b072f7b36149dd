"""The server dies while a change is made: the change is there once or not at all, and so is its line in the log."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from privateer_core.errors import SpecError
from privateer_server.app import create_app
from privateer_server.intake.decryption import RoundKeys
from privateer_server.settings import ServerSettings
from privateer_server.store.backup import restore
from privateer_server.store.journal import Journal
from privateer_server.store.schema import STORE_KIND as DATABASE
from privateer_server.store.store import Store
from tests.support.asgi import serving
from tests.support.changes import change, lines, make_change, report
from tests.support.crashes import snapshot_at
from tests.support.senders import TRUSTED
from tests.support.servers import ADMIN, TOKEN, Api, assert_problem

CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6, "experiment.round_size": 20, "experiment.horizon": 1000}
NOT_THERE = [(Store, "store_plan", False)]
BEFORE_THE_DRAW = [(Store, "store_plan", True), (RoundKeys, "create_key", False), (RoundKeys, "create_key", True)]
AFTER_THE_DRAW = [(Journal, "record_publication", True), (RoundKeys, "destroy", False), (RoundKeys, "destroy", True)]
MOMENTS = [*NOT_THERE, *BEFORE_THE_DRAW, (Journal, "record_publication", False), *AFTER_THE_DRAW]
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("pause", {"seconds": 0}),
    ("stop", {"seconds": 0}),
    ("extend", {"horizon": 2000, "seconds": 0}),
    ("retire-arm", {"arm": "b", "seconds": 0}),
    ("add-arm", {"arm": "d", "seconds": 0}),
]


@asynccontextmanager
async def serving_api(data: Path) -> AsyncIterator[Api]:
    async with serving(create_app(ServerSettings(data=data, admin_token=TOKEN, sender_keys=TRUSTED))) as client:
        yield Api(client)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privateer_server.rounds.background_checks._CHECK_INTERVAL_SECONDS", 0.01)


async def wait_for_version(api: Api, version: int) -> None:
    async with asyncio.timeout(20):
        while (await api.facts())["version"] < version:
            await asyncio.sleep(0.01)


@pytest.mark.battery("moment", "action")
@pytest.mark.parametrize(
    ("moment", "action", "body"),
    [
        (moment, *change)
        for moment in MOMENTS
        for change in CHANGES
        # A round that asks nobody has no key.
        if not (moment[0:2] == (RoundKeys, "create_key") and change[0] in ("pause", "stop"))
    ],
)
async def test_a_change_is_carried_out_once(settings, tmp_path, monkeypatch, moment, action, body):
    copy = tmp_path / "copy"
    owner, method, after = moment
    async with serving_api(settings.data) as api:
        await api.create(CENTRAL)
        await report(api, 12)
        with monkeypatch.context() as patched:
            happened = snapshot_at(patched, owner, method, settings.data, copy, after=after)
            assert (await make_change(api, action, body))["version"] == 2
        assert happened()
        published, facts_before = await api.publication(), await api.facts()
    async with serving_api(copy) as api:
        if moment in NOT_THERE:
            assert await lines(api) == [("create", 1, 1)]
            assert (await make_change(api, action, body))["changed"]
        await wait_for_version(api, 2)
        assert await lines(api) == [("create", 1, 1), (action, 1, 2)]
        facts = await api.facts()
        compared_keys = ("status", "version", "spec", "accepted", "received", "batch_size")
        assert {key: facts[key] for key in compared_keys} == {key: facts_before[key] for key in compared_keys}
        # Noise that is on record is not drawn again.
        assert (await api.publication() == published) == (moment in AFTER_THE_DRAW)
        assert not (await make_change(api, action, body))["changed"]
        keys = {key["public_key"] for key in (await api.client.get("/keys")).json()["keys"]}
        assert {path.stem for path in (copy / "keys").iterdir()} == keys
        record = (await api.client.get("/experiments/test/privacy")).json()
        assert (record["rounds"][0]["received"], record["rounds"][0]["released"]) == (12, True)
    async with serving_api(copy) as api:
        assert (await api.facts())["version"] == 2
        assert len(await lines(api)) == 2


@pytest.mark.parametrize("moment", [(Store, "store_plan", True), (Journal, "record_publication", True)])
async def test_a_resumed_experiment_asks_again_after_a_crash(settings, tmp_path, monkeypatch, moment):
    copy = tmp_path / "copy"
    owner, method, after = moment
    async with serving_api(settings.data) as api:
        await api.create(CENTRAL)
        await make_change(api, "pause", {"seconds": 0})
        with monkeypatch.context() as patched:
            happened = snapshot_at(patched, owner, method, settings.data, copy, after=after)
            await make_change(api, "resume")
        assert happened()
    async with serving_api(copy) as api:
        await wait_for_version(api, 3)
        facts = await api.facts()
        assert facts | {"status": "open", "version": 3, "batch_size": 20} == facts
        assert (await report(api, 20)).json()["accepted"] == 20


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", [(Journal, "record_deletion"), (RoundKeys, "destroy"), (Store, "delete")])
async def test_a_deletion_is_finished_by_the_next_start(settings, tmp_path, monkeypatch, method, after):
    copy = tmp_path / "copy"
    async with serving_api(settings.data) as api:
        await api.create(CENTRAL)
        await report(api, 12)
        with monkeypatch.context() as patched:
            happened = snapshot_at(patched, method[0], method[1], settings.data, copy, after=after)
            assert (await api.client.delete("/experiments/test", headers=ADMIN)).json()["changed"]
        assert happened()
    async with serving_api(copy) as api:
        if (method, after) == ((Journal, "record_deletion"), False):
            assert (await api.facts())["received"] == 12
            return
        assert_problem(await api.client.get("/experiments/test/policy"), 410, "deleted")
        assert await lines(api) == [("create", 1, 1), ("delete", 1, 1)]
        assert not list((copy / "keys").iterdir())
        assert_problem(await api.create(CENTRAL), 409, "conflict")


async def test_a_full_disk_refuses_a_change_and_loses_nothing(settings, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with serving_api(settings.data) as api:
        await api.create(CENTRAL)
        with monkeypatch.context() as broken:
            broken.setattr(Store, "store_plan", full)
            assert_problem(await change(api, "pause"), 503, "unavailable")
        with monkeypatch.context() as broken:
            broken.setattr(Journal, "record_deletion", full)
            assert_problem(await api.client.delete("/experiments/test", headers=ADMIN), 503, "unavailable")
        assert (await api.facts())["status"] == "open"
        with monkeypatch.context() as broken:
            broken.setattr(Store, "delete", full)
            assert_problem(await api.client.delete("/experiments/test", headers=ADMIN), 503, "unavailable")
        assert_problem(await api.client.get("/experiments/test"), 410, "deleted")
        assert not (await api.client.delete("/experiments/test", headers=ADMIN)).json()["changed"]
        assert await lines(api) == [("create", 1, 1), ("delete", 1, 1)]


async def test_a_failed_journal_write_postpones_the_change(settings, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("privateer_server.experiments.experiment._RETRY_DELAY_SECONDS", 0)
    async with serving_api(settings.data) as api:
        await api.create(CENTRAL)
        with monkeypatch.context() as broken:
            broken.setattr(Journal, "record_publication", full)
            answer = await make_change(api, "stop")
            assert [row["action"] for row in answer["pending_changes"]] == ["stop"]
        await wait_for_version(api, 2)
        assert await lines(api) == [("create", 1, 1), ("stop", 1, 2)]


async def test_an_earlier_copy_does_not_bring_a_deleted_experiment_back(settings, tmp_path):
    async with serving_api(settings.data) as api:
        await api.create(CENTRAL)
        backup = (await api.client.get("/backup", headers=ADMIN)).content
        await api.client.delete("/experiments/test", headers=ADMIN)
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "server.db").write_bytes(backup)
    restore(tmp_path / "backup" / "server.db", tmp_path / "new", DATABASE)
    (settings.data / "journal.db").rename(tmp_path / "new" / "journal.db")
    async with serving_api(tmp_path / "new") as api:
        assert_problem(await api.client.get("/experiments/test"), 410, "deleted")


async def test_a_restored_paused_experiment_gets_a_new_version(settings: ServerSettings, tmp_path: Path) -> None:
    async with serving_api(settings.data) as api:
        await api.create(CENTRAL)
        await make_change(api, "pause", {"seconds": 0})
        backup = (await api.client.get("/backup", headers=ADMIN)).content
        await make_change(api, "resume")
        await report(api, 20)
        assert (await api.facts())["version"] == 4
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "server.db").write_bytes(backup)
    for journal in (True, False):
        folder = tmp_path / f"new-{journal}"
        restore(tmp_path / "backup" / "server.db", folder, DATABASE)
        if journal:
            (settings.data / "journal.db").rename(folder / "journal.db")
        async with serving_api(folder) as api:
            facts = await api.facts()
            assert facts | {"status": "paused", "batch_size": 0, "version": 1_000_001} == facts
            assert (await make_change(api, "resume"))["version"] == 1_000_002
            assert (await report(api, 20)).json()["accepted"] == 20
            record = (await api.client.get("/experiments/test/privacy")).json()
            assert record["silent"] == [2, 1_000_001]
            assert await lines(api) == [("create", 1, 1), ("pause", 1, 2), ("resume", 1_000_001, 1_000_002)]


async def test_a_database_of_an_earlier_schema_is_refused(settings: ServerSettings) -> None:
    async with serving_api(settings.data) as api:
        await api.create(CENTRAL)
    with closing(sqlite3.connect(settings.data / "server.db")) as db:
        db.execute("PRAGMA user_version = 2")
    with pytest.raises(SpecError, match="schema 2"):
        create_app(settings)
