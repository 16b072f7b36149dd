"""Conditions on features, which say whom a box of contexts holds."""

from typing import TypeAlias

from privateer_core.answer.facts import Displayed

Level: TypeAlias = str | bool | int | float
"""A value of a feature."""


class Between(Displayed, frozen=True, tag="between", tag_field="kind"):
    """People whose number is in an interval.

    Attributes
    ----------
    feature
        Its name.
    low, high
        The ends, in the units of the feature.
    missing
        Whether people without a value are among them.
    """

    feature: str
    low: float
    high: float
    missing: bool = False


class Among(Displayed, frozen=True, tag="among", tag_field="kind"):
    """People who have one of several values.

    Attributes
    ----------
    feature
        Its name.
    values
        The values, in the spec's order; none where all these people lack one.
    missing
        Whether people without a value are among them.
    """

    feature: str
    values: tuple[Level, ...]
    missing: bool = False


Condition: TypeAlias = Between | Among


class Bin(Displayed, frozen=True):
    """A box of contexts.

    Attributes
    ----------
    lower, upper
        Its corners, along the columns of an encoded context, from 0 to 1.
    where
        Whom it holds: a condition on each feature that it restricts; all people where there is none.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    where: tuple[Condition, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.lower) != len(self.upper):
            raise ValueError("the corners of a bin must have as many columns")
