"""Rewards far from all others that decide an effect: how many rows they are, and what capping them would do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.estimates import Effect, Reason
from privateer_core.errors import printable

Array = NDArray[np.float64]
_SHARES: Final = (0.999, 0.998, 0.995, 0.99, 0.98, 0.95, 0.9)
"""Shares of rows that a cap leaves as they are: the largest with which every effect has an interval."""


@dataclass(frozen=True)
class TestRows:
    """The rows of a test.

    Attributes
    ----------
    rewards, arms
        Shape (n,): rewards of which more is better, and places of arms.
    options
        Names of the arms, the control's first.
    name
        What the reward is called.
    sign
        -1 where rewards are the negative of what is called so.
    """

    rewards: Array
    arms: NDArray[np.int64]
    options: tuple[str, ...]
    name: str
    sign: int

    def in_words(self, low: float, high: float) -> str:
        """Write bounds as those of what is called so."""
        ends = sorted((self.sign * low, self.sign * high))
        return ":".join(f"{end:z.4g}" if abs(end) < 1e4 else f"{end:z.0f}" for end in ends)  # noqa: PLR2004


def capping_in_words(
    rows: TestRows,
    effects: tuple[Effect, ...],
    bounds: tuple[float, float],
    analyze: Callable[[float, float], tuple[Effect, ...]],
) -> Iterator[str]:
    """Yield which rows decide the effects of a heavy tail, and what these effects are with the rows capped.

    Parameters
    ----------
    effects, bounds
        Those of the rows as they are.
    analyze
        Returns the effects of rewards clipped to two bounds.
    """
    heavy = [one for one in effects if one.group is None and one.reason is Reason.HEAVY_TAIL]
    if not heavy:
        return
    low, high = bounds
    is_upper = rows.rewards.mean() - low <= high - rows.rewards.mean()
    for share in _SHARES:
        cap = float(np.quantile(rows.rewards, share if is_upper else 1 - share))
        ends = (low, cap) if is_upper else (cap, high)
        if ends[0] >= ends[1]:
            return
        capped = {one.option: one for one in analyze(*ends) if one.group is None}
        if all(capped[one.option].low is not None for one in heavy):
            for one in heavy:
                yield _capped(rows, one, capped[one.option], ends, is_upper=is_upper)
            return


def _capped(rows: TestRows, effect: Effect, capped: Effect, ends: tuple[float, float], *, is_upper: bool) -> str:
    """Say which rows of an option or its control decide an effect, and what it is with them capped."""
    distance = rows.rewards - ends[0] if is_upper else ends[1] - rows.rewards
    is_beyond = distance > ends[1] - ends[0]
    shares = {}
    for arm in (rows.options.index(effect.option), 0):
        of_arm = rows.arms == arm
        total = float(distance[of_arm].sum())
        shares[arm] = float(distance[of_arm & is_beyond].sum()) / total if total > 0 else 0.0
    arm = max(shares, key=lambda place: shares[place])
    of_arm = rows.arms == arm
    few, all_ = int((of_arm & is_beyond).sum()), int(of_arm.sum())
    made = f"{few:,} of {all_:,} rows of {printable(rows.options[arm])} make {shares[arm]:.0%} of its {rows.name}"
    ends_in_words = rows.in_words(*ends)
    value, low, high = (0.0 if one is None else one for one in (capped.value, capped.low, capped.high))
    figures = f"{value:+z.4g} ({low:+z.4g} to {high:+z.4g})"
    changed = f"{int(is_beyond.sum()):,} rows in all change"
    return (
        f"{printable(effect.option)}: a few rows decide it: {made}. With --bounds {ends_in_words}, by which {changed}, "
        f"its effect is {figures}: {capped.reason}."
    )
