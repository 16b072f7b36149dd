"""Errors of the HTTP interfaces, answered as RFC 9457 problem documents."""

import logging
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from privateer_core.errors import NotFound, PrivateerError, ScopeMissing, TokenRefused, Unauthorized, Unavailable
from privateer_core.serving.http.answer import Headers, HttpAnswer, with_body
from privateer_core.serving.logs import trace
from privateer_core.wire.problem import MEDIA_TYPE, problem_body

_log = logging.getLogger("privateer.serving")
_MEDIA_TYPE: Final = MEDIA_TYPE.encode()
_UNAUTHORIZED: Final = ((b"www-authenticate", b"Bearer"),)
_UNAVAILABLE: Final = ((b"retry-after", b"1"),)


class MethodNotAllowed(PrivateerError):
    """The page exists, but it does not take this HTTP method."""

    slug, title, status = "method-not-allowed", "Method not allowed", 405


class HostRefused(PrivateerError):
    """The private listener is called by a name that is not its own."""

    slug, title, status = "host-refused", "Host refused", 421


class Internal(PrivateerError):
    """The service has a defect. The answer says nothing else, since what went wrong may concern a person."""

    slug, title, status = "internal", "Internal error", 500


def problem_answer(error: PrivateerError, headers: Headers = (), **extension: Any) -> HttpAnswer:
    """Return the answer to a request that failed with ``error``."""
    body = problem_body(error, **extension)
    return with_body(error.status, body, _MEDIA_TYPE, (*headers, *_headers(error)))


def problem_response(error: PrivateerError, **extension: Any) -> Response:
    """Return the same for a framework."""
    headers = {name.decode(): value.decode() for name, value in _headers(error)}
    return Response(problem_body(error, **extension), error.status, headers, MEDIA_TYPE)


def _headers(error: PrivateerError) -> Headers:
    if isinstance(error, Unauthorized):
        return _UNAUTHORIZED
    if isinstance(error, TokenRefused):
        return ((b"www-authenticate", error.challenge.encode()),)
    if isinstance(error, ScopeMissing):  # RFC 6750, section 3
        return ((b"www-authenticate", f'Bearer error="insufficient_scope", scope="{error.scope}"'.encode()),)
    return _UNAVAILABLE if isinstance(error, Unavailable) else ()


def defect(error: Exception) -> HttpAnswer:
    """Log the kind of a defect and where it happened, and return the answer to the request that met it."""
    _log.error("a request failed (%s)", trace(error))
    return problem_answer(Internal("the service failed to answer", remedy="see its log"))


class FaultGuard:
    """ASGI middleware that answers a defect with a problem, and logs its kind and where it happened."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            if scope["type"] != "http":
                raise
            answer = defect(error)
            if not started:
                await answer.send(scope, send)


def answer_problems(app: Starlette, service: str) -> None:
    """Make an application answer every error that Privateer or the router raises with a problem.

    service: what it is, for those who ask for a page that it does not have.
    """
    app.add_middleware(FaultGuard)
    app.add_exception_handler(PrivateerError, _on_error)
    app.add_exception_handler(HTTPException, partial(_on_http, service))


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, PrivateerError)
    return problem_response(error)


async def _on_http(service: str, request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == MethodNotAllowed.status:
        response = problem_response(MethodNotAllowed("the page does not take this method", remedy="see Allow"))
        response.headers["Allow"] = ", ".join(_methods(request))
        return response
    remedy = f"this is a Privateer {service}: its /openapi.json lists the pages here"
    return problem_response(NotFound("no such page", remedy=remedy))


def _methods(request: Request) -> list[str]:
    """Return the methods that a path takes. The framework would name those of its first route alone."""

    def takes(method: str) -> bool:
        scope = dict(request.scope) | {"method": method}
        return any(route.matches(scope)[0] == Match.FULL for route in request.app.routes)

    return [method for method in ("GET", "HEAD", "POST", "DELETE") if takes("GET" if method == "HEAD" else method)]
