"""Sends the command line's requests to services. A server may be anybody's: what is read of an answer is bounded."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import httpx
import msgspec

from privateer_client.delivery import retry_seconds
from privateer_core.answer.conclusion import PublishedAnswer
from privateer_core.answer.policy_view import PolicyView
from privateer_core.errors import Deleted, NotFound, PrivateerError, SpecError, Unauthorized, Unavailable
from privateer_core.spec.spec import Spec
from privateer_core.wire.problem import slug_of

_ELSEWHERE: Final = {
    "--url": ("this is not a learning server", "its public port is 8000 unless you changed it"),
    "--admin-url": ("this is not the server's private listener", "its port is 8002 unless you changed it"),
    "--shuffler-admin-url": ("this is not the shuffler's private listener", "its port is 8003 unless you changed it"),
}
"""What to say if the address has no such page, by the option that named the address."""
_CREATED: Final = 201
_BUSY: Final = {502, 503, 504}
"""Statuses of a service that cannot answer now, and of a balancer that finds none."""
BYTES_MAX: Final = 64 << 20
"""The largest answer that is read, in bytes: exports of experiments with thousands of actions need that."""
_SECONDS: Final = 30.0
_CHUNK_SECONDS: Final = 600.0
"""A server that copies a large database takes so long at most until the first byte of it."""
_CHUNK_BYTES: Final = 8 << 20
_BYTES_PER_SECOND: Final = 64 << 10
"""An answer may take longer if it advances at this rate."""
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal, or turn the direction of what it shows. No service writes any."""


class RemoteError(PrivateerError):
    """A problem that a service answered with."""


class Busy(RemoteError):
    """The service cannot answer now."""

    retry_after = 0.0  # seconds after which it wants the same request again; 0 if it did not say


class NotThere(RemoteError):
    """The service has no such thing."""


class Endless(httpx.HTTPError):
    """An answer is larger than any service's, takes longer, or is packed, which nobody asked for."""


def bounded_request(
    method: str, url: str, *, bytes_max: int = BYTES_MAX, seconds: float = _SECONDS, **options: Any
) -> httpx.Response:
    """Return the whole answer to a request.

    bytes_max, seconds: how large it may be, and how long it may take beside a second for every 64 KiB.
    """
    headers = {"Accept-Encoding": "identity", **options.pop("headers", {})}
    body, ends = bytearray(), time.monotonic() + seconds
    with httpx.stream(method, url, timeout=seconds, headers=headers, **options) as answer:
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise Endless("the answer is packed")
        for chunk in answer.iter_raw():
            body += chunk
            if len(body) > bytes_max:
                raise Endless(f"the answer has more than {bytes_max} bytes")
            if time.monotonic() > ends + len(body) / _BYTES_PER_SECOND:
                raise Endless("the answer does not come to an end")
    kept = {"content-type": answer.headers.get("content-type", "")}
    return httpx.Response(answer.status_code, headers=kept, content=bytes(body))


def ask(method: str, url: str, *, field: str = "--url", **options: Any) -> Any:
    """Return the JSON answer of a service; ``field`` is the option that names its address."""
    return _decoded(_asked(method, url, field, **options), field)


def create(admin: str, spec: Spec, token: str | None, start: Any = None) -> tuple[Any, bool]:
    """Have a server's private listener create an experiment; raises what `ask` and `bearer` do.

    ``start`` is the export that it begins with, if any. Returns the answer, and whether the experiment is new: the same
    spec again changes nothing.
    """
    body, page, field = spec.without_people().model_dump(mode="json", exclude_none=True), "experiments", "--admin-url"
    if start is not None:
        body, page = {"spec": body, "start": start}, f"experiments/{spec.name}/warm-start"
    response = _asked("POST", f"{admin}/{page}", field, json=body, headers=bearer(token))
    return _decoded(response, field), response.status_code == _CREATED


def fetch(url: str, *, field: str = "--url", **options: Any) -> bytes:
    """Return the bytes that a service answers with, ``bytes_max`` at most; raises what `ask` does."""
    return _asked("GET", url, field, **options).content


@contextmanager
def download(url: str, media_type: str, *, field: str = "--url", **options: Any) -> Iterator[Iterator[bytes]]:
    """Return the chunks of what a service answers with; it may be large, and take long between two chunks."""
    with _explained(url, field), httpx.stream("GET", url, timeout=_CHUNK_SECONDS, **options) as response:
        if not response.is_success:
            problem = b"".join(islice(response.iter_bytes(_CHUNK_BYTES), 1))
            raise _refusal(httpx.Response(response.status_code, content=problem), field)
        if response.headers.get("content-type") != media_type or "content-length" not in response.headers:
            raise Unavailable("the answer is not a backup", field=field, remedy="correct the address")
        yield _whole(response, field)


