"""The door for reports: rounds that close at exactly their batch, and every refusal with its counter."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from privateer_core.wire.publication import decode_publication
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, header_for, plain_reports, seal, sealed_reports
from tests.support.servers import SHUFFLED, SMALL, Api, assert_problem


@pytest.fixture(params=["at once", "as they come"])
async def api(request: pytest.FixtureRequest, settings: ServerSettings) -> AsyncIterator[Api]:
    """A server whose uploads come as a whole, or piece by piece."""
    async with serving(create_app(settings), request.param == "at once") as client:
        yield Api(client)


async def assert_refused(api: Api, body: bytes, status: int, slug: str, count: int = 1, durable: bool = True) -> None:
    """Check that a body is refused as a whole, and counted in the answer, the experiment and the metrics."""
    problem = assert_problem(await api.client.post("/reports", content=body), status, slug)
    assert await api.metric(f'privateer_reports_refused_total{{reason="{slug}"}}') == count
    if durable:
        assert problem["refused"] == {slug: count}
        facts = await api.facts()
        assert facts["refused"] == {slug: count}
        assert facts["accepted"] == 0


async def test_round_closes_at_exactly_its_batch(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    sealed = sealed_reports(first, 20)
    assert (await api.client.post("/reports", content=body_of(first, sealed[:19]))).json()["accepted"] == 19
    assert await api.publication() == first
    assert (await api.facts())["received"] == 19
    last = await api.client.post("/reports", content=body_of(first, sealed[19:]))
    assert (last.status_code, last.json()) == (202, {"accepted": 1, "refused": {}})
    second = decode_publication(await api.publication())
    assert (second.round.version, second.round.batch_size) == (2, 20)
    facts = await api.facts()
    assert facts | {"version": 2, "received": 0, "accepted": 20} == facts
    rounds = (await api.client.get("/experiments/test/history")).json()["rounds"]
    assert [(row["version"], row["received"]) for row in rounds] == [(1, 20), (2, 0)]
    assert await api.metric("privateer_rounds_closed_total") == 1
    assert await api.metric("privateer_reports_accepted_total") == 20
    assert await api.metric('privateer_version{experiment="test"}') == 2


async def test_reports_beyond_the_batch_are_refused_in_the_same_answer(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    response = await api.client.post("/reports", content=body_of(first, sealed_reports(first, 25)))
    assert (response.status_code, response.json()) == (202, {"accepted": 20, "refused": {"round-closed": 5}})


async def test_concurrent_requests_fill_the_round_exactly(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    posts = [
        api.client.post("/reports", content=body_of(first, [sealed_report]))
        for sealed_report in sealed_reports(first, 30)
    ]
    statuses = [response.status_code for response in await asyncio.gather(*posts)]
    assert sorted(statuses) == [202] * 20 + [409] * 10
    facts = await api.facts()
    assert facts | {"version": 2, "accepted": 20, "refused": {"round-closed": 10}} == facts


async def test_experiment_ends_at_its_horizon(api: Api) -> None:
    await api.create({"experiment.round_size": 20, "experiment.horizon": 50})
    for batch in (20, 20, 10):
        body = await api.publication()
        response = await api.client.post("/reports", content=body_of(body, sealed_reports(body, batch)))
        assert response.json()["accepted"] == batch
    last = await api.publication()
    assert decode_publication(last).round.batch_size == 0
    facts = await api.facts()
    assert facts | {"status": "finished", "version": 4, "accepted": 50} == facts
    response = await api.client.post("/reports", content=body_of(last, [seal(last, os.urandom(22))]))
    assert_problem(response, 409, "round-closed")


async def test_experiments_do_not_mix(api: Api) -> None:
    await api.create(SMALL)
    await api.create(SMALL | {"experiment.name": "other"})
    first, second = await api.publication(), await api.publication("other")
    answers = await asyncio.gather(
        api.client.post("/reports", content=body_of(first, sealed_reports(first, 20))),
        api.client.post("/reports", content=body_of(second, sealed_reports(second, 7))),
    )
    assert [answer.json()["accepted"] for answer in answers] == [20, 7]
    assert (await api.facts())["version"] == 2
    facts = await api.facts("other")
    assert (facts["version"], facts["received"]) == (1, 7)


async def test_duplicates_count_once(api: Api) -> None:
    await api.create(SMALL)
    body = await api.publication()
    first, second = sealed_reports(body, 2)
    response = await api.client.post("/reports", content=body_of(body, [first, first, second]))
    assert response.json() == {"accepted": 2, "refused": {"duplicate-report": 1}}
    response = await api.client.post("/reports", content=body_of(body, [second]))
    problem = assert_problem(response, 409, "duplicate-report")
    assert problem["refused"] == {"duplicate-report": 1}
    facts = await api.facts()
    assert facts | {"received": 2, "refused": {"duplicate-report": 2}} == facts


@pytest.mark.parametrize("body", [b"", b"\x00", b"not msgpack", b"\x92\x94\xa1x"])
async def test_malformed_bodies(api: Api, body: bytes) -> None:
    await assert_refused(api, body, 400, "malformed-report", durable=False)


async def test_unknown_experiment(api: Api) -> None:
    await api.create(SMALL)
    body = await api.publication()
    header = msgspec.structs.replace(header_for(body), experiment="nobody")
    await assert_refused(api, body_of(body, sealed_reports(body, 1), header), 404, "not-found", durable=False)


@pytest.mark.parametrize("damage", [b"", b"x" * 73, b"x" * 72 * 1001])
async def test_wrong_size(api: Api, damage: bytes) -> None:
    await api.create(SMALL)
    body = await api.publication()
    count = max(1, len(damage) // 72)
    await assert_refused(api, body_of(body, [damage]), 400, "wrong-size", count)


@pytest.mark.parametrize(
    ("change", "slug"),
    [
        ({"key_id": b"other..."}, "wrong-key"),
        ({"digest": b"other".ljust(32, b".")}, "wrong-digest"),
        ({"version": 2}, "round-unknown"),
    ],
)
async def test_headers_of_another_round(api: Api, change: dict[str, Any], slug: str) -> None:
    await api.create(SMALL)
    body = await api.publication()
    header = msgspec.structs.replace(header_for(body), **change)
    await assert_refused(api, body_of(body, sealed_reports(body, 3), header), 409, slug, 3)


async def test_reports_for_a_closed_round(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    await api.client.post("/reports", content=body_of(first, sealed_reports(first, 20)))
    response = await api.client.post("/reports", content=body_of(first, sealed_reports(first, 1, seed=1)))
    assert assert_problem(response, 409, "round-closed")["refused"] == {"round-closed": 1}


async def test_reports_that_do_not_open(api: Api) -> None:
    await api.create(SMALL)
    body = await api.publication()
    await assert_refused(api, body_of(body, [os.urandom(72), os.urandom(72)]), 400, "decryption-failed", 2)


async def test_reports_bound_to_another_round_do_not_open(api: Api) -> None:
    await api.create(SMALL)
    body = await api.publication()
    elsewhere = msgspec.structs.replace(header_for(body), version=7)
    sealed = seal(body, os.urandom(16) + plain_reports(body, 1)[0], elsewhere)
    await assert_refused(api, body_of(body, [sealed]), 400, "decryption-failed")


async def test_reports_out_of_range(api: Api) -> None:
    await api.create(SMALL)
    body = await api.publication()
    await assert_refused(api, body_of(body, [seal(body, os.urandom(16) + bytes(2) + b"\xff" * 6)]), 400, "out-of-range")


async def test_one_bad_report_does_not_cost_the_others(api: Api) -> None:
    await api.create(SMALL)
    body = await api.publication()
    bad = [os.urandom(72), seal(body, os.urandom(16) + bytes(2) + b"\xff" * 6)]
    response = await api.client.post("/reports", content=body_of(body, bad + sealed_reports(body, 5)))
    assert response.json() == {"accepted": 5, "refused": {"decryption-failed": 1, "out-of-range": 1}}


async def test_reports_for_the_shuffler(api: Api) -> None:
    await api.create(SHUFFLED)
    body = await api.publication()
    await assert_refused(api, body_of(body, sealed_reports(body, 1)), 400, "wrong-endpoint")


async def test_bodies_above_the_limit(api: Api) -> None:
    await assert_refused(api, bytes(5 << 20), 413, "too-large", durable=False)


async def test_streamed_bodies_above_the_limit(api: Api) -> None:
    async def stream() -> Any:
        for _ in range(6):
            yield bytes(1 << 20)

    assert_problem(await api.client.post("/reports", content=stream()), 413, "too-large")
