"""How sealed reports reach their endpoints: what to send, and when to send it again. Nothing here does I/O."""

import math
import secrets
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, TypeVar

from privateer_client.account import Account
from privateer_client.answers import Answer, Outcome, Verdict, judge
from privateer_client.sealing import SealedReport
from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import InputError
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_core.wire.token import authorization

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


class Pause(NamedTuple):
    """A wait of some seconds."""

    seconds: float


Steps: TypeAlias = Generator[Ask | Pause, Answer | None, _Result]
"""What to do next. Its driver sends back the answer to each request, or None if none came within its bounds."""


@dataclass(frozen=True)
class Pace:
    """How long a device waits. Its times depend on answers and randomness alone, never on what a report says.

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


def deliver(reports: Sequence[SealedReport], account: Account, pace: Pace) -> Steps[dict[SealedReport, Verdict]]:
    """Send reports until each has a final answer, or patience ends; return the verdicts."""
    known: dict[SealedReport, Verdict] = {}
    end, tries = pace.clock.monotonic() + pace.patience, 0
    while reports:
        asked = yield from _try(reports, account, pace.timeout, known)
        reports = [report for report in reports if known[report].outcome is Outcome.PENDING]
        tries, left = tries + 1, end - pace.clock.monotonic()
        if not reports or left <= asked:
            break
        yield Pause(min(left, asked + pace.backoff(tries)))
    return known


def deliver_once(reports: Sequence[SealedReport], account: Account, pace: Pace, end: float) -> Steps[None]:
    """Send each report once, and begin none after ``end`` by the pace's monotonic clock."""
    for report in reports:
        left = end - pace.clock.monotonic()
        if left <= 0:
            return
        yield from _try([report], account, left, {})


def _try(
    reports: Sequence[SealedReport], account: Account, timeout: float, known: dict[SealedReport, Verdict]
) -> Steps[float]:
    """Send each report, note its verdict in ``known``, and return the seconds for which the endpoints want quiet."""
    asked = 0.0
    for report in reports:
        token = account.tokens.tie(report) if account.tokens else None
        headers = _HEADERS | ({"Authorization": authorization(token)} if token else {})
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
