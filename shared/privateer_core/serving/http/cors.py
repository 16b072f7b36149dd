"""Pages of other origins that may use a service from a browser: none, unless the operator names them."""

from collections.abc import Collection
from typing import Final

from starlette.middleware.cors import CORSMiddleware
from starlette.types import Receive, Scope, Send

from privateer_core.serving.http.answer import WHOLE
from privateer_core.serving.http.listeners import Application, AtOnce
from privateer_core.wire.tokens.attestation import HEADER as ATTESTATION

ANY: Final = "*"
_ASKED: Final = ["Accept", "Authorization", "Content-Type", "If-None-Match", ATTESTATION]
_SHOWN: Final = ["ETag", "Retry-After", "Privateer-Asks", "Privateer-Signed"]
VARY: Final = {"Vary": "Origin"}
"""What all answers say where an origin is allowed: a cache must not give one origin what it keeps for another."""


def shown_to(origin: str, allowed: Collection[str]) -> dict[str, str]:
    """Return the headers by which a browser lets pages of an origin read an answer; none if they may not."""
    named = ANY if origin and ANY in allowed else origin if origin in allowed else ""
    return {"Access-Control-Allow-Origin": named, "Access-Control-Expose-Headers": ", ".join(_SHOWN)} if named else {}


class Origins(CORSMiddleware):
    """Starlette's middleware for origins, at the public listener.

    No answer depends on who asks, but for what a page itself says of its device to an issuer, and none takes a cookie.
    So an origin that is allowed learns nothing but what everybody may read. What is ours is the short way: a listener
    takes whole requests without a task where no answer has to name an origin.

    Parameters
    ----------
    app
        The listener's pages.
    allowed
        Origins, or ``*``.

    Attributes
    ----------
    at_once
        Answers a request that is there as a whole, unless answers have to name origins: ``__call__`` does.
    """

    def __init__(self, app: Application, allowed: tuple[str, ...]) -> None:
        methods = ("GET", "HEAD", "POST")
        super().__init__(app, allowed, methods, _ASKED, expose_headers=_SHOWN)
        self._pages, self._is_closed = app, not allowed
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
