"""Delivery of sealed reports: requests, the verdicts of answers, and retries. It does no I/O."""

import math
import secrets
from collections.abc import Generator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec

from privateer_client.ledger.account_protocol import Account
from privateer_client.participation import SealedReport
from privateer_client.states import ReportStatus
from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import InputError
from privateer_core.wire.identity import SIGNED_HEADER
from privateer_core.wire.problem import parse_retry_after, read_slug
from privateer_core.wire.publication import ASKS_HEADER, MEDIA_TYPE

ACCEPTED_STATUS: Final = 202
"""Status of an answer that accepts reports."""
_RETRY_STATUSES: Final = frozenset({408, 425, 429})
"""Statuses from 400 to 499 that say nothing about the request itself."""
_REFUSAL_SLUGS: Final = frozenset({
    "report-refused", "malformed-report", "wrong-size", "wrong-key", "wrong-digest", "decryption-failed",
    "out-of-range", "wrong-endpoint", "too-large", "deleted", "terms-refused", "spec-invalid",
})  # fmt: skip
IDENTITY: Final = "identity"
"""The content encoding of answers: none, so that their size is known before they are read."""
PROBLEM_BYTES_MAX: Final = 64 << 10
"""Maximum size of an answer to a report, or of a problem document."""
_FIRST_PAUSE_SECONDS: Final = 0.25
_PAUSE_SECONDS_MAX: Final = 30.0
"""Upper bounds of the first and of the longest pause, without the pause that an endpoint asks for."""
_DOUBLINGS: Final = 16
_RANDOM: Final = secrets.SystemRandom()
_HEADERS: Final = {"Content-Type": MEDIA_TYPE}
_USED_TOKEN_SLUGS: Final = frozenset({"token-spent", "token-expired"})
"""Reasons of endpoints for refusing tokens that they will never accept."""
UNKNOWN_TOKEN_SLUGS: Final = frozenset({"token-invalid", "token-wrong-audience"})
"""What they say of tokens that they do not know. The keys that they show tell whether they ever will."""
_Result = TypeVar("_Result")


class Silence(StrEnum):
    """The reason why there is no answer, as a text about the service."""

    CLOSED = "nothing listens at {service}"
    LATE = "{service} did not answer within {seconds:g} s"
    NONSENSE = "{service} answered, but not what it was asked for"

    def describe(self, url: str, seconds: float) -> str:
        """Return the text about the service at a URL, with the timeout of the request."""
        parts = urlsplit(url)
        return self.format(service=f"{parts.scheme}://{parts.netloc}", seconds=seconds)


class EndpointAnswer(NamedTuple):
    """An answer within its bounds of size and time; of status 0 if there is none."""

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
    """The headers of an answer, with names in any case."""

    def get(self, name: str, default: str, /) -> str:
        """Return a header."""


class UnacceptableAnswer(Exception):
    """An answer that is too large, or in an unrequested encoding."""


class DeliveryVerdict(NamedTuple):
    """The status of a report, and the reason of an endpoint that did not accept it."""

    status: ReportStatus
    reason: str | None = None


def judge_answer(answer: EndpointAnswer | None) -> DeliveryVerdict:
    """Return the verdict of an answer to a participant's report; None: there was no answer."""
    # Only a verdict on the report itself is final. Other answers (a fault, the login page of a network, a service that
    # does not know the experiment or the version yet) may change at the next attempt.
    if answer is None or not answer.status:
        return DeliveryVerdict(ReportStatus.PENDING)
    if answer.status == ACCEPTED_STATUS:
        return DeliveryVerdict(ReportStatus.ACCEPTED)
    reason = read_slug(answer.body)
    if not 400 <= answer.status < 500 or answer.status in _RETRY_STATUSES:
        return DeliveryVerdict(ReportStatus.PENDING, reason)
    outcome = refusal_status(reason)
    return DeliveryVerdict(outcome, None if outcome is ReportStatus.ACCEPTED else reason)


def refusal_status(reason: str) -> ReportStatus:
    """Return the status of a report that an endpoint refused, by the endpoint's reason."""
    if reason == "duplicate-report":  # a report has a random id, so these bytes are counted already
        return ReportStatus.ACCEPTED
    if reason == "round-closed":
        return ReportStatus.LATE
    return ReportStatus.REFUSED if reason in _REFUSAL_SLUGS else ReportStatus.PENDING


class DeliveryRequest(NamedTuple):
    """A step that sends a request."""

    method: str
    url: str
    headers: dict[str, str]
    timeout: float
    """Seconds until the whole answer must be there."""
    body: bytes | None = None
    max_bytes: int = PROBLEM_BYTES_MAX
    """Maximum size of the body of a successful answer."""


class Sleep(NamedTuple):
    """A step that waits."""

    seconds: float


Steps: TypeAlias = Generator[DeliveryRequest | Sleep, EndpointAnswer | None, _Result]
"""A generator of steps. Its driver sends the answer to each request, or None if there is none within its bounds."""


class End(NamedTuple):
    """The result of steps."""

    result: Any


