"""Strangers name experiments and versions that a database has no value for: nothing fails, and nobody else waits."""

import asyncio
from pathlib import Path

import httpx
import msgspec
import pytest

from privateer.wire.envelope import Envelope, Header, encode_envelope
from privateer_server.app import create_app
from privateer_server.settings import Settings
from tests.support.asgi import serving
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.sealing import body_of, header_for, sealed_reports
from tests.support.servers import SMALL, TOKEN, Api

STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
NAMES = ("test\0", "\0", "a\0b", "x" * 10_000)
VERSIONS = (2**63 - 1, 2**63, 2**64 - 1)


@pytest.fixture(params=STORES)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    if request.param == "sqlite":
        return Settings(tmp_path / "data", TOKEN, (tmp_path / "shufflers",))
    cluster: Cluster = request.getfixturevalue("postgres")
    return Shared.make(cluster, tmp_path).settings(tmp_path / "shufflers")


def headers(known: Header) -> list[Header]:
    replace = msgspec.structs.replace
    return [replace(known, experiment=name) for name in NAMES] + [replace(known, version=one) for one in VERSIONS]


async def test_reports(settings: Settings) -> None:
    app = create_app(settings)
    async with serving(app) as client:
        api, intake = Api(client), app._uploads._intake
        await api.create(SMALL)
        published = await api.publication()
        own = sealed_reports(published, 2)
        bodies = [encode_envelope(Envelope(one, own[0])) for one in headers(header_for(published))]
        bodies += [body_of(published, [one]) for one in own]
        async with intake._writing:  # they are counted in one group
            sent = [asyncio.create_task(client.post("/reports", content=one, auth=httpx.Auth())) for one in bodies]
            await asyncio.sleep(0.3)
        answers = await asyncio.gather(*sent)
        assert [answer.status_code for answer in answers[-2:]] == [202, 202]
        assert {answer.status_code for answer in answers[:-2]} <= {404, 409, 410}, [one.text for one in answers]


@pytest.mark.parametrize(
    "page", ["", "/policy", "/state", "/history", "/privacy", "/risk", "/result", "/events", "/shuffler"]
)
async def test_pages(settings: Settings, page: str) -> None:
    app = create_app(settings)
    async with serving(app):
        transport = httpx.ASGITransport(app.public)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as stranger:
            for name in ("a%00b", "%00", "x" * 10_000, "%ED%A0%80"):
                assert (await stranger.get(f"/experiments/{name}{page}")).status_code in (404, 405)
                for proof in ("proof", "inclusion"):
                    assert (await stranger.get(f"/log/{proof}?experiment={name}&version=1")).status_code == 404
