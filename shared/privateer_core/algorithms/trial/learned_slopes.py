"""Slopes that a trial has learned, with which devices adjust rewards; policies contain them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.arrays import Array
from privateer_core.errors import SpecError

SLOPE_MAX: Final = 1.5
"""Maximum absolute slope, in ranges of the reward per range of the number: with more, too many rewards are clipped."""


@dataclass(frozen=True)
class LearnedSlope:
    """Linear dependence of rewards on a number known before the choice, both scaled to [0, 1]."""

    slope: float  # change of the reward per unit of the number; 0: no adjustment
    mean: float  # the mean of the number

    @property
    def is_possible(self) -> bool:
        """Whether slope and mean are in the ranges of a learner."""
        is_finite = math.isfinite(self.slope) and math.isfinite(self.mean)
        return is_finite and abs(self.slope) <= SLOPE_MAX and 0 <= self.mean <= 1


def adjust_values(values: Array, numbers: Array, slopes: Sequence[LearnedSlope]) -> Array:
    """Return values (n,) minus the excess predicted from the first of the numbers (n, k), clipped to [0, 1]."""
    if not slopes:
        return values
    expected_excess = sum(slope.slope * (numbers[:, column] - slope.mean) for column, slope in enumerate(slopes))
    return np.asarray(np.clip(values - expected_excess, 0.0, 1.0))


def check_learnable_slopes(names: Sequence[str], n_looks: int, *, is_curated: bool, is_numeric: bool) -> None:
    """Check that the slopes of numbers can be learned, at a slope per look, within ``n_looks``."""
    field = f"reward.covariates.{names[0]}"
    declare_remedy = "declare mean and slope from old data instead of low and high"
    if not is_curated:
        detail = "a slope is learned only where a curator adds up records: other reports have no room for it"
        raise SpecError(detail, field=field, remedy=declare_remedy)
    if not is_numeric:
        detail = "a slope is learned of rewards that are numbers alone"
        raise SpecError(detail, field=field, remedy='set reward.kind = "numeric", or remove it')
    if n_looks <= len(names):
        detail = f"each slope is learned in a look of its own, and looks are {n_looks}, not {len(names) + 1} or more"
        remedy = f"lower experiment.round_size, raise experiment.horizon or algorithm.looks, or {declare_remedy}"
        raise SpecError(detail, field=field, remedy=remedy)
