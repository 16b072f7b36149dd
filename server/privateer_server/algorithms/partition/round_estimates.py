"""Estimates of a round: the share of participants in each bin, and the evidence on its values."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.algorithms.partition import PartitionPolicy, PartitionSpec
from privateer_core.answer.share_source import ShareSource
from privateer_core.answer.shares import Shares
from privateer_core.arrays import Array, Ints
from privateer_core.primitives.contributions import KeyedEvents, KeyedRelease
from privateer_core.primitives.score_sums import EventSums, ScoreSums
from privateer_server.algorithms.partition.bin_tree import Split
from privateer_server.algorithms.partition.gaussian_process import BinEvidence
from privateer_server.algorithms.partition.kernel import PriorScale
from privateer_server.algorithms.partition.splitting import Subdivision, selection_bias

_MIN_MASS_RATIO: Final = 0.02  # no mass falls below this share of what it was thought to be: estimates may be negative
_MIN_HIT_DIFFERENCE: Final = 1e-9
_HALF_SHARE_DEVIATION: Final = 0.4
"""Standard deviation of a half's share of people from one half, relative to it, before people are counted."""


@dataclass(frozen=True)
class CohortShares:
    """Shares of people by bin, cohort by cohort, own people first."""

    # shares, precision: shape (cohorts, bins): share of a cohort's people in the bin, and the precision of that
    shares: Array
    precision: Array

    @classmethod
    def from_one_bin(cls, cohorts: int) -> "CohortShares":
        """Return cohorts whose participants are all in a single bin."""
        return cls(np.ones((cohorts, 1)), np.full((cohorts, 1), math.inf))

    @property
    def own_shares(self) -> Shares:
        """The shares of own participants; assumed ones without reports beyond the expectation at splits."""
        shares, precision = self.shares[0], self.precision[0]
        expected = np.square(1 / (_HALF_SHARE_DEVIATION * shares))
        is_counted = len(shares) == 1 or bool((precision > expected * (1 + _MIN_HIT_DIFFERENCE)).any())
        return Shares.fixed(shares, ShareSource.COUNTED if is_counted else ShareSource.ASSUMED)

    def add(self, cohort: int, rows: slice | Ints, keys: tuple[Array, Ints], release: KeyedRelease) -> "CohortShares":
        """Return the population after a round about ``rows``; keys: shares of their bins, and the bins' places."""
        shares, precision, index = self.shares.copy(), self.precision.copy(), (cohort, rows)
        shares[index], precision[index] = update_masses(shares[index], precision[index], *keys, release)
        return CohortShares(shares, precision)

    def split(self, split: Split, halves: Array) -> "CohortShares":
        """Return the population after bins were split; ``halves`` are the new bins' expected shares of the old."""
        shares = self.shares[:, split.copies] * np.where(split.fresh, halves, 1.0)
        precision = np.where(split.fresh, (_HALF_SHARE_DEVIATION * shares) ** -2, self.precision[:, split.copies])
        return CohortShares(shares, precision)

    def select_cohorts(self, rows: list[int]) -> "CohortShares":
        """Return the population of the given cohorts."""
        return CohortShares(self.shares[rows], self.precision[rows])


def update_masses(
    mass: Array, precision: Array, reporting_shares: Array, bins: Ints, release: KeyedRelease
) -> tuple[Array, Array]:
    """Return masses of a round's bins and their precisions, (bins,) each, updated by its hits.

    mass, precision: before, shape (bins,).
    reporting_shares: share of its bin's participants with each key, shape (keys,).
    bins: bin of each key, shape (keys,).
    release: hits are scores other than 0. With u the share of people who have any key, a key whose share is m is hit
        with probability m own + (u - m) other + (1 - u) none; the sum over keys gives u. One bucket hits every key
        alike and tells nothing.
    """
    hit_gain, other_rate, keyless_rate = release.hit_own - release.hit_other, release.hit_other, release.hit_none
    if hit_gain < _MIN_HIT_DIFFERENCE or not len(mass):
        return mass, precision
    rate, reports = _hit_rates(release)
    observed = (rate - keyless_rate - _estimate_keyed_share(release) * (other_rate - keyless_rate)) / hit_gain
    probability = np.clip(rate, 1 / reports, 1.0)
    noise = (probability * (1 - probability) / reports + 1 / reports**2 + release.noise / reports**2) / hit_gain**2
    gained = np.bincount(bins, reporting_shares**2 / noise, len(mass))
    shifts = np.bincount(bins, reporting_shares / noise * (observed - reporting_shares * mass[bins]), len(mass))
    with np.errstate(invalid="ignore"):
        updated = np.where(np.isinf(precision), mass, mass + shifts / (precision + gained))
    return np.clip(updated, _MIN_MASS_RATIO * mass, 1.0), precision + gained


