"""Views of policies for readers and other languages: the options by group."""

from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from privateer_core.answer.facts import Bin, Displayed, Fact

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ShapeCurve(Displayed, frozen=True):
    """The shape function of an option by cell, in the unit of rewards; its mean over all people is 0.

    Attributes
    ----------
    arm
        The option.
    values, lows, highs
        A figure for every cell, and the ends of its approximate 95 % interval, independent of the prior.
    """

    arm: str
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]


class FeatureShape(Displayed, frozen=True):
    """The shape functions of one feature.

    Attributes
    ----------
    feature
        The name of the feature.
    is_ordered
        Whether cells are ordered, as those of a number.
    has_missing
        Whether the last cell holds the people without a number.
    cells
        Descriptions of the cells.
    shares
        The estimated share of people in each cell.
    gain
        The expected gain of choosing by this feature alone over one option for all, in the unit of rewards.
    curves
        One for each option that is shown.
    cells_left
        Number of cells that are not shown, which have the fewest people.

    Raises
    ------
    ValueError
        If a curve does not have a figure for every cell.
    """

    feature: str
    is_ordered: bool
    has_missing: bool
    cells: tuple[str, ...]
    shares: tuple[float, ...]
    gain: float
    curves: tuple[ShapeCurve, ...]
    cells_left: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = (self.shares, *(figures for curve in self.curves for figures in (curve.values, curve.lows, curve.highs)))
        if any(len(row) != len(self.cells) for row in rows):
            raise ValueError("a shape function must have a figure for every cell")


class Shapes(Displayed, frozen=True, tag="shapes", tag_field="kind"):
    """Shape functions of the features with the largest gains.

    Attributes
    ----------
    functions
        One for each feature that is shown.
    features_left, arms_left
        Numbers of features and options that are not shown.
    """

    functions: tuple[FeatureShape, ...]
    features_left: int = 0
    arms_left: int = 0


OptionShares: TypeAlias = dict[str, Annotated[float, msgspec.Meta(ge=0, le=1)]]
"""The share of people with each option, by its name; options with a share of 0 may be missing."""
EVERYBODY: Final = "everybody"
"""Name of the group of all people."""
INTERCEPT: Final = "intercept"
"""Name of the constant term."""


def name_terms(options: tuple[str, ...], names: list[str], terms: "NDArray[Any]") -> dict[str, dict[str, float]]:
    """Return rounded terms (options, terms) by option and name."""
    rows = zip(options, terms.tolist(), strict=True)
    return {option: {name: round(term, 4) for name, term in zip(names, row, strict=True)} for option, row in rows}


def leading_option(arms: OptionShares) -> str | None:
    """Return the option with the largest share, or None if several have it."""
    max_share = max(arms.values(), default=0.0)
    leaders = [name for name, share in arms.items() if share == max_share]
    return leaders[0] if len(leaders) == 1 else None


class ArmsOfBin(Bin, frozen=True):
    """A box of contexts, and the share of each option there."""

    arms: OptionShares


class BinShares(Displayed, frozen=True, tag="bins", tag_field="kind"):
    """Boxes of contexts, with the share of each option there.

    Attributes
    ----------
    columns
        Names of the numbers of a corner. A column named like a feature of the spec has that feature's numbers.
    bins
        Bins that can have people.
    """

    columns: tuple[str, ...]
    bins: tuple[ArmsOfBin, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(len(bin_.lower) != len(self.columns) for bin_ in self.bins):
            raise ValueError("a bin must have a side for each column")


class ArmsOfGroup(Displayed, frozen=True):
    """A named group of people, with the share of each option."""

    name: str
    arms: OptionShares


class GroupShares(Displayed, frozen=True, tag="groups", tag_field="kind"):
    """Groups of people, with the share of each option; a policy without contexts has a single group."""

    groups: tuple[ArmsOfGroup, ...]


class Coefficients(Displayed, frozen=True, tag="coefficients", tag_field="kind"):
    """The terms of every option's mean reward; people get the option with the largest expected reward.

    Attributes
    ----------
    link
        The link of the sum and the mean reward: `identity` or `logistic`.
    unit
        The unit of coefficients, in words.
    shared
        Terms that all options share, by name.
    arms
        Terms of each option, by name, with its constant.
    """

    link: str
    unit: str
    shared: dict[str, float]
    arms: dict[str, dict[str, float]]


class PublicDraw(Displayed, frozen=True):
    """A sample of people: positions ``start`` to ``start + places`` in a permutation by a public seed."""

    seed: int
    start: int
    places: int


class PlayCounts(Displayed, frozen=True, tag="plays", tag_field="kind"):
    """Numbers of plays of actions by the whole population.

    Attributes
    ----------
    plays
        Numbers by the action's name, of actions that are played.
    active
        Names of the actions that may still be the best.
    people
        Number of required reports.
    draw
        The sample of invited people.
    """

    plays: dict[str, int]
    active: tuple[str, ...]
    people: int
    draw: PublicDraw


class Point(Displayed, frozen=True, tag="point", tag_field="kind"):
    """A point of a set, around which people's points are, or that all people get.

    Attributes
    ----------
    centre
        Its coordinates by name.
    average
        The mean of all centres so far, if known.
    nearest, farthest
        Range of distances of people's points from the centre; None if all people get the centre.
    """

    centre: dict[str, float]
    average: dict[str, float] | None = None
    nearest: float | None = None
    farthest: float | None = None


class PolicyView(Displayed, frozen=True):
    """A policy, as every interface displays it.

    Attributes
    ----------
    algorithm, version
        Algorithm and version of the policy.
    shows
        The options by group.
    facts
        Further properties.
    """

    algorithm: str
    version: int
    shows: BinShares | GroupShares | Coefficients | PlayCounts | Point
    facts: tuple[Fact, ...] = ()
