"""What an endpoint answers to a sealed report, and what that decides."""

from enum import StrEnum
from typing import Final, NamedTuple

from privateer_core.wire.problem import slug_of


class Outcome(StrEnum):
    """What became of a report.

    ``accepted``: it is durable. ``late``: the round closed before the report came. ``not-asked``: the experiment is
    over or paused, it is other people's turn, or other people were drawn. ``refused``: the endpoint did not take the
    report. ``pending``: nobody has decided yet. The device keeps what came of the choice until the report is due, or
    the sealed bytes until an endpoint decides.
    """

    ACCEPTED = "accepted"
    LATE = "late"
    NOT_ASKED = "not-asked"
    REFUSED = "refused"
    PENDING = "pending"


class Answer(NamedTuple):
    """An answer that kept to its bounds."""

    status: int
    body: bytes = b""
    retry_after: float = 0.0
    """Seconds after which the endpoint wants the next request; 0 if it did not say."""
    asks: str = ""
    """Whom the round asks, if the server says it beside a publication (`wire.publication.ASKS_HEADER`)."""
    signed: str = ""
    """The header that says who signed a publication (`wire.identity.SIGNED_HEADER`)."""


class Verdict(NamedTuple):
    """What the device knows of a report, and the reason of an endpoint that did not take it."""

    outcome: Outcome
    reason: str | None = None


ACCEPTED: Final = 202
"""Status of an answer that takes reports in."""
_AGAIN: Final = frozenset({408, 425, 429})
"""Statuses from 400 to 499 that say nothing about the request itself."""
_REFUSED: Final = frozenset({
    "report-refused", "malformed-report", "wrong-size", "wrong-key", "wrong-digest", "unopenable", "out-of-range",
    "wrong-endpoint", "too-large", "deleted", "terms-refused", "spec-invalid",
})  # fmt: skip


def judge(answer: Answer | None) -> Verdict:
    """Judge what an answer decides about one person's report; None: no answer came."""
    # Only a verdict on the report itself is final. Whatever else comes (a fault, the login page of a network, a service
    # that does not know the experiment or the version yet) may be otherwise the next time.
    if answer is None:
        return Verdict(Outcome.PENDING)
    if answer.status == ACCEPTED:
        return Verdict(Outcome.ACCEPTED)
    reason = slug_of(answer.body)
    if not 400 <= answer.status < 500 or answer.status in _AGAIN:
        return Verdict(Outcome.PENDING, reason)
    outcome = outcome_of(reason)
    return Verdict(outcome, None if outcome is Outcome.ACCEPTED else reason)


def outcome_of(reason: str) -> Outcome:
    """Return what an endpoint's reason means for the report that it is about."""
    if reason == "duplicate-report":  # a report holds a random id, so somebody has counted these very bytes
        return Outcome.ACCEPTED
    if reason == "round-closed":
        return Outcome.LATE
    return Outcome.REFUSED if reason in _REFUSED else Outcome.PENDING
