"""A database is put back from a copy, and a round that was released is released again, with other noise.

Two releases of one curator's sums halve the noise, and releases of sums that differ by one person tell that person.
"""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.servers import ADMIN, SHUFFLED, TOKEN, Api, assert_problem

PEOPLE = 20
CENTRAL = {
    "privacy.model": "central",
    "privacy.delta": 1e-6,
    "experiment.round_size": PEOPLE,
    "experiment.horizon": 1000,
}
PutBack = Callable[[Path, Path], None]


@asynccontextmanager
async def served(data: Path, *shufflers: Path) -> AsyncIterator[Api]:
    settings = ServerSettings(data=data, admin_token=TOKEN, shuffler_keys=shufflers, sender_keys=TRUSTED)
    async with serving(create_app(settings)) as client:
        yield Api(client)


def database_alone(copy: Path, data: Path) -> None:
    """Somebody puts back yesterday's ``server.db``."""
    for path in data.glob("server.db*"):
        path.unlink()
    for path in copy.glob("server.db*"):
        shutil.copy(path, data)


def all_but_the_journal(copy: Path, data: Path) -> None:
    """Somebody puts the whole folder back, keys of rounds included; the journal is on another disk."""
    for path in copy.glob("*"):
        if path.is_dir():
            shutil.copytree(path, data / path.name, dirs_exist_ok=True)
        elif "journal" not in path.name:
            shutil.copy(path, data)


def into_an_empty_folder(copy: Path, data: Path) -> None:
    """Somebody moves to another machine, and forgets the journal."""
    shutil.rmtree(data)
    data.mkdir()
    all_but_the_journal(copy, data)


async def released(api: Api) -> list[tuple[int, bytes]]:
    """Versions whose sums were released, with what was published of them."""
    rounds = (await api.client.get("/experiments/test/privacy")).json()["rounds"]
    told = []
    for row in rounds:
        if row["released"]:
            following = await api.client.get(f"/experiments/test/policy/{row['version'] + 1}")
            told.append((row["version"], following.content))
    return told


async def send(api: Api, publication: bytes, sealed: list[bytes]) -> int:
    answer = (await api.client.post("/reports", content=body_of(publication, sealed))).json()
    return int(answer.get("accepted", 0))


@pytest.mark.parametrize("put_back", [database_alone, all_but_the_journal, into_an_empty_folder])
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.battery
async def test_a_round_is_released_once_whatever_copy_is_put_back(
    tmp_path: Path, put_back: PutBack, rounds: int
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    async with served(data) as api:
        await api.create(CENTRAL)
        first = await api.publication()
        sealed = sealed_reports(first, PEOPLE + 8)
        assert await send(api, first, sealed[:12]) == 12
        shutil.copytree(data, copy)
        await send(api, first, sealed[12:PEOPLE])
        for _ in range(rounds - 1):
            later = await api.publication()
            await send(api, later, sealed_reports(later, PEOPLE))
        before = await released(api)
        latest = (await api.facts())["version"]
    assert len(before) == rounds
    put_back(copy, data)
    async with served(data) as api:
        # Twelve are in the copy; eight others would fill its round, and differ from the first release by eight people.
        await send(api, first, sealed[PEOPLE:])
        following = await api.publication()
        await send(api, following, sealed_reports(following, PEOPLE, seed=1))
        again = await released(api)
        assert [told for told in again if told[0] <= latest and told not in before] == []
        assert (await api.facts())["version"] > latest


async def test_a_backup_cannot_bring_an_open_round_back(tmp_path: Path) -> None:
    from privateer_server.store.backup import restore
    from privateer_server.store.schema import STORE_KIND as DATABASE

    data, copy = tmp_path / "data", tmp_path / "copy"
    copy.mkdir()
    async with served(data) as api:
        await api.create(CENTRAL)
        early = await api.publication()
        await send(api, early, sealed_reports(early, PEOPLE))
        first = await api.publication()
        sealed = sealed_reports(first, PEOPLE + 8)
        await send(api, first, sealed[:12])
        answer = await api.client.get("/backup", headers=ADMIN)
        assert answer.status_code == 200
        (copy / "server.db").write_bytes(answer.content)
        await send(api, first, sealed[12:PEOPLE])
        before = await released(api)
        assert [version for version, _ in before] == [1, 2]
    restore(copy / "server.db", tmp_path / "new", DATABASE)
    async with served(tmp_path / "new") as api:
        facts = await api.facts()
        assert facts | {"version": 1_000_001, "received": 0, "status": "open"} == facts
        assert await send(api, first, sealed[PEOPLE:]) == 0
        following = await api.publication()
        assert await send(api, following, sealed_reports(following, PEOPLE, seed=1)) == PEOPLE
        again = await released(api)
        assert [version for version, _ in again] == [1, 1_000_001]


async def test_a_shuffler_goes_on_with_the_restored_server(tmp_path: Path) -> None:
    """The batch of the round that was given up is not counted, and the next version is above all it has seen."""
    data, copy, key = tmp_path / "data", tmp_path / "copy", Ed25519PrivateKey.generate()
    trusted = tmp_path / "one.pub"
    trusted.write_text(key.public_key().public_bytes_raw().hex())
    async with served(data, trusted) as api:
        await api.create(SHUFFLED)
        first = await api.publication()
        shutil.copytree(data, copy)
        assert (await deliver(api, first, key)).status_code == 202
        second = await api.publication()
    all_but_the_journal(copy, data)
    async with served(data, trusted) as api:
        for gone in (first, second):
            assert_problem(await deliver(api, gone, key), 409, "round-closed")
        following = await api.publication()
        assert (await deliver(api, following, key)).status_code == 202
        assert (await api.facts())["version"] == 1_000_002


async def deliver(api: Api, publication: bytes, key: Ed25519PrivateKey) -> Any:
    body = body_of(publication, sealed_reports(publication, 100))
    return await api.client.post("/batches", content=body, headers={SIGNATURE_HEADER: BATCH.sign(body, key)})
