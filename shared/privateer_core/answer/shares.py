"""The share of people in each group, and where these shares are from."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.categories import OTHER

Array = NDArray[np.float64]
CROSSED: Final = " & "
"""Stands between the features in the name of a segment."""
_NAMED: Final = 6
"""Groups without anybody that are named."""
_LETTERS: Final = 100
"""Letters of a group's name in a sentence."""


def names_others(segment: str) -> bool:
    """Whether a segment's name says that it has levels alone that nobody listed, of one of its features."""
    return any(part.endswith(f"={OTHER}") for part in segment.split(CROSSED))


class ShareSource(StrEnum):
    """Where shares of people are from. What is assumed is never said as if it were known."""

    COUNTED = "counted"
    """Reports were counted, with the noise of their promise."""
    ASKED = "asked"
    """People were asked for their group."""
    DECLARED = "declared"
    """The spec says so, and nobody counted."""
    ASSUMED = "assumed"
    """Nothing is known of who comes."""

    @property
    def sentence(self) -> str:
        """The source in words."""
        return _SENTENCES[self]


_SENTENCES: Final = {
    ShareSource.COUNTED: "Shares of people are counted.",
    ShareSource.ASKED: "Shares of people are estimated from people who were asked for their segment.",
    ShareSource.DECLARED: "Shares of people are those that the spec declares: nobody counted them.",
    ShareSource.ASSUMED: (
        "Shares are of people spread evenly over what the spec declares: nothing is known of who comes."
    ),
}


@dataclass(frozen=True)
class Shares:
    """Shares of people by group.

    Attributes
    ----------
    estimate, variance
        Shape (groups,): the shares, of which noise may leave some below 0, and their variances; 0 where nobody counted.
    source
        Where they are from.
    is_empty
        Shape (groups,): whether the estimate is one that a group without anybody has.
    names
        Those of the groups, where they have some.
    """

    estimate: Array
    variance: Array
    source: ShareSource
    is_empty: NDArray[np.bool_]
    names: tuple[str, ...] = ()

    @classmethod
    def fixed(cls, estimate: Array, source: ShareSource) -> "Shares":
        """Return shares without an error of their own."""
        return cls(estimate, np.zeros(len(estimate)), source, np.asarray(estimate <= 0))

    @property
    def people(self) -> Array:
        """Shape (groups,): shares with a sum of 1, of groups in which somebody is known to be; else of all groups."""
        told = np.where(self.is_empty, 0.0, self.estimate.clip(0, 1))
        if not told.any():
            return np.full(len(told), 1 / len(told))
        return np.asarray(told / told.sum())

    @property
    def sentence(self) -> str:
        """The source in words, and which groups are left out because nobody is known to be in them."""
        # That nobody is in "other" is as it should be where all levels are listed.
        names = self.names or ("",) * len(self.is_empty)
        told = [
            name for name, is_empty in zip(names, self.is_empty, strict=True) if is_empty and not names_others(name)
        ]
        if not told or self.is_empty.all():
            return self.source.sentence
        left = "1 segment is" if len(told) == 1 else f"{len(told):,} segments are"
        empty = [name[:_LETTERS] for name in told if name]
        more = f" and {len(empty) - _NAMED:,} more" if len(empty) > _NAMED else ""
        named = f": {', '.join(empty[:_NAMED])}{more}" if empty else ""
        return f"{self.source.sentence} {left} left out, in which nobody is known to be{named}."
