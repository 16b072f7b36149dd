"""Somebody listens to the stream of news all the time, to learn when a certain person reports."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from privateer_server.api import models
from privateer_server.api.news import News
from privateer_server.app import create_app
from privateer_server.settings import Settings
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SMALL, Api
from tests.unit.server.conftest import settings, shuffler_key  # noqa: F401

BEAT = 0.5
TOLERANCE = 0.15
"""Seconds by which a message may come after its beat on a slow machine."""


class Eager(News):
    """A planted defect: it looks all the time."""

    def _later(self) -> None:
        asyncio.get_running_loop().call_later(0.01, self._strike)


async def heard(news: News, api: Api, waits: list[float]) -> list[tuple[float, int]]:
    """When a listener hears of how many reports, while people report after these waits; seconds since a beat."""
    loop, found = asyncio.get_running_loop(), list[tuple[float, int]]()
    publication = await api.publication()
    people = [body_of(publication, [one]) for one in sealed_reports(publication, len(waits))]

    async def reporting() -> None:
        for wait, body in zip(waits, people, strict=True):
            await asyncio.sleep(wait)
            assert (await api.client.post("/reports", content=body)).status_code == 202

    async with asyncio.timeout(30), aclosing(news.follow()) as following:
        reports: asyncio.Task[None] | None = None
        async for one in following:
            if reports is None:  # the first message comes at once: it is what the pages say
                reports = asyncio.create_task(reporting())
                continue
            if one:
                found.append((loop.time() % BEAT, one.experiments[0].accepted))
            if found and found[-1][1] == len(waits):
                break
        assert reports is not None
        await reports
    return found


@pytest.mark.parametrize("kind", [News, Eager])
async def test_news_come_on_the_beat_whenever_people_report(
    settings: Settings,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    kind: type[News],
) -> None:
    made: list[News] = []

    def make(experiments: Any) -> News:
        made.append(kind(experiments, BEAT))
        return made[0]

    monkeypatch.setattr("privateer_server.app.News", make)
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        found = await heard(made[0], api, [0.13, 0.21, 0.29, 0.17, 0.37, 0.11, 0.23])
    assert sum(accepted for _, accepted in found) > 0
    on_the_beat = all(since <= TOLERANCE for since, _ in found)
    assert on_the_beat == (kind is News)


async def test_a_stream_has_nothing_that_the_pages_have_not() -> None:
    """Not even a time: fields are those of the public pages, and what says which messages were heard."""
    assert set(models.Standing.model_fields) < set(models.Details.model_fields)
    assert set(models.News.model_fields) == {"id", "whole", "experiments", "deleted"}


async def test_ids_count_messages_and_not_reports(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    made: list[News] = []
    monkeypatch.setattr(
        "privateer_server.app.News", lambda experiments: made.append(News(experiments, BEAT)) or made[0]
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
