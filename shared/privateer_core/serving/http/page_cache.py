"""Pages that are made once for each version of what they show, and kept as bytes."""

import asyncio
import time
from collections.abc import Callable, Hashable
from hashlib import sha256
from typing import Any, Final, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from privateer_core.errors import Unavailable
from privateer_core.serving.connections import peer
from privateer_core.serving.fair_queue import FairQueue
from privateer_core.serving.http.answer import Headers, HttpAnswer
from privateer_core.serving.http.listeners import IS_PUBLIC
from privateer_core.serving.http.problems import problem_answer

BYTES_MAX: Final = 64 << 20
_EXTRA: Final = 1024
"""Bytes that a page takes beside its body."""
_OK, _NOT_MODIFIED = 200, 304
_READING: Final = frozenset({"GET", "HEAD"})
_OF_BODIES: Final = frozenset({b"content-type", b"content-length"})
_ASKED: Final = b"if-none-match"


class Version(NamedTuple):
    """A version of a page: what it shows."""

    page: Hashable  # which page it is: everything in the request that its answer depends on
    shown: Hashable  # what it shows. Two answers with the same one are equal.


def common_version(scope: Scope) -> Version | None:
    """Return the version of a page that all services have: strangers have the disk looked at once a second."""
    path = scope["path"]
    if path == "/openapi.json":
        return Version(path, None)
    return Version(path, int(time.monotonic())) if path == "/readyz" and IS_PUBLIC in scope else None


class _Page(NamedTuple):
    shown: Hashable
    answer: HttpAnswer
    tag: bytes
    route: Any
    """What the router has found, for metrics."""

    @property
    def size(self) -> int:
        return len(self.answer.body) + _EXTRA


class PageCache:
    """ASGI middleware that makes a page when it is asked for the first time, and again when it shows something else.

    Every page gets an entity tag. Requests of one sender for one page wait for the same answer. Strangers have pages
    made in turns (`FairQueue`): nobody waits for the turn of another sender, who may have asked for a lot before.

    app: what makes the pages.
    version: returns what a request would show; None: nothing is kept of the answer.
    bytes_max: bytes of the pages that are kept: those that were asked for last.
    """

    def __init__(self, app: ASGIApp, version: Callable[[Scope], Version | None], bytes_max: int = BYTES_MAX) -> None:
        self._app, self._version, self._bytes_max = app, version, bytes_max
        self._kept: dict[Hashable, _Page] = {}  # what was asked for last comes last
        self._size = 0
        self._making: dict[tuple[Version, str], asyncio.Task[_Page]] = {}
        self._queue = FairQueue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with what is kept, or pass it on."""
        version = self._shown(scope) if scope["type"] == "http" and scope["method"] in _READING else None
        if version is None:
            await self._app(scope, receive, send)
            return
        try:
            page = self._known(version) or await self._made(version, scope)
        except Unavailable as error:
            await problem_answer(error).send(scope, send)
            return
        scope["route"] = page.route
        await _answer(page, scope).send(scope, send)

    def _shown(self, scope: Scope) -> Version | None:
        version = self._version(scope)
        return version and version._replace(page=(IS_PUBLIC in scope, version.page))

    def _known(self, version: Version) -> _Page | None:
        page = self._kept.pop(version.page, None)
        if page is None:
            return None
        if page.shown != version.shown:
            self._size -= page.size
            return None
        self._kept[version.page] = page
        return page

    async def _made(self, version: Version, scope: Scope) -> _Page:
        key = version, peer(scope)
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.create_task(self._make(scope))
            making.add_done_callback(lambda _: self._making.pop(key))
        return await asyncio.shield(making)

    async def _make(self, scope: Scope) -> _Page:
        async def work() -> _Page:
            # What is shown may have changed, or somebody else had the page made, while this sender waited.
            version = self._shown(scope)
            return (version and self._known(version)) or await self._fresh(version, scope)

        return await (self._queue.run(peer(scope), work) if IS_PUBLIC in scope else work())

    async def _fresh(self, version: Version | None, scope: Scope) -> _Page:
        headers = [(name, value) for name, value in scope["headers"] if name != _ASKED]
        asked = {**scope, "method": "GET", "headers": headers, "extensions": {}}
        answer = await _collected(self._app, asked)
        page = _tagged(version and version.shown, answer, asked.get("route"))
        if answer.status == _OK and version and self._shown(scope) == version:  # nothing has changed meanwhile
            self._keep(version.page, page)
        return page

    def _keep(self, key: Hashable, page: _Page) -> None:
        if earlier := self._kept.pop(key, None):
            self._size -= earlier.size
        self._kept[key] = page
        self._size += page.size
        while self._size > self._bytes_max:
            oldest = next(iter(self._kept))
            self._size -= self._kept.pop(oldest).size


async def _collected(app: ASGIApp, scope: Scope) -> HttpAnswer:
    """Return the whole answer of an application to a request without a body."""
    messages, body = list[Message](), bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)
        body.extend(message.get("body", b""))

    await app(scope, receive, send)
    return HttpAnswer(messages[0]["status"], tuple(messages[0]["headers"]), bytes(body))


def _tagged(shown: Hashable, answer: HttpAnswer, route: Any) -> _Page:
    """Return an answer with an entity tag, and the word that caches ask before they use it again."""
    if answer.status != _OK:
        return _Page(shown, answer, b"", route)
    there = dict(answer.headers)
    tag = there.get(b"etag") or b'"%s"' % sha256(answer.body).hexdigest().encode()
    added: Headers = tuple({b"etag": tag, b"cache-control": b"no-cache", **there}.items())
    return _Page(shown, answer._replace(headers=added), tag, route)


def _answer(page: _Page, scope: Scope) -> HttpAnswer:
    """Return a page as it is, or that it has not changed since it was asked for last."""
    asked = dict(scope["headers"]).get(_ASKED, b"")
    tags = {tag.strip().removeprefix(b"W/").strip(b'"') for tag in asked.split(b",")}
    if page.tag and (page.tag.strip(b'"') in tags or b"*" in tags):
        kept = tuple(header for header in page.answer.headers if header[0] not in _OF_BODIES)
        return HttpAnswer(_NOT_MODIFIED, kept)
    return page.answer if scope["method"] == "GET" else page.answer._replace(body=b"")
