"""Why a trial says nothing of an effect, or could say more, and the bounds of rewards with which it would."""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.evidence.weighted_sums import Sums

Array = NDArray[np.float64]
_REACH: Final = 8.0
"""Standard deviations from their mean within which rewards are taken to be."""


class ReasonCode(IntEnum):
    """Why nothing is said of an effect."""

    NONE = 0
    FEW = 1
    """An arm has too few people, and noise is not in the way: no interval."""
    SHARE = 2
    """The segment's share of people is not told from 0, so the effect's scale is unknown: the contribution is known."""
    SMALL = 3
    """Not decided, and the trial will not find effects as small as the owner asks for."""
    LOOK = 4
    """The look added too few people to be one, or lies beyond the plan: wait, or read the look before."""
    UNRESOLVED = 5
    """Rewards vary by less than their bounds resolve, so that nobody knows how much estimates vary: no interval."""
    NOISE = 7
    """An arm has too few people beside the noise: no interval."""
    NOBODY = 10
    """Nobody in an arm is told from the noise: no interval."""
    RARE = 8
    """Yes or no is too rare in an arm: there is an estimate, and no interval."""
    HEAVY = 9
    """Too few rewards bear the mean of an arm: an estimate, and no interval."""
    HIDDEN = 6
    """Noise, which goes with the bounds, hides how much rewards vary: intervals are wider than with narrower ones."""


@dataclass(frozen=True)
class ArmCounts:
    """What the two arms of each effect have of what an interval needs, (..., 2) each; as releases tell it."""

    # people, noise: how many people each mean is as good as, and the standard deviation of the noise in their number
    people: Array
    noise: Array
    rare: Array  # how many of them had the rarer outcome of bits
    # needed, rare_needed: shape (...): the least people, and the least of the rarer outcome
    needed: Array
    rare_needed: Array
    # shape (...): how many equal rewards would bear a mean as uncertain as that of the arm with fewer of them
    bearers: Array

    @classmethod
    def of(cls, sums: Sums) -> Self:
        """Return those of sums, (J, K)."""
        noise = np.sqrt(sums.noise_of_hits) / np.where(sums.den > 0, sums.den, np.inf) * sums.people_of_arms
        return cls(
            np.where(sums.den > 0, sums.people_of_arms, 0.0),
            noise,
            sums.rare,
            sums.least_people,
            sums.least_rare,
            sums.bearers,
        )

    def at(self, *cell: int) -> "ArmCounts":
        """Return those of one effect, or of one row of them."""
        return ArmCounts(*(getattr(self, one.name)[cell] for one in fields(self)))

    def in_words(self, names: tuple[str, str]) -> dict[str, str]:
        """Return figures of one effect for a sentence, with the arm that has fewer people by name."""
        place = int(np.argmin(self.people))
        count = round(float(self.people[place]))
        return {
            "arm": names[place],
            "people": f"{count:,} {'person' if count == 1 else 'people'}",
            "noise": f" beside noise of {float(self.noise[place]):,.2g}" if self.noise[place] > 0 else "",
            "needed": f"{float(self.needed):,.0f}",
            "own": f"{round(float(self.rare[0])):,}",
            "other": f"{round(float(self.rare[1])):,}",
            "rare_needed": f"{float(self.rare_needed):,.0f}",
            "bearers": f"{int(self.bearers):,}",
        }


NO_INTERVAL: Final = (
    ReasonCode.FEW,
    ReasonCode.NOBODY,
    ReasonCode.NOISE,
    ReasonCode.RARE,
    ReasonCode.HEAVY,
    ReasonCode.UNRESOLVED,
)
"""Why there is no interval at any look with so little."""
ESTIMATED: Final = (ReasonCode.RARE, ReasonCode.HEAVY)
"""Why there is an estimate, and no interval."""


def reasons(
    sums: Sums,
    known: NDArray[np.bool_],
    look: bool,
    decided: NDArray[np.bool_],
    detectable: Array,
    smallest: float | None,
) -> NDArray[np.int64]:
    """Return why nothing, or not enough, is said of effects, (J, K), whose shares of people are ``known`` or not."""
    small = ~decided & (detectable > (np.inf if smallest is None else smallest))
    others = {
        ReasonCode.SHARE: ~known,
        ReasonCode.LOOK: np.full(known.shape, not look),
        ReasonCode.SMALL: small & ~sums.hidden,
    }
    unsaid = unsaid_reasons(sums)
    first = np.isin(unsaid, (*NO_INTERVAL,))
    return np.select([first, *others.values()], [unsaid, *others], unsaid).astype(np.int64)


def unsaid_reasons(sums: Sums) -> NDArray[np.int64]:
    """Return what sums have too little of for an interval, or for a narrow one; a `ReasonCode` each."""
    codes = {
        ReasonCode.NOBODY: sums.has_nobody,
        ReasonCode.NOISE: sums.has_noise,
        ReasonCode.FEW: sums.has_few_people,
        ReasonCode.RARE if sums.values is None else ReasonCode.HEAVY: sums.has_few_rare,
        ReasonCode.UNRESOLVED: sums.unresolved,
        ReasonCode.HIDDEN: sums.hidden,
    }
    return np.select([*codes.values()], [*codes], ReasonCode.NONE).astype(np.int64)


def too_few(sums: Sums) -> NDArray[np.int64]:
    """Return why an effect without a reason of its own has no interval, (J, K): noise where there is any, or people."""
    return np.where(sums.is_randomized, ReasonCode.NOISE, ReasonCode.FEW).astype(np.int64)


def narrower_bounds(sums: Sums) -> Array:
    """Return bounds, (J, K, 2), that hold rewards of both arms as far as these vary at most: eight deviations."""
    resolution = sums.values.resolution if sums.values else 0.0
    reach = _REACH * np.sqrt(np.maximum(sums.spread_of_hits, resolution)) + np.abs(sums.difference) / 2
    ends = sums.middle[..., None] + reach[..., None] * np.array([-1.0, 1.0])
    return np.asarray(np.clip(ends, 0.0, 1.0))
