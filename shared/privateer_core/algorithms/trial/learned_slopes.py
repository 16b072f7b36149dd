"""Slopes that a trial has learned, by which devices adjust their rewards: a part of its policies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError

Array = NDArray[np.float64]
SLOPE_MAX: Final = 1.5
"""The steepest slope, in ranges of the reward for a range of the number: a steeper one moves too much to a bound."""


@dataclass(frozen=True)
class LearnedSlope:
    """How rewards go with a number from before the choice, both on the scale from 0 to 1."""

    slope: float  # how much higher a reward is where the number is higher by 1; 0: nothing is adjusted
    mean: float  # the mean of the number

    @property
    def is_possible(self) -> bool:
        """Whether a learner makes it."""
        known = math.isfinite(self.slope) and math.isfinite(self.mean)
        return known and abs(self.slope) <= SLOPE_MAX and 0 <= self.mean <= 1


def adjusted(values: Array, numbers: Array, learned: Sequence[LearnedSlope]) -> Array:
    """Return values (n,) less what numbers (n, k) lead one to expect, within [0, 1].

    learned: slopes of the first of the numbers.
    """
    if not learned:
        return values
    above = sum(one.slope * (numbers[:, place] - one.mean) for place, one in enumerate(learned))
    return np.asarray(np.clip(values - above, 0.0, 1.0))


def check_learned(names: Sequence[str], looks: int, *, curated: bool, numeric: bool) -> None:
    """Check that slopes of numbers can be learned, one in each of the first of so many looks.

    curated: whether a curator sees the number beside the reward.
    numeric: whether rewards are numbers whose variance is measured.
    """
    field, declare = f"reward.adjust.{names[0]}", "declare mean and slope from old data instead of low and high"
    if not curated:
        detail = "a slope is learned only where a curator adds up records: other reports have no room for it"
        raise SpecError(detail, field=field, remedy=declare)
    if not numeric:
        detail = "a slope is learned of rewards that are numbers alone"
        raise SpecError(detail, field=field, remedy='set reward.kind = "numeric", or remove it')
    if looks <= len(names):
        detail = f"each slope is learned in a look of its own, and looks are {looks}, not {len(names) + 1} or more"
        remedy = f"lower experiment.round_size, raise experiment.horizon or algorithm.looks, or {declare}"
        raise SpecError(detail, field=field, remedy=remedy)
