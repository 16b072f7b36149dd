"""How sealed reports get to their doors: what to send, and when to send it again. Does no input or output itself."""

from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias, TypeVar

from privateer.errors import InputError
from privateer.wire.envelope import MEDIA_TYPE
from privateer_client.account import Account, SealedReport
from privateer_client.answers import Answer, Outcome, Verdict, judge
from privateer_client.pace import Pace

PROBLEM_BYTES: Final = 64 << 10
"""The most that an answer to a report, or a problem document, may have."""
_HEADERS: Final = {"Content-Type": MEDIA_TYPE}
_Result = TypeVar("_Result")


class Ask(NamedTuple):
    """One request."""

    method: str
    url: str
    headers: dict[str, str]
    timeout: float
    """Seconds until the answer must be whole."""
    body: bytes | None = None
    most: int = PROBLEM_BYTES
    """Bytes that the body of a success may have."""


class Pause(NamedTuple):
    """Nothing for some seconds."""

    seconds: float


Steps: TypeAlias = Generator[Ask | Pause, Answer | None, _Result]
"""What to do next. Whoever drives it sends back the answer to each request, or None if none came within its bounds."""


def deliver(reports: Sequence[SealedReport], account: Account, pace: Pace) -> Steps[dict[str, Verdict]]:
    """Send reports until each is answered for good, or patience ends; what is known then, by experiment."""
    known: dict[str, Verdict] = {}
    end, tries = pace.now() + pace.patience, 0
    while reports:
        asked = yield from _try(reports, account, pace.timeout, known)
        reports = [report for report in reports if known[report.experiment].outcome is Outcome.PENDING]
        tries, left = tries + 1, end - pace.now()
        if not reports or left <= asked:
            break
        yield Pause(min(left, asked + pace.backoff(tries)))
    return known


def deliver_once(reports: Sequence[SealedReport], account: Account, pace: Pace) -> Steps[None]:
    """Send each report once, all of them together within the time of one request."""
    end = pace.now() + pace.timeout
    for report in reports:
        left = end - pace.now()
        if left <= 0:
            return
        yield from _try([report], account, left, {})


def _try(reports: Sequence[SealedReport], account: Account, timeout: float, known: dict[str, Verdict]) -> Steps[float]:
    """Send each report, note in ``known`` what came of it, and return the seconds that the doors want to be left."""
    asked = 0.0
    for report in reports:
        answer = yield Ask("POST", report.endpoint, _HEADERS, timeout, report.body)
        verdict = known[report.experiment] = judge(answer)
        if verdict.outcome is not Outcome.PENDING:
            with suppress(InputError):  # bytes that could not be deleted are sent again, and then known for duplicates
                account.discard(report.experiment)
        elif answer is not None:
            asked = max(asked, answer.retry_after)
    return asked
