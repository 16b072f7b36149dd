"""The account of an experiment's people: what has become of each of those who are planned."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final, Self

from privateer_core.answer.facts import NAME_MAX

GIVEN_UP: Final = "round-given-up"
"""The reason of acknowledged reports that count nowhere, because their round was given up."""


@dataclass(frozen=True)
class HeldReports:
    """Acknowledged reports that no closed round has taken in.

    Attributes
    ----------
    in_open_round
        Reports that the server keeps for its open round.
    at_shuffler
        Reports that wait at the shuffler for a whole batch: at least so many, if ``People.unknown`` is above 0. None:
        whoever counts cannot tell.
    needed
        How many more reports close the open round, beside those that are held as far as is known; 0: none is open.
    """

    in_open_round: int = 0
    at_shuffler: int | None = 0
    needed: int = 0

    @property
    def total(self) -> int:
        """How many are held, as far as is known."""
        return self.in_open_round + (self.at_shuffler or 0)


@dataclass(frozen=True)
class People:
    """An account of people, in reports: who may report several times counts each time.

    ``planned + replaced = counted + held + refused + not_asked + out_of_reach + unknown``, where ``replaced`` are those
    of the refused whose place another person has. Where whoever counts knows all of it ``unknown`` is 0.

    Attributes
    ----------
    planned
        The horizon: reports that may come of the experiment's own people, and of its sources. Late reports that are
        taken beyond it count, too.
    counted
        Reports that a closed round took in.
    held
        Acknowledged reports that wait: where, and how many more are needed.
    refused
        Reports that were refused, or acknowledged and lost with a round that was given up, by reason.
    not_asked
        People whom the horizon still asks; once the experiment is over, whom it has left out.
    out_of_reach
        People whom rounds cannot fill: a rest below a batch, or who were drawn and did not come.
    replaced
        Those of the refused in whose place others are asked.
    unknown
        People of whom whoever counts cannot tell whether they wait at the shuffler or are not asked yet.

    Raises
    ------
    ValueError
        If the parts do not add up, one is below 0, or a reason is none for a screen.
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
        held: HeldReports | None = None,
        refused: Mapping[str, int] | None = None,
        replaced: int = 0,
        out_of_reach: int = 0,
        is_unknown: bool = False,
    ) -> Self:
        """Return the account of which these parts are known; nobody has been asked of the rest.

        Parameters
        ----------
        is_unknown
            Whether those whom the open round needs may be at the shuffler already.
        """
        held, refused = held or HeldReports(), refused or {}
        present = counted + held.total + sum(refused.values()) - replaced
        planned = max(planned, present)
        out_of_reach = min(out_of_reach, planned - present)
        rest = planned - present - out_of_reach
        unknown = min(rest, held.needed) if is_unknown else 0
        return cls(planned, counted, held, refused, rest - unknown, out_of_reach, replaced, unknown)

    def with_shuffler(self, held: int, uncertainty: int = 0) -> Self:
        """Return the account with what waits at the shuffler: ``held``, or at most ``uncertainty`` more."""
        held = min(held, self.unknown)
        unknown = min(self.unknown - held, uncertainty)
        rest = self.unknown - held - unknown
        waiting = replace(self.held, at_shuffler=held, needed=max(0, self.held.needed - held))
        return replace(self, held=waiting, not_asked=self.not_asked + rest, unknown=unknown)

    @property
    def n_refused(self) -> int:
        """How many reports were refused."""
        return sum(self.refused.values())

    @property
    def reachable(self) -> int:
        """How many people the rounds can count, if every report opens."""
        return self.planned - self.out_of_reach

    @property
    def sentence(self) -> str:
        """The account in words; parts of nobody are left out."""
        held, refused = self.held, ", ".join(f"{reason} {count:,}" for reason, count in self.refused.items() if count)
        again = " (others are asked in their place)" if self.replaced else ""
        least, most = ("at least ", "at most ") if self.unknown else ("", "")
        parts = [
            (self.counted, f"{self.counted:,} counted in closed rounds"),
            (held.in_open_round, f"{held.in_open_round:,} held in the open round"),
            (held.at_shuffler, f"{least}{held.at_shuffler or 0:,} held at the shuffler"),
            (self.n_refused, f"{self.n_refused:,} refused: {refused}{again}"),
            (self.unknown, f"{self.unknown:,} not asked or at the shuffler (not known which)"),
            (self.not_asked, f"{self.not_asked:,} not asked"),
            (self.out_of_reach, f"{self.out_of_reach:,} out of reach of rounds"),
        ]
        said = "; ".join(words for count, words in parts if count) or "nobody"
        more = f" {most.capitalize()}{held.needed:,} more close the open round." if held.needed else ""
        return f"Of {self.planned:,} people planned: {said}.{more}"

    def __add__(self, other: Self) -> Self:
        """Return the account of both together, such as of several runs; of what waits at a shuffler, what is known."""
        own, others = self.held, other.held
        held = HeldReports(
            own.in_open_round + others.in_open_round,
            (own.at_shuffler or 0) + (others.at_shuffler or 0),
            own.needed + others.needed,
        )
        reasons = {**self.refused, **other.refused}
        refused = {one: self.refused.get(one, 0) + other.refused.get(one, 0) for one in reasons}
        sums = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self) if one.type is int}
        return replace(self, held=held, refused=refused, **sums)
