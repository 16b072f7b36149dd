"""Whether noise has the law that was certified: exact tests of counts, by number and by pair of numbers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import binom

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
_CELLS: Final = 16
"""Cells of about the same chance, into which the values of one number are counted."""
_OF_PAIR: Final = 4
"""Cells of a number beside those of another one."""


class Law(Protocol):
    """The law of one whole number of noise."""

    def cells(self, values: Integers, count: int) -> tuple[Integers, Array]:
        """Return the cell of each value, and the exact chances of the cells, of which there are about ``count``."""
        ...

    def log(self, values: Integers) -> Array:
        """Return the logarithm of each value's chance or density, but for a constant."""
        ...


def _cut(values: Integers, edges: Integers, below: Array) -> tuple[Integers, Array]:
    """Return cells that end with ``edges``, and their chances, from those of values up to each edge."""
    return np.searchsorted(edges, values, side="left"), np.diff(below, prepend=0.0, append=1.0)


@dataclass(frozen=True)
class NormalLaw:
    """Normal noise, rounded to whole numbers."""

    deviation: float

    def cells(self, values: Integers, count: int) -> tuple[Integers, Array]:
        """Cut at quantiles."""
        edges = np.unique(np.rint(self.deviation * ndtri(np.arange(1, count) / count))).astype(np.int64)
        return _cut(values, edges, ndtr((edges + 0.5) / self.deviation))

    def log(self, values: Integers) -> Array:
        """Return the logarithm of the density."""
        return np.asarray(-np.square(values / self.deviation) / 2)


@dataclass(frozen=True)
class LaplaceLaw:
    """Discrete Laplace noise."""

    scale: int

    def cells(self, values: Integers, count: int) -> tuple[Integers, Array]:
        """Cut at quantiles."""
        share = np.arange(1, count) / count
        tail = np.log(2 * np.minimum(share, 1 - share))
        edges = np.unique(np.rint(self.scale * np.where(share < 0.5, tail, -tail))).astype(np.int64)
        step = math.exp(-1 / self.scale)
        above = np.exp(-(np.abs(edges) + (edges >= 0)) / self.scale) / (1 + step)
        return _cut(values, edges, np.where(edges >= 0, 1 - above, above))

    def log(self, values: Integers) -> Array:
        """Return the logarithm of the chance."""
        return np.asarray(-np.abs(values) / self.scale)


@dataclass(frozen=True)
class BinomialLaw:
    """A number of bits."""

    trials: int
    probability: float

    def cells(self, values: Integers, count: int) -> tuple[Integers, Array]:
        """Cut at quantiles."""
        share = np.arange(1, count) / count
        edges = np.unique(binom.ppf(share, self.trials, self.probability)).astype(np.int64)
        return _cut(values, edges, binom.cdf(edges, self.trials, self.probability))

    def log(self, values: Integers) -> Array:
        """Return the logarithm of the chance."""
        return np.asarray(binom.logpmf(values, self.trials, self.probability))


@dataclass(frozen=True)
class UniformLaw:
    """A whole number from 0 up to ``below``, a multiple of 16."""

    below: int

    def cells(self, values: Integers, count: int) -> tuple[Integers, Array]:
        """Cut into equal parts."""
        return values * count // self.below, np.full(count, 1 / count)

    def log(self, values: Integers) -> Array:
        """Return zeros: all values are as likely."""
        return np.zeros(len(values))


def surprise(counts: Integers, chances: Array) -> float:
    """Return a p-value of counts of independent observations, exact for any number of them.

    The least of the two-sided binomial p-values of single cells, times the cells (Bonferroni).
    """
    total = int(counts.sum())
    least = np.minimum(binom.cdf(counts, total, chances), binom.sf(counts - 1, total, chances)).min()
    return float(min(1.0, 2 * len(counts) * least))


def noise_surprise(noise: Integers, laws: tuple[Law, ...], own: tuple[int, ...]) -> float:
    """Return a p-value of noise (n, numbers): each of its ``own`` numbers has its law, and none follows from another.

    Pairs of own numbers are counted, and pairs of an own one and another.
    """
    single = [_counted(*laws[k].cells(noise[:, k], _CELLS)) for k in own]
    rough = {k: laws[k].cells(noise[:, k], _OF_PAIR) for k in range(noise.shape[1])}
    pairs = [pair for pair in combinations(rough, 2) if set(pair) & set(own)]
    both = [_counted(*_paired(rough[one], rough[other])) for one, other in pairs]
    return _least([*single, *both])


def _paired(one: tuple[Integers, Array], other: tuple[Integers, Array]) -> tuple[Integers, Array]:
    return one[0] * len(other[1]) + other[0], np.outer(one[1], other[1]).ravel()


def _counted(cells: Integers, chances: Array) -> float:
    return surprise(np.bincount(cells, minlength=len(chances)), chances)


def _least(found: Iterable[float]) -> float:
    values = list(found)
    return min(1.0, len(values) * min(values))
