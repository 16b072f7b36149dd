"""Complete answers of the busiest routes, and answers to HEAD for pages that are made for GET."""

from typing import Any, Final, NamedTuple

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Headers = tuple[tuple[bytes, bytes], ...]
WHOLE_ANSWER: Final = "privateer.whole"
"""The ASGI extension of a connection that takes a whole `HttpAnswer`: a single write instead of two messages."""
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
