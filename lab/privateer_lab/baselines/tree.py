"""Trees without privacy: adaptively binned successive elimination (ABSE; Perchet and Rigollet 2013, Policy 3)."""

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.run import Baseline, Visitors


class ContextBins:
    """Bins that tile the unit cube, numbered from 0 in order of creation, with their corners, (bins, dimension)."""

    def __init__(self, dimension: int) -> None:
        self.depths = np.zeros(1, np.int64)  # shape (bins,): number of halvings from the cube to each bin
        self.lower, self.upper = np.zeros((1, dimension)), np.ones((1, dimension))
        self._node = np.zeros(1, np.int64)  # node of each bin
        self._bin = np.zeros(1, np.int64)  # bin of each node that is a leaf
        self._left_child = np.full(1, -1, np.int64)  # left child of each node, -1 at leaves; the right one comes next
        self._feature, self._middle = np.zeros(1, np.int64), np.zeros(1)

    def __len__(self) -> int:
        return len(self.depths)

    def locate(self, contexts: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the bin of each context, shape (n,); ``contexts`` (n, dimension) are in [0, 1]."""
        nodes = np.zeros(len(contexts), np.int64)
        inner = np.arange(len(contexts) if self._left_child[0] >= 0 else 0)
        while len(inner):
            parents = nodes[inner]
            nodes[inner] = self._left_child[parents] + (
                contexts[inner, self._feature[parents]] >= self._middle[parents]
            )
            inner = inner[self._left_child[nodes[inner]] >= 0]
        return self._bin[nodes]

    def longest_edges(self, bins: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return a longest edge of each bin, with ties broken at random (Ma et al. 2025, Algorithm 1)."""
        width = (self.upper - self.lower)[bins]
        return np.asarray((width + np.min(width) / 2 * rng.random(width.shape)).argmax(axis=1))

    def halve(self, bins: NDArray[np.int64], features: NDArray[np.int64]) -> NDArray[np.int64]:
        """Halve bins across features: lower halves keep numbers, upper ones get the next; return new bins' origins."""
        n_bins, rows = len(self), np.arange(len(bins))
        middle = (self.lower[bins, features] + self.upper[bins, features]) / 2
        nodes = self._node[bins]
        left_children = len(self._left_child) + 2 * rows
        self._left_child[nodes], self._feature[nodes], self._middle[nodes] = left_children, features, middle
        upper_bins = n_bins + rows
        self._add_leaves(np.stack([bins, upper_bins], axis=1).ravel())
        origin = np.concatenate([np.arange(n_bins), bins])
        self._node = self._node[origin]
        self._node[bins], self._node[upper_bins] = left_children, left_children + 1
        self.depths, self.lower, self.upper = self.depths[origin], self.lower[origin], self.upper[origin]
        self.depths[bins] += 1
        self.depths[upper_bins] += 1
        self.upper[bins, features] = self.lower[upper_bins, features] = middle
        return origin

    def _add_leaves(self, bins: NDArray[np.int64]) -> None:
        """Add leaf nodes for these bins."""
        n_added = len(bins)
        self._bin = np.concatenate([self._bin, bins])
        self._left_child = np.concatenate([self._left_child, np.full(n_added, -1, np.int64)])
        self._feature = np.concatenate([self._feature, np.zeros(n_added, np.int64)])
        self._middle = np.concatenate([self._middle, np.zeros(n_added)])


class CubeTree(Baseline):
    """ABSE with Hoeffding's radii: every cube eliminates arms, and bursts into 2^d cubes of half its side.

    With s pulls of every active arm and T = n |B|^d people expected in a cube of side |B|, arms 2 U(s, T) below the
    best are dropped, and an undecided cube bursts when U(s, T) <= 2 c_0 |B|, at most k_0 times. Arms are drawn at
    random rather than in turn, since a round is played at once. U is Hoeffding's for rewards in [0, 1],
    sqrt(log(T/s) / (2 s)), and c_0 was chosen on two problems. `Abse` has the authors' constants, for which 80,000
    people are far too few.

    Privacy: the server sees everybody's context, arm and reward.
    """

    # width, burst_factor: U(s, T) = sqrt(width log(T/s) / s), and 2 c_0
    width: ClassVar[float] = 0.5
    burst_factor = 0.5
    columns_max: ClassVar[int] = 8  # a cube bursts into 2^8 at once

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        arms, n = spec.arm_count, spec.experiment.horizon
        self.bins = ContextBins(spec.dimension)
        self.active = np.ones((1, arms), bool)
        self.pulls, self.sums = np.zeros((1, arms)), np.zeros((1, arms))
        self.most_bursts = math.ceil(max(0.0, math.log2(n / (arms * math.log(arms)))) / (2 + spec.dimension))

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return random active arms, shape (n,)."""
        active = self.active[self.bins.locate(visitors.contexts)]
        return np.asarray((self.rng.random(active.shape) * active).argmax(axis=1))

    def learn(self, visitors: Visitors, arms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Add pulls and rewards of these participants, shape (n,)."""
        cells = self.bins.locate(visitors.contexts) * self.active.shape[1] + arms
        size = self.active.size
        self.pulls += np.bincount(cells, minlength=size).reshape(self.active.shape)
        self.sums += np.bincount(cells, values, size).reshape(self.active.shape)

    def close(self) -> None:
        """Eliminate arms, and burst cubes."""
        min_pulls = np.where(self.active, self.pulls, np.inf).min(axis=1)
        radius = np.where(min_pulls > 0, self.radius(np.maximum(min_pulls, 1.0)), np.inf)
        means = np.where(self.active, self.sums / np.maximum(self.pulls, 1.0), -np.inf)
        self.active = self.active & (means >= means.max(axis=1, keepdims=True) - 2 * radius[:, None])
        is_ready = (radius <= self.tolerance()) & (self.bursts < self.most_bursts) & (self.active.sum(axis=1) > 1)
        self._burst(np.flatnonzero(is_ready))

    @property
    def bursts(self) -> NDArray[np.int64]:
        """The number of bursts from the unit cube to each cube, shape (bins,)."""
        return self.bins.depths // self.spec.dimension

    def radius(self, pulls: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return U(s, T) for these pulls of every arm in each cube, both of shape (bins,)."""
        expected = self.spec.experiment.horizon * 0.5**self.bins.depths
        return np.asarray(np.sqrt(self.width * np.maximum(1.0, np.log(expected / pulls)) / pulls))

    def tolerance(self) -> NDArray[np.float64]:
        """Return the radius at which each cube bursts, shape (bins,)."""
        return np.asarray(self.burst_factor * 0.5**self.bursts)

    def _burst(self, cubes: NDArray[np.int64]) -> None:
        """Halve these cubes along every feature; halves keep the arms, and start without pulls."""
        for feature in range(self.spec.dimension if len(cubes) else 0):
            origin = self.bins.halve(cubes, np.full(len(cubes), feature))
            is_halved = np.isin(origin, cubes)
            self.active = self.active[origin]
            self.pulls, self.sums = (counts[origin] * ~is_halved[:, None] for counts in (self.pulls, self.sums))
            cubes = np.flatnonzero(is_halved)


class Abse(CubeTree):
    """ABSE with its authors' constants, under which its guarantee holds (Section 5 and Theorem 5.1, Lipschitz rewards).

    U(s, T) = 2 sqrt(2 log(T/s) / s) and c_0 = 2 L sqrt(d), with L the spec's ``algorithm.lipschitz``, else 1.
    """

    width = 8.0

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.burst_factor = 4 * float(getattr(spec.algorithm, "lipschitz", 1.0)) * math.sqrt(spec.dimension)
