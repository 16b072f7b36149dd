"""Reports on decisions of earlier policies: what their coins chose, and how many people played each arm."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition.asked import AskedBins
from privateer_core.coins import UNIT, EarlierChoices, Layout

_PRIMES: Final = np.array([p for p in range(2, 174) if all(p % q for q in range(2, p))])
_INSIDE: Final = np.modf(np.arange(1, 65)[:, None] * np.sqrt(_PRIMES))[0]
"""64 places spread over a unit cube of up to 40 columns."""


def choices_of(earlier: AskedBins, policy: AskedBins) -> EarlierChoices:
    """Return what the coins of an earlier choice mean at the keys of a policy.

    There is one more group, the last: of all coins at a key whose bin was not whole then, so that what they chose
    there depends on more than the key.
    """
    bins = policy.within(earlier, policy.bins)
    keys = np.where(bins >= 0, earlier.key_of_bin[bins], -1)
    thresholds = np.zeros((len(bins), policy.active.shape[1]), np.uint32)
    # Where nothing was asked the only active arm was played.
    only = earlier.active[bins].argmax(axis=1)
    thresholds[:, :-1] = np.where(np.arange(thresholds.shape[1] - 1)[None, :] < only[:, None], 0, UNIT)
    asked = keys >= 0
    # Arms that were added since were played by nobody, as in the rows of those who were not asked.
    thresholds[asked, : earlier.active.shape[1] - 1] = earlier.layout.thresholds[keys[asked]]
    thresholds[:, -1] = UNIT
    thresholds[bins < 0] = 0
    return EarlierChoices(policy.layout.seed, thresholds, earlier.layout, np.maximum(keys, 0))


def choices_of_all(policy: AskedBins, decided: Sequence[tuple[AskedBins, float]]) -> Layout:
    """Return choices with the share of a bin's people to whom these policies, weighed, gave each arm."""
    shares = sum(weight * _shares(one, policy) for one, weight in decided)
    edges = np.cumsum(shares, axis=1)[:, :-1] / np.sum(shares, axis=1, keepdims=True)
    return Layout(policy.layout.seed, np.minimum(np.rint(edges * UNIT), UNIT).astype(np.uint32))


def _shares(earlier: AskedBins, policy: AskedBins) -> NDArray[np.float64]:
    """Share of the people of each of the policy's ``bins`` to whom an earlier one gave each arm, (keys, arms)."""
    bins, (lower, upper) = policy.within(earlier, policy.bins), [corner[policy.bins] for corner in policy.edges()]
    shares = earlier.shares[bins]
    for place in np.flatnonzero(bins < 0).tolist():
        inside = earlier.locate(lower[place] + (upper - lower)[place] * _INSIDE[:, : policy.dimension])
        shares[place] = earlier.shares[inside].mean(axis=0)
    added = policy.active.shape[1] - earlier.active.shape[1]
    return np.pad(shares, ((0, 0), (0, added)))
