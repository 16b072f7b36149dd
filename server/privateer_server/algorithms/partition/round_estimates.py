"""Estimates of a round: which share of people each bin has, and what their rewards say of its values."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import PartitionPolicy, PartitionSpec
from privateer_core.answer.shares import Shares, ShareSource
from privateer_core.primitives.contributions import KeyedEvents, KeyedRelease
from privateer_core.primitives.score_sums import EventSums, ScoreSums
from privateer_server.algorithms.partition.bin_tree import Split
from privateer_server.algorithms.partition.gaussian_process import BinEvidence
from privateer_server.algorithms.partition.kernel import PriorScale
from privateer_server.algorithms.partition.splitting import Subdivision, selection_bias

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEAST: Final = 0.02
"""No mass falls below this share of what it was thought to be: estimates may be negative."""
_BLIND: Final = 1e-9
_HALF_KNOWN: Final = 0.4
"""Standard deviation of a half's share of people from one half, relative to it, before people are counted."""


@dataclass(frozen=True)
class Population:
    """Shares of people by bin, cohort by cohort, own people first."""

    # shares, precision: shape (cohorts, bins): share of a cohort's people in the bin, and the precision of that
    shares: Array
    precision: Array

    @classmethod
    def in_one_bin(cls, cohorts: int) -> "Population":
        """Return cohorts whose people are all in the only bin."""
        return cls(np.ones((cohorts, 1)), np.full((cohorts, 1), math.inf))

    @property
    def own_shares(self) -> Shares:
        """Shares of own people, which are assumed while reports tell nothing beyond what splits expect."""
        shares, precision = self.shares[0], self.precision[0]
        expected = np.square(1 / (_HALF_KNOWN * shares))
        is_counted = len(shares) == 1 or bool((precision > expected * (1 + _BLIND)).any())
        return Shares.fixed(shares, ShareSource.COUNTED if is_counted else ShareSource.ASSUMED)

    def counted(self, cohort: int, rows: slice | Ints, keys: tuple[Array, Ints], release: KeyedRelease) -> "Population":
        """Return it after a round of a cohort about some bins.

        keys: share of the people in its bin who have each key, and the place among ``rows`` of that bin; (keys,) each.
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


def weighed(mass: Array, precision: Array, telling: Array, places: Ints, release: KeyedRelease) -> tuple[Array, Array]:
    """Masses of a round's bins and their precisions, (bins,) each, updated by its hits.

    mass, precision: before, shape (bins,).
    telling: share of the people in its bin who have each key, shape (keys,).
    places: bin of each key, shape (keys,).
    release: hits are scores other than 0. With u the share of people who have any key, a key whose share is m is hit
        with probability m own + (u - m) other + (1 - u) none; the sum over keys gives u. One bucket hits every key
        alike and tells nothing.
    """
    own, other, none = release.hit_own - release.hit_other, release.hit_other, release.hit_none
    if own < _BLIND or not len(mass):
        return mass, precision
    rate, reports = _hit_rates(release)
    found = (rate - none - _keyed(release) * (other - none)) / own
    probability = np.clip(rate, 1 / reports, 1.0)
    noise = (probability * (1 - probability) / reports + 1 / reports**2 + release.noise / reports**2) / own**2
    gained = np.bincount(places, telling**2 / noise, len(mass))
    moved = np.bincount(places, telling / noise * (found - telling * mass[places]), len(mass))
    with np.errstate(invalid="ignore"):
        updated = np.where(np.isinf(precision), mass, mass + moved / (precision + gained))
    return np.clip(updated, _LEAST * mass, 1.0), precision + gained


def _hit_rates(release: KeyedRelease) -> tuple[Array, Array]:
    """Return the share of reports that are hits of each key, and how many reports these are; (keys,) each."""
    if release.hits.ndim == 1:
        reports, hits = np.full(len(release.hits), float(max(1, release.trials))), release.hits
    else:
        reports, hits = np.maximum(1.0, release.counts.sum(axis=1)), release.hits.sum(axis=1)
    return np.asarray(hits / reports), reports


def _keyed(release: KeyedRelease) -> float:
    """Return the share of people who have any key, as far as hits tell; 0 where they tell nothing of it."""
    own, other, none = release.hit_own - release.hit_other, release.hit_other, release.hit_none
    (rate, _), keys = _hit_rates(release), len(release.hits)
    told = own + keys * (other - none)
    return float(np.clip((rate.sum() - keys * none) / told, 0.0, 1.0)) if keys and told > _BLIND else 0.0


@dataclass(frozen=True)
class BinSums:
    """A round bin by bin and arm by arm; rows are the policy's wholes, or its ``bins`` where these have no parts."""

    # reports, sums: shape (bins, arms): reports that count for the cell, and the sum of their scores, of expectation
    # ``reports * gain * share of people in the bin * (2 mean - 1)``; or how many of them are of an event
    reports: Array
    sums: Array
    # shape (bins, arms): how many of them have a score other than 0; None where only that of all arms is known
    hits: Array | None
    # shape (bins, arms): share of the people in the bin who tell of the arm in a report that counts for the cell
    telling: Array
    gain: Array  # shape (bins, arms): what debiasing divides by, times ``telling``


