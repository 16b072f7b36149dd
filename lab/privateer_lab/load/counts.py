"""What became of the people of one upload."""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from privateer_client.answers import ACCEPTED, Answer, Outcome, judge, outcome_of

_PENDING: Final = "pending"


class _Told(msgspec.Struct):
    accepted: int = 0
    refused: dict[str, int] = {}


@dataclass
class Counts:
    """People whose reports were accepted, and the others by reason, after each answer to the same bytes.

    Attributes
    ----------
    people
        All of them.
    accepted, refused
        By what was answered last; until then everybody is ``pending``.
    """

    people: int
    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.refused = {_PENDING: self.people}

    @property
    def pending(self) -> bool:
        """Whether the same bytes may bring more people in."""
        return any(outcome_of(reason) is Outcome.PENDING for reason in self.refused)

    def hear(self, answer: Answer, again: bool) -> None:
        """Count an answer; ``again``: the bytes were sent before, so duplicates were accepted then."""
        accepted, refused = self._told(answer)
        if again:
            accepted += refused.pop("duplicate-report", 0)
        # A round that closed in between turns away those whom it had taken, too.
        self.refused = _without(refused, self.accepted - accepted)
        self.accepted = max(self.accepted, accepted)

    def _told(self, answer: Answer) -> tuple[int, dict[str, int]]:
        try:
            told = msgspec.json.decode(answer.body, type=_Told)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            told = _Told(0, {_PENDING: self.people})
        verdict = judge(answer)
        if verdict.outcome is Outcome.PENDING:
            return 0, {_PENDING: self.people}
        if answer.status == ACCEPTED:
            return told.accepted, dict(told.refused)
        return 0, dict(told.refused) or {verdict.reason or "duplicate-report": self.people}


def _without(refused: dict[str, int], people: int) -> dict[str, int]:
    """Refusals but those of some people."""
    left = {}
    for reason, count in refused.items():
        spared = min(count, max(0, people))
        people -= spared
        if count > spared:
            left[reason] = count - spared
    return left
