import asyncio
import hashlib
import time

import httpx
import pytest

from privateer_core.wire.batch import BATCH
from privateer_core.wire.keys import load_or_create_key, signing_key_id
from privateer_core.wire.publication import REPORTS_PER_BODY_MAX, Header
from privateer_shuffler.app import create_app
from tests.support.asgi import serving
from tests.unit.shuffler.fake_server import KEY, SIZE, body_of
from tests.unit.shuffler.helpers import Shuffler, assert_problem, sealed_reports, until


@pytest.fixture(params=["at once", "as they come"])
async def shuffler(request, settings, server):
    """A shuffler whose uploads come as a whole, or piece by piece."""
    app = create_app(settings, httpx.ASGITransport(server.app))
    async with serving(app, request.param == "at once") as client:
        yield Shuffler(client, server)


async def test_reports_are_accepted_and_counted(shuffler):
    header = shuffler.server.publish()
    answer = await shuffler.post(header, sealed_reports(3))
    assert answer.status_code == 202
    assert answer.json() == {"accepted": 3, "refused": {}}
    assert await shuffler.metric("reports_held") == 3


async def test_a_full_batch_is_signed_delivered_and_forgotten(shuffler, settings):
    header, reports = shuffler.server.publish(), sealed_reports(5)
    for report in reports:
        assert (await shuffler.post(header, [report])).status_code == 202
    await until(lambda: not list(settings.data.glob("*.db*")))
    assert sorted(shuffler.server.received()) == sorted(reports)
    key = load_or_create_key(settings.data / "shuffler.key", "PRIVATEER_DATA").public_key()
    (signature,) = shuffler.server.signatures
    announced = BATCH.verify(signature, {signing_key_id(key): key}, time.time())
    assert announced.digest == hashlib.sha256(shuffler.server.attempts[0]).digest()
    assert await shuffler.metric("batches_forwarded_total") == 1
    assert await shuffler.metric("reports_forwarded_total") == 5
    async with asyncio.timeout(20):  # the files go before the pool is forgotten
        while await shuffler.metric("reports_held"):
            await asyncio.sleep(0.01)
    content = b"".join(path.read_bytes() for path in settings.data.iterdir())
    assert not any(report in content for report in reports)


async def test_an_envelope_across_the_end_of_the_batch_is_split(shuffler):
    header, reports = shuffler.server.publish(batch=5), sealed_reports(8)
    await shuffler.post(header, reports[:3])
    answer = await shuffler.post(header, reports[3:])
    assert answer.status_code == 202
    assert answer.json() == {"accepted": 2, "refused": {"unavailable": 3}}
    await until(lambda: bool(shuffler.server.delivered))
    assert sorted(shuffler.server.received()) == sorted(reports[:5])


async def test_a_retry_is_told_that_the_report_is_held(shuffler):
    header, reports = shuffler.server.publish(), sealed_reports(3)
    await shuffler.post(header, reports[:2])
    answer = await shuffler.post(header, reports[:2])
    assert_problem(answer, 409, "duplicate-report")
    assert answer.json()["refused"] == {"duplicate-report": 2}
    mixed = await shuffler.post(header, reports)
    assert mixed.json() == {"accepted": 1, "refused": {"duplicate-report": 2}}
    assert await shuffler.metric("reports_held") == 3


async def test_concurrent_uploads_fill_the_batch_exactly(shuffler):
    header, reports = shuffler.server.publish(batch=60), sealed_reports(80)
    answers = await asyncio.gather(*(shuffler.post(header, [report]) for report in reports))
    accepted = [report for report, answer in zip(reports, answers, strict=True) if answer.status_code == 202]
    assert len(accepted) == 60
    await until(lambda: bool(shuffler.server.delivered))
    assert sorted(shuffler.server.received()) == sorted(accepted)


HEADERS = {
    "wrong-key": lambda header: Header(header.experiment, header.version, b"k" * 8, header.digest),
    "wrong-digest": lambda header: Header(header.experiment, header.version, header.key_id, b"d" * 32),
    "round-closed": lambda header: Header(header.experiment, header.version - 1, header.key_id, header.digest),
    "round-unknown": lambda header: Header(header.experiment, header.version + 1, header.key_id, header.digest),
}


