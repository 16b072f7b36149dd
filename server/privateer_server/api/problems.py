"""Every failure as an RFC 9457 problem document."""

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from privateer.errors import NotFound, PrivateerError, SpecError, Unauthorized, Unavailable
from privateer.wire.problem import MEDIA_TYPE, problem_body
from privateer_server.faults import trace

_log = logging.getLogger("privateer.server")
_RETRY_SECONDS = "1"


class MethodNotAllowed(PrivateerError):
    """The page exists, the method does not."""

    slug, title, status = "method-not-allowed", "Method not allowed", 405


class Internal(PrivateerError):
    """A fault of the server; says nothing else, since what went wrong may concern a person."""

    slug, title, status = "internal", "Internal error", 500


def problem_response(error: PrivateerError, **extension: Any) -> Response:
    """Return the answer to a request that ``error`` ends."""
    headers = {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, Unavailable):
        headers["Retry-After"] = _RETRY_SECONDS
    return Response(problem_body(error, **extension), error.status, headers, MEDIA_TYPE)


class FaultGuard:
    """ASGI middleware that answers a fault with a problem, and logs the fault's kind and where it happened."""

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
            _log.error("a request failed (%s)", trace(error))
            if not started:
                fault = Internal("the server failed to answer", remedy="see the server's log")
                await problem_response(fault)(scope, receive, send)


def answer_problems(app: FastAPI) -> None:
    """Answer every refusal of the control routes with a problem."""
    app.add_exception_handler(PrivateerError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, PrivateerError)
    return problem_response(error)


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    return problem_response(SpecError(str(first["msg"]), field=field, remedy="correct the parameter"))


def _methods(request: Request) -> list[str]:
    """Return the methods that a path takes; the framework names only those of its first route."""
    methods = [(method, dict(request.scope) | {"method": method}) for method in ("GET", "POST", "DELETE")]
    routes = request.app.routes
    return [method for method, scope in methods if any(one.matches(scope)[0] == Match.FULL for one in routes)]


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == MethodNotAllowed.status:
        response = problem_response(MethodNotAllowed("the page does not take this method", remedy="see Allow"))
        response.headers["Allow"] = ", ".join(_methods(request))
        return response
    return problem_response(NotFound("no such page", remedy="GET /openapi.json lists them"))
