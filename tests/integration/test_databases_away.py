"""Every page of every replica while PostgreSQL is away: what needs it answers 503, and says when to come again."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER, sign_claim
from tests.documents.openapi import service_documents
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, SHUFFLED, SMALL, Api, assert_problem
from tests.support.shufflers import SharedShufflers
from tests.support.specs import tables
from tests.unit.shuffler.helpers import Shuffler
from tests.unit.shuffler.helpers import sealed_reports as any_reports

pytestmark = pytest.mark.postgres
KNOWN, UNKNOWN, MIXED = "test", "elsewhere", "mixed"
_BODIES: dict[str, Any] = {
    "/experiments": tables({"experiment.name": "another", **SMALL}),
    "extend": {"horizon": 2000},
    "add-arm": {"name": "another"},
    "retire-arm": {"name": "another"},
    "clone": {"name": "another"},
    "warm-start": {"name": "another"},
}


Pages = dict[str, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def pages() -> Pages:
    """Every method and page that each service describes; made where no event loop runs."""
    return {
        service: [
            (method, page)
            for page, methods in document["paths"].items()
            for method in methods.keys() & {"get", "post", "delete"}
        ]
        for service, document in service_documents().items()
    }


@asynccontextmanager
async def away(cluster: Cluster, *urls: str) -> AsyncIterator[None]:
    """Nobody reaches these databases."""
    for url in urls:
        cluster.close(url)
    try:
        yield
    finally:
        for url in urls:
            cluster.open(url)


def assert_says_when(answer: httpx.Response, page: str) -> None:
    """It is no defect; a 503 is a problem that says when to come again."""
    assert answer.status_code < 500 or answer.status_code == 503, f"{page}: {answer.status_code} {answer.text}"
    if answer.status_code == 503:
        assert_problem(answer, 503, "unavailable")
        assert int(answer.headers["retry-after"]) > 0, page


async def test_no_page_of_a_server_is_a_defect(postgres: Cluster, tmp_path: Path, pages: Pages) -> None:
    shared, key = Shared.make(postgres, tmp_path), Ed25519PrivateKey.generate()
    (tmp_path / "shuffler.pub").write_text(key.public_key().public_bytes_raw().hex())
    async with shared.serve_replicas(1, tmp_path / "shuffler.pub") as (server,):
        await server.create(SMALL)
        await server.create({"experiment.name": MIXED, **SHUFFLED})
        uploads = [await _delivery(server, MIXED, key), await _upload(server, KNOWN)]
        claim = {SIGNATURE_HEADER: sign_claim(MIXED, key, time.time())}
        async with away(postgres, shared.database, shared.journal):
            statuses = {}
            for method, page in pages["server"]:
                for name in (KNOWN, MIXED, UNKNOWN) if "{name}" in page else ("",):
                    path = page.format(name=name, version=1)
                    headers = {**ADMIN, **(claim if page.endswith("/shuffler") else {})}
                    body = _BODIES.get(page.rpartition("/")[2], _BODIES.get(page, {})) if method == "post" else None
                    answer = await server.client.request(method, path, json=body, headers=headers)
                    assert_says_when(answer, f"{method} {path}")
                    statuses[method, path] = answer.status_code
            for page, content, headers in uploads:
                answer = await server.client.post(page, content=content, headers=headers)
                assert_says_when(answer, page)
                assert answer.status_code == 503
            assert "privateer_intake_up 0.0" in (await server.client.get("/metrics")).text
        for page, content, headers in uploads:
            assert (await server.client.post(page, content=content, headers=headers)).status_code == 202
        assert (await server.client.get("/readyz")).status_code == 200
        assert "privateer_intake_up 1.0" in (await server.client.get("/metrics")).text
    assert statuses["get", "/healthz"] == 200
    assert statuses["get", "/readyz"] == statuses["post", "/experiments"] == 503
    assert statuses["post", f"/experiments/{MIXED}/shuffler"] == 503
    assert statuses["get", f"/experiments/{UNKNOWN}/policy"] == 503


async def _delivery(server: Api, name: str, key: Ed25519PrivateKey) -> tuple[str, bytes, dict[str, str]]:
    publication = await server.publication(name)
    body = body_of(publication, sealed_reports(publication, 100))
    return "/batches", body, {SIGNATURE_HEADER: BATCH.sign(body, key, time.time())}


async def _upload(server: Api, name: str) -> tuple[str, bytes, dict[str, str]]:
    publication = await server.publication(name)
    return "/reports", body_of(publication, sealed_reports(publication, 1)), {}


async def test_no_page_of_a_shuffler_is_a_defect(postgres: Cluster, tmp_path: Path, pages: Pages) -> None:
    shared = SharedShufflers.make(postgres, tmp_path)
    header = shared.server.publish(batch=40)
    shared.server.publish(UNKNOWN, batch=40)
    async with shared.serve_replicas(1) as (shuffler,):
        assert (await shuffler.post(header, any_reports(1))).status_code == 202
        async with away(postgres, shared.settings.database):
            for method, page in pages["shuffler"]:
                for name in (KNOWN, "spring", UNKNOWN) if "{name}" in page else ("",):
                    answer = await shuffler.client.request(method, page.format(name=name))
                    assert_says_when(answer, f"{method} {page.format(name=name)}")
            for about in (header, shared.server.header(UNKNOWN)):
                answer = await shuffler.post(about, any_reports(1))
                assert_says_when(answer, "reports")
                assert answer.status_code == 503
            assert (await shuffler.client.get("/readyz")).status_code == 503
            assert await shuffler.metric("store_up") == 0
        assert await _comes_back(shuffler, header) == 202


async def _comes_back(shuffler: Shuffler, header: Any) -> int:
    return (await shuffler.post(header, any_reports(1))).status_code
