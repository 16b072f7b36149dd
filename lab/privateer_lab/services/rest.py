"""Requests of the command line to services. A server may be untrusted, so the size of a response is bounded."""

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.request import getproxies

import httpx
import msgspec

from privateer_core.errors import Deleted, NotFound, PrivateerError, SpecError, Unauthorized, Unavailable
from privateer_core.wire.problem import parse_retry_after, read_slug

if TYPE_CHECKING:
    from privateer_core.answer.conclusion import PublishedAnswer
    from privateer_core.answer.people import People
    from privateer_core.answer.policy_view import PolicyView
    from privateer_core.spec.spec import Spec

_WRONG_ADDRESS_HINTS: Final = {
    "--url": ("this is not a learning server", "its public port is 8000 unless you changed it"),
    "--admin-url": ("this is not the server's private listener", "its port is 8002 unless you changed it"),
    "--shuffler-admin-url": ("this is not the shuffler's private listener", "its port is 8003 unless you changed it"),
}
"""Error and remedy for an address without the requested page, by the option that names the address."""
_CREATED: Final = 201
_BUSY_STATUSES: Final = {502, 503, 504}
"""Statuses of an overloaded service, and of a load balancer without a service."""
MAX_RESPONSE_BYTES: Final = 64 << 20
"""The largest size of a response, in bytes, which exports of experiments with thousands of actions need."""
_TIMEOUT_SECONDS: Final = 30.0
_CHUNK_SECONDS: Final = 600.0
"""Timeout of a chunk of a download: a server first copies a large database."""
_CHUNK_BYTES: Final = 8 << 20
_BYTES_PER_SECOND: Final = 64 << 10
"""Rate of a response from which on it may exceed its timeout."""
_CONTROL_CHARACTERS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters of terminals and marks of the direction of writing. No service writes them."""


class RemoteError(PrivateerError):
    """An error that a service returned."""


class ServiceBusy(RemoteError):
    """An error of a service that is temporarily unavailable."""

    status = Unavailable.status
    retry_after = 0.0  # seconds after which to retry the request; 0 if the service did not say


class RemoteNotFound(RemoteError):
    """An error of a service that lacks the requested resource."""

    status = NotFound.status


class UnknownService(RemoteError):
    """An error of a host that is no service of Privateer."""

    status = Unavailable.status


class UnboundedResponse(httpx.HTTPError):
    """An error of a response that is too large, too slow, or compressed without request."""


def bounded_request(
    method: str,
    url: str,
    *,
    bytes_max: int = MAX_RESPONSE_BYTES,
    timeout_seconds: float = _TIMEOUT_SECONDS,
    http: httpx.Client | None = None,
    **options: Any,
) -> httpx.Response:
    """Send a request and return the whole response; refuse larger ones, and allow a second more for every 64 KiB."""
    send = http.stream if http else partial(httpx.stream, verify=_load_authorities(url))
    headers = {"Accept-Encoding": "identity", **options.pop("headers", {})}
    body, deadline = bytearray(), time.monotonic() + timeout_seconds
    with send(method, url, timeout=timeout_seconds, headers=headers, **options) as response:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise UnboundedResponse("the answer is packed")
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > bytes_max:
                raise UnboundedResponse(f"the answer has more than {bytes_max} bytes")
            if time.monotonic() > deadline + len(body) / _BYTES_PER_SECOND:
                raise UnboundedResponse("the answer takes too long")
    return httpx.Response(response.status_code, headers=response.headers, content=bytes(body))


def _load_authorities(url: str) -> ssl.SSLContext | bool:
    """Return what verifies certificates: for a plain URL an empty context, since loading authorities takes long."""
    is_plain = url.startswith("http://") and not getproxies()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else True


def request_json(method: str, url: str, *, field: str = "--url", **options: Any) -> Any:
    """Send a request, and return the JSON object of the response; ``field`` is the option that names the URL."""
    return _decode_object(_send_request(method, url, field, **options), field)


def create_experiment(admin: str, spec: "Spec", token: str | None, start: Any = None) -> tuple[Any, bool]:
    """Create an experiment, warm from an export if given; return the response, and whether it is no repetition."""
    body, page, field = spec.without_people().model_dump(mode="json", exclude_none=True), "experiments", "--admin-url"
    if start is not None:
        body, page = {"spec": body, "start": start}, f"experiments/{spec.name}/warm-start"
    response = _send_request("POST", f"{admin}/{page}", field, json=body, headers=admin_headers(token))
    return _decode_object(response, field), response.status_code == _CREATED


def fetch_bytes(url: str, *, field: str = "--url", **options: Any) -> bytes:
    """Send a GET request, and return the content of the response, at most ``bytes_max`` bytes."""
    return _send_request("GET", url, field, **options).content


@contextmanager
def download(url: str, media_type: str, *, field: str = "--url", **options: Any) -> Iterator[Iterator[bytes]]:
    """Yield the chunks of a large response, with a long timeout between two chunks; refuse another page."""
    with _explain_failures(url, field), httpx.stream("GET", url, timeout=_CHUNK_SECONDS, **options) as response:
        if not response.is_success:
            problem = b"".join(islice(response.iter_bytes(_CHUNK_BYTES), 1))
            raise _build_error(httpx.Response(response.status_code, content=problem), field)
        if response.headers.get("content-type") != media_type or "content-length" not in response.headers:
            raise Unavailable("the answer is not a backup", field=field, remedy="correct the address")
        yield _iter_chunks(response, field)


def _iter_chunks(response: httpx.Response, field: str) -> Iterator[bytes]:
    """Read an answer's body in chunks; refuse one that breaks off."""
    try:
        yield from response.iter_bytes(_CHUNK_BYTES)
    except httpx.HTTPError:
        detail = f"the answer broke off after {response.num_bytes_downloaded:,} bytes"
        raise Unavailable(detail, field=field, remedy="see the server's log, and try again") from None


