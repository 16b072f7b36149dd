"""The server dies while it closes a round: nothing acknowledged is lost, no second noise is drawn, no key stays."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.journal import Journal
from privateer_server.store.round_keys import RoundKeys
from privateer_server.store.store import Store
from tests.support.asgi import serving
from tests.support.crashes import snapshot_at
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.servers import TOKEN, Api

PEOPLE = 20
CENTRAL = {
    "privacy.model": "central",
    "privacy.delta": 1e-6,
    "experiment.round_size": PEOPLE,
    "experiment.horizon": 1000,
}
BEFORE_THE_DRAW = [(RoundKeys, "make", False), (RoundKeys, "make", True), (Journal, "write", False)]
AFTER_THE_DRAW = [(Journal, "write", True), (RoundKeys, "destroy", False), (RoundKeys, "destroy", True)]


@asynccontextmanager
async def served(data: Path) -> AsyncIterator[Api]:
    async with serving(create_app(ServerSettings(data=data, admin_token=TOKEN, sender_keys=TRUSTED))) as client:
        yield Api(client)


async def closed(
    settings: ServerSettings, copy: Path, monkeypatch: pytest.MonkeyPatch, moment: Any
) -> tuple[bytes, bytes]:
    """Publications of the first and the second round of a server; what it had on disk at a moment is in the copy."""
    async with served(settings.data) as api:
        await api.create(CENTRAL)
        first = await api.publication()
        sealed = sealed_reports(first, PEOPLE)
        sent = await api.client.post("/reports", content=body_of(first, sealed[:12]))
        assert sent.json()["accepted"] == 12
        with monkeypatch.context() as patched:
            owner, method, after = moment
            happened = snapshot_at(patched, owner, method, settings.data, copy, after=after)
            sent = await api.client.post("/reports", content=body_of(first, sealed[12:]))
        assert happened()
        assert sent.json()["accepted"] == PEOPLE - 12
        return first, await api.publication()


def keys_of(data: Path) -> set[str]:
    return {path.stem for path in (data / "keys").iterdir()}


async def open_keys(api: Api) -> set[str]:
    return {key["public_key"] for key in (await api.client.get("/keys")).json()["keys"]}


@pytest.mark.parametrize("moment", [*BEFORE_THE_DRAW, *AFTER_THE_DRAW])
async def test_what_was_acknowledged_is_learned_from_after_the_restart(
    settings: ServerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: Any
) -> None:
    copy = tmp_path / "copy"
    first, _ = await closed(settings, copy, monkeypatch, moment)
    async with served(copy) as api:
        facts = await api.facts()
        assert facts | {"version": 2, "accepted": PEOPLE, "received": 0} == facts
        rounds = (await api.client.get("/experiments/test/privacy")).json()["rounds"]
        assert (rounds[0]["received"], rounds[0]["released"]) == (PEOPLE, True)
        assert keys_of(copy) == await open_keys(api)
        assert first not in (await api.publication(),)


@pytest.mark.parametrize("moment", AFTER_THE_DRAW)
async def test_noise_that_is_on_record_is_not_drawn_again(
    settings: ServerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: Any
) -> None:
    copy = tmp_path / "copy"
    _, second = await closed(settings, copy, monkeypatch, moment)
    async with served(copy) as api:
        assert await api.publication() == second


@pytest.mark.parametrize("moment", BEFORE_THE_DRAW)
async def test_a_death_before_the_release_opens_the_round_under_another_key(
    settings: ServerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: Any
) -> None:
    copy = tmp_path / "copy"
    await closed(settings, copy, monkeypatch, moment)
    left = keys_of(copy)
    async with served(copy) as api:
        assert not left & await open_keys(api)


@pytest.mark.parametrize("method", [(RoundKeys, "make"), (Journal, "write"), (Store, "create")])
@pytest.mark.parametrize("after", [False, True])
async def test_a_death_while_an_experiment_is_created(
    settings: ServerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Any, after: bool
) -> None:
    copy = tmp_path / "copy"
    async with served(settings.data) as api:
        with monkeypatch.context() as patched:
            happened = snapshot_at(patched, *method, settings.data, copy, after=after)
            await api.create(CENTRAL)
        assert happened()
        published = await api.publication()
    async with served(copy) as api:
        assert keys_of(copy) == await open_keys(api)
        created = await api.create(CENTRAL)
        if method[0] is Store and after:
            assert (created.status_code, await api.publication()) == (200, published)
        else:
            assert created.status_code == 201
        first = await api.publication()
        sent = await api.client.post("/reports", content=body_of(first, sealed_reports(first, PEOPLE)))
        assert sent.json()["accepted"] == PEOPLE
