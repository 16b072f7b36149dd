"""The share of people in each group, and the source of these shares."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.answer.share_source import ShareSource
from privateer_core.arrays import Array, Bools
from privateer_core.spec.categories import OTHER

CROSSING_SEPARATOR: Final = " & "
"""Separator of the features in the name of a segment."""
_MAX_NAMED_GROUPS: Final = 6
"""Maximum number of empty groups that a sentence names."""
_MAX_NAME_LETTERS: Final = 100
"""Maximum number of letters of a group's name in a sentence."""


def is_unlisted(segment: str) -> bool:
    """Whether a segment has only unlisted levels of any of its features, by its name."""
    return any(part.endswith(f"={OTHER}") for part in segment.split(CROSSING_SEPARATOR))


@dataclass(frozen=True)
class Shares:
    """Shares of people by group."""

    estimate: Array  # shape (groups,): the shares, which noise may make negative
    variance: Array  # shape (groups,): the variances of the estimates; 0 without counting
    source: ShareSource
    is_empty: Bools  # shape (groups,): whether the estimate is consistent with an empty group
    names: tuple[str, ...] = ()  # names of the groups, if they have any

    @classmethod
    def fixed(cls, estimate: Array, source: ShareSource) -> "Shares":
        """Return shares without estimation error."""
        return cls(estimate, np.zeros(len(estimate)), source, np.asarray(estimate <= 0))

    @property
    def normalized(self) -> Array:
        """Shares with a sum of 1, (groups,), of the groups that are not empty, or of all groups if all are."""
        estimate = np.where(self.is_empty, 0.0, self.estimate.clip(0, 1))
        if not estimate.any():
            return np.full(len(estimate), 1 / len(estimate))
        return np.asarray(estimate / estimate.sum())

    @property
    def sentence(self) -> str:
        """The source in words, and the groups that are left out since they are empty."""
        # An empty "other" is expected if all levels are listed.
        names = self.names or ("",) * len(self.is_empty)
        pairs = zip(names, self.is_empty, strict=True)
        empty_names = [name for name, is_empty in pairs if is_empty and not is_unlisted(name)]
        if not empty_names or self.is_empty.all():
            return self.source.sentence
        left_out = "1 segment is" if len(empty_names) == 1 else f"{len(empty_names):,} segments are"
        labels = [name[:_MAX_NAME_LETTERS] for name in empty_names if name]
        more_note = f" and {len(labels) - _MAX_NAMED_GROUPS:,} more" if len(labels) > _MAX_NAMED_GROUPS else ""
        names_note = f": {', '.join(labels[:_MAX_NAMED_GROUPS])}{more_note}" if labels else ""
        return f"{self.source.sentence} {left_out} left out, in which nobody is known to be{names_note}."
