"""Complete answers of the busiest routes, and answers to HEAD for pages that are made for GET."""

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Headers = tuple[tuple[bytes, bytes], ...]
WHOLE_ANSWER: Final = "privateer.whole"
"""The ASGI extension of a connection that takes a whole `HttpAnswer`: a single write instead of two messages."""
TURN: Final = "privateer.turn"
"""The ASGI extension of a connection whose requests can wait for their sender's turn again."""
_JSON: Final = b"application/json"
_HEAD: Final = "HEAD"


class HttpAnswer(NamedTuple):
    """A complete HTTP answer."""

    # status, headers, body: as in HTTP; the headers include the type and length of a body
    status: int
    headers: Headers
    body: bytes = b""

    async def send(self, scope: Scope, send: Send) -> None:
        """Send the answer to the request with this scope."""
        extensions = scope.get("extensions")
        if extensions and WHOLE_ANSWER in extensions and extensions[WHOLE_ANSWER](self):
            return
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


async def wait_for_turn(scope: Scope) -> None:
    """Wait for the sender's turn again, after a wait that ends for many requests at once."""
    extensions = scope.get("extensions")
    if extensions and TURN in extensions:
        await extensions[TURN]()


def make_answer(status: int, body: bytes, media_type: bytes = _JSON, headers: Headers = ()) -> HttpAnswer:
    """Return an answer with a body and further headers."""
    length = b"%d" % len(body)
    return HttpAnswer(status, ((b"content-type", media_type), (b"content-length", length), *headers), body)


def make_json_answer(status: int, content: Any) -> HttpAnswer:
    """Return an answer in JSON."""
    return make_answer(status, msgspec.json.encode(content))


class HeadMiddleware:
    """ASGI middleware that answers HEAD as GET, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, HEAD as GET with an answer whose body is dropped."""
        if scope["type"] != "http" or scope["method"] != _HEAD:
            await self._app(scope, receive, send)
            return

        as_get = {**scope, "method": "GET"}

        async def send_head(message: Message) -> None:
            # The answer is over with its headers, also where its body would never end.
            if message["type"] == "http.response.start":
                scope.update(as_get | {"method": _HEAD})  # with the router's match
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self._app(as_get, receive, send_head)


OTHER_LABEL: Final = "other"
"""Label of unknown paths and methods, which senders can make up."""
BUCKET_BOUNDS_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Upper bounds of the histograms of answers, in seconds."""
OPERATOR_KEY: Final = "privateer.who"
"""Key in the scope of a request for the name of the operator's token, for logs."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE"})
_STATUS_CLASS_SIZE: Final = 100


class AnswerTiming(NamedTuple):
    """The method, route, status and duration of an answer."""

    # method, route: of the request; the route is a template, such as ``/experiments/{name}``, or `OTHER_LABEL`
    method: str
    route: str
    status: int  # of the answer
    seconds: float  # from the last byte of the request to the first of the answer: a sender's own pace does not count
    by: str = ""  # name of the operator's token in logs; empty: the request needs none

    @property
    def status_class(self) -> str:
        """The class of the status, such as ``2xx``."""
        return f"{self.status // _STATUS_CLASS_SIZE}xx"


def method_label(scope: Scope) -> str:
    """Return the method of a request for metrics, or `OTHER_LABEL`."""
    return scope["method"] if scope["method"] in _METHODS else OTHER_LABEL


class Pages(Protocol):
    """An ASGI application with answers that are kept as bytes, such as a `PageCache`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

    def find_answer(self, scope: Scope) -> HttpAnswer | None:
        """Return the answer that is kept; None if there is none."""


class TimingMiddleware:
    """ASGI middleware that measures the duration of every answer.

    route: returns the path template of an answered request from its scope; empty if no page has its path.
    """

    def __init__(self, app: Pages, route: Callable[[Scope], str], record: Callable[[AnswerTiming], None]) -> None:
        self._app, self._route, self._record = app, route, record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and record the time from its last byte to the first of the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()

        async def receive_timed() -> Message:
            nonlocal start
            message = await receive()
            if message["type"] == "http.request":
                start = time.perf_counter()
            return message

        async def send_timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds, route = time.perf_counter() - start, self._route(scope) or OTHER_LABEL
                operator = scope.get(OPERATOR_KEY, "")
                self._record(AnswerTiming(method_label(scope), route, message["status"], seconds, operator))
            await send(message)

        await self._app(scope, receive_timed, send_timed)

    def find_answer(self, scope: Scope) -> HttpAnswer | None:
        """Return the application's answer that is kept as bytes, and record its duration; None if it has none."""
        start = time.perf_counter()
        if answer := self._app.find_answer(scope):
            seconds, route = time.perf_counter() - start, self._route(scope) or OTHER_LABEL
            self._record(AnswerTiming(method_label(scope), route, answer.status, seconds))
        return answer

    def answer_at_once(self, scope: Scope, body: bytearray, reply: Callable[[HttpAnswer], None]) -> bool:  # noqa: ARG002
        """Answer a request as `find_answer` does; False if ``__call__`` must answer it."""
        answer = self.find_answer(scope)
        if answer:
            reply(answer)
        return answer is not None
