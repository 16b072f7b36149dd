"""The baseline `ldpmab`: paper 1's algorithm as its authors' public code has it, made private."""

import math
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.policies.decisions import Arms
from privateer_core.primitives.contributions import merged
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.base import Baseline, Visitors
from privateer_papers.paper_1.ldpmab import LdpmabPolicy, LdpmabSection, LdpmabSpec
from privateer_papers.paper_1.ldpmab_learner import LdpmabLearner, LdpmabState
from privateer_papers.published_trust import PublishedPrivacy
from privateer_server.algorithms import NewRound

_SOURCES: Final = 2
"""Auxiliary sources that the published rows without auxiliary data name: they only loosen the depth's bound."""
_FAVOUR: Final = 1.2
_TIE: Final = 0.01


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