def bin_sums(
    spec: PartitionSpec, policy: PartitionPolicy, release: KeyedRelease, shares: Array | None = None
) -> BinSums:
    """Return the round's sums by bin and arm; ``shares`` are those of each bin's people in its parts, if it has any."""
    telling = _telling_of(spec, policy, shares)
    if not policy.fresh_coins:
        hits = release.hits if release.hits.shape == release.sums.shape else None
        return BinSums(release.counts.astype(np.float64), release.sums, hits, telling, release.gain * telling)
    told = (release.counts[:, 0].astype(np.float64), release.sums[:, 0], release.hits.reshape(-1))
    reports, sums, hits = (_by_cell(policy, values) for values in told)
    return BinSums(reports, sums, hits, telling, release.gain * telling)


def _by_cell(policy: PartitionPolicy, values: Array) -> Array:
    """Return a number for every key that is an arm of a bin, (keys,), as one for every bin and arm."""
    spread = np.full((int(np.max(policy.whole_of, initial=-1)) + 1, policy.active.shape[1]), 0.0)
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


@dataclass(frozen=True)
class Beliefs:
    """What was thought of values before a round."""

    mean: Array  # shape (bins, arms): means of the values in the round's bins
    prior: PriorScale  # where values are on the average


def estimated(
    population: Population,
    evidence: BinEvidence,
    spec: PartitionSpec,
    policy: PartitionPolicy,
    release: KeyedRelease,
    rows: slice | NDArray[np.int64],
    before: Beliefs,
    parts: Subdivision | None = None,
) -> tuple[Population, BinEvidence]:
    """Return shares of people and evidence of values with what a round adds to them.

    rows: places of the round's bins.
    before: what was thought of their values.
    parts: what is expected of parts of the bins, where the policy tells them apart.
    """
    cohort = ["", *(source.name for source in spec.sources)].index(policy.cohort)
    population = population.counted(cohort, rows, _key_shares(spec, policy, parts.shares if parts else None), release)
    people = population.shares[cohort, rows]
    return population, evidence.added(*_values(people, spec, policy, release, before, parts), rows)


def _values(
    people: Array,
    spec: PartitionSpec,
    policy: PartitionPolicy,
    release: KeyedRelease,
    before: Beliefs,
    parts: Subdivision | None,
) -> tuple[Array, Array]:
    """Return what a round says of the values of its bins: precision, and precision times mean, by inverse variance.

    A source's sums are in proportion to the share of its people who played the arm, eq. (26) with weights by
    inverse variance. Of a bin with parts those tell who played the arm: what is known of how they differ is taken off.
    """
    found = bin_sums(spec, policy, release, parts.shares if parts else None)
    bias = selection_bias(policy, _telling_of(spec, policy), parts.shares, parts.mean) if parts else 0.0
    share, expected = found.telling * people[:, None], before.prior.within(before.mean + bias)
    precision, moment = _statistics(found, share, release).evidence(expected, before.prior.cautious(expected))
    return precision, moment - precision * bias


def _statistics(found: BinSums, share: Array, release: KeyedRelease) -> ScoreSums | EventSums:
    """Return a round's sums with the law of its release; ``share`` is that of the people who tell, (bins, arms)."""
    if isinstance(release, KeyedEvents):
        return EventSums(found.reports, found.sums, share, release.gain, release.other)
    apart, none = release.hit_own - release.hit_other, release.hit_none
    hit_rate = share * apart + _keyed(release) * (release.hit_other - none) + none
    return ScoreSums(
        reports=found.reports,
        sums=found.sums,
        hits=found.hits,
        share=share,
        hit_rate=np.clip(hit_rate, 0.0, 1.0),
        apart=apart,
        gain=release.gain,
        noise=release.noise,
    )
