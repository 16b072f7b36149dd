"""Strangers name experiments and versions that a database has no value for: nothing fails, and nobody else waits."""

import asyncio
from pathlib import Path

import httpx
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.envelope import Header
from privateer_core.wire.keys import public_hex
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.sealing import body_of, header_for, sealed_reports
from tests.support.servers import SHUFFLED, SMALL, TOKEN, Api

STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
NAMES = ("test\0", "\0", "a\0b", "x" * 10_000)
VERSIONS = (2**63 - 1, 2**63, 2**64 - 1)


@pytest.fixture(params=STORES)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> ServerSettings:
    if request.param == "sqlite":
        return ServerSettings(data=tmp_path / "data", admin_token=TOKEN, shuffler_keys=(tmp_path / "shufflers",))
    cluster: Cluster = request.getfixturevalue("postgres")
    return Shared.make(cluster, tmp_path).settings(tmp_path / "shufflers")


def strange(known: Header, sealed: bytes) -> list[bytes]:
    """Envelopes for names and versions that are none, as no library of ours writes them."""
    fields = msgspec.structs.astuple(known)
    made = [(name, *fields[1:]) for name in NAMES] + [(fields[0], version, *fields[2:]) for version in VERSIONS]
    return [msgspec.msgpack.encode((one, sealed)) for one in made]


async def test_reports(settings: ServerSettings) -> None:
    app = create_app(settings)
    async with serving(app) as client:
        api, intake = Api(client), app._uploads._intake
        await api.create(SMALL)
        published = await api.publication()
        own = sealed_reports(published, 2)
        bodies = strange(header_for(published), own[0])
        bodies += [body_of(published, [one]) for one in own]
        async with intake._writing:  # they are counted in one group
            sent = [asyncio.create_task(client.post("/reports", content=one, auth=httpx.Auth())) for one in bodies]
            await asyncio.sleep(0.3)
        answers = await asyncio.gather(*sent)
        assert [answer.status_code for answer in answers[-2:]] == [202, 202]
        assert {answer.status_code for answer in answers[:-2]} <= {400, 404, 409, 410}, [one.text for one in answers]


async def test_batches(settings: ServerSettings) -> None:
    """A shuffler that is trusted with another experiment."""
    app, key = create_app(settings), Ed25519PrivateKey.generate()
    (folder,) = settings.shuffler_keys
    folder.mkdir()
    (folder / "one.pub").write_text(public_hex(key))
    async with serving(app) as client:
        api, intake = Api(client), app._uploads._intake
        await api.create({**SHUFFLED, "experiment.name": "shuffled"})
        await api.create(SMALL)
        published, shuffled = await api.publication(), await api.publication("shuffled")
        (whole,) = sealed_reports(shuffled, 1)

        async def deliver(body: bytes) -> httpx.Response:
            return await client.post("/batches", content=body, headers={SIGNATURE_HEADER: BATCH.sign(body, key)})

        async with intake._writing:
            sent = [asyncio.create_task(deliver(one)) for one in strange(header_for(shuffled), whole)]
            own = body_of(published, sealed_reports(published, 1))
            honest = asyncio.create_task(client.post("/reports", content=own, auth=httpx.Auth()))
            await asyncio.sleep(0.3)
        assert (await honest).status_code == 202
        answers = await asyncio.gather(*sent)
        assert {answer.status_code for answer in answers} <= {400, 403, 404, 409, 410}, [one.text for one in answers]


@pytest.mark.parametrize(
    "page", ["", "/policy", "/state", "/history", "/privacy", "/risk", "/answer", "/events", "/shuffler"]
)
async def test_pages(settings: ServerSettings, page: str) -> None:
    app = create_app(settings)
    async with serving(app):
        transport = httpx.ASGITransport(app.public)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as stranger:
            for name in ("a%00b", "%00", "x" * 10_000, "%ED%A0%80"):
                assert (await stranger.get(f"/experiments/{name}{page}")).status_code in (404, 405)
                for proof in ("proof", "inclusion"):
                    assert (await stranger.get(f"/log/{proof}?experiment={name}&version=1")).status_code == 404
