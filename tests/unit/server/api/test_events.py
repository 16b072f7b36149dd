"""Server-sent events: what changed, in beats, to so many listeners at a time."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from privateer_core.answer.people import People
from privateer_core.errors import Unavailable
from privateer_server.api import models, views
from privateer_server.api.events import ChangeFeed, Stream
from privateer_server.api.long_polls import ConnectionLimit
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.servers import ADMIN, SMALL, Api, assert_problem
from tests.unit.shuffler.helpers import until

BEAT = 0.02


def standing(name: str, accepted: int = 0) -> models.Standing:
    texts = {"name": name, "status": "open", "model": "m", "algorithm": "a", "digest": "d"}
    counts = dict.fromkeys(("version", "batch", "received"), 1)
    rest: dict[str, Any] = {
        "refused": {},
        "shuffler": None,
        "draining_until": None,
        "accepts": [],
        "publishes_result": True,
    }
    return models.Standing(**texts, **counts, **rest, accepted=accepted, people=People(1, not_asked=1))


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> dict[str, models.Standing]:
    """Where experiments stand, by name: what `ChangeFeed` finds in this module."""
    found: dict[str, models.Standing] = {}
    monkeypatch.setattr(views, "standing", lambda one: found[one.name])
    return found


def listed(there: dict[str, models.Standing]) -> Any:
    class Listed:
        def __iter__(self) -> Any:
            return iter([SimpleNamespace(name=name) for name in there])

    return Listed()


async def told(news: ChangeFeed, count: int, since: str = "", name: str | None = None) -> list[models.News]:
    """The next messages that say something."""
    found: list[models.News] = []
    async with asyncio.timeout(20), aclosing(news.follow(since, name)) as following:
        async for one in following:
            found += [one] if one else []
            if len(found) == count:
                break
    return found


async def test_the_first_message_is_the_whole_and_the_next_ones_what_changed(there: dict[str, Any]) -> None:
    there |= {"a": standing("a"), "b": standing("b")}
    news, heard = ChangeFeed(listed(there), BEAT), list[models.News]()
    async with asyncio.timeout(20), aclosing(news.follow()) as following:
        async for one in following:
            if one is None:
                continue
            heard.append(one)
            if len(heard) == 1:
                there["b"] = standing("b", 7)
            elif len(heard) == 2:
                del there["a"]
            else:
                break
    assert [(one.whole, [n.name for n in one.experiments], one.deleted) for one in heard] == [
        (True, ["a", "b"], []),
        (False, ["b"], []),
        (False, [], ["a"]),
    ]
    assert heard[1].experiments[0].accepted == 7
    assert len({one.id for one in heard}) == 3


async def test_who_comes_again_hears_what_came_meanwhile(there: dict[str, Any]) -> None:
    there |= {"a": standing("a"), "b": standing("b")}
    news = ChangeFeed(listed(there), BEAT)
    (first,) = await told(news, 1)
    there["a"] = standing("a", 3)
    (again,) = await told(news, 1, first.id)
    assert (again.whole, [one.name for one in again.experiments]) == (False, ["a"])


@pytest.mark.parametrize("since", ["x", "0000000000000000-1", "{epoch}-99", "{epoch}--1", "{epoch}-", "{epoch}-²"])
async def test_an_id_that_this_process_has_not_given_gets_the_whole(there: dict[str, Any], since: str) -> None:
    there["a"] = standing("a")
    news = ChangeFeed(listed(there), BEAT)
    (first,) = await told(news, 1)
    (again,) = await told(news, 1, since.format(epoch=first.id.split("-")[0]))
    assert again.whole


async def test_a_beat_that_brings_nothing_is_a_sign_of_life(there: dict[str, Any]) -> None:
    there["a"] = standing("a")
    heard = []
    async with asyncio.timeout(20), aclosing(ChangeFeed(listed(there), BEAT).follow()) as following:
        async for one in following:
            heard.append(one)
            if len(heard) == 4:
                break
    assert heard[1:] == [None, None, None]


async def test_a_stream_of_one_experiment_ends_when_it_is_deleted(there: dict[str, Any]) -> None:
    there |= {"a": standing("a"), "b": standing("b")}
    heard = []
    async with asyncio.timeout(20), aclosing(ChangeFeed(listed(there), BEAT).follow(name="a")) as following:
        async for one in following:
            heard.append(one)
            there.pop("a", None)
    assert [one.name for one in heard[0].experiments] == ["a"]
    assert heard[-1].deleted == ["a"]


async def test_nothing_is_looked_at_while_nobody_listens(there: dict[str, Any]) -> None:
    looks = []

    class Listed:
        def __iter__(self) -> Any:
            looks.append(1)
            return iter(())

    news = ChangeFeed(Listed(), BEAT)
    await told(news, 1)
    await asyncio.sleep(3 * BEAT)
    before = len(looks)
    await asyncio.sleep(5 * BEAT)
    assert len(looks) == before
    await told(news, 1)
    assert len(looks) > before


def test_one_sender_keeps_nobody_out() -> None:
    seats = ConnectionLimit(4)
    greedy = [seats.take("greedy") for _ in range(4)]
    with pytest.raises(Unavailable):
        seats.take("greedy")
    other = seats.take("other")
    assert [one.is_taken for one in greedy] == [False, True, True, True]
    seats.take("other")
    assert [one.is_taken for one in greedy] == [False, False, True, True]
    with pytest.raises(Unavailable):
        seats.take("other")  # it would hold more than the greedy one
    assert len(seats) == 4
    seats.leave("other", other)
    seats.leave("greedy", greedy[0])
    assert len(seats) == 3


def test_where_everybody_holds_one_the_next_one_waits() -> None:
    seats = ConnectionLimit(2)
    first, _ = seats.take("a"), seats.take("b")
    with pytest.raises(Unavailable):
        seats.take("c")
    assert first.is_taken


async def streamed(news: ChangeFeed, seats: ConnectionLimit, received: Callable[[], Any], sent: list[bytes]) -> None:
    """Note what a stream sends to somebody from whom these messages come."""

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    stream = Stream(news.follow(), seats, seats.take("a"), "a")
    await asyncio.wait_for(stream({"type": "http", "method": "GET"}, received, send), 20)


async def test_a_seat_is_free_again_when_its_listener_has_gone(there: dict[str, Any]) -> None:
    there["a"] = standing("a")
    seats, sent = ConnectionLimit(1), list[bytes]()

    async def gone() -> dict[str, str]:
        await until(lambda: b":\n\n" in sent)
        return {"type": "http.disconnect"}

    await streamed(ChangeFeed(listed(there), BEAT), seats, gone, sent)
    assert len(seats) == 0
    assert sent[1].startswith(b"id: ")


async def test_who_loses_the_seat_loses_the_stream(there: dict[str, Any]) -> None:
    seats, news = ConnectionLimit(2), ChangeFeed(listed(there), BEAT)
    sent: list[list[bytes]] = [[], []]
    streams = [asyncio.create_task(streamed(news, seats, asyncio.Event().wait, each)) for each in sent]
    await until(lambda: all(len(each) > 2 for each in sent))
    seats.take("b")
    await asyncio.wait(streams, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    assert [one.done() for one in streams] == [True, False]
    news.end()
    await asyncio.wait_for(streams[1], 20)


@pytest.fixture
async def ended(settings: ServerSettings) -> AsyncIterator[Api]:
    """A server whose streams end with their first message, and an experiment."""
    app = create_app(settings)
    async with serving(app) as client:
        await Api(client).create(SMALL)
        app.end_waits()
        yield Api(client)


def messages(text: str) -> list[dict[str, Any]]:
    blocks = [dict(line.partition(": ")[::2] for line in one.splitlines()) for one in text.split("\n\n") if one]
    return [json.loads(one["data"]) for one in blocks if "data" in one]


@pytest.mark.parametrize("path", ["/events", "/experiments/test/events"])
async def test_a_stream_says_what_the_pages_say(ended: Api, path: str) -> None:
    answer = await ended.client.get(path)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    (news,) = messages(answer.text)
    facts = await ended.facts()
    del facts["spec"]
    assert news == {"whole": True, "experiments": [facts], "deleted": []}


async def test_streams_of_what_is_not_there(ended: Api) -> None:
    assert_problem(await ended.client.get("/experiments/none/events"), 404, "not-found")
    await ended.client.delete("/experiments/test", headers=ADMIN)
    assert_problem(await ended.client.get("/experiments/test/events"), 410, "deleted")


async def test_beyond_the_cap_a_stream_is_refused(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privateer_server.api.events.STREAMS_MAX", 1)
    app = create_app(settings)
    async with serving(app):
        transport = httpx.ASGITransport(app.public)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as stranger:
            taken, take = asyncio.Event(), ConnectionLimit.take
            monkeypatch.setattr(ConnectionLimit, "take", lambda seats, sender: (take(seats, sender), taken.set())[0])
            first = asyncio.create_task(stranger.get("/events"))
            await asyncio.wait_for(taken.wait(), 20)
            refused = await stranger.get("/events")
            assert_problem(refused, 503, "unavailable")
            assert refused.headers["retry-after"]
            assert (await stranger.get("/experiments")).status_code == 200
            app.end_waits()
            assert (await first).status_code == 200


async def test_head_of_a_stream_ends_at_once(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as client, asyncio.timeout(20):
        answer = await client.head("/events")
        assert (answer.status_code, answer.content) == (200, b"")
