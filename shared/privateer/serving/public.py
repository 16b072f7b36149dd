"""The pages that strangers may reach; the others are for operators and other services, at a listener of their own."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from privateer.errors import NotFound
from privateer.wire.problem import MEDIA_TYPE, problem_body

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
App: TypeAlias = Callable[[_Message, _Receive, _Send], Awaitable[None]]
IS_PUBLIC: Final = "privateer.is_public"
"""The scope of a request has this key if it came to the public listener."""


class PublicPages:
    """ASGI middleware through which other pages are not found.

    Parameters
    ----------
    is_public
        Whether strangers may use a method on a path.
    """

    def __init__(self, app: App, is_public: Callable[[str, str], bool]) -> None:
        self._app, self._is_public = app, is_public

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Pass the request on, or say that there is no such page."""
        if scope["type"] == "http" and not self._is_public(scope["method"], scope["path"]):
            await _say_not_found(send)
        else:
            await self._app({**scope, IS_PUBLIC: True}, receive, send)


async def _say_not_found(send: _Send) -> None:
    body = problem_body(NotFound("no such page", remedy="some pages are at the private listener alone"))
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": NotFound.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
