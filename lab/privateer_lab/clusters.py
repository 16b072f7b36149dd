"""Clusters of rows that depend on each other: what stands for one, so that errors are those of clusters."""

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_lab.tables import shortened
from privateer_lab.tables.data_column import DataColumn

Array = NDArray[np.float64]
_FEW: Final = 30
"""Clusters below which their number is told as few."""


def error_of_mean(parts: Array, units: NDArray[np.int64]) -> float:
    """Return the standard error of the mean of parts, (n,), whose sums by unit, (n,) from 0 on, are independent.

    That of leaving out a unit at a time (Bell and McCaffrey 2002). Where all are of one size it is that of sums (Liang
    and Zeger 1986) with m / (m - 1); where sizes differ it allows for how much a large unit moves the mean.
    """
    counts = np.bincount(units)
    left_out = np.bincount(units, parts - parts.mean()) / (len(parts) - counts)
    return float(np.sqrt(np.square(left_out).sum() * (1 - 1 / len(counts))))


def design_effect(outcomes: Array, arms: NDArray[np.int64], units: NDArray[np.int64]) -> float:
    """Return the variance of differences between arms over that of independent rows, on average over pairs.

    outcomes, arms, units (n,): places of arms and of units are from 0 on.
    """
    counts, n_units = np.bincount(arms), int(units.max()) + 1
    means = np.bincount(arms, outcomes) / np.maximum(counts, 1)
    errors = (outcomes - means[arms]) / counts[arms]
    sums = np.bincount(units * len(counts) + arms, errors, n_units * len(counts)).reshape(n_units, -1)
    of_units = len(counts) * np.square(sums).sum() - np.square(sums.sum(axis=1)).sum()
    of_rows = (len(counts) - 1) * np.square(errors).sum()
    return float(of_units / of_rows * n_units / (n_units - 1)) if of_rows > 0 and n_units > 1 else 1.0


def few_clusters(count: int, name: str) -> list[str]:
    """Say that clusters are few."""
    if count >= _FEW:
        return []
    return [f"{count:,} clusters by {name} are few: where they differ in size or kind, intervals may be too narrow"]


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
