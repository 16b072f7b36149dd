"""Delivery of sealed reports: what to send, what an answer decides, and when to send again.

Nothing here does I/O.
"""

import math
import secrets
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

from privateer_client.ledger.account_protocol import Account
from privateer_client.participation import SealedReport
from privateer_client.states import Outcome
from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import InputError
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_core.wire.identity import SIGNED_HEADER
from privateer_core.wire.problem import slug_of
from privateer_core.wire.publication import ASKS_HEADER

ACCEPTED: Final = 202
"""Status of an answer that takes reports in."""
_AGAIN: Final = frozenset({408, 425, 429})
"""Statuses from 400 to 499 that say nothing about the request itself."""
_REFUSED: Final = frozenset({
    "report-refused", "malformed-report", "wrong-size", "wrong-key", "wrong-digest", "unopenable", "out-of-range",
    "wrong-endpoint", "too-large", "deleted", "terms-refused", "spec-invalid",
})  # fmt: skip
IDENTITY: Final = "identity"
"""How answers are encoded: not at all, so that their size is known before anything is unpacked."""
_RETRY_MOST: Final = 3600.0
PROBLEM_BYTES: Final = 64 << 10
"""The most bytes that an answer to a report, or a problem document, may have."""
_FIRST: Final = 0.25
_MOST: Final = 30.0
"""Seconds that the first and the longest pause may take, before what the endpoint asks for."""
_DOUBLINGS: Final = 16
_RANDOM: Final = secrets.SystemRandom()
_HEADERS: Final = {"Content-Type": MEDIA_TYPE}
_WORN: Final = frozenset({"token-spent", "token-expired"})
"""What endpoints say of tokens that they will never take."""
DOUBTED: Final = frozenset({"token-invalid", "token-elsewhere"})
"""What they say of tokens that they do not know. The keys that they show tell whether they ever will."""
_Result = TypeVar("_Result")


class Silence(StrEnum):
    """Why there is no answer, in words about the service."""

    CLOSED = "nothing listens at {service}"
    LATE = "{service} did not answer within {seconds:g} s"
    NONSENSE = "{service} answered, but not what it was asked for"

    def at(self, url: str, seconds: float) -> str:
        """Say it of the service at a URL, which was given so many seconds."""
        parts = urlsplit(url)
        return self.format(service=f"{parts.scheme}://{parts.netloc}", seconds=seconds)


class EndpointAnswer(NamedTuple):
    """An answer that kept to its bounds; of status 0 if none did."""

    status: int
    body: bytes = b""
    retry_after: float = 0.0
    """Seconds after which the endpoint wants the next request; 0 if it did not say."""
    asks: str = ""
    """Whom the round asks, if the server says it beside a publication (`wire.publication.ASKS_HEADER`)."""
    signed: str = ""
    """The header that says who signed a publication (`wire.identity.SIGNED_HEADER`)."""
    silence: Silence = Silence.NONSENSE
    """Why the answer cannot be used, if it cannot."""


class Headers(Protocol):
    """Headers of an answer; a name in any case."""

    def get(self, name: str, default: str, /) -> str:
        """Return a header."""
        ...


class Unwelcome(Exception):
    """An answer that is too large, or in a form that was not asked for."""


class DeliveryVerdict(NamedTuple):
    """What the device knows of a report, and the reason of an endpoint that did not take it."""

    outcome: Outcome
    reason: str | None = None


def judge(answer: EndpointAnswer | None) -> DeliveryVerdict:
    """Judge what an answer decides about one person's report; None: no answer came."""
    # Only a verdict on the report itself is final. Whatever else comes (a fault, the login page of a network, a service
    # that does not know the experiment or the version yet) may be otherwise the next time.
    if answer is None or not answer.status:
        return DeliveryVerdict(Outcome.PENDING)
    if answer.status == ACCEPTED:
        return DeliveryVerdict(Outcome.ACCEPTED)
    reason = slug_of(answer.body)
    if not 400 <= answer.status < 500 or answer.status in _AGAIN:
        return DeliveryVerdict(Outcome.PENDING, reason)
    outcome = outcome_of(reason)
    return DeliveryVerdict(outcome, None if outcome is Outcome.ACCEPTED else reason)


def outcome_of(reason: str) -> Outcome:
    """Return what an endpoint's reason means for the report that it is about."""
    if reason == "duplicate-report":  # a report holds a random id, so somebody has counted these very bytes
        return Outcome.ACCEPTED
    if reason == "round-closed":
        return Outcome.LATE
    return Outcome.REFUSED if reason in _REFUSED else Outcome.PENDING


class Ask(NamedTuple):
    """One request."""

    method: str
    url: str
    headers: dict[str, str]
    timeout: float
    """Seconds until the whole answer must be there."""
    body: bytes | None = None
    most: int = PROBLEM_BYTES
    """Bytes that the body of a success may have."""


class Sleep(NamedTuple):
    """A driver waits so many seconds before the next step."""

    seconds: float


