"""What the command line asks the server."""

from typing import Any

import httpx

from privateer.errors import PrivateerError, Unavailable


class RemoteError(PrivateerError):
    """A problem that the server answered with."""


def ask(method: str, url: str, *, field: str = "--url", **options: Any) -> Any:
    """The JSON answer of a service; ``field`` is the option that names its address.

    Raises
    ------
    RemoteError
        If the service answers with a problem; carries its field, detail and remedy.
    Unavailable
        If it does not answer, or not as a Privateer server does.
    """
    answer = _object(_asked(method, url, field, **options))
    if answer is None:
        raise Unavailable("the answer is not a Privateer server's", field=field, remedy="correct the address")
    return answer


def fetch(url: str, *, field: str = "--url", **options: Any) -> bytes:
    """The bytes that a service answers with; raises what `ask` does."""
    return _asked("GET", url, field, **options).content


def _asked(method: str, url: str, field: str, **options: Any) -> httpx.Response:
    try:
        response = httpx.request(method, url, timeout=30, **options)
    except httpx.InvalidURL:
        raise Unavailable("not a URL", field=field, remedy="write http://host:port") from None
    except httpx.HTTPError:
        raise Unavailable("no answer from the service", field=field, remedy="is it running? privateer up") from None
    if response.is_success:
        return response
    problem = _object(response) or {}
    detail = str(problem.get("detail", f"HTTP {response.status_code}"))
    raise RemoteError(detail, field=problem.get("field"), remedy=problem.get("remedy"))


def _object(response: httpx.Response) -> dict[str, Any] | None:
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
