"""Somebody sets the server's clock by a day, forwards or backwards: no phase fails, closes early or stays open."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx
import pytest

from privateer_core.wire.publication import decode_publication
from privateer_server.app import create_app
from privateer_server.rounds.deadlines import Deadlines
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.clocks import Hands
from tests.support.phased import tables
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, PHASED, Api
from tests.unit.shuffler.helpers import until

DAY = 86_400
REDUCED = {"asking.seconds": 600, "asking.when_short": "reduce", "asking.least_share": 0.5}
Serving = Callable[[], AbstractAsyncContextManager[Api]]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry a look at the deadlines, when no round is being closed."""
    monkeypatch.setattr("privateer_server.rounds.deadlines._LOOK_SECONDS", 0.005)
    looked: list[int] = []
    look = Deadlines.look

    def counted(self: Deadlines) -> None:
        look(self)
        if not self._expiring:
            looked.append(1)

    monkeypatch.setattr(Deadlines, "look", counted)
    return looked


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def serve(settings: ServerSettings, clock: Hands) -> Serving:
    @asynccontextmanager
    async def served() -> AsyncIterator[Api]:
        async with serving(create_app(settings, clock)) as client:
            yield Api(client)

    return served


async def create(api: Api) -> httpx.Response:
    return await api.client.post("/experiments", json=tables({**PHASED, **REDUCED}, "local"), headers=ADMIN)


async def report(api: Api, people: int) -> None:
    publication = await api.publication()
    await api.client.post("/reports", content=body_of(publication, sealed_reports(publication, people)))


async def some_looks(looks: list[int]) -> None:
    seen = len(looks)
    await until(lambda: len(looks) > seen + 5)


async def passing(clock: Hands, looks: list[int], seconds: int) -> None:
    """Time goes by, with looks at the deadlines meanwhile."""
    for _ in range(10):
        clock.time += seconds / 10
        seen = len(looks)
        await until(lambda: len(looks) > seen + 1)  # noqa: B023 - awaited at once


@pytest.mark.parametrize("step", [DAY, -DAY])
@pytest.mark.parametrize("before", [True, False])
async def test_a_step_neither_ends_a_phase_nor_keeps_it_open(
    serve: Serving, clock: Hands, looks: list[int], step: float, before: bool
) -> None:
    """The step comes before or after enough people have reported for the phase to close at its deadline."""
    async with serve() as api:
        await create(api)
        least = decode_publication(await api.publication()).round.least
        if not before:
            await report(api, least)
        clock.step(step)
        await passing(clock, looks, 300)
        facts = await api.facts()
        assert facts | {"version": 1, "status": "open"} == facts
        if before:
            await report(api, least)
        await passing(clock, looks, 310)
        facts = await api.facts()
        assert facts | {"version": 2, "status": "open", "accepted": least} == facts


@pytest.mark.parametrize("step", [DAY, -DAY])
async def test_a_clock_that_is_wrong_at_a_restart_and_then_set_right(
    serve: Serving, clock: Hands, looks: list[int], step: float
) -> None:
    async with serve() as api:
        await create(api)
        least = decode_publication(await api.publication()).round.least
        await report(api, least - 1)
        await passing(clock, looks, 100)
    clock.step(step)
    async with serve() as api:
        await passing(clock, looks, 50)
        clock.step(-step)
        await some_looks(looks)
        await passing(clock, looks, 400)
        facts = await api.facts()
        assert facts | {"version": 1, "status": "open"} == facts
        await report(api, least)
        await passing(clock, looks, 60)
        facts = await api.facts()
        assert facts | {"version": 2, "status": "open"} == facts


async def test_a_phase_fails_only_after_it_was_late_for_a_while(serve: Serving, clock: Hands, looks: list[int]) -> None:
    async with serve() as api:
        await create(api)
        clock.time += 10_000  # a machine that slept
        await some_looks(looks)
        clock.time += 59
        await some_looks(looks)
        facts = await api.facts()
        assert facts | {"version": 1, "status": "open"} == facts
        clock.time += 1
        await asyncio.wait_for(failed(api), 20)


async def failed(api: Api) -> None:
    while (await api.facts())["status"] != "failed":
        await asyncio.sleep(0.01)
