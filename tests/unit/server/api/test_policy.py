"""The policy over REST: representations, entity tags, long poll."""

import asyncio
import time

import msgspec
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.privacy.terms_verification import Limits, verify
from privateer_core.wire.publication import decode_publication, digest
from privateer_server.rounds.open_round import read_policy
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, MSGPACK, SHUFFLED, SMALL, Api, assert_problem

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
