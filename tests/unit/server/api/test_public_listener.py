"""Strangers reach public pages alone, and upload one person's report at a time."""

import time

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER, UPLOAD
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import KEY
from tests.support.servers import ADMIN, MSGPACK, SHUFFLED, SMALL, TOKEN, Api, assert_problem
from tests.support.specs import tables


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/metrics"),
        ("GET", "/backup"),
        ("POST", "/batches"),
        ("GET", "/batches"),
        ("POST", "/experiments"),
        ("DELETE", "/experiments/test"),
        ("POST", "/experiments/test/policy"),
        ("GET", "/metrics/"),
        ("GET", "//metrics"),
        ("GET", "/experiments/../metrics"),
        ("GET", "/"),
    ],
)
async def test_private_pages_are_not_found_in_public(settings: ServerSettings, method: str, path: str) -> None:
    app = create_app(settings)
    async with serving(app):
        transport = httpx.ASGITransport(app.public)
        async with httpx.AsyncClient(transport=transport, base_url="http://server", headers=ADMIN) as stranger:
            assert_problem(await stranger.request(method, path, json={}), 404, "not-found")


async def test_public_pages(settings: ServerSettings) -> None:
    app = create_app(settings)
    async with serving(app) as admin:
        await Api(admin).create(SMALL)
        transport = httpx.ASGITransport(app.public)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as stranger:
            pages = [
                f"/experiments/test{page}"
                for page in ("", "/policy", "/policy/1", "/state", "/answer", "/history", "/privacy")
            ]
            for page in ["/healthz", "/readyz", "/keys", "/experiments", *pages]:
                assert (await stranger.get(page)).status_code == 200
            publication = (await stranger.get("/experiments/test/policy", headers=MSGPACK)).content
            body = body_of(publication, sealed_reports(publication, 1))
            assert (await stranger.post("/reports", content=body)).status_code == 202


@pytest.mark.parametrize("key", [None, Ed25519PrivateKey.generate()], ids=["none", "untrusted"])
async def test_several_reports_need_a_trusted_sender(api: Api, key: Ed25519PrivateKey | None) -> None:
    await api.create(SMALL)
    publication = await api.publication()
    body = body_of(publication, sealed_reports(publication, 2))
    headers = {UPLOAD.header: UPLOAD.sign(body, key)} if key else {}
    answer = await api.client.post("/reports", content=body, headers=headers, auth=lambda request: request)
    assert_problem(answer, 403, "sender-refused")
    assert await api.metric('privateer_reports_refused_total{reason="sender-refused"}') == 1
    assert (await api.facts())["accepted"] == 0


@pytest.mark.parametrize("change", ["body", "old", "longer", "of a batch"])
async def test_a_signature_is_for_one_upload_and_expires(api: Api, change: str) -> None:
    await api.create(SMALL)
    publication = await api.publication()
    body = body_of(publication, sealed_reports(publication, 2))
    signature = UPLOAD.sign(body, KEY, time.time() - 400 if change == "old" else None)
    if change == "of a batch":
        signature = BATCH.sign(body, KEY)
    upload = {"body": body[:-1] + b"\0", "longer": body + b"\0"}.get(change, body)
    answer = await api.client.post(
        "/reports", content=upload, headers={UPLOAD.header: signature}, auth=lambda request: request
    )
    assert answer.status_code == (413 if change == "longer" else 403)
    assert (await api.facts())["accepted"] == 0


async def test_a_batch_is_refused_before_it_is_read(api: Api, shuffler_key: Ed25519PrivateKey) -> None:
    """The server reads no body without a trusted signature or an announced length."""
    await api.create(SHUFFLED)
    read: list[int] = []

    async def body() -> object:
        read.append(1)
        yield b"x"

    for signature in ("", "0" * 128, BATCH.sign(b"x", KEY), BATCH.sign(b"x", shuffler_key, time.time() - 400)):
        headers = {SIGNATURE_HEADER: signature}
        answer = await api.client.post("/batches", content=body(), headers=headers, auth=lambda request: request)
        assert_problem(answer, 403, "batch-refused")
    assert not read


async def test_bodies_beyond_the_memory_budget_are_unavailable(settings: ServerSettings) -> None:
    small = ServerSettings(
        data=settings.data, admin_token=TOKEN, report_bytes_max=10, batch_bytes_max=10, body_budget=10
    )
    async with serving(create_app(small)) as client:
        answer = await client.post("/experiments", json=tables(SMALL), headers=ADMIN)
        assert_problem(answer, 503, "unavailable")
        assert answer.headers["retry-after"]
