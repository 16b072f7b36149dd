"""The services of a load run: readiness checks, retries and waits."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from privateer_core.answer.people import GIVEN_UP, People
from privateer_core.errors import NotFound, PrivateerError, SpecError, Unavailable, printable
from privateer_core.experiment_status import Status
from privateer_core.wire.problem import parse_retry_after
from privateer_lab.services.rest import MAX_RESPONSE_BYTES, ServiceBusy, read_object_or_empty

MAX_ATTEMPTS: Final = 60
"""Number of undecided answers after which a request or an upload is abandoned."""
_FIRST_PAUSE, _MAX_OWN_PAUSE, _MAX_PAUSE = 0.05, 2.0, 30.0
"""Seconds of the first pause, of the longest pause without ``Retry-After``, and of the longest pause."""
_ResultT = TypeVar("_ResultT")
STARTUP_SECONDS: Final = 5.0
"""Seconds for services to start, or to decide, before the run prints that it waits."""
_MAX_RESPONSE_BYTES: Final = 1 << 16
_RESPONSE_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)


@dataclass
class Backoff:
    """The waits of a run between retries."""

    # the number of answers with ``Retry-After``, and the total seconds that participants waited for them
    waits: int = 0
    seconds: float = 0.0

    async def pause(self, attempt: int, retry_after: str | None) -> None:
        """Wait after an attempt, counted from 0; ``retry_after`` is the header of its response, if present."""
        requested_seconds = parse_retry_after(retry_after or "")
        seconds = _compute_pause(attempt, requested_seconds)
        if requested_seconds:
            self.waits += 1
            self.seconds += seconds
        await asyncio.sleep(seconds)


def retry_while_busy(ask: Callable[[], _ResultT]) -> _ResultT:
    """Retry a request while the service is busy, with a message on standard error."""
    for attempt in range(MAX_ATTEMPTS - 1):
        try:
            return ask()
        except ServiceBusy as error:
            if attempt == 0:
                print(f"waiting for the server: {printable(error.detail)}", file=sys.stderr)
            time.sleep(_compute_pause(attempt, error.retry_after))
    return ask()


def _compute_pause(attempt: int, requested_seconds: float) -> float:
    return min(_MAX_PAUSE, max(requested_seconds, min(_MAX_OWN_PAUSE, _FIRST_PAUSE * 2.0**attempt)))


def invalid_url_error(field: str) -> SpecError:
    """Make the error for an address that is not a URL."""
    return SpecError("not a URL", field=field, remedy="write http://host:port")


async def wait_for_shuffler(http: aiohttp.ClientSession, shuffler: str, name: str, backoff: Backoff) -> None:
    """Wait until a shuffler takes an experiment's reports, for some seconds or as long as its ``Retry-After`` says."""
    deadline = time.monotonic() + STARTUP_SECONDS
    for attempt in count():
        error, retry_after = await _probe(http, shuffler, name)
        if error is None:
            return
        is_in_time = attempt < MAX_ATTEMPTS if retry_after else time.monotonic() < deadline
        if not isinstance(error, Unavailable) or not is_in_time:
            raise error
        await backoff.pause(attempt, retry_after)


async def _probe(http: aiohttp.ClientSession, shuffler: str, name: str) -> tuple[PrivateerError | None, str | None]:
    """Return the error if the shuffler takes no reports, and its ``Retry-After``."""
    try:
        async with http.get(f"{shuffler}/experiments/{name}", timeout=_RESPONSE_TIMEOUT) as response:
            body = read_object_or_empty(await _read_bounded(response.content))
            return _find_refusal(response.status, body, name), response.headers.get("Retry-After")
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        raise invalid_url_error("--shuffler") from None
    except (aiohttp.ClientError, TimeoutError):
        return Unavailable(f"no answer from {shuffler}", field="--shuffler", remedy="is the shuffler running?"), None


def _find_refusal(status: int, body: dict[str, Any], name: str) -> PrivateerError | None:
    """Find the error that a shuffler's answer means; None if it takes reports of the experiment."""
    if status == 200 and body.get("experiment") == name and "batch_size" in body:
        return None
    if status >= 500 and "detail" not in body:  # a balancer that finds no shuffler
        return Unavailable(f"HTTP {status} from the shuffler", field="--shuffler", remedy="is it running?")
    if status == 200 or not isinstance(body.get("detail"), str) or body["detail"] == "no such page":
        remedy = "its public port is 8001 unless you changed it"
        return NotFound("this is not a shuffler", field="--shuffler", remedy=remedy)
    kind = Unavailable if status >= 500 else PrivateerError
    advice = printable(str(body.get("remedy") or "")) or None
    return kind(printable(body["detail"]), field="--shuffler", remedy=advice)


class ServerCounts(msgspec.Struct, frozen=True):
    """A server's counts of an experiment's participants, from all clients."""

    status: Status  # where the experiment stands
    accepted: int  # reports that count, over all rounds
    people: People  # the account as far as the server can see

    @property
    def n_decided(self) -> int:
        """Reports that count or were refused."""
        return self.accepted + self.people.n_refused - self.people.refused.get(GIVEN_UP, 0)


async def fetch_counts(http: aiohttp.ClientSession, server: str, name: str) -> ServerCounts | None:
    """Fetch a server's counts of an experiment's participants; None without a valid response."""
    try:
        async with http.get(f"{server}/experiments/{name}", timeout=_RESPONSE_TIMEOUT) as response:
            return msgspec.json.decode(await _read_bounded(response.content, MAX_RESPONSE_BYTES), type=ServerCounts)
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


async def _read_bounded(content: aiohttp.StreamReader, max_bytes: int = _MAX_RESPONSE_BYTES) -> bytes:
    """Read an answer's body, up to a number of bytes."""
    try:
        return await content.readexactly(max_bytes)
    except asyncio.IncompleteReadError as error:
        return error.partial


class UploadWait:
    """A warning, once in a run on standard error, that an endpoint is slow, with its last outcome as the reason."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint  # the service: ``server`` or ``shuffler``
        self.note_silence()
        self._has_warned = False

    @contextmanager
    def warn_if_slow(self) -> Iterator[None]:
        """Warn if the block, which waits for a decision, takes long."""
        timer = asyncio.get_running_loop().call_later(STARTUP_SECONDS, self._warn)
        try:
            yield
        finally:
            timer.cancel()

    def note_silence(self) -> None:
        """Record that the endpoint did not answer."""
        self.reason = f"no answer (is the {self.endpoint} running?)"

    def note_response(self, status: int, body: bytes) -> None:
        """Record a response that does not decide on all reports."""
        decoded = read_object_or_empty(body)
        detail, remedy = (printable(str(decoded.get(key) or "")) for key in ("detail", "remedy"))
        if detail:
            self.reason = detail + (f" ({remedy})" if remedy else "")
        elif isinstance(refusals := decoded.get("refused"), dict):
            reasons = ", ".join(printable(str(reason)) for reason in refusals)
            self.reason = f"it did not take all reports yet ({reasons})"
        else:
            self.reason = f"its answer, HTTP {status}, decides nothing (is something else at its address?)"

    def _warn(self) -> None:
        if not self._has_warned:
            print(f"waiting for the {self.endpoint}: {self.reason}", file=sys.stderr)
        self._has_warned = True
