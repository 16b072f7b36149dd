"""The baseline `leaky`: paper 1's public code in distribution, which is not private, beside the published figures."""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.base import Baseline, Visitors
from privateer_lab.baselines.tree import ContextBins
from privateer_papers.paper_1.baseline import deepest, effective_people, favoured_shares, warm_start

Array = NDArray[np.float64]


class Leaky(Baseline):
    """LDPMAB as the authors' public code runs it, without auxiliary data.

    Kept with its faults, since the published figures come from them: a bin's noise is drawn only for the people in it;
    sums are summed again at every round, so that radii are too small by about the root of half the rounds; a bin is
    halved when all its active arms are narrow; at the whole cube no arm is favoured. Bins with one active arm, where
    nothing changes any more, are not halved further.

    Attributes
    ----------
    people, counts, rewards
        Shape (bins,) and (bins, arms): people of the rounds since a bin was made, noisy sums U and V of eq. (12).
    u, v, w
        Shape (bins, arms): weighted sums, over rounds, of ``counts``, ``rewards`` and of the numerator of eq. (28).

    Notes
    -----
    Privacy: a report has noise for the bins on its person's way and no other, so it reveals the bin, and keeps no
    promise. This exists in the lab only, and no spec can name it.
    """

    private: ClassVar[bool] = True
    leaks: ClassVar[bool] = True

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.epsilon, self.warm, self.deepest = spec.privacy.bound, warm_start(spec), deepest(spec)
        self.factor = 2 * np.log2(effective_people(spec))
        self.bins, arms = ContextBins(spec.dimension), spec.arm_count
        self.people = np.zeros(1)
        self.active = np.ones((1, arms), bool)
        self.counts, self.rewards, self.u, self.v, self.w, self.means = np.zeros((6, 1, arms))

    def open(self, batch: int) -> None:
        """Begin a round of ``batch`` people."""
        self.batch = batch
        known = (self.bins.depths > 0) & (batch > 0)
        shares = favoured_shares(self.means, self.active, known)
        self.limits = np.cumsum(shares, axis=1)[:, :-1]
        self.visits, self.wins = np.zeros((2, *self.active.shape))

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return random arms by these shares, and in the end the best of each bin, shape (n,)."""
        self.located = self.bins.locate(visitors.contexts)
        if not self.batch:
            return np.asarray(np.where(self.active, self.means, -np.inf).argmax(axis=1)[self.located])
        uniform = self.rng.random(len(visitors))
        return np.asarray((uniform[:, None] >= self.limits[self.located]).sum(axis=1))

    def learn(self, _visitors: Visitors, arms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Count visits and rewards, without noise yet."""
        cells, shape = self.located * self.active.shape[1] + arms, self.active.shape
        self.visits += np.bincount(cells, minlength=self.active.size).reshape(shape)
        self.wins += np.bincount(cells, values, self.active.size).reshape(shape)

    def close(self) -> None:
        """Add noise, sum, sum the sums, drop arms, halve bins."""
        self.people += self.batch
        inside = self.visits.sum(axis=1, keepdims=True)
        self.counts += self.active * (self.visits + self._noise(inside))
        self.rewards += self.active * (self.wins + self._noise(inside))
        self._sum_again()
        warm = self.people >= self.warm
        self.means = np.where(warm[:, None], np.clip(self.v / (self.u + 1e-4), 0.0, 1.0), self.means)
        safe = np.where(self.u == 0, 1.0, np.abs(self.u))
        radius = np.where(self.u == 0, np.inf, np.sqrt(self.factor * (self.w + 1e-4)) / safe)
        tau = 2.0 ** (-self.bins.depths / self.spec.dimension)
        narrow = (~self.active | (radius < tau[:, None])).all(axis=1)
        self._drop(warm, np.maximum(radius, tau[:, None]))
        ready = warm & narrow & (self.bins.depths < self.deepest) & (self.active.sum(axis=1) > 1)
        self._halve(np.flatnonzero(ready))

    def _noise(self, people: Array) -> Array:
        """Draw Laplace noise of scale 4/epsilon, summed over so many people, for every arm, as two gammas."""
        shapes = np.broadcast_to(people, self.active.shape)
        return np.asarray(4 / self.epsilon * (self.rng.standard_gamma(shapes) - self.rng.standard_gamma(shapes)))

    def _sum_again(self) -> None:
        people = self.people[:, None]
        weight = np.minimum(1.0, self.epsilon**2 * self.counts / people) * (people > self.warm) * self.active
        self.u += weight * self.counts
        self.v += weight * self.rewards
        self.w += weight**2 * np.maximum(self.counts, people / self.epsilon**2)

    def _drop(self, warm: NDArray[np.bool_], radius: Array) -> None:
        lower = np.where(self.active, self.means - radius, -np.inf).max(axis=1, keepdims=True)
        self.active = self.active & ~(warm[:, None] & (lower > self.means + radius))

    def _halve(self, which: NDArray[np.int64]) -> None:
        if not len(which):
            return
        origin = self.bins.halve(which, self.bins.longest(which, self.rng))
        keep = ~np.isin(origin, which)
        self.people, self.active = self.people[origin] * keep, self.active[origin]
        sums = (self.counts, self.rewards, self.u, self.v, self.w, self.means)
        kept = (old[origin] * keep[:, None] for old in sums)
        self.counts, self.rewards, self.u, self.v, self.w, self.means = kept
