"""A cache of rendered pages, which renders each version of a page once."""

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from privateer_core.errors import Unavailable
from privateer_core.serving.fair_queue import FairQueue, too_many_error
from privateer_core.serving.http.answer import Headers, HttpAnswer
from privateer_core.serving.http.bodies import peer_address
from privateer_core.serving.http.listeners import IS_PUBLIC_KEY
from privateer_core.serving.http.problems import problem_answer

BYTES_MAX: Final = 64 << 20
_PAGE_OVERHEAD_BYTES: Final = 1024
"""Bytes that a cached page takes beside its body."""
_OK, _NOT_MODIFIED = 200, 304
_TOO_MANY: Final = problem_answer(too_many_error())
_CONSTANT_PAGES: Final = frozenset({"/openapi.json", "/healthz", "/limits"})
_READ_METHODS: Final = frozenset({"GET", "HEAD"})
_BODY_HEADERS: Final = frozenset({b"content-type", b"content-length"})
_IF_NONE_MATCH: Final = b"if-none-match"


class Version(NamedTuple):
    """The version of a page."""

    page: Hashable  # identifies the page: all of the request that its answer depends on
    content_key: Hashable  # identifies the content. Two answers with equal content keys are equal.
    is_queued: bool = True  # whether strangers wait for their turn; a probe does not cost more if many ask for it


def find_common_page_version(scope: Scope) -> Version | None:
    """Return the version of a page that all services have; for strangers any other page is made in their turn."""
    path = scope["path"]
    if path in _CONSTANT_PAGES:
        return Version(path, None)
    if IS_PUBLIC_KEY not in scope:
        return None
    return Version(path, int(time.monotonic()), is_queued=False) if path == "/readyz" else Version(path, object())


class _Page(NamedTuple):
    content_key: Hashable
    answer: HttpAnswer
    tag: bytes
    route: Any
    """The router's match, for metrics."""

    @property
    def size(self) -> int:
        return len(self.answer.body) + _PAGE_OVERHEAD_BYTES


class FilePage(Protocol):
    """A page that never changes."""

    def find_answer(self, scope: Scope) -> HttpAnswer:
        """Return the answer to a request."""


