"""Trees without privacy: adaptively binned successive elimination (ABSE; Perchet and Rigollet 2013, Policy 3)."""

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.base import Baseline, Visitors


class ContextBins:
    """Bins that tile the unit cube; they are numbered from 0 in the order of their making.

    dimension: number of features.
    lower, upper (bins, dimension): corners.
    """

    def __init__(self, dimension: int) -> None:
        self.depths = np.zeros(1, np.int64)  # shape (bins,): how often each bin's way from the cube was halved
        self.lower, self.upper = np.zeros((1, dimension)), np.ones((1, dimension))
        self._node = np.zeros(1, np.int64)  # node of each bin
        self._bin = np.zeros(1, np.int64)  # bin of each node that is a leaf
        self._left = np.full(1, -1, np.int64)  # left child of each node, -1 at leaves; the right one comes next
        self._feature, self._middle = np.zeros(1, np.int64), np.zeros(1)

    def __len__(self) -> int:
        return len(self.depths)

    def locate(self, contexts: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the bin of each context, shape (n,); ``contexts`` (n, dimension) are in [0, 1]."""
        nodes = np.zeros(len(contexts), np.int64)
        inner = np.arange(len(contexts) if self._left[0] >= 0 else 0)
        while len(inner):
            at = nodes[inner]
            nodes[inner] = self._left[at] + (contexts[inner, self._feature[at]] >= self._middle[at])
            inner = inner[self._left[nodes[inner]] >= 0]
        return self._bin[nodes]

    def longest(self, which: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return a longest edge of each of these bins, ties broken at random (Ma et al. 2025, Algorithm 1)."""
        width = (self.upper - self.lower)[which]
        return np.asarray((width + np.min(width) / 2 * rng.random(width.shape)).argmax(axis=1))

    def halve(self, which: NDArray[np.int64], features: NDArray[np.int64]) -> NDArray[np.int64]:
        """Halve these bins across these features.

        The lower half keeps the bin's number; upper halves get the next ones. Return, for every bin that there is
        now, the number of the bin that it was or was part of.
        """
        count, rows = len(self), np.arange(len(which))
        middle = (self.lower[which, features] + self.upper[which, features]) / 2
        nodes = self._node[which]
        first = len(self._left) + 2 * rows
        self._left[nodes], self._feature[nodes], self._middle[nodes] = first, features, middle
        new = count + rows
        self._grow(np.stack([which, new], axis=1).ravel())
        origin = np.concatenate([np.arange(count), which])
        self._node = self._node[origin]
        self._node[which], self._node[new] = first, first + 1
        self.depths, self.lower, self.upper = self.depths[origin], self.lower[origin], self.upper[origin]
        self.depths[which] += 1
        self.depths[new] += 1
        self.upper[which, features] = self.lower[new, features] = middle
        return origin

    def _grow(self, bins: NDArray[np.int64]) -> None:
        """Add nodes for new leaves of these bins."""
        more = len(bins)
        self._bin = np.concatenate([self._bin, bins])
        self._left = np.concatenate([self._left, np.full(more, -1, np.int64)])
        self._feature = np.concatenate([self._feature, np.zeros(more, np.int64)])
        self._middle = np.concatenate([self._middle, np.zeros(more)])


class CubeTree(Baseline):
    """ABSE with Hoeffding's radii: every cube eliminates arms, and bursts into 2^d cubes of half its side.

    With s pulls of every active arm and T = n |B|^d people expected in a cube of side |B|, arms 2 U(s, T) below the
    best are dropped, and an undecided cube bursts when U(s, T) <= 2 c_0 |B|, at most k_0 times. Arms are drawn at
    random rather than in turn, since a round is played at once. U is Hoeffding's for rewards in [0, 1],
    sqrt(log(T/s) / (2 s)), and c_0 was chosen on two problems. `Abse` has the authors' constants, for which 80,000
    people are far too few.

    Privacy: the server sees everybody's context, arm and reward.
    """

    # width, burst: U(s, T) = sqrt(width log(T/s) / s), and 2 c_0
    width: ClassVar[float] = 0.5
    burst = 0.5
    columns_max: ClassVar[int] = 8
    """A cube bursts into 2^8 at once."""

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
        """Count these people's pulls and rewards, shape (n,)."""
        cells = self.bins.locate(visitors.contexts) * self.active.shape[1] + arms
        size = self.active.size
        self.pulls += np.bincount(cells, minlength=size).reshape(self.active.shape)
        self.sums += np.bincount(cells, values, size).reshape(self.active.shape)

    def close(self) -> None:
        """Drop arms, burst cubes."""
        least = np.where(self.active, self.pulls, np.inf).min(axis=1)
        radius = np.where(least > 0, self.radius(np.maximum(least, 1.0)), np.inf)
        means = np.where(self.active, self.sums / np.maximum(self.pulls, 1.0), -np.inf)
        self.active = self.active & (means >= means.max(axis=1, keepdims=True) - 2 * radius[:, None])
        ready = (radius <= self.tolerance()) & (self.bursts < self.most_bursts) & (self.active.sum(axis=1) > 1)
        self._burst(np.flatnonzero(ready))

    @property
    def bursts(self) -> NDArray[np.int64]:
        """How often each cube's way from the whole burst, shape (bins,)."""
        return self.bins.depths // self.spec.dimension

    def radius(self, pulls: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return U(s, T) at this many pulls of every arm in each cube, both shape (bins,)."""
        expected = self.spec.experiment.horizon * 0.5**self.bins.depths
        return np.asarray(np.sqrt(self.width * np.maximum(1.0, np.log(expected / pulls)) / pulls))

    def tolerance(self) -> NDArray[np.float64]:
        """Return the radius at which each cube is known well enough to burst, shape (bins,)."""
        return np.asarray(self.burst * 0.5**self.bursts)

    def _burst(self, which: NDArray[np.int64]) -> None:
        for feature in range(self.spec.dimension if len(which) else 0):
            origin = self.bins.halve(which, np.full(len(which), feature))
            fresh = np.isin(origin, which)
            self.active = self.active[origin]
            self.pulls, self.sums = (old[origin] * ~fresh[:, None] for old in (self.pulls, self.sums))
            which = np.flatnonzero(fresh)


class Abse(CubeTree):
    """ABSE with its authors' constants, under which its guarantee holds (Section 5 and Theorem 5.1, Lipschitz rewards).

    U(s, T) = 2 sqrt(2 log(T/s) / s) and c_0 = 2 L sqrt(d), with L the spec's ``algorithm.lipschitz``, else 1.
    """

    width = 8.0

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.burst = 4 * float(getattr(spec.algorithm, "lipschitz", 1.0)) * math.sqrt(spec.dimension)