def admin_headers(token: str | None) -> dict[str, bytes]:
    """Return the header with the admin token; refuse a missing token."""
    if not token:
        remedy = "set it to the server's; for a new server, openssl rand -hex 16 makes one"
        raise SpecError("is not set", field="PRIVATEER_ADMIN_TOKEN", remedy=remedy)
    return {"Authorization": b"Bearer " + token.encode(errors="surrogateescape")}


def fetch_answer(url: str, name: str) -> "PublishedAnswer":
    """Fetch the result of an experiment from a server."""
    return fetch_answer_at(f"{url.rstrip('/')}/experiments/{name}")


def fetch_answer_at(experiment_url: str, *, field: str = "--url") -> "PublishedAnswer":
    """Fetch the result of an experiment by its URL, which the option ``field`` names; refuse another page."""
    from privateer_core.answer.conclusion import PublishedAnswer

    document = request_json("GET", f"{experiment_url}/answer", field=field)
    if isinstance(document, dict):
        document["people"] = request_json("GET", experiment_url, field=field).get("people")
    try:
        return msgspec.convert(document, PublishedAnswer)
    except msgspec.ValidationError:
        remedy = "correct the address, or install the server's version of Privateer here"
        raise Unavailable("the answer is not that of an experiment", field=field, remedy=remedy) from None


def parse_policy(document: Any) -> "PolicyView":
    """Parse the policy in a server's response; `Unavailable` if it is none."""
    from privateer_core.answer.policy_view import PolicyView

    try:
        return msgspec.convert(document, PolicyView)
    except msgspec.ValidationError:
        raise Unavailable("the answer is not a policy", field="--url", remedy="correct the address") from None


def _send_request(method: str, url: str, field: str, **options: Any) -> httpx.Response:
    """Send a request and return a successful response; raise the error that another one means."""
    with _explain_failures(url, field):
        response = bounded_request(method, url, **options)
    if not response.is_success:
        raise _build_error(response, field)
    return response


@contextmanager
def _explain_failures(url: str, field: str) -> Iterator[None]:
    """Turn errors of a request into errors with a remedy."""
    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise SpecError("not a URL", field=field, remedy="write http://host:port") from None
    except UnboundedResponse as error:
        detail = f"{error}, which is no Privateer server's"
        raise Unavailable(detail, field=field, remedy="correct the address") from None
    except httpx.HTTPError:
        parsed = httpx.URL(url)
        address = f"{parsed.scheme}://{parsed.netloc.decode()}"  # without a name and a password
        detail = f"no answer from the service at {address}"
        raise Unavailable(detail, field=field, remedy="is it running? privateer up") from None


def _decode_object(response: httpx.Response, field: str) -> dict[str, Any]:
    """Decode an answer's JSON object; refuse other answers."""
    document = _parse_object(response)
    if document is None:
        raise Unavailable("the answer is not a Privateer server's", field=field, remedy="correct the address")
    return document


