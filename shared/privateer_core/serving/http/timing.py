"""Times the answers of a service. What is said of a request names nobody: a template, never the path itself."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

OTHER: Final = "other"
"""Stands for whatever strangers make up: paths that no page has, and methods."""
BUCKETS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Upper bounds of the histograms of answers, in seconds."""
WHO: Final = "privateer.who"
"""The scope of a request has here how logs name the operator's token that it bears."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE"})
_HUNDRED: Final = 100


class Answered(NamedTuple):
    """One answer."""

    # method, route: of the request: the page's template, such as ``/experiments/{name}``, or `OTHER`
    method: str
    route: str
    status: int  # of the answer
    seconds: float  # from the last byte of the request to the first of the answer: a sender's own pace does not count
    by: str = ""  # how logs name the operator's token that the request bears; empty: it needs none

    @property
    def status_class(self) -> str:
        """Such as ``2xx``."""
        return f"{self.status // _HUNDRED}xx"


def known_method(scope: Scope) -> str:
    """Return the method of a request, or `OTHER`."""
    return scope["method"] if scope["method"] in _METHODS else OTHER


class Timed:
    """ASGI middleware that tells of every answer.

    route: returns the template of a request that was answered, from its scope; empty if no page has its path.
    tell: takes what is measured.
    """

    def __init__(self, app: ASGIApp, route: Callable[[Scope], str], tell: Callable[[Answered], None]) -> None:
        self._app, self._route, self._tell = app, route, tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def receiving() -> Message:
            nonlocal began
            message = await receive()
            if message["type"] == "http.request":
                began = time.perf_counter()
            return message

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds, route = time.perf_counter() - began, self._route(scope) or OTHER
                self._tell(Answered(known_method(scope), route, message["status"], seconds, scope.get(WHO, "")))
            await send(message)

        await self._app(scope, receiving, sending)
