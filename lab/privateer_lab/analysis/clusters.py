"""Clusters of dependent rows: cluster-level values and standard errors."""

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_lab.tables import shorten
from privateer_lab.tables.data_column import DataColumn

Array = NDArray[np.float64]
_MIN_CLUSTERS: Final = 30
"""Number of clusters below which a warning is given."""


def cluster_standard_error(contributions: Array, units: NDArray[np.int64]) -> float:
    """Return the cluster-robust standard error of the mean of contributions, (n,), with units (n,) from 0.

    It is the jackknife estimate, CR3 (Bell and McCaffrey 2002). For units of equal size it is the sandwich estimate
    (Liang and Zeger 1986) with m / (m - 1); otherwise it accounts for the influence of large units on the mean.
    """
    counts = np.bincount(units)
    left_out = np.bincount(units, contributions - contributions.mean()) / (len(contributions) - counts)
    return float(np.sqrt(np.square(left_out).sum() * (1 - 1 / len(counts))))


def design_effect(outcomes: Array, arms: NDArray[np.int64], units: NDArray[np.int64]) -> float:
    """Return the variance of arms' differences (mean over pairs), relative to independent rows; indices are from 0."""
    counts, n_units = np.bincount(arms), int(units.max()) + 1
    means = np.bincount(arms, outcomes) / np.maximum(counts, 1)
    errors = (outcomes - means[arms]) / counts[arms]
    sums = np.bincount(units * len(counts) + arms, errors, n_units * len(counts)).reshape(n_units, -1)
    cluster_variance = len(counts) * np.square(sums).sum() - np.square(sums.sum(axis=1)).sum()
    row_variance = (len(counts) - 1) * np.square(errors).sum()
    return float(cluster_variance / row_variance * n_units / (n_units - 1)) if row_variance > 0 and n_units > 1 else 1.0


def few_cluster_warnings(count: int, name: str) -> list[str]:
    """Return a warning if clusters are few."""
    if count >= _MIN_CLUSTERS:
        return []
    return [f"{count:,} clusters by {name} are few: where they differ in size or kind, intervals may be too narrow"]


def linearize_ratios(numerators: NDArray[Any], denominators: NDArray[Any], arms: NDArray[np.int64]) -> Array:
    """Return linearized values, (n,), whose mean in each arm is a ratio of sums, with the variance of the ratio.

    The delta method: around the ratio R of an arm, R + (y - R d) / mean of d (Cochran 1977, *Sampling Techniques*,
    Section 6.4; Deng, Knoblich and Lu 2018).
    """
    sizes = np.bincount(arms, denominators)
    if not sizes.all():
        raise SpecError("is 0 in all rows of an arm", field="--per", remedy="name another column")
    ratios = np.bincount(arms, numerators) / sizes
    means = sizes / np.bincount(arms)
    return np.asarray(ratios[arms] + (numerators - ratios[arms] * denominators) / means[arms])


def read_denominators(column: DataColumn) -> Array:
    """Return the denominators of rewards, (rows,); refuse numbers below 0."""
    values = column.outcomes
    if not (values >= 0).all():
        remedy = "name a column of counts or amounts"
        raise SpecError("must be numbers of at least 0", field=f"--per {shorten(column.name)}", remedy=remedy)
    return values


@dataclass(frozen=True)
class Clusters:
    """Clusters of rows, separated by arm."""

    name: str  # the column
    units: NDArray[np.int64]  # shape (rows,): index of each row's cluster and arm
    first_rows: NDArray[np.int64]  # shape (m,): first row of each cluster and arm
    # places, arms: shape (m,): which cluster it is, and its arm
    cluster_indices: NDArray[np.int64]
    arms: NDArray[np.int64]

    @classmethod
    def read(cls, column: DataColumn, arms: NDArray[np.int64]) -> Self:
        """Return the clusters of a column; refuse a cluster in several of more than two arms."""
        count = int(arms.max()) + 1
        _, first_rows, units = np.unique(column.codes * count + arms, return_index=True, return_inverse=True)
        clusters = cls(shorten(column.name), units, first_rows, column.codes[first_rows], arms[first_rows])
        if clusters.has_mixed and count > 2:
            detail = "has rows of one cluster in several of more than two arms"
            remedy = "analyze two arms at a time; or leave it out, if each row was randomized by itself"
            raise SpecError(detail, field=f"--cluster {clusters.name}", remedy=remedy)
        return clusters

    @property
    def has_mixed(self) -> bool:
        """Whether any cluster has rows of several arms."""
        return self.count < len(self.cluster_indices)

    @property
    def count(self) -> int:
        """The number of clusters; a cluster in two arms counts once."""
        return len(np.unique(self.cluster_indices))

    def linearize(self, outcomes: Array) -> Array:
        """Return cluster values, (m,), with the arm means of outcomes, (rows,), and cluster-robust variances.

        Variances are those of sums by cluster (Liang and Zeger 1986). The common part of a cluster in both arms cancels
        in the difference of arms, so that deviations are scaled to the variance of the difference.
        """
        values = linearize_ratios(np.bincount(self.units, outcomes), np.bincount(self.units), self.arms)
        if not self.has_mixed:
            return values
        counts = np.bincount(self.arms)
        means = np.bincount(self.arms, values) / counts
        errors = (values - means[self.arms]) / counts[self.arms]
        differences = np.bincount(self.cluster_indices, np.where(self.arms == 1, errors, -errors))
        total = np.square(errors).sum()
        scale = np.sqrt(np.square(differences).sum() / total) if total else 0.0
        return np.asarray(means[self.arms] + (values - means[self.arms]) * scale)

    def describe(self, reward: str) -> str:
        """Return a sentence about rows and clusters."""
        rows, clusters = len(self.units), self.count
        across = ", some of them in both arms" if self.has_mixed else ""
        return (
            f"{rows:,} rows are {clusters:,} clusters by {self.name}{across}: means are those of all rows' {reward}, "
            "and intervals those of clusters."
        )
