"""Shares of people by bin: the reports that score there show them, where the alphabet has several buckets."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.primitives.contributions import KeyedSums
from privateer_server.algorithms.partition.splitting import Split

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEAST: Final = 0.02
"""No mass falls below this share of what it was thought to be: estimates may be negative."""
_BLIND: Final = 1e-9
_HALF_KNOWN: Final = 0.4
"""Standard deviation of a half's share of people from one half, relative to it, before people are counted."""


@dataclass(frozen=True)
class Population:
    """Shares of people by bin, cohort by cohort, own people first.

    Attributes
    ----------
    shares, precision
        Shape (cohorts, bins): share of a cohort's people in the bin, and the precision of that.
    """

    shares: Array
    precision: Array

    @classmethod
    def in_one_bin(cls, cohorts: int) -> "Population":
        """Return cohorts whose people are all in the only bin."""
        return cls(np.ones((cohorts, 1)), np.full((cohorts, 1), math.inf))

    def counted(self, cohort: int, rows: slice | Ints, keys: tuple[Array, Ints], release: KeyedSums) -> "Population":
        """Return it after a round of a cohort about some bins.

        Parameters
        ----------
        keys
            Share of the people in its bin who have each key, and the place among ``rows`` of that bin; (keys,) each.
        """
        shares, precision, place = self.shares.copy(), self.precision.copy(), (cohort, rows)
        shares[place], precision[place] = weighed(shares[place], precision[place], *keys, release)
        return Population(shares, precision)

    def split(self, split: Split, halves: Array) -> "Population":
        """Return it after bins were split; ``halves`` are the shares of each new bin in its old one as expected."""
        shares = self.shares[:, split.copies] * np.where(split.fresh, halves, 1.0)
        precision = np.where(split.fresh, (_HALF_KNOWN * shares) ** -2, self.precision[:, split.copies])
        return Population(shares, precision)

    def of_cohorts(self, rows: list[int]) -> "Population":
        """Return it with those cohorts."""
        return Population(self.shares[rows], self.precision[rows])


def weighed(mass: Array, precision: Array, telling: Array, places: Ints, release: KeyedSums) -> tuple[Array, Array]:
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
