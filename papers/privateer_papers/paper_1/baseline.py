"""The baselines of paper 1: `ldpmab`, its authors' public code made private, and `leaky`, the same code as it is."""

import math
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.policies.decisions import Arms
from privateer_core.primitives.contributions import merged
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.base import Baseline, Visitors
from privateer_lab.baselines.tree import ContextBins
from privateer_papers.paper_1.ldpmab import LdpmabLearner, LdpmabPolicy, LdpmabSection, LdpmabSpec, LdpmabState
from privateer_papers.published_trust import PublishedPrivacy
from privateer_server.algorithms import NewRound

_SOURCES: Final = 2
"""Auxiliary sources that the published rows without auxiliary data name: they only loosen the depth's bound."""
_FAVOUR: Final = 1.2
_TIE: Final = 0.01
Array = NDArray[np.float64]


def effective_people(spec: ArmsSpec) -> float:
    """Return people times min(1, epsilon)^2, at least 2: C_n = 2 log2 of it, and the warm start depends on it."""
    return max(2.0, spec.experiment.horizon * min(1.0, spec.privacy.bound) ** 2)


def warm_start(spec: ArmsSpec) -> int:
    """Return how many people a bin takes before it may drop or favour arms."""
    return int(math.log2(effective_people(spec))) ** 2


def deepest(spec: ArmsSpec) -> int:
    """Return how often a bin is halved at most."""
    d, n = spec.dimension, 2 * spec.experiment.horizon * (_SOURCES + 1)
    known = min(math.log2(n) / (2 + d), math.log2(max(1.0, n * spec.privacy.bound**2)) / (2 + 2 * d))
    return int(known * d)


def favoured_shares(
    means: NDArray[np.float64], active: NDArray[np.bool_], known: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return each arm's probability, shape (bins, arms): of A active ones of K the best has 1.2 K/A times the worst's.

    In between the logarithm is linear in the estimate. Bins that are not ``known``, shape (bins,), or whose active arms
    are within .01, play them all alike.
    """
    spread = np.where(active, means, -np.inf).max(axis=1) - np.where(active, means, np.inf).min(axis=1)
    most = np.log(_FAVOUR * means.shape[1] / active.sum(axis=1))
    slope = np.where(known & (spread >= _TIE), most / (spread + 1e-4), 0.0)
    weights = np.exp(means * slope[:, None]) * active
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


class AuthorsLearner(LdpmabLearner):
    """LDPMAB with two changes from the authors' code.

    An arm is dropped when intervals of max(radius, tau) are apart, where eq. (16) takes twice the radius: that decides
    most of the regret. Better arms are favoured (`favoured_shares`), where eq. (8) plays all alike.
    """

    def _shares(self, state: LdpmabState) -> NDArray[np.float64]:
        mean, _ = self._estimates(state)
        return favoured_shares(mean, state.active, state.people[0] >= warm_start(self.spec))

    def _surviving(
        self, state: LdpmabState, mean: NDArray[np.float64], radius: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        band = np.maximum(radius, 2.0 ** (-state.depths / self.spec.dimension)[:, None])
        lower = np.where(state.active, mean - band, -np.inf).max(axis=1, keepdims=True)
        explored = state.people[0] >= warm_start(self.spec)
        return np.asarray(state.active & ~(explored[:, None] & (lower > mean + band)))


class Ldpmab(Baseline):
    """`AuthorsLearner` through our own policy and mechanism: what the published algorithm earns when it is private.

    Notes
    -----
    Privacy: epsilon-LDP, as `privateer_papers.paper_1.laplace_cells.LaplaceCells`, whatever the spec's trust model:
    everybody sends noise for every bin and arm.
    """

    private: ClassVar[bool] = True

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        changed = LdpmabSpec(
            experiment=spec.experiment,
            context=spec.context,
            reward=spec.reward,
            privacy=PublishedPrivacy(model="local", epsilon=spec.privacy.epsilon),
            algorithm=LdpmabSection(name="paper-1-ldpmab"),
        )
        self.learner = AuthorsLearner(changed)
        self.state = self.learner.start(0)

    def open(self, batch: int) -> None:
        """Make the policy of a round of ``batch`` people."""
        seed = int(self.rng.integers(2**63))
        self.policy: LdpmabPolicy = self.learner.policy(self.state, NewRound(self.state.rounds + 1, seed, batch))
        self.release: Any = None

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return arms as coins have them, shape (n,)."""
        self.coins = self.rng.integers(0, 2**32, len(visitors), dtype=np.uint32)
        return self.policy.decide(visitors.contexts, self.coins).arms

    def learn(self, visitors: Visitors, arms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Add these people's noisy reports to those of the round."""
        contributions = self.policy.contribute(visitors.contexts, self.coins, Arms(arms), values)
        more = self.policy.mechanism.simulate(contributions, self.rng)
        self.release = more if self.release is None else merged(self.release, more)

    def close(self) -> None:
        """Learn from the round's noisy sums."""
        self.state = self.learner.learn(self.state, self.policy, self.release)


class Leaky(Baseline):
    """LDPMAB as the authors' public code runs it, without auxiliary data.

    Kept with its faults, since the published figures come from them: a bin's noise is drawn only for the people in it;
    sums are summed again at every round, so that radii are too small by about the root of half the rounds; a bin is
    halved when all its active arms are narrow; at the whole cube no arm is favoured. Bins with one active arm, where
    nothing changes any more, are not halved further.

    Privacy: a report has noise for the bins on its person's way and no other, so it reveals the bin, and keeps no
    promise. This exists in the lab only, and no spec can name it.

    u, v, w (bins, arms): weighted sums, over rounds, of ``counts``, ``rewards`` and of the numerator of eq. (28).
    """

    private: ClassVar[bool] = True
    leaks: ClassVar[bool] = True

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.epsilon, self.warm, self.deepest = spec.privacy.bound, warm_start(spec), deepest(spec)
        self.factor = 2 * np.log2(effective_people(spec))
        self.bins, arms = ContextBins(spec.dimension), spec.arm_count
        # people, counts, rewards: shape (bins,) and (bins, arms): people of the rounds since a bin was made, noisy sums
        # U and V of eq. (12).
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
