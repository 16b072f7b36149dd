"""Somebody listens to the stream of news all the time, to learn when a certain person reports."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest

from privateer_server.api import events, models
from privateer_server.api.events import ChangeFeed
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SMALL, Api
from tests.unit.server.conftest import settings, shuffler_key  # noqa: F401

BEAT = 0.5


class Beats:
    """A loop whose time passes when a test says so, to hear the same on every machine."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._due: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        """Seconds since nothing in particular."""
        return self.now

    def call_later(self, delay: float, strike: Callable[[], object]) -> None:
        """Do something once so much time has passed."""
        self._due.append((self.now + delay, strike))

    async def passes(self, seconds: float, heard: list[Any]) -> None:
        """Let time pass; whoever listens hears what each strike brought before it goes on."""
        until = self.now + seconds
        while self._due and min(self._due)[0] <= until:
            (self.now, strike), before = self._due.pop(), len(heard)
            strike()
            async with asyncio.timeout(20):
                while len(heard) == before:
                    await asyncio.sleep(0)
        self.now = until


class Eager(ChangeFeed):
    """A planted defect: it looks all the time."""

    def _later(self) -> None:
        events.asyncio.get_running_loop().call_later(0.01, self._strike)


async def told(source: ChangeFeed, beats: Beats, api: Api, waits: list[float]) -> list[tuple[float, int]]:
    """When a listener hears of how many reports, while people report after these waits; seconds since a beat."""
    heard = list[tuple[float, int]]()
    publication = await api.publication()

    async def listen() -> None:
        async with aclosing(source.follow()) as following:
            async for one in following:
                heard.append((beats.now % BEAT, one.experiments[0].accepted if one else 0))

    listener = asyncio.create_task(listen())
    while not heard:  # the first message comes at once: it is what the pages say
        await asyncio.sleep(0)
    del heard[:]
    for wait, report in zip(waits, sealed_reports(publication, len(waits)), strict=True):
        await beats.passes(wait, heard)
        answer = await api.client.post("/reports", content=body_of(publication, [report]))
        assert answer.status_code == 202
    await beats.passes(2 * BEAT, heard)
    listener.cancel()
    return [(since, accepted) for since, accepted in heard if accepted]


@pytest.mark.parametrize("kind", [ChangeFeed, Eager])
async def test_news_come_on_the_beat_whenever_people_report(
    settings: ServerSettings,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    kind: type[ChangeFeed],
) -> None:
    made: list[ChangeFeed] = []

    def make(experiments: Any) -> ChangeFeed:
        made.append(kind(experiments, BEAT))
        return made[0]

    beats, waits = Beats(), [0.13, 0.21, 0.29, 0.17, 0.37, 0.11, 0.23]
    monkeypatch.setattr("privateer_server.app.ChangeFeed", make)
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
        with monkeypatch.context() as patch:
            patch.setattr(events, "asyncio", SimpleNamespace(get_running_loop=lambda: beats, Event=asyncio.Event))
            heard = await told(made[0], beats, Api(client), waits)
    assert heard[-1][1] == len(waits)
    on_the_beat = all(min(since, BEAT - since) < 1e-6 for since, _ in heard)
    assert on_the_beat == (kind is ChangeFeed)


async def test_a_stream_has_nothing_that_the_pages_have_not() -> None:
    """Not even a time: fields are those of the public pages, and what says which messages were heard."""
    assert set(models.Standing.model_fields) < set(models.Details.model_fields)
    assert set(models.News.model_fields) == {"id", "whole", "experiments", "deleted"}


async def test_ids_count_messages_and_not_reports(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    made: list[ChangeFeed] = []
    monkeypatch.setattr(
        "privateer_server.app.ChangeFeed", lambda experiments: made.append(ChangeFeed(experiments, BEAT)) or made[0]
    )
    async with serving(create_app(settings)) as client:
        api, ids = Api(client), list[str]()
        await api.create(SMALL)
        publication = await api.publication()
        async with asyncio.timeout(30), aclosing(made[0].follow()) as following:
            async for one in following:
                ids += [one.id] if one else []
                if len(ids) == 2:
                    break
                if one:
                    for report in sealed_reports(publication, 5):
                        await api.client.post("/reports", content=body_of(publication, [report]))
    first, second = (int(one.split("-")[1]) for one in ids)
    assert second == first + 1
