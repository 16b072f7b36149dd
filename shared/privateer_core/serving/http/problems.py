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
from privateer_core.serving.http.answer import Headers, HttpAnswer, make_answer
from privateer_core.serving.logs import trace
from privateer_core.wire.problem import MEDIA_TYPE, problem_body

_log = logging.getLogger("privateer.serving")
_MEDIA_TYPE: Final = MEDIA_TYPE.encode()


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
    return make_answer(error.status, problem_body(error, **extension), _MEDIA_TYPE, (*headers, *_error_headers(error)))


def problem_response(error: PrivateerError, **extension: Any) -> Response:
    """Return the same answer as a Starlette response."""
    headers = {name.decode(): value.decode() for name, value in _error_headers(error)}
    return Response(problem_body(error, **extension), error.status, headers, MEDIA_TYPE)


def _error_headers(error: PrivateerError) -> Headers:
    """Return the headers that come with an error: how to authenticate, or when to retry."""
    if isinstance(error, Unauthorized):
        return ((b"www-authenticate", b"Bearer"),)
    if isinstance(error, TokenRefused):
        return ((b"www-authenticate", error.challenge.encode()),)
    if isinstance(error, ScopeMissing):  # RFC 6750, section 3
        return ((b"www-authenticate", f'Bearer error="insufficient_scope", scope="{error.scope}"'.encode()),)
    return ((b"retry-after", b"1"),) if isinstance(error, Unavailable) else ()


def answer_defect(error: Exception) -> HttpAnswer:
    """Log the kind of a defect and where it happened, and return the answer to the request that met it."""
    _log.error("a request failed (%s)", trace(error))
    return problem_answer(Internal("the service failed to answer", remedy="see its log"))


class FaultGuard:
    """ASGI middleware that answers a defect with a problem, and logs its kind and where it happened."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; log a defect without its message, and answer it with a problem."""
        has_started = False

        async def send_noting_start(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._app(scope, receive, send_noting_start)
        except Exception as error:
            if scope["type"] != "http":
                raise
            answer = answer_defect(error)
            if not has_started:
                await answer.send(scope, send)


def install_problem_handlers(app: Starlette, service: str) -> None:
    """Make an application answer every error that Privateer or the router raises with a problem.

    service: the kind of service, for the answer to a request for an unknown page.
    """
    app.add_middleware(FaultGuard)
    app.add_exception_handler(PrivateerError, _answer_error)
    app.add_exception_handler(HTTPException, partial(_answer_http_exception, service))


async def _answer_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, PrivateerError)
    return problem_response(error)


async def _answer_http_exception(service: str, request: Request, error: Exception) -> Response:
    """Return the problem for a page or method that does not exist, with the allowed methods."""
    assert isinstance(error, HTTPException)
    if error.status_code == MethodNotAllowed.status:
        response = problem_response(MethodNotAllowed("the page does not take this method", remedy="see Allow"))
        response.headers["Allow"] = ", ".join(_allowed_methods(request))
        return response
    remedy = f"this is a Privateer {service}: its /openapi.json lists the pages here"
    return problem_response(NotFound("no such page", remedy=remedy))


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods of all routes of a path. Starlette would return the methods of the first route alone."""

    def is_allowed(method: str) -> bool:
        scope = dict(request.scope) | {"method": method}
        return any(route.matches(scope)[0] == Match.FULL for route in request.app.routes)

    return [method for method in ("GET", "HEAD", "POST", "DELETE") if is_allowed("GET" if method == "HEAD" else method)]
