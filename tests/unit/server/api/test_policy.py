"""Pages of policies: long polls, and the public listener."""

import asyncio
import time
from typing import Any, cast

import httpx
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.algorithms import parse_spec
from privateer_core.privacy.terms_verification import Limits, verify
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER, UPLOAD
from privateer_core.wire.publication import decode_publication, digest
from privateer_server.api.experiment_routes import Polls
from privateer_server.app import create_app
from privateer_server.rounds.open_round import read_policy
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import KEY
from tests.support.servers import ADMIN, MSGPACK, SHUFFLED, SMALL, TOKEN, Api, assert_problem
from tests.support.specs import tables

POLICY = "/experiments/test/policy"


async def test_publication_holds_round_spec_and_a_policy_that_devices_accept(api: Api) -> None:
    await api.create(SHUFFLED)
    body = await api.publication()
    published = decode_publication(body)
    (key,) = (await api.client.get("/keys")).json()["keys"]
    assert (key["experiment"], key["version"]) == ("test", 1)
    assert published.round.public_key.hex() == key["public_key"]
    assert published.round.key_id.hex() == key["key_id"]
    spec = parse_spec(msgspec.json.decode(published.spec))
    policy = read_policy(spec, published)
    policy.check(spec)
    verify(policy.terms, spec, "", published.round, Limits(min_batch=100))


async def test_json_view_names_the_arms(api: Api) -> None:
    await api.create(SMALL)
    response = await api.client.get(POLICY)
    view = response.json()
    assert view["digest"] == digest(await api.publication()).hex()
    assert view | {"experiment": "test", "version": 1, "batch_size": 20, "model": "local"} == view
    assert set(view["policy"]["shows"]["bins"][0]["arms"]) == {"a", "b", "c"}
    assert response.headers["vary"] == "Accept"


async def test_entity_tag_is_the_digest(api: Api) -> None:
    await api.create(SMALL)
    first = await api.client.get(POLICY, headers=MSGPACK)
    tag = first.headers["etag"]
    assert tag == f'"{digest(first.content).hex()}"'
    response = await api.client.get(POLICY, headers=MSGPACK | {"if-none-match": f'"other", W/{tag}'})
    assert (response.status_code, response.content, response.headers["etag"]) == (304, b"", tag)
    other = await api.client.get(POLICY, headers=MSGPACK | {"if-none-match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)


async def test_the_fast_route_answers_as_the_control_route(api: Api) -> None:
    """The same status, headers and body, whichever of the two answers; ``?`` goes to the control route."""
    await api.create(SMALL)
    tag = (await api.client.get(POLICY)).headers["etag"]
    for is_paused in (False, True):
        if is_paused:
            await api.client.post("/experiments/test/pause", headers=ADMIN)
        for headers in (
            MSGPACK,
            MSGPACK | {"if-none-match": tag},
            {"if-none-match": tag},
            MSGPACK | {"if-none-match": "*"},
        ):
            quick = await api.client.get(POLICY, headers=headers)
            control = await api.client.get(f"{POLICY}?wait=0", headers=headers)
            assert (quick.status_code, quick.content) == (control.status_code, control.content)
            assert dict(quick.headers) == dict(control.headers)
        assert quick.headers["privateer-asks"] == ("nobody" if is_paused else "published")
    assert_problem(await api.client.get("/experiments/else/policy", headers=MSGPACK), 404, "not-found")


async def test_versions_stay_readable(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    await api.client.post("/reports", content=body_of(first, sealed_reports(first, 20)))
    second = await api.publication()
    assert second != first
    for version, body in ((1, first), (2, second)):
        assert (await api.client.get(f"{POLICY}/{version}", headers=MSGPACK)).content == body
    assert_problem(await api.client.get(f"{POLICY}/3"), 404, "not-found")


async def test_long_poll_times_out_unchanged(api: Api) -> None:
    await api.create(SMALL)
    tag = (await api.client.get(POLICY)).headers["etag"]
    start = time.monotonic()
    response = await api.client.get(POLICY, params={"wait": 0.2}, headers={"if-none-match": tag})
    assert response.status_code == 304
    assert time.monotonic() - start >= 0.2


async def test_long_poll_wakes_with_the_next_publication(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    headers = MSGPACK | {"if-none-match": f'"{digest(first).hex()}"'}
    poll = asyncio.create_task(api.client.get(POLICY, params={"wait": 30}, headers=headers))
    await asyncio.sleep(0.05)
    assert not poll.done()
    await api.client.post("/reports", content=body_of(first, sealed_reports(first, 20)))
    response = await asyncio.wait_for(poll, 20)
    assert response.status_code == 200
    assert decode_publication(response.content).round.version == 2


async def test_long_poll_answers_at_once_when_the_policy_has_changed(api: Api) -> None:
    await api.create(SMALL)
    request = api.client.get(POLICY, params={"wait": 30}, headers={"if-none-match": '"old"'})
    assert (await asyncio.wait_for(request, 20)).status_code == 200


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "soon"])
async def test_wait_out_of_range_is_refused(api: Api, wait: str) -> None:
    await api.create(SMALL)
    problem = assert_problem(await api.client.get(POLICY, params={"wait": wait}), 422, "parameter-invalid")
    assert problem["field"] == "wait"


LOOP_TURNS = 10  # more than a poll takes to begin or to end


class SilentExperiment:
    """An experiment that publishes nothing."""

    async def next_publication(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class PollingSenders:
    def __init__(self, max_polls: int) -> None:
        self.polls = Polls(max_polls)
        self.tasks: list[asyncio.Task[None]] = []

    async def poll(self, sender: str) -> bool:
        """Begin a long poll, and return whether it waits."""
        task = asyncio.create_task(self.polls.wait(cast(Any, SilentExperiment()), 3600.0, sender))
        self.tasks.append(task)
        for _ in range(LOOP_TURNS):
            await asyncio.sleep(0)
        return not task.done()

    @property
    def waiting(self) -> list[bool]:
        return [not task.done() for task in self.tasks]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_one_sender_does_not_exclude_others_from_long_polls() -> None:
    senders = PollingSenders(4)
    assert [await senders.poll("greedy") for _ in range(5)] == [True] * 4 + [False]
    assert await senders.poll("other")
    assert senders.waiting == [False, True, True, True, False, True]
    assert await senders.poll("other")
    assert senders.waiting == [False, False, True, True, False, True, True]
    assert not await senders.poll("other")  # it would hold more than the greedy one
    senders.tasks[5].cancel()
    assert await senders.poll("greedy")  # there is room again
    assert sum(senders.waiting) == 4
    await senders.close()


async def test_a_new_sender_waits_where_all_senders_hold_one_seat() -> None:
    senders = PollingSenders(2)
    assert [await senders.poll(name) for name in ("a", "b", "c")] == [True, True, False]
    assert senders.waiting == [True, True, False]
    await senders.close()


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
