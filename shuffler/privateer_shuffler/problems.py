"""Every error of the shuffler's HTTP interface as a problem document."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from privateer.errors import NotFound, PrivateerError, Unavailable
from privateer.wire.problem import MEDIA_TYPE, problem_body


class MethodNotAllowed(PrivateerError):
    """The page does not answer to this HTTP method."""

    slug, title, status = "method-not-allowed", "Method not allowed", 405


_RETRY: Final = {"retry-after": "1"}


def problem(error: PrivateerError, headers: Mapping[str, str] | None = None, **extension: Any) -> Response:
    """The response that tells an error."""
    if isinstance(error, Unavailable):
        headers = {**_RETRY, **(headers or {})}
    return Response(problem_body(error, **extension), error.status, headers, MEDIA_TYPE)


async def told(_: Request, error: Exception) -> Response:
    """Answer an error that Privateer raised on purpose."""
    assert isinstance(error, PrivateerError)
    return problem(error)


async def from_http(_: Request, error: Exception) -> Response:
    """Answer what the router refuses."""
    assert isinstance(error, HTTPException)
    if error.status_code == MethodNotAllowed.status:
        return problem(MethodNotAllowed("no such method here", remedy="see the allow header"), error.headers)
    return problem(NotFound("no such page", remedy="see the documentation of the HTTP interface"))


async def unexpected(_: Request, error: Exception) -> Response:
    """Answer a defect, without a word about the request."""
    return problem(PrivateerError(f"the shuffler failed ({type(error).__name__})", remedy="report this defect"))
