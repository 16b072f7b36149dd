"""What a door answered to a sealed report, and what that decides."""

from enum import StrEnum
from typing import Final, NamedTuple

from privateer.wire.problem import slug_of


class Outcome(StrEnum):
    """What became of a report.

    ``accepted``: it is durable. ``late``: the round closed before the report came. ``not-asked``: the experiment is
    over, it is other people's turn, or they were drawn. ``refused``: the door did not take it. ``pending``: nobody
    has decided yet; the device keeps the sealed bytes and sends them again.
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
    """Seconds after which the door wants to be asked again; 0 if it did not say."""


class Verdict(NamedTuple):
    """What is known of a report, and the reason of a door that did not take it."""

    outcome: Outcome
    reason: str | None = None


ACCEPTED: Final = 202
"""Status of an answer that takes reports in."""
_AGAIN: Final = frozenset({408, 425, 429})
"""Answers of 4xx that say nothing about the request itself."""
_REFUSED: Final = frozenset(
    {
        "report-refused",
        "malformed-report",
        "wrong-size",
        "wrong-key",
        "wrong-digest",
        "unopenable",
        "out-of-range",
        "wrong-endpoint",
        "too-large",
        "terms-refused",
        "spec-invalid",
    }
)


def judge(answer: Answer | None) -> Verdict:
    """What an answer decides about one person's report.

    Only a verdict on the report itself is final. Whatever else comes (no answer, a fault, a page of some network that
    wants a password, a service that does not know the experiment or the version yet) may be otherwise the next time.
    The bytes hold a random id, so whoever calls them a duplicate has counted these very bytes.
    """
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
    """What a door's reason means for the report that it is about."""
    if reason == "duplicate-report":
        return Outcome.ACCEPTED
    if reason == "round-closed":
        return Outcome.LATE
    return Outcome.REFUSED if reason in _REFUSED else Outcome.PENDING
