"""Clusters of rows that depend on each other: what stands for one, so that errors are those of clusters."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_lab.tables import shortened
from privateer_lab.tables.data_column import DataColumn

Array = NDArray[np.float64]


def ratio_values(numerators: NDArray[Any], denominators: NDArray[Any], arms: NDArray[np.int64]) -> Array:
    """Return values, (n,), whose mean in each arm is a ratio of sums, and whose variance is that of the ratio.

    The delta method: around the ratio R of an arm, R + (y - R d) / mean of d (Cochran 1977, *Sampling Techniques*,
    Section 6.4; Deng, Knoblich and Lu 2018).
    """
    sizes = np.bincount(arms, denominators)
    if not sizes.all():
        raise SpecError("is 0 in all rows of an arm", field="--per", remedy="name another column")
    ratios = np.bincount(arms, numerators) / sizes
    means = sizes / np.bincount(arms)
    return np.asarray(ratios[arms] + (numerators - ratios[arms] * denominators) / means[arms])


def denominators_of(column: DataColumn) -> Array:
    """Return what rewards are divided by, (rows,)."""
    values = column.outcomes
    if not (values >= 0).all():
        remedy = "name a column of counts or amounts"
        raise SpecError("must be numbers of at least 0", field=f"--per {shortened(column.name)}", remedy=remedy)
    return values


@dataclass(frozen=True)
class Clusters:
    """Clusters of rows, each as far as it is in an arm."""

    name: str  # their column
    units: NDArray[np.int64]  # shape (rows,): the place of each row's cluster in its arm
    first_rows: NDArray[np.int64]  # shape (m,): the first row of each
    # places, arms: shape (m,): which cluster it is, and its arm
    places: NDArray[np.int64]
    arms: NDArray[np.int64]

    @classmethod
    def read(cls, column: DataColumn, arms: NDArray[np.int64]) -> Self:
        """Return the clusters of a column."""
        count = int(arms.max()) + 1
        _, first, units = np.unique(column.places * count + arms, return_index=True, return_inverse=True)
        clusters = cls(shortened(column.name), units, first, column.places[first], arms[first])
        if clusters.has_mixed and count > 2:
            detail = "has rows of one cluster in several of more than two arms"
            remedy = "analyze two arms at a time; or leave it out, if each row was randomized by itself"
            raise SpecError(detail, field=f"--cluster {clusters.name}", remedy=remedy)
        return clusters

    @property
    def has_mixed(self) -> bool:
        """Whether any cluster has rows of several arms."""
        return self.count < len(self.places)

    @property
    def count(self) -> int:
        """How many clusters there are; one that is in two arms is one."""
        return len(np.unique(self.places))

    def values(self, outcomes: Array) -> Array:
        """Return values, (m,), with the means of all rows' outcomes, (rows,), and the errors of clusters.

        Errors are those of sums by cluster (Liang and Zeger 1986). What arms of one cluster have in common is no error
        of their difference, so that deviations are scaled to the variance of that.
        """
        values = ratio_values(np.bincount(self.units, outcomes), np.bincount(self.units), self.arms)
        if not self.has_mixed:
            return values
        counts = np.bincount(self.arms)
        means = np.bincount(self.arms, values) / counts
        errors = (values - means[self.arms]) / counts[self.arms]
        differences = np.bincount(self.places, np.where(self.arms == 1, errors, -errors))
        total = np.square(errors).sum()
        scale = np.sqrt(np.square(differences).sum() / total) if total else 0.0
        return np.asarray(means[self.arms] + (values - means[self.arms]) * scale)

    def sentence(self, reward: str) -> str:
        """Say what counts."""
        rows, clusters = len(self.units), self.count
        across = ", some of them in both arms" if self.has_mixed else ""
        return (
            f"{rows:,} rows are {clusters:,} clusters by {self.name}{across}: means are those of all rows' {reward}, "
            "and intervals those of clusters."
        )