def _hit_rates(release: KeyedRelease) -> tuple[Array, Array]:
    """Return the hit rate of each key, and its number of reports; (keys,) each."""
    if release.hits.ndim == 1:
        reports, hits = np.full(len(release.hits), float(max(1, release.trials))), release.hits
    else:
        reports, hits = np.maximum(1.0, release.counts.sum(axis=1)), release.hits.sum(axis=1)
    return np.asarray(hits / reports), reports


def _estimate_keyed_share(release: KeyedRelease) -> float:
    """Return the estimated share of participants with any key; 0 if hits have no information on it."""
    estimate = estimate_keyed_share(release)
    return 0.0 if estimate is None else float(np.clip(estimate[0], 0.0, 1.0))


def estimate_keyed_share(release: KeyedRelease) -> tuple[float, float] | None:
    """Return an unbiased estimate of the share of participants with any key, and its variance; None without any."""
    hit_difference, other_rate, keyless_rate = release.hit_own - release.hit_other, release.hit_other, release.hit_none
    (rate, reports), keys = _hit_rates(release), len(release.hits)
    contrast = hit_difference + keys * (other_rate - keyless_rate)
    if not keys or contrast <= _MIN_HIT_DIFFERENCE:
        return None
    # Hits of keys exclude each other, or are independent; if a symbol hits none of them, all may come together.
    probability = np.clip(rate, 1 / reports, 1.0)
    is_joint = other_rate - keyless_rate > _MIN_HIT_DIFFERENCE
    spread = probability.sum() * (keys - probability.sum()) if is_joint else (probability * (1 - probability)).sum()
    variance = (spread / reports.min() + release.noise * release.hits.size / reports.min() ** 2) / contrast**2
    return float((rate.sum() - keys * keyless_rate) / contrast), float(variance + 1 / reports.min() ** 2)


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
    reporting_shares: Array
    gain: Array  # shape (bins, arms): what debiasing divides by, times ``telling``


def compute_bin_sums(
    spec: PartitionSpec, policy: PartitionPolicy, release: KeyedRelease, shares: Array | None = None
) -> BinSums:
    """Return the round's sums by bin and arm; ``shares`` are those of a bin's participants in its parts."""
    reporting = _arm_reporting_shares(spec, policy, shares)
    if not policy.has_fresh_coins:
        hits = release.hits if release.hits.shape == release.sums.shape else None
        return BinSums(release.counts.astype(np.float64), release.sums, hits, reporting, release.gain * reporting)
    arrays = (release.counts[:, 0].astype(np.float64), release.sums[:, 0], release.hits.reshape(-1))
    reports, sums, hits = (_arrange_by_cell(policy, values) for values in arrays)
    return BinSums(reports, sums, hits, reporting, release.gain * reporting)


def _arrange_by_cell(policy: PartitionPolicy, values: Array) -> Array:
    """Return values of keys that are cells, (keys,), as an array by bin and arm."""
    cells = np.full((int(np.max(policy.parent_of_bin, initial=-1)) + 1, policy.active.shape[1]), 0.0)
    cells[policy.cells[:, 0], policy.cells[:, 1]] = values
    return cells


def key_shares(spec: PartitionSpec, policy: PartitionPolicy, shares: Array | None = None) -> tuple[Array, Ints]:
    """Return the share of its bin's participants with each key, and the index of that bin; shape (keys,) each."""
    reporting_shares = _arm_reporting_shares(spec, policy, shares)
    if policy.has_fresh_coins:
        return reporting_shares[policy.cells[:, 0], policy.cells[:, 1]], policy.cells[:, 0]
    # Coins ask about one arm, and those people of a source who played it contribute.
    return (policy.layout.shares * reporting_shares).sum(axis=1), np.arange(len(policy.bins))


