"""Estimates of a round: which share of people each bin has, and what their rewards say of its values."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import PartitionPolicy, PartitionSpec
from privateer_core.primitives.contributions import KeyedSums
from privateer_server.algorithms.partition.bin_tree import Split
from privateer_server.algorithms.partition.gaussian_process import BinEvidence
from privateer_server.algorithms.partition.splitting import Subdivision, selection_bias

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEAST: Final = 0.02
"""No mass falls below this share of what it was thought to be: estimates may be negative."""
_BLIND: Final = 1e-9
_HALF_KNOWN: Final = 0.4
"""Standard deviation of a half's share of people from one half, relative to it, before people are counted."""
_POOL: Final = 100.0
"""Reports with which the average over keys counts in a key's own share of scored reports."""


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


@dataclass(frozen=True)
class BinSums:
    """A round bin by bin and arm by arm; rows are the policy's wholes, or its ``bins`` where these have no parts.

    Attributes
    ----------
    reports, sums
        Shape (bins, arms): reports that count for the cell, and the sum of their scores. The sum has expectation
        ``reports * gain * share of people in the bin * (2 mean - 1)``.
    telling
        Shape (bins, arms): share of the people in the bin who tell of the arm in a report that counts for the cell.
    gain
        Shape (bins, arms): what debiasing divides by, times ``telling``.
    """

    reports: Array
    sums: Array
    telling: Array
    gain: Array


def bin_sums(spec: PartitionSpec, policy: PartitionPolicy, release: KeyedSums, shares: Array | None = None) -> BinSums:
    """Return the round's sums by bin and arm; ``shares`` are those of each bin's people in its parts, if it has any."""
    telling = _telling_of(spec, policy, shares)
    if not policy.fresh_coins:
        return BinSums(release.counts.astype(np.float64), release.sums, telling, release.gain * telling)
    reports = _by_cell(policy, np.full(len(policy.cells), float(release.reports)), 0.0)
    return BinSums(reports, _by_cell(policy, release.sums[:, 0], 0.0), telling, release.gain * telling)


def _by_cell(policy: PartitionPolicy, values: Array, missing: float) -> Array:
    """Return a number for every key, (keys,), as one for every bin and arm."""
    if not policy.fresh_coins:
        return np.broadcast_to(values[:, None], policy.layout.shares.shape)
    spread = np.full((int(np.max(policy.whole_of, initial=-1)) + 1, policy.active.shape[1]), missing)
    spread[policy.cells[:, 0], policy.cells[:, 1]] = values
    return spread


def _key_shares(
    spec: PartitionSpec, policy: PartitionPolicy, shares: Array | None = None
) -> tuple[Array, NDArray[np.int64]]:
    """Return the share of the people in its bin who have each key, and the place of that bin; shape (keys,) each."""
    telling = _telling_of(spec, policy, shares)
    if policy.fresh_coins:
        return telling[policy.cells[:, 0], policy.cells[:, 1]], policy.cells[:, 0]
    # Coins ask about one arm, and those people of a source who played it contribute.
    return (policy.layout.shares * telling).sum(axis=1), np.arange(len(policy.bins))


def expected_key_shares(spec: PartitionSpec, shares: Array, cohort: str) -> Array:
    """Return the share of people in each bin who will have each of its keys, for these shares of arms."""
    behaviour = _behaviour(spec, cohort)
    if spec.privacy.arm_in_key:
        return shares if behaviour is None else np.broadcast_to(behaviour, shares.shape)
    return np.full((len(shares), 1), 1.0 if behaviour is None else float(behaviour.mean()))


def _telling_of(spec: PartitionSpec, policy: PartitionPolicy, shares: Array | None = None) -> Array:
    """Return the share of a bin's people who report on each arm, (bins, arms); of a part's without ``shares``."""
    own = _telling_of_parts(spec, policy)
    return own if shares is None else policy.by_whole(shares[:, None] * own) / policy.by_whole(shares)[:, None]


def _telling_of_parts(spec: PartitionSpec, policy: PartitionPolicy) -> Array:
    shares, behaviour = policy.layout.shares, _behaviour(spec, policy.cohort)
    if behaviour is not None:
        return np.broadcast_to(behaviour, shares.shape)
    return shares if policy.fresh_coins else np.ones_like(shares)


def _behaviour(spec: PartitionSpec, cohort: str) -> Array | None:
    """Return the share of a source's people who played each arm, (arms,); None where coins choose arms."""
    source = spec.source(cohort)
    return None if source is None else np.array(source.shares, dtype=np.float64)


def estimated(
    population: Population,
    evidence: BinEvidence,
    spec: PartitionSpec,
    policy: PartitionPolicy,
    release: KeyedSums,
    rows: slice | NDArray[np.int64],
    parts: Subdivision | None = None,
) -> tuple[Population, BinEvidence]:
    """Return shares of people and evidence of values with what a round adds to them.

    Parameters
    ----------
    rows
        Places of the round's bins.
    parts
        What is expected of parts of the bins, where the policy tells them apart.
    """
    cohort = ["", *(source.name for source in spec.sources)].index(policy.cohort)
    population = population.counted(cohort, rows, _key_shares(spec, policy, parts.shares if parts else None), release)
    return population, evidence.added(*_values(population.shares[cohort, rows], spec, policy, release, parts), rows)


def _values(
    people: Array, spec: PartitionSpec, policy: PartitionPolicy, release: KeyedSums, parts: Subdivision | None
) -> tuple[Array, Array]:
    """Return what a round says of the values of its bins: precision, and precision times mean, by inverse variance.

    A source's sums are in proportion to the share of its people who played the arm, eq. (26) with weights by
    inverse variance. Of a bin with parts those tell who played the arm: what is known of how they differ is taken off.
    """
    found = bin_sums(spec, policy, release, parts.shares if parts else None)
    gain = found.gain * people[:, None]
    # A curator's noise is added once to a sum: a report bears its share of it.
    variance = _by_cell(policy, _variance(release), 1.0) + release.noise / np.maximum(1, found.reports)
    weight = gain / variance
    sums = found.sums
    if parts:
        sums = sums - found.reports * gain * selection_bias(policy, _telling_of(spec, policy), parts.shares, parts.mean)
    return gain * weight * found.reports, weight * sums


def _variance(release: KeyedSums) -> Array:
    """Return the variance of one report's score at each key, estimated from the hits."""
    if not len(release.hits):
        return np.ones(0)
    reports = max(1, release.reports)
    floor = max(release.hit_other / 4, release.hit_none / 4, 1 / reports)
    pooled = max(floor, float(release.hits.mean()) / reports)
    return np.asarray(np.maximum(floor, (release.hits + _POOL * pooled) / (release.reports + _POOL)))