@pytest.mark.parametrize("slug", HEADERS)
async def test_reports_for_another_round_are_refused(shuffler, slug):
    header = HEADERS[slug](shuffler.server.publish(version=2))
    answer = await shuffler.post(header, sealed_reports(3))
    assert_problem(answer, 409, slug)
    assert answer.json()["refused"] == {slug: 3}
    assert await shuffler.metric("reports_held") == 0


@pytest.mark.parametrize("size", [0, 1, SIZE - 1, SIZE + 1, 2 * SIZE + 1, SIZE * (REPORTS_PER_BODY_MAX + 1)])
async def test_other_sizes_are_refused(shuffler, size):
    header = shuffler.server.publish()
    assert_problem(await shuffler.post(header, [bytes(size)]), 400, "wrong-size")


@pytest.mark.parametrize("body", [b"", b"{}", b"\x92\xc0\xc0", b"\xff" * 100])
async def test_a_body_that_is_no_envelope_is_refused(shuffler, body):
    shuffler.server.publish()
    assert_problem(await shuffler.client.post("/experiments/spring/reports", content=body), 400, "malformed-report")


async def test_the_address_must_name_the_experiment_of_the_reports(shuffler):
    header = shuffler.server.publish()
    shuffler.server.publish("summer")
    assert_problem(await shuffler.post(header, sealed_reports(1), name="summer"), 400, "malformed-report")
    assert shuffler.server.questions == 0


async def test_reports_for_the_server_are_refused_with_its_address(shuffler):
    header = shuffler.server.publish(model="local")
    assert_problem(await shuffler.post(header, sealed_reports(2)), 400, "wrong-endpoint")


async def test_a_round_below_the_minimum_batch_is_refused(shuffler, settings):
    header = shuffler.server.publish(batch=settings.min_batch - 1)
    answer = await shuffler.post(header, sealed_reports(1))
    assert_problem(answer, 422, "spec-invalid")
    assert answer.json()["field"] == "privacy.min_batch"
    assert (await shuffler.facts())["open"] is False
    assert not shuffler.server.delivered


async def test_a_round_at_the_minimum_batch_is_accepted(shuffler, settings):
    header = shuffler.server.publish(batch=settings.min_batch)
    assert (await shuffler.post(header, sealed_reports(settings.min_batch))).status_code == 202


async def test_a_batch_too_large_to_hold_is_refused(shuffler):
    header = shuffler.server.publish(batch=1 << 40)
    answer = await shuffler.post(header, sealed_reports(1))
    assert_problem(answer, 422, "spec-invalid")
    assert answer.json()["field"] == "experiment.round_size"


async def test_an_experiment_that_is_over_takes_no_reports(shuffler):
    header = shuffler.server.publish(batch=0)
    assert_problem(await shuffler.post(header, sealed_reports(1)), 409, "round-closed")


async def test_an_unknown_experiment_is_not_found(shuffler):
    header = Header("winter", 1, KEY[:8], b"d" * 32)
    assert_problem(await shuffler.post(header, sealed_reports(1)), 404, "not-found")


async def test_refusals_are_counted_in_tens(shuffler):
    header = shuffler.server.publish(batch=50)
    reports = sealed_reports(25)
    await shuffler.post(header, reports)
    for reported, rounded in ((9, 0), (1, 10), (25, 30)):
        await shuffler.post(header, reports[:reported])
        assert await shuffler.refused("duplicate-report") == rounded


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_large_body_is_refused(shuffler, settings, chunked):
    body = bytes(settings.body_limit + 1)

    async def chunks():
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    answer = await shuffler.client.post("/experiments/spring/reports", content=chunks() if chunked else body)
    assert_problem(answer, 413, "too-large")


async def test_a_body_at_the_limit_is_read(shuffler, settings):
    answer = await shuffler.client.post("/experiments/spring/reports", content=bytes(settings.body_limit))
    assert_problem(answer, 400, "malformed-report")


async def test_a_sender_that_hangs_up_is_no_defect(shuffler):
    header = shuffler.server.publish()
    body = body_of(header, sealed_reports(1))
    messages = [{"type": "http.request", "body": body[:50], "more_body": True}, {"type": "http.disconnect"}]
    responses = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        responses.append(message)

    path = "/experiments/spring/reports"
    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b"", "root_path": ""}
    await shuffler.client._transport.app(scope, receive, send)
    assert responses == []
    assert await shuffler.metric("reports_held") == 0


async def test_known_rounds_continue_without_the_server(shuffler):
    header = shuffler.server.publish()
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
    shuffler.server.publications.clear()
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