def _build_error(response: httpx.Response, field: str) -> PrivateerError:
    """Build the error that a response means to the person at the command line."""
    slug, problem = read_slug(response.content), _parse_object(response) or {}
    if slug == Unauthorized.slug:
        remedy = "set PRIVATEER_ADMIN_TOKEN to the server's"
        return RemoteError("this is not the server's admin token", field="--token", remedy=remedy)
    if slug == NotFound.slug and problem.get("detail") == "no such page" and field in _WRONG_ADDRESS_HINTS:
        detail, remedy = _WRONG_ADDRESS_HINTS[field]
        return RemoteError(detail, field=field, remedy=remedy)
    if slug == NotFound.slug and problem.get("detail") == "no such experiment":
        return RemoteNotFound("the server has no such experiment", field="NAME", remedy="privateer list")
    if slug == Deleted.slug:
        return RemoteNotFound("the experiment was deleted", field="NAME", remedy="privateer change log NAME says when")
    is_busy = response.status_code in _BUSY_STATUSES
    if "detail" not in problem and not is_busy:
        detail = f"HTTP {response.status_code}, and not as a Privateer service answers"
        return UnknownService(detail, field=field, remedy="correct the address")
    kind = RemoteNotFound if slug == NotFound.slug else ServiceBusy if is_busy else RemoteError
    detail = str(problem.get("detail", f"HTTP {response.status_code}"))
    error = kind(detail, field=problem.get("field"), remedy=problem.get("remedy"))
    if isinstance(error, ServiceBusy):
        error.retry_after = parse_retry_after(response.headers.get("retry-after", ""))
    return error


def _parse_object(response: httpx.Response) -> dict[str, Any] | None:
    """Parse an answer's JSON object, controls replaced; None if it is none."""
    try:
        document = _replace_controls(response.json())
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def read_object_or_empty(body: bytes) -> dict[str, Any]:
    """Decode a body as a JSON object; return an empty object for any other body."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _replace_controls(value: Any) -> Any:
    """Return a JSON value with control characters of all texts replaced."""
    if isinstance(value, str):
        return _CONTROL_CHARACTERS.sub("?", value)
    if isinstance(value, list):
        return [_replace_controls(element) for element in value]
    if isinstance(value, dict):
        return {_replace_controls(name): _replace_controls(element) for name, element in value.items()}
    return value


_OPTION: Final = "--shuffler-admin-url"
_REMEDY: Final = f"Its operator can tell: {_OPTION} or PRIVATEER_SHUFFLER_ADMIN_URL names its private listener"


@dataclass(frozen=True)
class ShufflerProgress:
    """The number of sealed reports that a shuffler holds."""

    held: int | None  # participants whose reports are held, in whole tenths of a batch; None: unknown
    batch_size: int  # participants of a complete batch
    # the smallest batch size that the shuffler's operator accepts; None: unknown
    min_batch: int | None = None
    full: bool = False  # whether a complete batch waits for the server
    unknown: str = ""  # the reason why the number is unknown, and the remedy

    @property
    def _tenth(self) -> int:
        return max(1, self.batch_size // 10)

    def add_to(self, people: "People") -> "People":
        """Return a server's account of participants with the shuffler's reports added, if their number is known."""
        return people if self.held is None else people.with_shuffler(self.held, self._tenth - 1)

    def document(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    def describe(self) -> str:
        """Return a sentence for readers."""
        if self.held is None:
            return f"at the shuffler: not known here, since {self.unknown}"
        min_batch_clause = f"; its operator takes batches of {self.min_batch:,} or more" if self.min_batch else ""
        if self.full:
            return f"at the shuffler: a complete batch waits for the server{min_batch_clause}"
        tenth = self._tenth
        range_text = (
            f"{self.held:,}" if tenth == 1 else f"{self.held:,} to {min(self.held + tenth, self.batch_size) - 1:,}"
        )
        return f"at the shuffler: {range_text} of {self.batch_size:,} sealed reports wait{min_batch_clause}"


def fetch_shuffler_progress(facts: Mapping[str, Any], url: str) -> ShufflerProgress | None:
    """Fetch a shuffler's progress on a described experiment; None without a shuffler, or if nobody is asked."""
    from privateer_core.privacy.trust import Recipient, trust_of

    batch = facts.get("batch_size")
    if not batch or trust_of(facts["model"]).endpoint is not Recipient.SHUFFLER:
        return None
    if facts["shuffler"] is None:  # it claims an experiment before it holds anything
        return ShufflerProgress(0, batch)
    try:
        status = request_json("GET", f"{url}/held", field=_OPTION)
    except PrivateerError as error:
        return ShufflerProgress(None, batch, unknown=f"{error.detail}. {_REMEDY}")
    if status.get("shuffler") != facts["shuffler"]:
        reason = f"the shuffler at {url} is not the one that has claimed it. {_REMEDY}"
        return ShufflerProgress(None, batch, unknown=reason)
    rounds = [row for row in status["rounds"] if row["experiment"] == facts["name"]]
    n_held = sum(row["held"] for row in rounds)
    return ShufflerProgress(n_held, batch, status["min_batch"], any(row["full"] for row in rounds))
