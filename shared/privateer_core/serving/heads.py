"""HEAD, where pages are only made for GET."""

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEAD: Final = "HEAD"


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
