"""Pages are made once for each version; senders have theirs made in turns."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from privateer_core.errors import Unavailable
from privateer_core.serving import fair_queue
from privateer_core.serving.fair_queue import FairQueue
from privateer_core.serving.http.listeners import IS_PUBLIC_KEY
from privateer_core.serving.http.page_cache import PageCache, Version


class Maker:
    """Makes pages, and counts how often."""

    def __init__(self, size: int = 10, status: int = 200) -> None:
        self.paths: list[str] = []
        self.size, self.status, self.text = size, status, "first"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] == b""
        self.paths.append(scope["path"])
        await asyncio.sleep(0)
        body = self.text.encode().ljust(self.size)
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body[:4], "more_body": True})
        await send({"type": "http.response.body", "body": body[4:]})

    def version(self, scope: Any) -> Version | None:
        return Version(scope["path"], self.text) if scope["path"] != "/live" else None


async def get_page(
    cache: Any, path: str = "/page", method: str = "GET", tag: bytes = b""
) -> tuple[int, dict[bytes, bytes], bytes]:
    answer: dict[str, Any] = {"body": b""}

    async def send(message: Any) -> None:
        answer.update({name: value for name, value in message.items() if name in ("status", "headers")})
        answer["body"] += message.get("body", b"")

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"if-none-match", tag)] if tag else []
    scope = {"type": "http", "method": method, "path": path, "headers": headers, "client": ("127.0.0.2", 1)}
    await cache({**scope, IS_PUBLIC_KEY: True}, receive, send)
    return answer["status"], dict(answer["headers"]), answer["body"]


async def test_a_page_is_made_once_for_each_version() -> None:
    maker = Maker()
    cache = PageCache(maker, maker.version)
    answers = await asyncio.gather(*(get_page(cache) for _ in range(5)))
    assert maker.paths == ["/page"]
    assert {body for _, _, body in answers} == {b"first     "}
    maker.text = "second"
    assert (await get_page(cache))[2] == b"second    "
    assert maker.paths == 2 * ["/page"]


async def test_a_page_without_a_version_is_not_cached() -> None:
    maker = Maker()
    cache = PageCache(maker, maker.version)
    for _ in range(3):
        await get_page(cache, "/live")
    assert maker.paths == 3 * ["/live"]


async def test_a_page_that_has_not_changed_is_not_sent_again() -> None:
    maker = Maker()
    cache = PageCache(maker, maker.version)
    _, headers, _ = await get_page(cache)
    tag = headers[b"etag"]
    for header in (tag, b"W/" + tag, b'"other", ' + tag, b"*"):
        status, response_headers, body = await get_page(cache, tag=header)
        assert (status, body) == (304, b"")
        assert response_headers == {b"etag": tag, b"cache-control": b"no-cache"}
    maker.text = "second"
    status, headers, body = await get_page(cache, tag=tag)
    assert (status, body) == (200, b"second    ")
    assert headers[b"etag"] != tag


async def test_head_has_the_headers_alone() -> None:
    maker = Maker()
    cache = PageCache(maker, maker.version)
    status, headers, body = await get_page(cache, method="HEAD")
    assert (status, headers[b"content-length"], body) == (200, b"10", b"")
    assert (await get_page(cache))[2] == b"first     "
    assert len(maker.paths) == 1


async def test_a_refusal_is_not_cached() -> None:
    maker = Maker(status=404)
    cache = PageCache(maker, maker.version)
    for _ in range(2):
        status, headers, _ = await get_page(cache)
        assert status == 404
        assert b"etag" not in headers
    assert len(maker.paths) == 2


async def test_the_least_recently_used_page_is_evicted() -> None:
    maker = Maker(size=1000)
    cache = PageCache(maker, maker.version, bytes_max=5000)
    for path in ("/a", "/b", "/a", "/c", "/a", "/b"):
        await get_page(cache, path)
    assert maker.paths == ["/a", "/b", "/c", "/b"]


async def test_senders_alternate_in_the_page_queue() -> None:
    queue, finished, gate = FairQueue(), list[str](), asyncio.Event()

    async def work(name: str) -> None:
        await gate.wait()
        finished.append(name)

    names = ["greedy"] * 20 + ["honest"] * 2
    tasks = [asyncio.create_task(queue.run(name, lambda name=name: work(name))) for name in names]  # type: ignore[misc]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*tasks)
    assert finished[:5] == ["greedy", "greedy", "honest", "greedy", "honest"]


async def test_the_queue_of_one_sender_is_bounded() -> None:
    queue, gate = FairQueue(sender_max=3), asyncio.Event()
    tasks = [asyncio.create_task(queue.run("a", gate.wait)) for _ in range(5)]
    other = asyncio.create_task(queue.run("b", gate.wait))
    await asyncio.sleep(0)
    gate.set()
    results = await asyncio.gather(*tasks, other, return_exceptions=True)
    assert [isinstance(reply, Unavailable) for reply in results] == [False, False, False, False, True, False]


async def test_page_work_takes_at_most_a_quarter_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [100.0], list[float]()
    monkeypatch.setattr(fair_queue.time, "perf_counter", lambda: now[0])
    real = asyncio.get_running_loop().call_later

    class Loop:
        def create_future(self) -> asyncio.Future[None]:
            return asyncio.Future()

        def call_later(self, rest: float, callback: Callable[[], None]) -> None:
            slept.append(rest)
            real(0, callback)

    monkeypatch.setattr(fair_queue.asyncio, "get_running_loop", Loop)
    queue = FairQueue()

    async def work() -> None:
        now[0] += 0.02

    for _ in range(3):
        await queue.run("a", work)
    assert slept == pytest.approx([0.06] * 3)
    now[0], slept[:] = 0.0, []

    async def long() -> None:
        now[0] += 5

    await queue.run("a", long)
    assert slept == [0.25]


async def test_cancelled_requests_do_not_block_the_queue() -> None:
    queue, gate = FairQueue(), asyncio.Event()
    first = asyncio.create_task(queue.run("a", gate.wait))
    cancelled = [asyncio.create_task(queue.run("b", gate.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    last = asyncio.create_task(queue.run("c", gate.wait))
    await asyncio.sleep(0)
    for task in cancelled:
        task.cancel()
    gate.set()
    async with asyncio.timeout(5):
        await first
        assert await last


async def test_work_that_fails_lets_the_next_one_go_on() -> None:
    queue = FairQueue()

    async def fails() -> None:
        raise ValueError("planted")

    async def works() -> int:
        return 1

    with pytest.raises(ValueError, match="planted"):
        await queue.run("a", fails)
    assert await queue.run("a", works) == 1
