"""Rewards far from all others that decide an effect: how many rows they are, and what capping them would do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.estimates import BEARERS_LEAST, Effect, Reason
from privateer_core.errors import printable
from privateer_lab.notebook.results import Found

Array = NDArray[np.float64]
_SHARES: Final = (0.98, 0.95, 0.9)
"""Shares of rows that a cap leaves as they are, of which the first counts with which every effect has an interval."""
_FEW: Final = 0.05
"""Share of an arm's rows that are called few, at most."""


@dataclass(frozen=True)
class TestRows:
    """The rows of a test."""

    # rewards, arms: shape (n,): rewards of which more is better, and places of arms
    rewards: Array
    arms: NDArray[np.int64]
    options: tuple[str, ...]  # names of the arms, the control's first
    name: str  # what the reward is called
    sign: int  # -1 where rewards are the negative of what is called so

    def in_words(self, low: float, high: float) -> str:
        """Write bounds as those of what is called so."""
        ends = sorted((self.sign * low, self.sign * high))
        return ":".join(f"{end:z.4g}" if abs(end) < 1e4 else f"{end:z.0f}" for end in ends)


def capping_in_words(
    rows: TestRows,
    effects: tuple[Effect, ...],
    bounds: tuple[float, float],
    analyze: Callable[[float, float], tuple[Effect, ...]],
) -> Iterator[str]:
    """Yield which rows decide the effects of a heavy tail, and what these effects are with the rows capped.

    effects, bounds: those of the rows as they are.
    analyze: returns the effects of rewards clipped to two bounds.
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


def _figures(effect: Effect) -> str:
    """Write an effect with its interval."""
    value, low, high = (0.0 if one is None else one for one in (effect.value, effect.low, effect.high))
    return f"{value:+z.4g} ({low:+z.4g} to {high:+z.4g})"


def _capped(rows: TestRows, effect: Effect, capped: Effect, ends: tuple[float, float], *, is_upper: bool) -> str:
    """Say which rows of an option or its control decide an effect, and what it is with others clipped to bounds."""
    distances = rows.rewards - ends[0] if is_upper else ends[1] - rows.rewards
    by_arm = {arm: np.sort(distances[rows.arms == arm])[::-1] for arm in (rows.options.index(effect.option), 0)}
    arm = min(by_arm, key=lambda place: _bearers(by_arm[place]))
    sorted_rows = by_arm[arm]
    few = next((n for n in range(1, int(_FEW * len(sorted_rows))) if _bearers(sorted_rows[n:]) >= BEARERS_LEAST), 0)
    share = float(sorted_rows[:few].sum() / sorted_rows.sum()) if few else 0.0
    option, name = printable(effect.option), printable(rows.name)
    of_arm = f"{len(sorted_rows):,} rows of {printable(rows.options[arm])}"
    made = f"{few:,} of {of_arm} make {share:.0%} of its {name}" if few else f"the {of_arm} are mostly near one bound"
    changed = int((distances > ends[1] - ends[0]).sum())
    return (
        f"{option} has no interval, since {effect.reason}: {made}. With --bounds {rows.in_words(*ends)}, which caps "
        f"{changed:,} of {len(rows.rewards):,} rows, its effect is {_figures(capped)}: {capped.reason}."
    )


def _bearers(distances: Array) -> float:
    """Return the squared mean over the variance, times rows, of distances from a bound."""
    variance = float(distances.var())
    return len(distances) * float(distances.mean()) ** 2 / variance if variance > 0 else float(len(distances))


def with_sentences(found: Found, sentences: tuple[str, ...]) -> Found:
    """Return what was found with sentences about rows in place of those that moments alone tell of heavy tails."""
    if not sentences:
        return found
    heavy = [one.remark for one in found.said.effects if one.reason is Reason.HEAVY_TAIL]
    others = [one for one in found.conclusion.surer if not any(remark in one for remark in heavy)]
    conclusion = msgspec.structs.replace(found.conclusion, surer=(*sentences, *others))
    return replace(found, conclusion=conclusion)
