"""What the command line asks the server."""

from typing import Any

import httpx

from privateer.errors import PrivateerError, Unavailable


class RemoteError(PrivateerError):
    """A problem that the server answered with."""


def ask(method: str, url: str, **options: Any) -> Any:
    """The JSON answer of a service.

    Raises
    ------
    RemoteError
        If the service answers with a problem; carries its field, detail and remedy.
    Unavailable
        If it does not answer.
    """
    try:
        response = httpx.request(method, url, timeout=30, **options)
    except httpx.InvalidURL:
        raise Unavailable("not a URL", field="--url", remedy="write http://host:port") from None
    except httpx.HTTPError:
        raise Unavailable("no answer from the service", field="--url", remedy="is it running? privateer up") from None
    if response.is_success:
        return response.json()
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    detail = str(problem.get("detail", f"HTTP {response.status_code}"))
    raise RemoteError(detail, field=problem.get("field"), remedy=problem.get("remedy"))