def _whole(response: httpx.Response, field: str) -> Iterator[bytes]:
    try:
        yield from response.iter_bytes(_CHUNK_BYTES)
    except httpx.HTTPError:
        detail = f"the answer broke off after {response.num_bytes_downloaded:,} bytes"
        raise Unavailable(detail, field=field, remedy="see the server's log, and try again") from None


def bearer(token: str | None) -> dict[str, bytes]:
    """Return the header that carries the admin token."""
    if not token:
        remedy = "set it to the server's; for a new server, openssl rand -hex 16 makes one"
        raise SpecError("is not set", field="PRIVATEER_ADMIN_TOKEN", remedy=remedy)
    return {"Authorization": b"Bearer " + token.encode(errors="surrogateescape")}


def published_answer(url: str, name: str) -> PublishedAnswer:
    """Return the answer of an experiment on a server; raises what `answer_at` does."""
    return answer_at(f"{url.rstrip('/')}/experiments/{name}")


def answer_at(page: str, *, field: str = "--url") -> PublishedAnswer:
    """Return the answer of the experiment whose pages are at an address, which the option ``field`` named."""
    document = ask("GET", f"{page}/answer", field=field)
    if isinstance(document, dict):
        document["people"] = ask("GET", page, field=field).get("people")
    try:
        return msgspec.convert(document, PublishedAnswer)
    except msgspec.ValidationError:
        remedy = "correct the address, or install the server's version of Privateer here"
        raise Unavailable("the answer is not that of an experiment", field=field, remedy=remedy) from None


def policy_in(document: Any) -> PolicyView:
    """Return the policy that a server sent."""
    try:
        return msgspec.convert(document, PolicyView)
    except msgspec.ValidationError:
        raise Unavailable("the answer is not a policy", field="--url", remedy="correct the address") from None


def _asked(method: str, url: str, field: str, **options: Any) -> httpx.Response:
    with _explained(url, field):
        response = bounded_request(method, url, **options)
    if not response.is_success:
        raise _refusal(response, field)
    return response


@contextmanager
def _explained(url: str, field: str) -> Iterator[None]:
    """Say why there is no answer."""
    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise Unavailable("not a URL", field=field, remedy="write http://host:port") from None
    except Endless as error:
        raise Unavailable(
            f"{error}, which is no Privateer server's", field=field, remedy="correct the address"
        ) from None
    except httpx.HTTPError:
        whole = httpx.URL(url)
        address = f"{whole.scheme}://{whole.netloc.decode()}"  # without a name and a password
        detail = f"no answer from the service at {address}"
        raise Unavailable(detail, field=field, remedy="is it running? privateer up") from None


def _decoded(response: httpx.Response, field: str) -> dict[str, Any]:
    answer = _object(response)
    if answer is None:
        raise Unavailable("the answer is not a Privateer server's", field=field, remedy="correct the address")
    return answer


def _refusal(response: httpx.Response, field: str) -> PrivateerError:
    slug, problem = slug_of(response.content), _object(response) or {}
    if slug == Unauthorized.slug:
        remedy = "set PRIVATEER_ADMIN_TOKEN to the server's"
        return RemoteError("this is not the server's admin token", field="--token", remedy=remedy)
    if slug == NotFound.slug and problem.get("detail") == "no such page" and field in _ELSEWHERE:
        detail, remedy = _ELSEWHERE[field]
        return RemoteError(detail, field=field, remedy=remedy)
    if slug == NotFound.slug and problem.get("detail") == "no such experiment":
        return NotThere("the server has no such experiment", field="NAME", remedy="privateer list")
    if slug == Deleted.slug:
        return NotThere("the experiment was deleted", field="NAME", remedy="privateer change log NAME says when")
    kind = NotThere if slug == NotFound.slug else Busy if response.status_code in _BUSY else RemoteError
    detail = str(problem.get("detail", f"HTTP {response.status_code}"))
    refusal = kind(detail, field=problem.get("field"), remedy=problem.get("remedy"))
    if isinstance(refusal, Busy):
        refusal.retry_after = retry_seconds(response.headers.get("retry-after", ""))
    return refusal


def _object(response: httpx.Response) -> dict[str, Any] | None:
    try:
        answer = _without_controls(response.json())
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _without_controls(value: Any) -> Any:
    """Return a JSON value whose texts do nothing to a terminal."""
    if isinstance(value, str):
        return _CONTROLS.sub("?", value)
    if isinstance(value, list):
        return [_without_controls(one) for one in value]
    if isinstance(value, dict):
        return {_without_controls(name): _without_controls(one) for name, one in value.items()}
    return value
