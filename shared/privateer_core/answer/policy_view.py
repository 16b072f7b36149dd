"""Views of policies for people and other languages: whom each gives what."""

from typing import Annotated, Final, TypeAlias

import msgspec

from privateer_core.answer.facts import Bin, Displayed, Fact

OptionShares: TypeAlias = dict[str, Annotated[float, msgspec.Meta(ge=0, le=1)]]
"""The share of people who get each option, by its name; those that nobody gets may be left out."""


EVERYBODY: Final = "everybody"
"""What the group is called that has all people."""
INTERCEPT: Final = "intercept"
"""What the term is called that everybody has."""


def leading(arms: OptionShares) -> str | None:
    """Return the option with the largest share; None where several have it."""
    most = max(arms.values(), default=0.0)
    first = [name for name, share in arms.items() if share == most]
    return first[0] if len(first) == 1 else None


class ArmsOfBin(Bin, frozen=True):
    """A box of contexts, and the share of each option there."""

    arms: OptionShares


class BinShares(Displayed, frozen=True, tag="bins", tag_field="kind"):
    """Boxes of contexts, with the share of each option there.

    Attributes
    ----------
    columns
        What the numbers of a corner are about. A column named like a feature of the spec has that feature's numbers.
    bins
        Those in which anybody can be.
    """

    columns: tuple[str, ...]
    bins: tuple[ArmsOfBin, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(len(one.lower) != len(self.columns) for one in self.bins):
            raise ValueError("a bin must have a side for each column")


class ArmsOfGroup(Displayed, frozen=True):
    """People with a name, and the share of each option among them."""

    name: str
    arms: OptionShares


class GroupShares(Displayed, frozen=True, tag="groups", tag_field="kind"):
    """Groups of people, with the share of each option there; where everybody gets the same, there is one."""

    groups: tuple[ArmsOfGroup, ...]


class Coefficients(Displayed, frozen=True, tag="coefficients", tag_field="kind"):
    """The terms of every option's mean reward; people get the option of which most is expected.

    Attributes
    ----------
    link
        What turns the sum into a mean reward: `identity` or `logistic`.
    unit
        What a coefficient says, in words.
    shared
        Terms of all options alike, by name.
    arms
        Terms of each option of its own, by name; a constant is a term, too.
    """

    link: str
    unit: str
    shared: dict[str, float]
    arms: dict[str, dict[str, float]]


class PublicDraw(Displayed, frozen=True):
    """A draw of people: places ``start`` to ``start + places`` of the order that a public seed puts everybody in."""

    seed: int
    start: int
    places: int


class PlayCounts(Displayed, frozen=True, tag="plays", tag_field="kind"):
    """Counts of how often everybody plays each of several actions.

    Attributes
    ----------
    plays
        Times by the action's name: those that are played.
    active
        Names of the actions that may still be the best.
    people
        Number of people whose reports are wanted.
    draw
        Who is asked.
    """

    plays: dict[str, int]
    active: tuple[str, ...]
    people: int
    draw: PublicDraw


class Point(Displayed, frozen=True, tag="point", tag_field="kind"):
    """A point of a set, around which people's points are, or at which everybody's is.

    Attributes
    ----------
    centre
        Its coordinates by name.
    average
        The mean of all centres so far, where that is known.
    nearest, farthest
        How far from the centre people's points are; None where this is not about people's points.
    """

    centre: dict[str, float]
    average: dict[str, float] | None = None
    nearest: float | None = None
    farthest: float | None = None


class PolicyView(Displayed, frozen=True):
    """A policy, as every face draws it.

    Attributes
    ----------
    algorithm, version
        Of the policy.
    shows
        Whom it gives what.
    facts
        What else it says of itself.
    """

    algorithm: str
    version: int
    shows: BinShares | GroupShares | Coefficients | PlayCounts | Point
    facts: tuple[Fact, ...] = ()
