"""Answers of the routes that are asked most, and of HEAD, where pages are only made for GET."""

from typing import Any, Final, NamedTuple

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Headers = tuple[tuple[bytes, bytes], ...]
WHOLE: Final = "privateer.whole"
"""The ASGI extension of a connection that takes a whole `HttpAnswer`: one write, where two messages take two."""
_JSON: Final = b"application/json"
_HEAD: Final = "HEAD"


class HttpAnswer(NamedTuple):
    """A whole answer."""

    # status, headers, body: as HTTP has them; the headers have the body's type and length, if it has one
    status: int
    headers: Headers
    body: bytes = b""

    async def send(self, scope: Scope, send: Send) -> None:
        """Send it as the answer to the request with this scope."""
        extensions = scope.get("extensions")
        if extensions and WHOLE in extensions and extensions[WHOLE](self):
            return
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


def with_body(status: int, body: bytes, media_type: bytes = _JSON, headers: Headers = ()) -> HttpAnswer:
    """Return an answer with a body, and with further headers."""
    length = b"%d" % len(body)
    return HttpAnswer(status, ((b"content-type", media_type), (b"content-length", length), *headers), body)


def with_json(status: int, content: Any) -> HttpAnswer:
    """Return an answer in JSON."""
    return with_body(status, msgspec.json.encode(content))


class Heads:
    """ASGI middleware that answers HEAD as GET, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http" or scope["method"] != _HEAD:
            await self._app(scope, receive, send)
            return

        as_get = {**scope, "method": "GET"}

        async def sending(message: Message) -> None:
            # The answer is over with its headers, also where its body would never end.
            if message["type"] == "http.response.start":
                scope.update(as_get | {"method": _HEAD})  # what the router has found
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self._app(as_get, receive, sending)
