"""Baselines that learn nothing: the ends of the scale, and what an A/B test without contexts would find at best."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.base import Baseline, Visitors
from privateer_lab.baselines.people import GROUP, People

_PEOPLE: Final = 1 << 20
"""People whose expected rewards decide; with more of them the best arm is clear or does not matter."""


class Uniform(Baseline):
    """Every arm with the same probability: what an experiment earns before anything is learned."""

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return random arms, shape (n,)."""
        return self.rng.integers(0, self.spec.arm_count, len(visitors))


class Constant(Baseline):
    """For everybody the arm with the largest mean of expected rewards over the run's own first million people."""

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        people, left = People(spec, seed), min(spec.experiment.horizon, _PEOPLE)
        total = np.zeros(spec.arm_count)
        while left:
            size = min(left, GROUP)
            total += people.next(size).means.sum(axis=0)
            left -= size
        self.arm = int(np.argmax(total))

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return the one arm for everybody, shape (n,)."""
        return np.full(len(visitors), self.arm)


class Oracle(Baseline):
    """The best arm for everyone: its regret is 0, and its reward the most that any policy can hope for."""

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Return everybody's best arm, shape (n,)."""
        return np.asarray(visitors.means.argmax(axis=1))
