"""What a round says of people and values, added to what is known of its bins."""

from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.partition import PartitionPolicy, PartitionSpec
from privateer.contributions import KeyedSums
from privateer_server.algorithms.partition.cells import by_cell, cells, key_masses
from privateer_server.algorithms.partition.masses import weighed

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
) -> K:
    """Return what is known with what a round adds to its masses and values.

    Parameters
    ----------
    known
        A learner's state, or a screening: ``mass``, ``mass_precision``, ``precision`` and ``moment`` by row.
    cohort, rows
        Places of the round's cohort and bins there.
    """
    before: Any = known
    mass, mass_precision = before.mass.copy(), before.mass_precision.copy()
    precision, moment = before.precision.copy(), before.moment.copy()
    place, counts = (cohort, rows), key_masses(spec, policy)
    mass[place], mass_precision[place] = weighed(mass[place], mass_precision[place], *counts, release)
    more = _values(mass[place], spec, policy, release)
    precision[rows] += more[0]
    moment[rows] += more[1]
    after: K = replace(before, mass=mass, mass_precision=mass_precision, precision=precision, moment=moment)
    return after


def _values(mass: Array, spec: PartitionSpec, policy: PartitionPolicy, release: KeyedSums) -> tuple[Array, Array]:
    """What a round says of the values of its bins: precision, and precision times mean, by inverse variance.

    A source's sums are in proportion to the share of its people who played the arm, eq. (26) with weights by
    inverse variance.
    """
    found = cells(spec, policy, release)
    gain = found.gain * mass[:, None]
    # A curator's noise is added once to a sum: a report bears its share of it.
    variance = by_cell(policy, _variance(release), 1.0) + release.noise / np.maximum(1, found.reports)
    weight = gain / variance
    return gain * weight * found.reports, weight * found.sums


def _variance(release: KeyedSums) -> Array:
    """Variance of one report's score at each key, estimated from the hits."""
    if not len(release.hits):
        return np.ones(0)
    reports = max(1, release.reports)
    floor = max(release.hit_other / 4, release.hit_none / 4, 1 / reports)
    pooled = max(floor, float(release.hits.mean()) / reports)
    return np.asarray(np.maximum(floor, (release.hits + _POOL * pooled) / (release.reports + _POOL)))
