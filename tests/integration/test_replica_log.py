"""Servers that share their data in PostgreSQL have one public log and one key."""

import asyncio
import base64
from pathlib import Path

import pytest

from privateer_core.errors import SpecError
from privateer_core.wire.identity import SIGNED_HEADER, check_signed
from privateer_core.wire.merkle import consistent
from privateer_core.wire.publication import decode_publication, digest
from privateer_core.wire.transparency_log import Entry, Head, check_proof, read_proof
from privateer_server.app import create_app
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import Signing
from tests.support.servers import ADMIN, MSGPACK, SMALL, Api
from tests.support.specs import tables

pytestmark = pytest.mark.postgres
NAMES = [f"experiment-{at}" for at in range(8)]


@pytest.fixture
def shared(postgres: Cluster, tmp_path: Path) -> Shared:
    return Shared.make(postgres, tmp_path)


async def create(api: Api, name: str) -> None:
    answer = await api.client.post("/experiments", json=tables(SMALL | {"experiment.name": name}), headers=ADMIN)
    assert answer.status_code == 201, answer.text


async def close_round(api: Api, name: str) -> None:
    first = await api.publication(name)
    people = sealed_reports(first, decode_publication(first).round.batch)
    answer = await api.client.post("/reports", content=body_of(first, people), auth=Signing())
    assert answer.status_code == 202, answer.text


async def key_of(api: Api) -> bytes:
    return bytes.fromhex((await api.client.get("/log/key")).json()["key"])


async def head_of(api: Api) -> Head:
    return Head.open((await api.client.get("/log/head")).text, await key_of(api))


async def entries_of(api: Api) -> list[Entry]:
    told = (await api.client.get("/log/entries")).json()["entries"]
    return [Entry(one["experiment"], one["version"], bytes.fromhex(one["digest"])) for one in told]


async def check_grown(api: Api, before: Head, after: Head) -> None:
    asked = {"first": before.size, "second": after.size}
    told = (await api.client.get("/log/consistency", params=asked)).json()["hashes"]
    assert consistent(before.size, before.root, after.size, after.root, [base64.b64decode(one) for one in told])


async def test_what_both_publish_at_once_is_one_log(shared: Shared) -> None:
    """Heads are signed all the while: none of either server may contradict another one."""
    async with shared.served(2) as (one, two):
        assert await key_of(one) == await key_of(two)
        heads: list[Head] = []

        async def publish(api: Api, name: str) -> None:
            await create(api, name)
            heads.append(await head_of(api))
            await close_round(api, name)
            heads.append(await head_of(api))

        await asyncio.gather(*(publish((one, two)[at % 2], name) for at, name in enumerate(NAMES)))
        entries = await entries_of(one)
        assert await entries_of(two) == entries
        assert {(one.experiment, one.version) for one in entries} == {(name, at) for name in NAMES for at in (1, 2)}
        assert len(entries) == 2 * len(NAMES)
        last = await head_of(two)
        assert (await head_of(one), last.size) == (last, 2 * len(NAMES))
        for head in heads:
            await check_grown(one, head, last)


async def test_a_server_proves_at_once_what_the_other_one_published(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing rings and nobody looks."""
    monkeypatch.setattr("privateer_server.experiments.replication.Follower.look", lambda _: asyncio.sleep(3600))
    async with shared.served(2) as (one, two):
        await create(one, "test")
        key = await key_of(two)
        answer = await one.client.get("/experiments/test/policy", headers=MSGPACK)
        assert check_signed(answer.headers[SIGNED_HEADER], answer.content, {key}) == key
        proof = read_proof((await two.client.get("/log/proof", params={"experiment": "test", "version": 1})).content)
        head = check_proof(proof, Entry("test", 1, digest(answer.content)), key, None)
        assert head == await head_of(one)


async def test_a_dump_that_is_put_back_goes_on_with_the_log_of_the_journal(shared: Shared, tmp_path: Path) -> None:
    async with shared.served(2) as (one, two):
        await create(one, "test")
        shared.cluster.dump(shared.database, tmp_path / "dump")
        await close_round(two, "test")
        await close_round(two, "test")
        before, entries = await head_of(one), await entries_of(one)
    shared.cluster.drop(shared.database)
    shared.cluster.load(tmp_path / "dump", shared.cluster.make_again(shared.database))
    async with shared.served(2) as (one, two):
        after = await head_of(two)
        assert (after.origin, after.size) == (before.origin, before.size + 1)
        await check_grown(one, before, after)
        assert (await entries_of(one))[:3] == entries
        assert [entry.version for entry in entries] == [1, 2, 3]
        assert (await entries_of(two))[3].version > 1_000_000


async def test_without_its_journal_the_log_has_another_name(shared: Shared) -> None:
    async with shared.served(1) as (one,):
        await create(one, "test")
        before = await head_of(one)
    shared.cluster.drop(shared.journal)
    shared.cluster.make_again(shared.journal)
    async with shared.served(2) as servers:
        (origin,) = {(await head_of(server)).origin for server in servers}
        assert origin != before.origin


async def test_servers_have_one_key_until_an_operator_replaces_it(shared: Shared, tmp_path: Path) -> None:
    """What docs/operations/scale-servers.md says to do then."""
    other = shared.settings().model_copy(update={"identity": tmp_path / "other.key"})
    async with shared.served(1) as (one,):
        await create(one, "test")
        before, key = await head_of(one), await key_of(one)
        with pytest.raises(SpecError, match="sign with another key") as refused:
            create_app(other)
        assert (refused.value.field, bool(refused.value.remedy)) == ("PRIVATEER_IDENTITY", True)
    shared.cluster.execute("TRUNCATE signer", shared.journal)
    shared.identity.write_text((tmp_path / "other.key").read_text())
    async with shared.served(2) as (one, two):
        assert await key_of(one) == await key_of(two) != key
        after = await head_of(two)
        assert (after.origin, after.size, after.root) == (before.origin, before.size, before.root)