def advance(steps: Steps[Any], answer: EndpointAnswer | None) -> DeliveryRequest | Sleep | End:
    """Send an answer to the steps, and return the next step or the result."""
    try:
        return steps.send(answer)
    except StopIteration as end:
        return End(end.value)


class Pace(msgspec.Struct, frozen=True):
    """The waiting times of a device. They depend on answers and randomness alone, never on the content of a report.

    Attributes
    ----------
    timeout
        Seconds for one request and its whole answer.
    retry_timeout
        Seconds after which no new try begins.
    clock
        What measures them.

    Raises
    ------
    InputError
        If one is out of range.
    """

    timeout: float = 10.0
    retry_timeout: float = 10.0
    clock: Clock = msgspec.field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        if not 0 < self.timeout < math.inf:
            raise InputError("must be above 0 and finite", field="timeout", remedy="10 seconds are usual")
        if not 0 <= self.retry_timeout < math.inf:
            raise InputError("must be at least 0 and finite", field="retry_timeout", remedy="10 seconds are usual")

    def draw_backoff(self, tries: int) -> float:
        """Draw the pause in seconds after a number of tries, by exponential backoff with full jitter."""
        return _RANDOM.uniform(0.0, min(_PAUSE_SECONDS_MAX, _FIRST_PAUSE_SECONDS * 2.0 ** min(tries - 1, _DOUBLINGS)))


TiedTokens: TypeAlias = dict[SealedReport, bytes | None]
"""The token that each report just paid for comes with the first time, None: there is none. Others are looked for."""


def deliver(
    reports: Sequence[SealedReport], account: Account, pace: Pace, tied_tokens: TiedTokens | None = None
) -> Steps[dict[SealedReport, DeliveryVerdict]]:
    """Send reports until each has a final answer, or the time for tries ends; return the verdicts."""
    tied_tokens = tied_tokens or {}
    verdicts: dict[SealedReport, DeliveryVerdict] = {}
    end, tries = pace.clock.monotonic() + pace.retry_timeout, 0
    while reports:
        pause = yield from _send_once(reports, account, pace.timeout, verdicts, tied_tokens)
        reports = [report for report in reports if verdicts[report].status is ReportStatus.PENDING]
        tries, remaining = tries + 1, end - pace.clock.monotonic()
        if not reports or remaining <= pause:
            break
        yield Sleep(min(remaining, pause + pace.draw_backoff(tries)))
    return verdicts


def deliver_once(reports: Sequence[SealedReport], account: Account, pace: Pace, end: float) -> Steps[None]:
    """Send each report once, and begin none after ``end`` by the pace's monotonic clock."""
    for report in reports:
        remaining = end - pace.clock.monotonic()
        if remaining <= 0:
            return
        yield from _send_once([report], account, remaining, {}, {})


def _send_once(
    reports: Sequence[SealedReport],
    account: Account,
    timeout: float,
    verdicts: dict[SealedReport, DeliveryVerdict],
    tied_tokens: TiedTokens,
) -> Steps[float]:
    """Send each report, store its verdict in ``verdicts``, and return the pause in seconds that endpoints asked for."""
    pause = 0.0
    for report in reports:
        if report not in tied_tokens and report not in account.pending_reports():  # erased, or sent by another process
            verdicts[report] = DeliveryVerdict(ReportStatus.ALREADY_REPORTED)
            continue
        token = tied_tokens.pop(report) if report in tied_tokens else account.tie_token(report)
        headers = _HEADERS | (_authorization_header(token) if token else {})
        answer = yield DeliveryRequest("POST", report.endpoint, headers, timeout, report.body)
        verdict = verdicts[report] = judge_answer(answer)
        if account.tokens and verdict.reason in _USED_TOKEN_SLUGS:
            account.tokens.delete_tied(report)  # the next try comes with another one
        if verdict.status is not ReportStatus.PENDING:
            with suppress(InputError):  # bytes that could not be deleted are sent again, and are duplicates then
                account.erase_report(report)
        elif answer is not None:
            pause = max(pause, answer.retry_after)
    return pause


def _authorization_header(token: bytes) -> dict[str, str]:
    from privateer_core.wire.token import authorization  # few reports come with a token

    return {"Authorization": authorization(token)}


def body_bytes_max(request: DeliveryRequest, status: int, encoding: str) -> int:
    """Return the size limit of an answer's body, before it is read; refuse a compressed answer."""
    if encoding.strip().lower() != IDENTITY:
        raise UnacceptableAnswer
    return request.max_bytes if status // 100 == 2 else PROBLEM_BYTES_MAX


def append_chunk(body: bytearray, chunk: bytes, max_bytes: int) -> None:
    """Append a chunk to a body; raise `UnacceptableAnswer` if the body gets too large."""
    if len(body) + len(chunk) > max_bytes:
        raise UnacceptableAnswer
    body += chunk


def make_answer(status: int, body: bytearray, headers: Headers) -> EndpointAnswer:
    """Return a complete answer within its bounds."""
    wait, asks, signed = headers.get("retry-after", ""), headers.get(ASKS_HEADER, ""), headers.get(SIGNED_HEADER, "")
    return EndpointAnswer(status, bytes(body), parse_retry_after(wait) if wait else 0.0, asks, signed)
