"""Pages of other origins that may use a service from a browser: none, unless the operator names them."""

from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from privateer_core.serving.http.answer import WHOLE
from privateer_core.serving.http.listeners import Application
from privateer_core.serving.http.report_endpoint import Reply
from privateer_core.wire.tokens.attestation import HEADER as ATTESTATION

ANY: Final = "*"
_ASKED: Final = {
    "Access-Control-Allow-Methods": "GET, HEAD, POST",
    "Access-Control-Allow-Headers": f"Accept, Authorization, Content-Type, If-None-Match, {ATTESTATION}",
    "Access-Control-Max-Age": "600",
}
_SHOWN: Final = "ETag, Retry-After, Privateer-Asks, Privateer-Signed"
VARY: Final = {"Vary": "Origin"}
"""What all answers say where an origin is allowed: a cache must not give one origin what it keeps for another."""
_NO_CONTENT: Final = 204


def shown_to(origin: str, allowed: Collection[str]) -> dict[str, str]:
    """Return the headers by which a browser lets pages of an origin read an answer; none if they may not."""
    named = ANY if origin and ANY in allowed else origin if origin in allowed else ""
    return {"Access-Control-Allow-Origin": named, "Access-Control-Expose-Headers": _SHOWN} if named else {}


class Origins:
    """ASGI middleware of the public listener: it answers browsers that ask for pages of other origins.

    No answer depends on who asks, but for what a page itself says of its device to an issuer, and none takes a cookie.
    So an origin that is allowed learns nothing but what everybody may read.

    Parameters
    ----------
    app
        The listener's pages.
    allowed
        Origins, or ``*``.
    """

    def __init__(self, app: Application, allowed: tuple[str, ...]) -> None:
        self._app, self._allowed = app, frozenset(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what a browser asks ahead, or pass the request on and say whose pages may read the answer."""
        if scope["type"] != "http" or not self._allowed:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        allowed = shown_to(headers.get("origin", ""), self._allowed)
        if allowed and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await Response(status_code=_NO_CONTENT, headers=allowed | VARY | _ASKED)(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                shown = MutableHeaders(scope=message)
                shown.add_vary_header(VARY["Vary"])
                shown.update(allowed)
            await send(message)

        # A whole answer would not pass here.
        extensions = {name: one for name, one in (scope.get("extensions") or {}).items() if name != WHOLE}
        await self._app({**scope, "extensions": extensions}, receive, answer)

    def at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Pass on a request that is there as a whole, unless answers have to name origins: ``__call__`` does."""
        return not self._allowed and self._app.at_once(scope, body, reply)
