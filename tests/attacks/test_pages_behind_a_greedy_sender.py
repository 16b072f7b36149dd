"""Somebody has many costly pages made, and asks for everybody's page last: nobody else waits for their turn."""

import asyncio
from typing import Any

from privateer_core.serving.http.listeners import IS_PUBLIC
from privateer_core.serving.http.page_cache import PageCache, Version


class Maker:
    """Makes pages; a test says what they show, and how long those of a greedy sender take."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.shown = "open"
        self.gate = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.made.append(scope["path"])
        if scope["path"].startswith("/costly"):
            await self.gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self.shown.encode()})

    def version(self, scope: Any) -> Version:
        return Version(scope["path"], self.shown)


async def asked(cache: PageCache, path: str, sender: str) -> bytes:
    body = bytearray()

    async def send(message: Any) -> None:
        body.extend(message.get("body", b""))

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "client": (sender, 1), IS_PUBLIC: True}
    await cache(scope, receive, send)
    return bytes(body)


def queued(cache: PageCache, *paths: str, sender: str = "127.0.0.2") -> list[asyncio.Task[bytes]]:
    return [asyncio.create_task(asked(cache, path, sender)) for path in paths]


async def test_nobody_waits_for_the_turn_of_another_sender() -> None:
    maker = Maker()
    cache = PageCache(maker, maker.version)
    greedy = queued(cache, *(f"/costly/{number}" for number in range(30)), "/page")
    await asyncio.sleep(0)
    honest = queued(cache, "/page", "/page", sender="127.0.0.3")
    await asyncio.sleep(0)
    maker.gate.set()
    async with asyncio.timeout(10):
        assert await asyncio.gather(*honest) == [b"open", b"open"]
        before = len(maker.made)
        await asyncio.gather(*greedy)
    assert before < 5, maker.made[:before]
    assert maker.made.count("/page") == 1, "whose turn comes later gets what is there"


async def test_a_page_that_waited_is_not_kept_as_what_was_shown_before() -> None:
    """The experiment is paused while a page waits for its turn, and resumed: nobody reads then that it is paused."""
    maker = Maker()
    cache = PageCache(maker, maker.version)
    waiting = queued(cache, "/costly", "/page")
    await asyncio.sleep(0)
    maker.shown = "paused"
    maker.gate.set()
    async with asyncio.timeout(10):
        assert (await asyncio.gather(*waiting))[1] == b"paused"
        maker.shown = "open"
        assert await asked(cache, "/page", "127.0.0.3") == b"open"


async def test_a_page_that_changes_while_it_is_made_is_not_kept() -> None:
    maker = Maker()
    cache = PageCache(maker, maker.version)
    (making,) = queued(cache, "/costly")
    while not maker.made:
        await asyncio.sleep(0)
    maker.shown = "paused"
    maker.gate.set()
    async with asyncio.timeout(10):
        assert await making == b"paused"
        maker.shown = "open"
        assert await asked(cache, "/costly", "127.0.0.3") == b"open"
