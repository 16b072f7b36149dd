"""How many people are in a bin: the reports that score there show it, where the alphabet has several buckets."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.contributions import KeyedSums

Array = NDArray[np.float64]

_LEAST: Final = 0.02
"""No mass falls below this share of what it was thought to be: estimates may be negative."""
_BLIND: Final = 1e-9


def weighed(
    mass: Array, precision: Array, telling: Array, places: NDArray[np.int64], release: KeyedSums
) -> tuple[Array, Array]:
    """Masses of a round's bins and their precisions, (bins,) each, updated by its hits.

    Parameters
    ----------
    mass, precision
        Before, shape (bins,).
    telling
        Share of the people in its bin who have each key, shape (keys,).
    places
        Bin of each key, shape (keys,).
    release
        Hits are scores other than 0. With u the share of people who have any key, a key whose share is m is hit with
        probability m own + (u - m) other + (1 - u) none; the sum over keys gives u. One bucket hits every key alike and
        tells nothing.
    """
    own, other, none = release.hit_own - release.hit_other, release.hit_other, release.hit_none
    if own < _BLIND or not len(mass):
        return mass, precision
    reports = max(1, release.reports)
    rate = release.hits / reports
    keys = len(places)
    keyed = float(np.clip((rate.sum() - keys * none) / (own + keys * (other - none)), 0.0, 1.0))
    found = (rate - none - keyed * (other - none)) / own
    probability = np.clip(rate, 1 / reports, 1.0)
    noise = (probability * (1 - probability) / reports + 1 / reports**2 + release.noise / reports**2) / own**2
    gained = np.bincount(places, telling**2 / noise, len(mass))
    moved = np.bincount(places, telling / noise * (found - telling * mass[places]), len(mass))
    with np.errstate(invalid="ignore"):
        updated = np.where(np.isinf(precision), mass, mass + moved / (precision + gained))
    return np.clip(updated, _LEAST * mass, 1.0), precision + gained
