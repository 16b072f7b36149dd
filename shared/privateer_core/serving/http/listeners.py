"""Access checks of the listeners: public pages at the public listener, known host names at the private listener.

A page in an operator's browser can have its own name resolve to this machine (DNS rebinding): the browser then takes
this service for the page's own site, and lets the page read answers. It still sends the page's name. So a name that the
operator did not give is refused. IP addresses are accepted, since they cannot be rebound. Starlette's middleware for
trusted hosts does not know addresses, names below ``localhost`` nor a second ``Host``, and its answer has no remedy.

Pages of other origins may use a service from a browser only if the operator names them (CORS).
"""

import re
from collections.abc import Callable, Collection, Iterable
from ipaddress import ip_address
from typing import Final, Protocol

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from privateer_core.errors import NotFound
from privateer_core.serving.http.answer import WHOLE_ANSWER
from privateer_core.serving.http.problems import HostRefused, problem_answer
from privateer_core.serving.http.report_endpoint import Reply
from privateer_core.wire.attestation import HEADER as ATTESTATION

AtOnce = Callable[[Scope, bytearray, Reply], bool]
"""Answers a completely received request without a task; False if the request must be answered by an ASGI call."""
IS_PUBLIC_KEY: Final = "privateer.is_public"
"""Key in the scope of a request that came to the public listener."""
_HOST_REGEX: Final = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^\[\]:@/\s]+))(?::[0-9]{0,5})?")
_LOCALHOST: Final = "localhost"
"""This name and all names below it resolve to the local machine (RFC 6761, section 6.3)."""
ANY_ORIGIN: Final = "*"
_REQUEST_HEADERS: Final = ["Accept", "Authorization", "Content-Type", "If-None-Match", ATTESTATION]
_EXPOSED: Final = ["ETag", "Retry-After", "Privateer-Asks", "Privateer-Signed"]
VARY_HEADERS: Final = {"Vary": "Origin"}
"""Header of all answers where an origin is allowed, so that a cache does not mix up the answers to two origins."""


_NO_SUCH_PAGE: Final = problem_answer(NotFound("no such page", remedy="some pages are at the private listener only"))


class Application(Protocol):
    """An ASGI application that can answer requests without a task."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or run the lifespan."""

    def answer_at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Answer a completely received request; False if ``__call__`` must do that."""


class PublicPages:
    """ASGI middleware of the public listener, which answers all other pages with `NotFound`.

    app: the application with the pages; it may have an ``answer_at_once``, which answers without a task.
    """

    def __init__(self, app: ASGIApp, is_public: Callable[[str, str], bool]) -> None:
        self._app, self._is_public = app, is_public
        self._answer_at_once: AtOnce = getattr(app, "answer_at_once", lambda *_: False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request for a public page on, and answer all others with `NotFound`."""
        if scope["type"] == "http" and not self._is_public_page(scope):
            await _NO_SUCH_PAGE.send(scope, send)
        else:
            scope[IS_PUBLIC_KEY] = True
            await self._app(scope, receive, send)

    def answer_at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Pass a completely received request on, or refuse it; False if ``__call__`` must answer it."""
        if not self._is_public_page(scope):
            reply(_NO_SUCH_PAGE)
            return True
        scope[IS_PUBLIC_KEY] = True
        return self._answer_at_once(scope, body, reply)

    def _is_public_page(self, scope: Scope) -> bool:
        # A router takes "/metrics" and a line feed for "/metrics": its patterns end with "$".
        return "\n" not in scope["path"] and self._is_public(scope["method"], scope["path"])


class HostGuard:
    """ASGI middleware of a private listener, which refuses requests under unknown host names.

    names: host names besides those of the loopback interface, such as the name that it listens at.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app, self._names = app, frozenset(name.lower() for name in names)
        self._answer_at_once: AtOnce = getattr(app, "answer_at_once", lambda *_: False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse its host name."""
        if scope["type"] == "http" and not self._has_own_name(scope):
            remedy = "call it by its address, or list the name in PRIVATEER_ADMIN_ALLOWED_HOSTS"
            refused = HostRefused("the private listener is not known by this name", field="Host", remedy=remedy)
            await problem_answer(refused).send(scope, send)
        else:
            await self._app(scope, receive, send)

    def answer_at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Pass a completely received request on; False if ``__call__`` must answer it."""
        return self._has_own_name(scope) and self._answer_at_once(scope, body, reply)

    def _has_own_name(self, scope: Scope) -> bool:
        """Whether the request has one ``Host``: an address, a name below localhost, or an allowed name."""
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        match = _HOST_REGEX.fullmatch(hosts[0].decode("latin-1").lower()) if len(hosts) == 1 else None
        if match is None:
            return False
        name = match["v6"] or match["name"].removesuffix(".")
        return name in self._names or name == _LOCALHOST or name.endswith(f".{_LOCALHOST}") or _is_address(name)


def _is_address(name: str) -> bool:
    """Whether a text is an address of the Internet Protocol (IP)."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def cors_headers(origin: str, allowed: Collection[str]) -> dict[str, str]:
    """Return the CORS headers that allow pages of an origin to read an answer; empty for other origins."""
    grant = ANY_ORIGIN if origin and ANY_ORIGIN in allowed else origin if origin in allowed else ""
    return {"Access-Control-Allow-Origin": grant, "Access-Control-Expose-Headers": ", ".join(_EXPOSED)} if grant else {}


class OriginMiddleware(CORSMiddleware):
    """Starlette's CORS middleware, at the public listener.

    No answer depends on the sender, but for the attestation that a page itself sends to an issuer, and none uses a
    cookie. So an allowed origin learns nothing but public answers. With ``answer_at_once`` a listener
    answers completely received requests without a task where no origin is allowed.

    allowed: origins, or ``*``.
    """

    def __init__(self, app: Application, allowed: tuple[str, ...]) -> None:
        super().__init__(app, allowed, ("GET", "HEAD", "POST"), _REQUEST_HEADERS, expose_headers=_EXPOSED)
        self._pages, self._is_closed = app, not allowed
        # answers completely received requests, unless answers need CORS headers, which ``__call__`` adds
        self.answer_at_once: AtOnce = lambda *_: False
        if not allowed:
            self.answer_at_once = getattr(app, "answer_at_once", self.answer_at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a preflight request, or pass the request on and add CORS headers to its answer."""
        if self._is_closed or scope["type"] != "http":
            await self._pages(scope, receive, send)
            return
        # A whole answer would bypass this middleware.
        extensions = dict(scope.get("extensions") or {})
        extensions.pop(WHOLE_ANSWER, None)
        await super().__call__({**scope, "extensions": extensions}, receive, send)
