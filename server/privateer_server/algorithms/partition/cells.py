"""What a round's sums say of every bin and arm, whichever of them the reports' keys are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import PartitionPolicy, PartitionSpec
from privateer_core.contributions import KeyedSums

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
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


def cells(spec: PartitionSpec, policy: PartitionPolicy, release: KeyedSums, shares: Array | None = None) -> Cells:
    """The round's sums by bin and arm; ``shares`` are those of each bin's people in its parts, where it has any."""
    telling = telling_of(spec, policy, shares)
    if not policy.fresh_coins:
        return Cells(release.counts.astype(np.float64), release.sums, telling, release.gain * telling)
    reports = by_cell(policy, np.full(len(policy.cells), float(release.reports)), 0.0)
    return Cells(reports, by_cell(policy, release.sums[:, 0], 0.0), telling, release.gain * telling)


def by_cell(policy: PartitionPolicy, values: Array, missing: float) -> Array:
    """A number for every key, (keys,), as one for every bin and arm."""
    if not policy.fresh_coins:
        return np.broadcast_to(values[:, None], policy.layout.shares.shape)
    spread = np.full((int(np.max(policy.whole_of, initial=-1)) + 1, policy.active.shape[1]), missing)
    spread[policy.cells[:, 0], policy.cells[:, 1]] = values
    return spread


def key_masses(
    spec: PartitionSpec, policy: PartitionPolicy, shares: Array | None = None
) -> tuple[Array, NDArray[np.int64]]:
    """Share of the people in its bin who have each key, and the place of that bin; shape (keys,) each."""
    telling = telling_of(spec, policy, shares)
    if policy.fresh_coins:
        return telling[policy.cells[:, 0], policy.cells[:, 1]], policy.cells[:, 0]
    # Coins ask about one arm, and those people of a source who played it contribute.
    return (policy.layout.shares * telling).sum(axis=1), np.arange(len(policy.bins))


def key_shares(spec: PartitionSpec, shares: Array, cohort: str) -> Array:
    """Share of the people in each bin who will have each of its keys, for these shares of arms; (bins, its keys)."""
    behaviour = _behaviour(spec, cohort)
    if spec.privacy.arm_in_key:
        return shares if behaviour is None else np.broadcast_to(behaviour, shares.shape)
    return np.full((len(shares), 1), 1.0 if behaviour is None else float(behaviour.mean()))


def telling_of(spec: PartitionSpec, policy: PartitionPolicy, shares: Array | None = None) -> Array:
    """Share of a bin's people who tell of each arm, (bins, arms); of a part's without ``shares`` of parts."""
    told = _telling(spec, policy)
    return told if shares is None else policy.by_whole(shares[:, None] * told) / policy.by_whole(shares)[:, None]


def _telling(spec: PartitionSpec, policy: PartitionPolicy) -> Array:
    shares, behaviour = policy.layout.shares, _behaviour(spec, policy.cohort)
    if behaviour is not None:
        return np.broadcast_to(behaviour, shares.shape)
    return shares if policy.fresh_coins else np.ones_like(shares)


def _behaviour(spec: PartitionSpec, cohort: str) -> Array | None:
    """Share of a source's people who played each arm, (arms,); None for people who play what their coins say."""
    source = spec.source(cohort)
    return None if source is None else np.array(source.shares, dtype=np.float64)
