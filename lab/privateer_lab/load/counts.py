"""What became of the people of one upload."""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from privateer_client.delivery import ACCEPTED, EndpointAnswer, Outcome, judge, outcome_of

_PENDING: Final = "pending"


class _Verdicts(msgspec.Struct):
    accepted: int = 0
    refused: dict[str, int] = {}


@dataclass
class Counts:
    """People whose reports were accepted, and the others by reason, after each answer to the same bytes.

    Attributes
    ----------
    people
        All people of the upload.
    accepted, refused
        What the last answer said; until the first one everybody is ``pending``.
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

    def hear(self, answer: EndpointAnswer, again: bool) -> None:
        """Count an answer; if the bytes were sent ``again``, duplicates were accepted before."""
        accepted, refused = self._read(answer)
        if again:
            accepted += refused.pop("duplicate-report", 0)
        # A round that closed in between also turns away those whose reports it had taken.
        self.refused = _without(refused, self.accepted - accepted)
        self.accepted = max(self.accepted, accepted)

    def _read(self, answer: EndpointAnswer) -> tuple[int, dict[str, int]]:
        try:
            said = msgspec.json.decode(answer.body, type=_Verdicts)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            said = _Verdicts(0, {_PENDING: self.people})
        verdict = judge(answer)
        if verdict.outcome is Outcome.PENDING:
            return 0, {_PENDING: self.people}
        if answer.status == ACCEPTED:
            return said.accepted, dict(said.refused)
        return 0, dict(said.refused) or {verdict.reason or "duplicate-report": self.people}


def _without(refused: dict[str, int], people: int) -> dict[str, int]:
    """Return the refusals without those of some people."""
    left = {}
    for reason, count in refused.items():
        spared = min(count, max(0, people))
        people -= spared
        if count > spared:
            left[reason] = count - spared
    return left
