"""Bounds and direction of rewards that a table has: one rule for drafts and for tests that are over."""

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_lab.tables.remarks import far_codes

Array = NDArray[np.float64]
INNER: Final = (0.01, 0.99)
HIGHER: Final = "A higher reward counts as better; lower_is_better turns it."
LOWER: Final = "A lower {reward} counts as better"
LOWER_BY: Final = f"{LOWER}: {{figure}} of 1 means that {{reward}} is lower by 1."
_UNIT: Final = (0.0, 1.0)


class RewardBounds(NamedTuple):
    """The bounds of rewards."""

    # low, high: others are clipped to them
    low: float
    high: float
    words: str  # where they come from
    is_from_data: bool  # whether the rows decide them

    def clipped(self, rewards: Array, name: str) -> str:
        """Say where the bounds are from, and how many rewards are beyond."""
        beyond = int(((rewards < self.low) | (rewards > self.high)).sum())
        share = f"{beyond / len(rewards):.1%} of the rows are clipped to these bounds, {beyond:,} of {len(rewards):,}"
        counts = share if beyond else "no row is clipped"
        return f"{name} is a number, and counts from {self.low:g} to {self.high:g} ({self.words}): {counts}."


def reward_bounds(rewards: Array, given: tuple[float, float] | None) -> RewardBounds:
    """Return the bounds of rewards, (n,): those given, 0 and 1 if they hold all, or about 98 in 100 of them."""
    if given is not None:
        return RewardBounds(*given, "as given", False)
    if rewards.min() >= 0 and rewards.max() <= 1:
        return RewardBounds(*_UNIT, "those that a spec has", False)
    return RewardBounds(*inner_bounds(_without_codes(rewards)), "about 98 in 100 rewards are between them", True)


def outer_bounds(rewards: Array, given: tuple[float, float] | None) -> RewardBounds:
    """Return bounds of rewards, (n,), whose mean is wanted: those given, 0 and 1, or the rows' least and largest."""
    if given is not None or (rewards.min() >= 0 and rewards.max() <= 1):
        return reward_bounds(rewards, given)
    rewards = _without_codes(rewards)
    return RewardBounds(float(rewards.min()), float(rewards.max()), "the least and the largest of the rows", True)


def _without_codes(rewards: Array) -> Array:
    codes = far_codes(rewards)
    return rewards[~np.isin(rewards, codes)] if codes else rewards


def inner_bounds(numbers: Array) -> tuple[float, float]:
    """Return bounds of two digits around the inner rows, which nobody's own number can be read from."""
    low, high = np.quantile(numbers, INNER)
    if low == high:
        low, high = float(numbers.min()), float(numbers.max())
    if low == high:
        return float(low) - 1, float(high) + 1
    unit = 10.0 ** math.floor(math.log10(high - low)) / 2
    return tidy(math.floor(low / unit) * unit), tidy(math.ceil(high / unit) * unit)


def tidy(value: float) -> float:
    """Remove what multiplying leaves in the last digits."""
    return float(f"{value:.12g}")


def is_yes_or_no(rewards: Array) -> bool:
    """Whether all rewards are 0 or 1."""
    return not np.setdiff1d(rewards, _UNIT).size


def turned(rewards: Array, bounds: RewardBounds, *, is_binary: bool) -> tuple[Array, RewardBounds]:
    """Return rewards of which more is better where less was, with their bounds: no instead of yes, or the negative."""
    if is_binary and (bounds.low, bounds.high) == _UNIT:
        return 1 - rewards, bounds
    return -rewards, bounds._replace(low=-bounds.high, high=-bounds.low)


def parse_bounds(text: str) -> tuple[str | None, tuple[float, float]]:
    """Read ``column=low:high``, or ``low:high`` of the reward."""
    name, _, ends = text.rpartition("=")
    low, _, high = ends.partition(":")
    try:
        bounds = float(low), float(high)
    except ValueError:
        bounds = (math.nan, math.nan)
    if not bounds[0] < bounds[1] or text.startswith("="):
        remedy = "write column=low:high, as in hours=0:80; or low:high of the reward"
        raise SpecError("cannot read it", field="--bounds", remedy=remedy)
    return name or None, bounds
