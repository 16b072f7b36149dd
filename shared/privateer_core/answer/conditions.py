"""Conditions on features, which say whom a box of contexts holds."""

from typing import TypeAlias

import msgspec

from privateer_core.answer.facts import check_finite, check_names

Level: TypeAlias = str | bool | int | float
"""A value of a feature."""


class Between(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="between", tag_field="kind"):
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

    def __post_init__(self) -> None:
        check_names(self.feature)
        check_finite((self.low, self.high), "a condition")


class Among(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="among", tag_field="kind"):
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

    def __post_init__(self) -> None:
        check_names(self.feature, *(one for one in self.values if isinstance(one, str)))


Condition: TypeAlias = Between | Among


class Bin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
        if len(self.lower) != len(self.upper):
            raise ValueError("the corners of a bin must have as many columns")
        check_finite((*self.lower, *self.upper), "a bin")
