"""A server that shows one device another policy: two copies of it, with one key, that go different ways."""

import json
import shutil
from pathlib import Path

import httpx
import pytest

from privateer_client import AsyncClient, Ledger, Limits
from privateer_core.errors import LogForked
from privateer_core.wire.identity import Identity
from privateer_core.wire.publication import digest
from privateer_core.wire.transparency_log import Head
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.resources import PIN_FILE
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.support.notary import Notary
from tests.support.publications import published, shuffle_spec
from tests.support.servers import SMALL, TOKEN, Api, assert_problem


def device(folder: Path, server: httpx.AsyncBaseTransport) -> AsyncClient:
    limits = Limits(epsilon=100.0, local_epsilon=100.0)
    return AsyncClient("http://s", ledger=Ledger(folder / "ledger.db"), limits=limits, transport=server)


async def test_two_copies_of_a_server_leave_evidence(tmp_path: Path) -> None:
    """One person is shown the second copy once; the next honest answer, or any comparison, tells."""
    honest = ServerSettings(data=tmp_path / "honest", admin_token=TOKEN)
    async with serving(create_app(honest)) as client:
        await Api(client).create(SMALL)
    shutil.copytree(tmp_path / "honest", tmp_path / "split")
    split = honest.model_copy(update={"data": tmp_path / "split"})
    (tmp_path / "singled-out").mkdir()
    (tmp_path / "other").mkdir()
    async with serving(create_app(split)) as client:
        for name in ("two", "three"):
            assert (await Api(client).create(SMALL | {"experiment.name": name})).status_code == 201
        way = client._transport
        await device(tmp_path / "singled-out", way).join("two")
    async with serving(create_app(honest)) as client:
        for name in ("four", "five"):
            assert (await Api(client).create(SMALL | {"experiment.name": name})).status_code == 201
        way = client._transport
        await device(tmp_path / "other", way).join("four")
        with pytest.raises(LogForked):
            await device(tmp_path / "singled-out", way).join("four")
    evidence = json.loads(device(tmp_path / "singled-out", way).evidence or "")
    key = bytes.fromhex(evidence["known"]["key"])
    signed = (
        evidence["known"]["head"],
        json.loads(evidence["proof"])["head"],
        device(tmp_path / "other", way).head or "",
    )
    heads = [Head.open(one, key) for one in signed]
    assert len({head.origin for head in heads}) == 1
    assert (heads[0].size, heads[0].root != heads[1].root, heads[1]) == (3, True, heads[2])


async def test_a_shuffler_follows_the_server_that_it_knows(tmp_path: Path) -> None:
    """Not even after a restart does it take a round of somebody else, or one that is not signed."""
    settings = ShufflerSettings(
        server_url="http://server", data=tmp_path / "data", public_key_file=tmp_path / "one.pub", min_batch=2
    )
    body = published(shuffle_spec())
    known, other = Notary(), Notary(b"o" * 32)

    def way(identity: Identity | None) -> httpx.MockTransport:
        def answer(request: httpx.Request) -> httpx.Response:
            if request.method == "POST":
                return httpx.Response(200, json={})
            signed = {"privateer-signed": identity.signed(digest(body))} if identity else {}
            return httpx.Response(200, content=body, headers=signed)

        return httpx.MockTransport(answer)

    async def asked(identity: Identity | None, **changes: frozenset[bytes]) -> httpx.Response:
        async with serving(create_shuffler(settings.model_copy(update=changes), way(identity))) as client:
            return await client.get("/experiments/test")

    assert_problem(await asked(None), 502, "signature-invalid")
    assert not (tmp_path / "data" / PIN_FILE).exists()
    assert (await asked(known.identity)).status_code == 200
    assert (tmp_path / "data" / PIN_FILE).read_text().strip() == known.key
    for path in (tmp_path / "data").glob("*.db*"):
        path.unlink()  # a round that is held needs no server
    assert_problem(await asked(other.identity), 502, "key-changed")
    assert_problem(await asked(known.identity, server_key=frozenset({other.identity.public})), 502, "key-changed")
    assert (await asked(known.identity, server_key=frozenset({known.identity.public}))).status_code == 200