class PageCache:
    """ASGI middleware that caches pages, and renders a page again when its content has changed.

    Every page gets an entity tag. Simultaneous requests of a sender for a page wait for the same answer. Pages for the
    public are rendered in fair turns (`FairQueue`), so that a sender with many requests does not delay the others.

    version: returns the version of the page that a request asks for; None: the answer is not cached.
    files: pages by path that never change.
    bytes_max: size of the cache, which drops the least recently used pages.
    """

    def __init__(
        self,
        app: ASGIApp,
        version: Callable[[Scope], Version | None],
        files: Mapping[str, FilePage] = MappingProxyType({}),
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._app, self._version, self._files, self._bytes_max = app, version, files, bytes_max
        self._pages: dict[Hashable, _Page] = {}  # the most recently used page comes last
        self._size = 0
        self._running_tasks: dict[tuple[Version, str], asyncio.Task[_Page]] = {}
        self._queue = FairQueue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request from the cache, or pass it on."""
        version = self._current_version(scope) if scope["type"] == "http" else None
        if version is None:
            await self._app(scope, receive, send)
            return
        try:
            page = self._find_cached(version) or await self._render_once(version, scope)
        except Unavailable as error:
            await problem_answer(error).send(scope, send)
            return
        await _answer_with(page, scope).send(scope, send)

    def find_answer(self, scope: Scope) -> HttpAnswer | None:
        """Return the answer to a request for a cached page; None if ``__call__`` must answer it."""
        if file := self._files.get(scope["path"]):
            return file.find_answer(scope)
        version = self._current_version(scope)
        if version is None:
            return None
        if page := self._find_cached(version):
            return _answer_with(page, scope)
        is_refused = version.is_queued and IS_PUBLIC_KEY in scope and self._queue.is_full(peer_address(scope))
        return _TOO_MANY if is_refused else None

    def _current_version(self, scope: Scope) -> Version | None:
        version = self._version(scope) if scope["method"] in _READ_METHODS else None
        return version and version._replace(page=(IS_PUBLIC_KEY in scope, version.page))

    def _find_cached(self, version: Version) -> _Page | None:
        """Return the cached page of this version, now the last to be dropped, or None; drop one of older content."""
        page = self._pages.pop(version.page, None)
        if page is None:
            return None
        if page.content_key != version.content_key:
            self._size -= page.size
            return None
        self._pages[version.page] = page
        return page

    async def _render_once(self, version: Version, scope: Scope) -> _Page:
        """Return the page, rendered by one task for all simultaneous requests of a sender, or of all in no queue."""
        key = version, peer_address(scope) if version.is_queued else ""
        making = self._running_tasks.get(key)
        if making is None:
            making = self._running_tasks[key] = asyncio.create_task(self._render_in_turn(scope, version.is_queued))
            making.add_done_callback(lambda _: self._running_tasks.pop(key))
        return await asyncio.shield(making)

    async def _render_in_turn(self, scope: Scope, is_queued: bool) -> _Page:
        """Return the page, from the cache or rendered, in the sender's turn if the request is public."""

        async def work() -> _Page:
            # The content may have changed, or another sender's request cached the page, while this sender waited.
            version = self._current_version(scope)
            return (version and self._find_cached(version)) or await self._request_page(version, scope)

        is_queued = is_queued and IS_PUBLIC_KEY in scope
        return await (self._queue.run(peer_address(scope), work) if is_queued else work())

    async def _request_page(self, version: Version | None, scope: Scope) -> _Page:
        """Render the page by the application, and cache it unless its version has changed meanwhile."""
        headers = [(name, value) for name, value in scope["headers"] if name != _IF_NONE_MATCH]
        page_scope = {**scope, "method": "GET", "headers": headers, "extensions": {}}
        answer = await _collect_answer(self._app, page_scope)
        page = _tag_page(version and version.content_key, answer, page_scope.get("route"))
        if answer.status == _OK and version and self._current_version(scope) == version:  # it has not changed meanwhile
            self._store_page(version.page, page)
        return page

    def _store_page(self, key: Hashable, page: _Page) -> None:
        """Cache a page, and drop the least recently used ones beyond the cache's size."""
        if previous := self._pages.pop(key, None):
            self._size -= previous.size
        self._pages[key] = page
        self._size += page.size
        while self._size > self._bytes_max:
            oldest = next(iter(self._pages))
            self._size -= self._pages.pop(oldest).size


async def _collect_answer(app: ASGIApp, scope: Scope) -> HttpAnswer:
    """Return the complete answer of an application to a request without a body."""
    messages, body = list[Message](), bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)
        body.extend(message.get("body", b""))

    await app(scope, receive, send)
    return HttpAnswer(messages[0]["status"], tuple(messages[0]["headers"]), bytes(body))


def _tag_page(content_key: Hashable, answer: HttpAnswer, route: Any) -> _Page:
    """Return a page with an entity tag, and a header that makes caches revalidate it."""
    if answer.status != _OK:
        return _Page(content_key, answer, b"", route)
    headers = dict(answer.headers)
    tag = headers.get(b"etag") or b'"%s"' % sha256(answer.body).hexdigest().encode()
    tagged_headers: Headers = tuple({b"etag": tag, b"cache-control": b"no-cache", **headers}.items())
    return _Page(content_key, answer._replace(headers=tagged_headers), tag, route)


def _answer_with(page: _Page, scope: Scope) -> HttpAnswer:
    """Return the answer with a page, or 304 if the request names the page's entity tag; note the page's route."""
    scope["route"] = page.route
    if_none_match = dict(scope["headers"]).get(_IF_NONE_MATCH, b"")
    tags = {tag.strip().removeprefix(b"W/").strip(b'"') for tag in if_none_match.split(b",")}
    if page.tag and (page.tag.strip(b'"') in tags or b"*" in tags):
        headers = tuple(header for header in page.answer.headers if header[0] not in _BODY_HEADERS)
        return HttpAnswer(_NOT_MODIFIED, headers)
    return page.answer if scope["method"] == "GET" else page.answer._replace(body=b"")
