"""Groups of reports are counted one after another, and a closing round does not block other experiments."""

import asyncio
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from privateer_server.app import create_app
from privateer_server.intake.decryption import RoundKeys
from privateer_server.rounds.open_round import OpenRound
from privateer_server.rounds.succession import RoundPublisher
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, SMALL, Api, assert_problem

SLOW = {**SMALL, "experiment.name": "slow"}


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """The experiment ``slow`` learns from a round once the event is set."""
    event, close = Event(), RoundPublisher.learn_and_publish

    def wait(publisher: RoundPublisher, current: OpenRound) -> Any:
        if current.round.experiment == "slow":
            assert event.wait(20)
        return close(publisher, current)

    monkeypatch.setattr(RoundPublisher, "learn_and_publish", wait)
    yield event
    event.set()


async def fill(api: Api, name: str) -> Any:
    body = await api.publication(name)
    return await api.client.post("/reports", content=body_of(body, sealed_reports(body, 20)))


async def test_experiments_learn_concurrently(api: Api, learning: Event) -> None:
    await api.create(SLOW)
    await api.create(SMALL)
    slow = asyncio.create_task(fill(api, "slow"))
    for version in (2, 3):
        assert (await fill(api, "test")).json()["accepted"] == 20
        assert (await api.facts("test"))["version"] == version
    assert not slow.done()
    assert (await api.facts("slow"))["version"] == 1
    learning.set()
    assert (await slow).json()["accepted"] == 20
    assert (await api.facts("slow"))["version"] == 2


async def test_reports_for_a_closing_round_wait_for_the_next_round(api: Api, learning: Event) -> None:
    await api.create(SLOW)
    body = await api.publication("slow")
    slow = asyncio.create_task(fill(api, "slow"))
    while not (await api.facts("slow"))["accepted"]:
        await asyncio.sleep(0.01)
    late = asyncio.create_task(api.client.post("/reports", content=body_of(body, sealed_reports(body, 1))))
    await asyncio.sleep(0.05)
    assert not late.done()
    learning.set()
    assert_problem(await late, 409, "round-closed")
    assert (await slow).status_code == 202
    facts = await api.facts("slow")
    assert (facts["version"], facts["accepted"], facts["refused"]) == (2, 20, {"round-closed": 1})


async def test_an_unreadable_round_key_does_not_stop_intake(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError

    await api.create(SMALL)
    with monkeypatch.context() as broken:
        broken.setattr(RoundKeys, "find_decryptor", fail)
        async with asyncio.timeout(20):
            assert_problem(await fill(api, "test"), 503, "unavailable")
    assert (await fill(api, "test")).json()["accepted"] == 20


async def test_the_queue_for_a_closing_round_is_bounded(
    api: Api, learning: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privateer_server.intake.intake._MAX_QUEUED_REQUESTS", 3)
    await api.create(SLOW)
    body = await api.publication("slow")
    slow = asyncio.create_task(fill(api, "slow"))
    while not (await api.facts("slow"))["accepted"]:
        await asyncio.sleep(0.01)
    late = [body_of(body, sealed_reports(body, 1)) for _ in range(5)]
    waiting = {asyncio.create_task(api.client.post("/reports", content=upload)) for upload in late}
    finished = set[asyncio.Task[Any]]()
    async with asyncio.timeout(20):
        while len(finished) < 2:
            newly_finished, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finished |= newly_finished
    for task in finished:
        assert_problem(await task, 503, "unavailable")
    learning.set()
    for task in waiting:
        assert_problem(await task, 409, "round-closed")
    assert (await slow).status_code == 202


async def test_intake_continues_while_a_change_waits_for_a_closing_round(api: Api, learning: Event) -> None:
    await api.create(SLOW)
    await api.create(SMALL)
    slow = asyncio.create_task(fill(api, "slow"))
    while not (await api.facts("slow"))["accepted"]:
        await asyncio.sleep(0.01)
    pause = asyncio.create_task(api.client.post("/experiments/slow/pause", headers=ADMIN))
    await asyncio.sleep(0.05)
    async with asyncio.timeout(20):
        assert (await fill(api, "test")).json()["accepted"] == 20
    assert not pause.done()
    learning.set()
    assert (await pause).status_code == 200
    assert (await slow).status_code == 202


async def test_deadlines_are_met_while_another_experiment_learns(
    settings: ServerSettings, learning: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privateer_server.rounds.background_checks._CHECK_INTERVAL_SECONDS", 0.01)
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SLOW)
        await api.create(SMALL)
        slow = asyncio.create_task(fill(api, "slow"))
        while not (await api.facts("slow"))["accepted"]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        pause = await client.post("/experiments/test/pause", json={"seconds": 0.1}, headers=ADMIN)
        assert pause.status_code == 200
        async with asyncio.timeout(20):
            while (await api.facts("test"))["version"] != 2:
                await asyncio.sleep(0.01)
        assert not slow.done()
        learning.set()
        await slow


async def test_a_change_waits_for_the_round_of_its_experiment_alone(api: Api, learning: Event) -> None:
    await api.create(SLOW)
    await api.create(SMALL)
    slow = asyncio.create_task(fill(api, "slow"))
    while not (await api.facts("slow"))["accepted"]:
        await asyncio.sleep(0.01)
    assert (await api.client.post("/experiments/test/pause", headers=ADMIN)).status_code == 200
    pause = asyncio.create_task(api.client.post("/experiments/slow/pause", headers=ADMIN))
    await asyncio.sleep(0.05)
    assert not pause.done()
    learning.set()
    assert (await pause).status_code == 200
    assert (await slow).status_code == 202
    assert (await api.facts("slow"))["status"] == "paused"
