"""Honest LDPMAB: paper 1's algorithm with the constants of its authors' code, and noise as the paper asks for."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.partition import PartitionPolicy
from privateer.contributions import CellSums, KeyedValues
from privateer.experiment import Privacy, Spec
from privateer.mechanisms.laplace_cells import LaplaceCells
from privateer_lab.baselines.authors import favoured_shares, warm_start
from privateer_lab.baselines.base import Baseline, Visitors
from privateer_server.algorithms.partition.published import PublishedPartitionLearner, PublishedState


class AuthorsLearner(PublishedPartitionLearner):
    """The ``published`` calibration with what the authors' code does otherwise.

    An arm is dropped when intervals of max(radius, tau) are apart, where eq. (16) takes twice the radius: that decides
    most of the regret. Better arms are favoured (`authors.favoured_shares`), where eq. (8) plays all alike.
    """

    def _shares(self, state: PublishedState) -> NDArray[np.float64]:
        mean, _ = self._estimates(state)
        return favoured_shares(mean, state.active, state.people[0] >= warm_start(self.spec))

    def _surviving(
        self, state: PublishedState, mean: NDArray[np.float64], radius: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        band = np.maximum(radius, 2.0 ** (-state.depths / self.spec.dimension)[:, None])
        lower = np.where(state.active, mean - band, -np.inf).max(axis=1, keepdims=True)
        explored = state.people[0] >= warm_start(self.spec)
        return np.asarray(state.active & ~(explored[:, None] & (lower > mean + band)))


class Ldpmab(Baseline):
    """`AuthorsLearner` through our own policy and mechanism: what the published algorithm earns when it is private.

    Notes
    -----
    Privacy: epsilon-LDP, as `privateer.mechanisms.laplace_cells.LaplaceCells`, whatever the spec's trust model:
    everybody sends noise for every bin and arm.
    """

    private: ClassVar[bool] = True

    def __init__(self, spec: Spec, seed: int) -> None:
        local = Privacy(model="local", epsilon=spec.privacy.epsilon, calibration="published")
        super().__init__(spec.model_copy(update={"privacy": local, "sources": ()}), seed)
        self.learner = AuthorsLearner(self.spec)
        self.state = self.learner.start()
        self.policy: PartitionPolicy
        self.told: KeyedValues
        self.release: CellSums

    def open(self, batch: int) -> None:
        """A round begins."""
        seed = int(self.rng.integers(2**63))
        self.policy = self.learner.policy(self.state, self.state.rounds + 1, batch, seed)
        self.mechanism = LaplaceCells(self.policy.layout, self.policy.terms.local_epsilon)
        zero = np.zeros((self.policy.layout.keys, self.policy.layout.groups))
        self.release = CellSums(0, zero, zero)

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Arms of the next people of the round, shape (n,)."""
        n = len(visitors)
        slots = self.rng.integers(0, 2**32, n, dtype=np.uint32)
        arms = self.policy.choose(visitors.contexts, slots)
        self.told = self.policy.contribute(visitors.contexts, slots, arms, np.zeros(n))
        return arms

    def learn(self, _visitors: Visitors, _arms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """What these people received, shape (n,)."""
        more = self.mechanism.simulate(replace(self.told, values=values), self.rng)
        self.release = CellSums(
            self.release.reports + more.reports,
            self.release.rewards + more.rewards,
            self.release.counts + more.counts,
        )

    def close(self) -> None:
        """Learn from the round's noisy sums."""
        self.state = self.learner.learn(self.state, self.policy, self.release)
