"""Listeners let in what is meant for them: pages that strangers may reach, or hosts that the private listener knows.

A page in an operator's browser can have its own name resolve to this machine (DNS rebinding): the browser then takes
what answers here for the page's own site, and lets it read. It still sends the page's name. So a name that the operator
did not give is refused. Addresses in digits are nobody's name, and are taken. Starlette's middleware for trusted hosts
does not know addresses, names below ``localhost`` nor a second ``Host``, and its answer names no remedy.
"""

import re
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Final, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from privateer_core.errors import NotFound
from privateer_core.serving.http.problems import HostRefused, problem_answer
from privateer_core.serving.http.report_endpoint import Reply

AtOnce = Callable[[Scope, bytearray, Reply], bool]
"""Answers a request that is there as a whole, without a task; False if it must be called as ASGI has it."""
IS_PUBLIC: Final = "privateer.is_public"
"""The scope of a request has this key if it came to the public listener."""
_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^\[\]:@/\s]+))(?::[0-9]{0,5})?")
_LOCAL: Final = "localhost"
"""It and all names below it are this machine's own (RFC 6761, section 6.3)."""


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
        self._at_once: AtOnce = getattr(app, "at_once", lambda *_: False)

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


class Hosts:
    """ASGI middleware of a private listener, which answers only to its own names.

    Parameters
    ----------
    app
        The listener's pages; it may answer some requests ``at_once``.
    names
        Names besides those of the loopback interface, such as the one that it listens at.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app, self._names = app, frozenset(name.lower() for name in names)
        self._at_once: AtOnce = getattr(app, "at_once", lambda *_: False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse its name."""
        if scope["type"] == "http" and not self._is_ours(scope):
            detail = "the private listener is not known by this name"
            refused = HostRefused(
                detail, field="Host", remedy="call it by its address, or list the name in PRIVATEER_ADMIN_NAMES"
            )
            await problem_answer(refused).send(scope, send)
        else:
            await self._app(scope, receive, send)

    def at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Pass on a request that is there as a whole; False if ``__call__`` must answer it."""
        return self._is_ours(scope) and self._at_once(scope, body, reply)

    def _is_ours(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"host"]
        found = _HOST.fullmatch(given[0].decode("latin-1").lower()) if len(given) == 1 else None
        if found is None:
            return False
        name = found["v6"] or found["name"].removesuffix(".")
        return name in self._names or name == _LOCAL or name.endswith(f".{_LOCAL}") or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
