"""The services of a load run: whether they are there, and how long people wait for them."""

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

from privateer_client.delivery import retry_seconds
from privateer_core.answer.export import Status
from privateer_core.answer.people import GIVEN_UP, People
from privateer_core.errors import NotFound, PrivateerError, Unavailable, printable
from privateer_lab.services.rest import BYTES_MAX, Busy

TRIES: Final = 60
"""After so many answers that decide nothing, the run gives a question or an upload up."""
_FIRST, _OWN, _LONGEST = 0.05, 2.0, 30.0
"""Seconds of the first pause and of the longest one where nobody asks for more; and of the longest one of all."""
_Answer = TypeVar("_Answer")
PATIENCE: Final = 5.0
"""Seconds that services may take to start, or to decide, before the run says that it waits."""
_ANSWER_BYTES: Final = 1 << 16
_ANSWER_SECONDS: Final = aiohttp.ClientTimeout(total=10)


@dataclass
class Backoff:
    """The waits of a run before it asks again."""

    # how often a service said when to come again, and for how long people waited then, over all of them
    waits: int = 0
    seconds: float = 0.0

    async def pause(self, attempt: int, retry_after: str | None) -> None:
        """Wait after an attempt, counted from 0; ``retry_after`` is the header of its answer, if it has one."""
        asked = retry_seconds(retry_after or "")
        seconds = _pause(attempt, asked)
        if asked:
            self.waits += 1
            self.seconds += seconds
        await asyncio.sleep(seconds)


def patiently(ask: Callable[[], _Answer]) -> _Answer:
    """Ask a service again as long as it says that it is busy, and say so once on standard error."""
    for attempt in range(TRIES - 1):
        try:
            return ask()
        except Busy as error:
            if attempt == 0:
                print(f"waiting for the server: {printable(error.detail)}", file=sys.stderr)
            time.sleep(_pause(attempt, error.retry_after))
    return ask()


def _pause(attempt: int, asked: float) -> float:
    return min(_LONGEST, max(asked, min(_OWN, _FIRST * 2.0**attempt)))


def _read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer; an empty one if the answer is something else."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def no_url(field: str) -> Unavailable:
    """Return the error for an address that is not a URL."""
    return Unavailable("not a URL", field=field, remedy="write http://host:port")


async def meet(http: aiohttp.ClientSession, shuffler: str, name: str, patience: Backoff) -> None:
    """Check that a shuffler takes an experiment's reports; it has some seconds to start, or as many as it asks for."""
    latest = time.monotonic() + PATIENCE
    for attempt in count():
        error, asked = await _refusal(http, shuffler, name)
        if error is None:
            return
        is_later = isinstance(error, Unavailable) and (attempt < TRIES if asked else time.monotonic() < latest)
        if not is_later:
            raise error
        await patience.pause(attempt, asked)


async def _refusal(http: aiohttp.ClientSession, shuffler: str, name: str) -> tuple[PrivateerError | None, str | None]:
    """Return why the shuffler takes no reports, if it does not, and its ``Retry-After``."""
    try:
        async with http.get(f"{shuffler}/experiments/{name}", timeout=_ANSWER_SECONDS) as response:
            answer = _read_object(await _bounded(response.content))
            return _judged(response.status, answer, name), response.headers.get("Retry-After")
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        raise no_url("--shuffler") from None
    except (aiohttp.ClientError, TimeoutError):
        error = Unavailable(f"no answer from {shuffler}", field="--shuffler", remedy="is the shuffler running?")
        return error, None


def _judged(status: int, answer: dict[str, Any], name: str) -> PrivateerError | None:
    if status == 200 and answer.get("experiment") == name and "batch" in answer:
        return None
    if status >= 500 and "detail" not in answer:  # a balancer that finds no shuffler
        return Unavailable(f"HTTP {status} from the shuffler", field="--shuffler", remedy="is it running?")
    if status == 200 or not isinstance(answer.get("detail"), str) or answer["detail"] == "no such page":
        remedy = "its public port is 8001 unless you changed it"
        return NotFound("this is not a shuffler", field="--shuffler", remedy=remedy)
    kind = Unavailable if status >= 500 else PrivateerError
    advice = printable(str(answer.get("remedy") or "")) or None
    return kind(printable(answer["detail"]), field="--shuffler", remedy=advice)


class ServerCounts(msgspec.Struct, frozen=True):
    """How a server counts the people of an experiment, anybody's."""

    status: Status  # where the experiment stands
    accepted: int  # reports that count, over all rounds
    people: People  # the account as far as the server can see

    @property
    def n_decided(self) -> int:
        """Reports that count or were refused."""
        return self.accepted + self.people.n_refused - self.people.refused.get(GIVEN_UP, 0)


async def counts_of(http: aiohttp.ClientSession, server: str, name: str) -> ServerCounts | None:
    """Return how a server counts the people of an experiment; None if it does not say."""
    try:
        async with http.get(f"{server}/experiments/{name}", timeout=_ANSWER_SECONDS) as response:
            return msgspec.json.decode(await _bounded(response.content, BYTES_MAX), type=ServerCounts)
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


async def _bounded(content: aiohttp.StreamReader, most: int = _ANSWER_BYTES) -> bytes:
    try:
        return await content.readexactly(most)
    except asyncio.IncompleteReadError as whole:
        return whole.partial


class UploadWait:
    """Says once in a run, on standard error, that an endpoint keeps people waiting.

    why: what became of the last upload that is not decided.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint  # the service: ``server`` or ``shuffler``
        self.note_silence()
        self._said = False

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Say so if the block, in which somebody waits for a decision, takes long."""
        timer = asyncio.get_running_loop().call_later(PATIENCE, self._say)
        try:
            yield
        finally:
            timer.cancel()

    def note_silence(self) -> None:
        """Keep that nobody answered."""
        self.why = f"no answer (is the {self.endpoint} running?)"

    def note(self, status: int, body: bytes) -> None:
        """Keep what the endpoint said instead of a decision on everybody."""
        answer = _read_object(body)
        detail, remedy = (printable(str(answer.get(key) or "")) for key in ("detail", "remedy"))
        if detail:
            self.why = detail + (f" ({remedy})" if remedy else "")
        elif isinstance(refused := answer.get("refused"), dict):
            reasons = ", ".join(printable(str(reason)) for reason in refused)
            self.why = f"it did not take all reports yet ({reasons})"
        else:
            self.why = f"its answer, HTTP {status}, decides nothing (is something else at its address?)"

    def _say(self) -> None:
        if not self._said:
            print(f"waiting for the {self.endpoint}: {self.why}", file=sys.stderr)
        self._said = True
