"""Listeners let in what is meant for them: pages that strangers may reach, or hosts that the private listener knows.

A page in an operator's browser can have its own name resolve to this machine (DNS rebinding): the browser then takes
what answers here for the page's own site, and lets it read. It still sends the page's name. So a name that the operator
did not give is refused. Addresses in digits are nobody's name, and are taken. Starlette's middleware for trusted hosts
does not know addresses, names below ``localhost`` nor a second ``Host``, and its answer names no remedy.

Pages of other origins may use a service from a browser only if the operator names them (CORS).
"""

import re
from collections.abc import Callable, Collection, Iterable
from ipaddress import ip_address
from typing import Final, Protocol

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from privateer_core.errors import NotFound
from privateer_core.serving.http.answer import WHOLE
from privateer_core.serving.http.problems import HostRefused, problem_answer
from privateer_core.serving.http.report_endpoint import Reply
from privateer_core.wire.attestation import HEADER as ATTESTATION

AtOnce = Callable[[Scope, bytearray, Reply], bool]
"""Answers a request that is there as a whole, without a task; False if it must be called as ASGI has it."""
IS_PUBLIC: Final = "privateer.is_public"
"""The scope of a request has this key if it came to the public listener."""
_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^\[\]:@/\s]+))(?::[0-9]{0,5})?")
_LOCAL: Final = "localhost"
"""It and all names below it are this machine's own (RFC 6761, section 6.3)."""
ANY: Final = "*"
_ASKED: Final = ["Accept", "Authorization", "Content-Type", "If-None-Match", ATTESTATION]
_SHOWN: Final = ["ETag", "Retry-After", "Privateer-Asks", "Privateer-Signed"]
VARY: Final = {"Vary": "Origin"}
"""What all answers say where an origin is allowed: a cache must not give one origin what it keeps for another."""


class Application(Protocol):
    """An ASGI application that answers some requests without a task."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or run the lifespan."""

    def at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Answer a request that is there as a whole; False if ``__call__`` must do that."""
        ...


class PublicPages:
    """ASGI middleware of the public listener, which finds no other pages.

    app: what finds the pages; it may answer some requests ``at_once``, without a task.
    is_public: whether strangers may use a method on a path.
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

    app: the listener's pages; it may answer some requests ``at_once``.
    names: names besides those of the loopback interface, such as the one that it listens at.
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


def shown_to(origin: str, allowed: Collection[str]) -> dict[str, str]:
    """Return the headers by which a browser lets pages of an origin read an answer; none if they may not."""
    named = ANY if origin and ANY in allowed else origin if origin in allowed else ""
    return {"Access-Control-Allow-Origin": named, "Access-Control-Expose-Headers": ", ".join(_SHOWN)} if named else {}


class Origins(CORSMiddleware):
    """Starlette's middleware for origins, at the public listener.

    No answer depends on who asks, but for what a page itself says of its device to an issuer, and none takes a cookie.
    So an origin that is allowed learns nothing but what everybody may read. What is ours is the short way: a listener
    takes whole requests without a task where no answer has to name an origin.

    app: the listener's pages.
    allowed: origins, or ``*``.
    """

    def __init__(self, app: Application, allowed: tuple[str, ...]) -> None:
        methods = ("GET", "HEAD", "POST")
        super().__init__(app, allowed, methods, _ASKED, expose_headers=_SHOWN)
        self._pages, self._is_closed = app, not allowed
        # answers a request that is there as a whole, unless answers have to name origins: ``__call__`` does
        self.at_once: AtOnce = lambda *_: False
        if not allowed:
            self.at_once = getattr(app, "at_once", self.at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what a browser asks ahead, or pass the request on and say whose pages may read the answer."""
        if self._is_closed or scope["type"] != "http":
            await self._pages(scope, receive, send)
            return
        # A whole answer would not pass here.
        extensions = {name: one for name, one in (scope.get("extensions") or {}).items() if name != WHOLE}
        await super().__call__({**scope, "extensions": extensions}, receive, send)