def expected_key_shares(spec: PartitionSpec, shares: Array, cohort: str) -> Array:
    """Return the expected share of each bin's participants with each of its keys, for given arm shares."""
    logged_shares = _logged_arm_shares(spec, cohort)
    if spec.privacy.has_arm_in_key:
        return shares if logged_shares is None else np.broadcast_to(logged_shares, shares.shape)
    return np.full((len(shares), 1), 1.0 if logged_shares is None else float(logged_shares.mean()))


def _arm_reporting_shares(spec: PartitionSpec, policy: PartitionPolicy, shares: Array | None = None) -> Array:
    """Return the share of a bin's participants who report on each arm, (bins, arms)."""
    arm_shares, logged_shares = policy.layout.shares, _logged_arm_shares(spec, policy.cohort)
    part_shares = arm_shares if policy.has_fresh_coins else np.ones_like(arm_shares)
    if logged_shares is not None:
        part_shares = np.broadcast_to(logged_shares, arm_shares.shape)
    if shares is None:
        return part_shares
    return np.asarray(policy.sum_by_parent(shares[:, None] * part_shares) / policy.sum_by_parent(shares)[:, None])


def _logged_arm_shares(spec: PartitionSpec, cohort: str) -> Array | None:
    """Return the share of a source's participants who report on each arm, (arms,); None if coins choose arms.

    Weighing by propensities of the devices' own makes it the least propensity, unless weights were clipped.
    """
    source = spec.source(cohort)
    return None if source is None else np.array(source.reporting_shares, dtype=np.float64)


@dataclass(frozen=True)
class Beliefs:
    """The beliefs on values before a round."""

    mean: Array  # shape (bins, arms): means of the values in the round's bins
    prior: PriorScale  # where values are on the average


def add_round_estimates(
    population: CohortShares,
    evidence: BinEvidence,
    spec: PartitionSpec,
    policy: PartitionPolicy,
    release: KeyedRelease,
    rows: slice | Ints,
    beliefs: Beliefs,
    parts: Subdivision | None = None,
) -> tuple[CohortShares, BinEvidence]:
    """Return population and evidence, with the estimates added that a round's release gives of the bins ``rows``."""
    cohort = ["", *(source.name for source in spec.sources)].index(policy.cohort)
    population = population.add(cohort, rows, key_shares(spec, policy, parts.shares if parts else None), release)
    people = population.shares[cohort, rows]
    return population, evidence.add(*_value_evidence(people, spec, policy, release, beliefs, parts), rows)


def _value_evidence(
    people: Array,
    spec: PartitionSpec,
    policy: PartitionPolicy,
    release: KeyedRelease,
    beliefs: Beliefs,
    parts: Subdivision | None,
) -> tuple[Array, Array]:
    """Return a round's evidence on the values of its bins: precision, and precision times mean.

    A source's sums are in proportion to the share of its people who played the arm, eq. (26) with weights by
    inverse variance. Of a bin with parts those tell who played the arm: what is known of how they differ is taken off.
    """
    sums = compute_bin_sums(spec, policy, release, parts.shares if parts else None)
    bias = selection_bias(policy, _arm_reporting_shares(spec, policy), parts.shares, parts.mean) if parts else 0.0
    share, expected = sums.reporting_shares * people[:, None], beliefs.prior.clip_values(beliefs.mean + bias)
    score_sums = _build_score_sums(sums, share, release)
    precision, moment = score_sums.precision_and_moment(expected, beliefs.prior.shrink_to_level(expected))
    return precision, moment - precision * bias


def _build_score_sums(sums: BinSums, share: Array, release: KeyedRelease) -> ScoreSums | EventSums:
    """Return a round's sums with their distribution; ``share`` is that of reporting participants, (bins, arms)."""
    if isinstance(release, KeyedEvents):
        return EventSums(sums.reports, sums.sums, share, release.gain, release.other)
    hit_difference, keyless_rate = release.hit_own - release.hit_other, release.hit_none
    keyed_share = _estimate_keyed_share(release)
    hit_rate = share * hit_difference + keyed_share * (release.hit_other - keyless_rate) + keyless_rate
    return ScoreSums(
        reports=sums.reports,
        sums=sums.sums,
        hits=sums.hits,
        share=share,
        hit_rate=np.clip(hit_rate, 0.0, 1.0),
        hit_rate_difference=hit_difference,
        gain=release.gain,
        noise=release.noise,
    )
