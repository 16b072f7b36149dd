"""What a round says of people and values, added to what is known of its bins."""

from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import PartitionPolicy, PartitionSpec
from privateer_core.contributions import KeyedSums
from privateer_server.algorithms.partition.cells import by_cell, cells, key_masses, telling_of
from privateer_server.algorithms.partition.masses import weighed
from privateer_server.algorithms.partition.parts import Parts, apart

Array = NDArray[np.float64]
K = TypeVar("K")

_POOL: Final = 100.0
"""Reports with which the average over keys counts in a key's own share of scored reports."""


def told(
    known: K,
    spec: PartitionSpec,
    policy: PartitionPolicy,
    release: KeyedSums,
    cohort: int,
    rows: slice | NDArray[np.int64],
    parts: Parts | None = None,
) -> K:
    """Return what is known with what a round adds to its masses and values.

    Parameters
    ----------
    known
        A learner's state, or a screening: ``mass``, ``mass_precision``, ``precision`` and ``moment`` by row.
    cohort, rows
        Places of the round's cohort and bins there.
    parts
        What is thought of parts of the bins, where the policy tells them apart.
    """
    before: Any = known
    mass, mass_precision = before.mass.copy(), before.mass_precision.copy()
    precision, moment = before.precision.copy(), before.moment.copy()
    place, counts = (cohort, rows), key_masses(spec, policy, parts.shares if parts else None)
    mass[place], mass_precision[place] = weighed(mass[place], mass_precision[place], *counts, release)
    more = _values(mass[place], spec, policy, release, parts)
    precision[rows] += more[0]
    moment[rows] += more[1]
    after: K = replace(before, mass=mass, mass_precision=mass_precision, precision=precision, moment=moment)
    return after


def _values(
    mass: Array, spec: PartitionSpec, policy: PartitionPolicy, release: KeyedSums, parts: Parts | None
) -> tuple[Array, Array]:
    """What a round says of the values of its bins: precision, and precision times mean, by inverse variance.

    A source's sums are in proportion to the share of its people who played the arm, eq. (26) with weights by
    inverse variance. Of a bin with parts those tell who played the arm: what is known of how they differ is taken off.
    """
    found = cells(spec, policy, release, parts.shares if parts else None)
    gain = found.gain * mass[:, None]
    # A curator's noise is added once to a sum: a report bears its share of it.
    variance = by_cell(policy, _variance(release), 1.0) + release.noise / np.maximum(1, found.reports)
    weight = gain / variance
    sums = found.sums
    if parts:
        sums = sums - found.reports * gain * apart(policy, telling_of(spec, policy), parts.shares, parts.mean)
    return gain * weight * found.reports, weight * sums


def _variance(release: KeyedSums) -> Array:
    """Variance of one report's score at each key, estimated from the hits."""
    if not len(release.hits):
        return np.ones(0)
    reports = max(1, release.reports)
    floor = max(release.hit_other / 4, release.hit_none / 4, 1 / reports)
    pooled = max(floor, float(release.hits.mean()) / reports)
    return np.asarray(np.maximum(floor, (release.hits + _POOL * pooled) / (release.reports + _POOL)))