Steps: TypeAlias = Generator[Ask | Sleep, EndpointAnswer | None, _Result]
"""What to do next. Its driver sends back the answer to each request, or None if none came within its bounds."""


@dataclass(frozen=True)
class Pace:
    """The times that a device waits. They depend on answers and randomness alone, never on what a report says.

    Attributes
    ----------
    timeout
        Seconds for one request and its whole answer.
    patience
        Seconds after which no new try begins.
    clock
        What measures them.

    Raises
    ------
    InputError
        If one is out of range.
    """

    timeout: float = 10.0
    patience: float = 10.0
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        if not 0 < self.timeout < math.inf:
            raise InputError("must be above 0 and finite", field="timeout", remedy="10 seconds are usual")
        if not 0 <= self.patience < math.inf:
            raise InputError("must be at least 0 and finite", field="patience", remedy="10 seconds are usual")

    def backoff(self, tries: int) -> float:
        """Draw the seconds to pause after that many tries: up to a bound that doubles, so that devices spread."""
        return _RANDOM.uniform(0.0, min(_MOST, _FIRST * 2.0 ** min(tries - 1, _DOUBLINGS)))


Tied: TypeAlias = dict[SealedReport, bytes | None]
"""The token that each report comes with the first time, None: none was left. Others are looked for."""


def deliver(
    reports: Sequence[SealedReport], account: Account, pace: Pace, tied: Tied | None = None
) -> Steps[dict[SealedReport, DeliveryVerdict]]:
    """Send reports until each has a final answer, or patience ends; return the verdicts."""
    tied = tied or {}
    known: dict[SealedReport, DeliveryVerdict] = {}
    end, tries = pace.clock.monotonic() + pace.patience, 0
    while reports:
        asked = yield from _try(reports, account, pace.timeout, known, tied)
        reports = [report for report in reports if known[report].outcome is Outcome.PENDING]
        tries, left = tries + 1, end - pace.clock.monotonic()
        if not reports or left <= asked:
            break
        yield Sleep(min(left, asked + pace.backoff(tries)))
    return known


def deliver_once(reports: Sequence[SealedReport], account: Account, pace: Pace, end: float) -> Steps[None]:
    """Send each report once, and begin none after ``end`` by the pace's monotonic clock."""
    for report in reports:
        left = end - pace.clock.monotonic()
        if left <= 0:
            return
        yield from _try([report], account, left, {}, {})


def _try(
    reports: Sequence[SealedReport],
    account: Account,
    timeout: float,
    known: dict[SealedReport, DeliveryVerdict],
    tied: Tied,
) -> Steps[float]:
    """Send each report, note its verdict in ``known``, and return the seconds for which the endpoints want quiet."""
    asked = 0.0
    for report in reports:
        token = tied.pop(report) if report in tied else _token(report, account)
        headers = _HEADERS | (_authorized(token) if token else {})
        answer = yield Ask("POST", report.endpoint, headers, timeout, report.body)
        verdict = known[report] = judge(answer)
        if account.tokens and verdict.reason in _WORN:
            account.tokens.untie(report)  # the next try comes with another one
        if verdict.outcome is not Outcome.PENDING:
            with suppress(InputError):  # bytes that could not be deleted are sent again, and are duplicates then
                account.answered(report)
        elif answer is not None:
            asked = max(asked, answer.retry_after)
    return asked


def _token(report: SealedReport, account: Account) -> bytes | None:
    return account.tokens.tie(report) if account.tokens else None


def _authorized(token: bytes) -> dict[str, str]:
    from privateer_core.wire.token import authorization  # few reports come with a token

    return {"Authorization": authorization(token)}


def most_of(ask: Ask, status: int, encoding: str) -> int:
    """Return how many bytes the body may have, before anything of it is read or unpacked."""
    if encoding.strip().lower() != IDENTITY:
        raise Unwelcome
    return ask.most if status // 100 == 2 else PROBLEM_BYTES


def grow(body: bytearray, chunk: bytes, most: int) -> None:
    """Add a part to a body, if there is room."""
    if len(body) + len(chunk) > most:
        raise Unwelcome
    body += chunk


def answer_of(status: int, body: bytearray, headers: Headers) -> EndpointAnswer:
    """Return an answer that kept to its bounds."""
    wait, asks, signed = headers.get("retry-after", ""), headers.get(ASKS_HEADER, ""), headers.get(SIGNED_HEADER, "")
    return EndpointAnswer(status, bytes(body), retry_seconds(wait), asks, signed)


def silent(why: Silence) -> EndpointAnswer:
    """Return that there is no answer."""
    return EndpointAnswer(0, silence=why)


def retry_seconds(retry_after: str) -> float:
    """Parse a ``Retry-After``, an hour at most; a date counts as 0 seconds, since clocks differ."""
    digits = retry_after.strip()
    if not (digits.isascii() and digits.isdecimal()):
        return 0.0
    return min(_RETRY_MOST, float(digits))
