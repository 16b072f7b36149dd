"""The account of an experiment's planned people, by state of their reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final, Self

from privateer_core.answer.facts import NAME_MAX

GIVEN_UP: Final = "round-given-up"
"""The reason of acknowledged reports that are lost because their round was abandoned."""


@dataclass(frozen=True)
class HeldReports:
    """Acknowledged reports that no closed round contains.

    Attributes
    ----------
    in_open_round
        Reports that the server holds for its open round.
    at_shuffler
        Reports that wait at the shuffler for a full batch: a lower bound, if ``People.unknown`` is above 0. None:
        unknown.
    needed
        Number of further reports that close the open round, in addition to known held ones; 0: no round is open.
    """

    in_open_round: int = 0
    at_shuffler: int | None = 0
    needed: int = 0

    @property
    def total(self) -> int:
        """Number of reports that are known to be held."""
        return self.in_open_round + (self.at_shuffler or 0)


@dataclass(frozen=True)
class People:
    """An account of people, in reports: a person with several reports counts several times.

    ``planned + replaced = counted + held + refused + not_asked + out_of_reach + unknown``, where ``replaced`` is the
    number of refused reports that other people replace. In a complete account ``unknown`` is 0.

    Attributes
    ----------
    planned
        The horizon: maximum number of reports of the experiment's own people, and of its sources. Late reports that
        are accepted beyond it count, too.
    counted
        Reports in closed rounds.
    held
        Acknowledged reports that wait, and the number of further ones that are needed.
    refused
        Reports that were refused, or acknowledged and lost with an abandoned round, by reason.
    not_asked
        People who are still to be invited; after the end, people who were not invited.
    out_of_reach
        People beyond the last full round, or who were drawn and did not respond.
    replaced
        Refused reports that are replaced by inviting other people.
    unknown
        People whose reports either wait at the shuffler or are not requested yet.

    Raises
    ------
    ValueError
        If the parts do not add up, any is below 0, or a reason is not printable.
    """

    planned: int
    counted: int = 0
    held: HeldReports = HeldReports()
    refused: Mapping[str, int] = field(default_factory=dict)
    not_asked: int = 0
    out_of_reach: int = 0
    replaced: int = 0
    unknown: int = 0

    def __post_init__(self) -> None:
        parts = (self.counted, self.held.total, *self.refused.values(), self.not_asked, self.out_of_reach, self.unknown)
        if min(*parts, self.planned, self.replaced, self.held.needed) < 0:
            raise ValueError("no part of an account of people may be below 0")
        if self.planned + self.replaced != sum(parts):
            raise ValueError("an account of people must add up")
        if not all(0 < len(reason) <= NAME_MAX and reason.isprintable() for reason in self.refused):
            raise ValueError("a reason must have 1 to 256 printable characters")

    @classmethod
    def from_parts(
        cls,
        planned: int,
        counted: int,
        *,
        reports: HeldReports | None = None,
        refused: Mapping[str, int] | None = None,
        replaced: int = 0,
        out_of_reach: int = 0,
        is_unknown: bool = False,
    ) -> Self:
        """Return the account with these known parts; all remaining people are not asked.

        Parameters
        ----------
        is_unknown
            Whether reports that the open round needs may be at the shuffler already.
        """
        reports, refused = reports or HeldReports(), refused or {}
        n_present = counted + reports.total + sum(refused.values()) - replaced
        planned = max(planned, n_present)
        out_of_reach = min(out_of_reach, planned - n_present)
        n_remaining = planned - n_present - out_of_reach
        unknown = min(n_remaining, reports.needed) if is_unknown else 0
        return cls(planned, counted, reports, refused, n_remaining - unknown, out_of_reach, replaced, unknown)

    def with_shuffler(self, n_held: int, uncertainty: int = 0) -> Self:
        """Return the account with ``held`` reports at the shuffler, or at most ``uncertainty`` more."""
        n_held = min(n_held, self.unknown)
        unknown = min(self.unknown - n_held, uncertainty)
        n_not_waiting = self.unknown - n_held - unknown
        new_held = replace(self.held, at_shuffler=n_held, needed=max(0, self.held.needed - n_held))
        return replace(self, held=new_held, not_asked=self.not_asked + n_not_waiting, unknown=unknown)

    @property
    def n_refused(self) -> int:
        """Number of refused reports."""
        return sum(self.refused.values())

    @property
    def reachable(self) -> int:
        """Number of people whom rounds can count, if every report opens."""
        return self.planned - self.out_of_reach

    @property
    def sentence(self) -> str:
        """The account in words, without empty parts."""
        reports = self.held
        refused = ", ".join(f"{reason} {count:,}" for reason, count in self.refused.items() if count)
        replacement_note = " (others are asked in their place)" if self.replaced else ""
        lower, upper = ("at least ", "at most ") if self.unknown else ("", "")
        parts = [
            (self.counted, f"{self.counted:,} counted in closed rounds"),
            (reports.in_open_round, f"{reports.in_open_round:,} held in the open round"),
            (reports.at_shuffler, f"{lower}{reports.at_shuffler or 0:,} held at the shuffler"),
            (self.n_refused, f"{self.n_refused:,} refused: {refused}{replacement_note}"),
            (self.unknown, f"{self.unknown:,} not asked or at the shuffler (not known which)"),
            (self.not_asked, f"{self.not_asked:,} not asked"),
            (self.out_of_reach, f"{self.out_of_reach:,} out of reach of rounds"),
        ]
        account = "; ".join(words for count, words in parts if count) or "nobody"
        note = f" {upper.capitalize()}{reports.needed:,} more close the open round." if reports.needed else ""
        return f"Of {self.planned:,} people planned: {account}.{note}"

    def __add__(self, other: Self) -> Self:
        """Return the sum of two accounts, such as of several runs; unknown numbers at a shuffler count as 0."""
        left, right = self.held, other.held
        at_shuffler = (left.at_shuffler or 0) + (right.at_shuffler or 0)
        reports = HeldReports(left.in_open_round + right.in_open_round, at_shuffler, left.needed + right.needed)
        reasons = {**self.refused, **other.refused}
        refused = {reason: self.refused.get(reason, 0) + other.refused.get(reason, 0) for reason in reasons}
        names = [entry.name for entry in fields(self) if entry.type is int]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return replace(self, held=reports, refused=refused, **sums)
