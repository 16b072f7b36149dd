"""Why a trial says nothing of an effect, or could say more, and the bounds of rewards with which it would."""

from enum import IntEnum
from typing import Final

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
    RARE = 8
    """Yes or no is too rare in an arm: there is an estimate, and no interval."""
    HEAVY = 9
    """Too few rewards bear the mean of an arm: an estimate, and no interval."""
    HIDDEN = 6
    """Noise, which goes with the bounds, hides how much rewards vary: intervals are wider than with narrower ones."""


NO_INTERVAL: Final = (ReasonCode.FEW, ReasonCode.NOISE, ReasonCode.RARE, ReasonCode.HEAVY, ReasonCode.UNRESOLVED)
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
        ReasonCode.NOISE: sums.has_noise,
        ReasonCode.FEW: sums.has_few_people,
        ReasonCode.RARE if sums.values is None else ReasonCode.HEAVY: sums.has_few_rare,
        ReasonCode.UNRESOLVED: sums.unresolved,
        ReasonCode.HIDDEN: sums.hidden,
    }
    return np.select([*codes.values()], [*codes], ReasonCode.NONE).astype(np.int64)


def narrower_bounds(sums: Sums) -> Array:
    """Return bounds, (J, K, 2), that hold rewards of both arms as far as these vary at most: eight deviations."""
    resolution = sums.values.resolution if sums.values else 0.0
    reach = _REACH * np.sqrt(np.maximum(sums.spread_of_hits, resolution)) + np.abs(sums.difference) / 2
    ends = sums.middle[..., None] + reach[..., None] * np.array([-1.0, 1.0])
    return np.asarray(np.clip(ends, 0.0, 1.0))
