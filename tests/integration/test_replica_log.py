"""Servers that share their data in PostgreSQL have a common public log and key."""

import asyncio
import base64
from pathlib import Path

import pytest

from privateer_core.errors import SpecError
from privateer_core.wire.identity import SIGNED_HEADER, verify_signature
from privateer_core.wire.merkle import is_consistent
from privateer_core.wire.publication import decode_publication, digest
from privateer_core.wire.transparency_log import Entry, Head, read_proof, verify_proof
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
    people = sealed_reports(first, decode_publication(first).round.batch_size)
    answer = await api.client.post("/reports", content=body_of(first, people), auth=Signing())
    assert answer.status_code == 202, answer.text


async def key_of(api: Api) -> bytes:
    return bytes.fromhex((await api.client.get("/log/key")).json()["key"])


async def head_of(api: Api) -> Head:
    return Head.verify((await api.client.get("/log/head")).text, await key_of(api))


async def entries_of(api: Api) -> list[Entry]:
    entries = (await api.client.get("/log/entries")).json()["entries"]
    return [Entry(entry["experiment"], entry["version"], bytes.fromhex(entry["digest"])) for entry in entries]


async def check_grown(api: Api, before: Head, after: Head) -> None:
    sizes = {"first": before.size, "second": after.size}
    hashes = (await api.client.get("/log/consistency", params=sizes)).json()["hashes"]
    assert is_consistent(before.size, before.root, after.size, after.root, [base64.b64decode(node) for node in hashes])


async def test_concurrent_publications_of_both_servers_are_in_one_log(shared: Shared) -> None:
    """Heads are signed all the while: none of either server may contradict another one."""
    async with shared.serve_replicas(2) as (entry, two):
        assert await key_of(entry) == await key_of(two)
        heads: list[Head] = []

        async def publish(api: Api, name: str) -> None:
            await create(api, name)
            heads.append(await head_of(api))
            await close_round(api, name)
            heads.append(await head_of(api))

        await asyncio.gather(*(publish((entry, two)[at % 2], name) for at, name in enumerate(NAMES)))
        entries = await entries_of(entry)
        assert await entries_of(two) == entries
        assert {(entry.experiment, entry.version) for entry in entries} == {
            (name, at) for name in NAMES for at in (1, 2)
        }
        assert len(entries) == 2 * len(NAMES)
        last = await head_of(two)
        assert (await head_of(entry), last.size) == (last, 2 * len(NAMES))
        for head in heads:
            await check_grown(entry, head, last)


async def test_a_server_proves_the_other_servers_publications_at_once(shared, monkeypatch):
    """No notification comes, and the followers' timer is off."""
    monkeypatch.setattr(
        "privateer_server.rounds.background_checks.Follower.refresh_experiments", lambda _: asyncio.sleep(3600)
    )
    async with shared.serve_replicas(2) as (red, blue):
        await create(red, "test")
        key = await key_of(blue)
        answer = await red.client.get("/experiments/test/policy", headers=MSGPACK)
        assert verify_signature(answer.headers[SIGNED_HEADER], answer.content, {key}) == key
        proof = read_proof((await blue.client.get("/log/proof", params={"experiment": "test", "version": 1})).content)
        head = verify_proof(proof, Entry("test", 1, digest(answer.content)), key, None)
        assert head == await head_of(red)


async def test_a_dump_that_is_put_back_goes_on_with_the_log_of_the_journal(shared: Shared, tmp_path: Path) -> None:
    async with shared.serve_replicas(2) as (red, blue):
        await create(red, "test")
        shared.cluster.dump(shared.database, tmp_path / "dump")
        await close_round(blue, "test")
        await close_round(blue, "test")
        before, entries = await head_of(red), await entries_of(red)
    shared.cluster.drop(shared.database)
    shared.cluster.load(tmp_path / "dump", shared.cluster.make_again(shared.database))
    async with shared.serve_replicas(2) as (red, blue):
        after = await head_of(blue)
        assert (after.origin, after.size) == (before.origin, before.size + 1)
        await check_grown(red, before, after)
        assert (await entries_of(red))[:3] == entries
        assert [entry.version for entry in entries] == [1, 2, 3]
        assert (await entries_of(blue))[3].version > 1_000_000


async def test_without_its_journal_the_log_has_another_name(shared: Shared) -> None:
    async with shared.serve_replicas(1) as (server_,):
        await create(server_, "test")
        before = await head_of(server_)
    shared.cluster.drop(shared.journal)
    shared.cluster.make_again(shared.journal)
    async with shared.serve_replicas(2) as servers:
        (origin,) = {(await head_of(server)).origin for server in servers}
        assert origin != before.origin


async def test_servers_have_one_key_until_an_operator_replaces_it(shared: Shared, tmp_path: Path) -> None:
    """What docs/operations/scale-servers.md says to do then."""
    other = shared.settings().model_copy(update={"publication_key": tmp_path / "other.key"})
    async with shared.serve_replicas(1) as (red,):
        await create(red, "test")
        before, key = await head_of(red), await key_of(red)
        with pytest.raises(SpecError, match="sign with another key") as refused:
            create_app(other)
        assert (refused.value.field, bool(refused.value.remedy)) == ("PRIVATEER_PUBLICATION_KEY", True)
    shared.cluster.execute("TRUNCATE signer", shared.journal)
    shared.identity.write_text((tmp_path / "other.key").read_text())
    async with shared.serve_replicas(2) as (red, blue):
        assert await key_of(red) == await key_of(blue) != key
        after = await head_of(blue)
        assert (after.origin, after.size, after.root) == (before.origin, before.size, before.root)
