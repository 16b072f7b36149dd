"""The pages that strangers may reach. All others are for operators and other services, at the private listener."""

from collections.abc import Callable
from typing import Final, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from privateer_core.errors import NotFound
from privateer_core.serving.endpoint import Reply
from privateer_core.serving.problems import problem_answer

IS_PUBLIC: Final = "privateer.is_public"
"""The scope of a request has this key if it came to the public listener."""


class Application(Protocol):
    """An ASGI application that answers some requests without a task."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or run the lifespan."""

    def at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Answer a request that is there as a whole; False if ``__call__`` must do that."""
        ...


class PublicPages:
    """ASGI middleware of the public listener, which finds no other pages.

    Parameters
    ----------
    app
        What finds the pages; it may answer some requests ``at_once``, without a task.
    is_public
        Whether strangers may use a method on a path.
    """

    def __init__(self, app: ASGIApp, is_public: Callable[[str, str], bool]) -> None:
        self._app, self._is_public = app, is_public
        self._at_once: Callable[[Scope, bytearray, Reply], bool] = getattr(app, "at_once", lambda *_: False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer that there is no such page."""
        if scope["type"] == "http" and not self._finds(scope):
            missing = NotFound("no such page", remedy="some pages are at the private listener only")
            await problem_answer(missing).send(scope, send)
        else:
            scope[IS_PUBLIC] = True
            await self._app(scope, receive, send)

    def at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Pass on a request that is there as a whole; False if ``__call__`` must answer it."""
        return self._finds(scope) and self._at_once(scope, body, reply)

    def _finds(self, scope: Scope) -> bool:
        # A router takes "/metrics" and a line feed for "/metrics": its patterns end with "$".
        return "\n" not in scope["path"] and self._is_public(scope["method"], scope["path"])
