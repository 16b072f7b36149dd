"""The one arm that is best on the whole: what an A/B test without contexts would find at best."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.experiment import Spec
from privateer_lab.baselines.base import Baseline, Visitors
from privateer_lab.baselines.people import GROUP, People

_PEOPLE: Final = 1 << 20
"""People whose expected rewards decide; beyond that many the best arm is clear or does not matter."""


class Constant(Baseline):
    """Everybody gets the arm with the largest mean of expected rewards over the run's own first million people."""

    def __init__(self, spec: Spec, seed: int) -> None:
        super().__init__(spec, seed)
        people, left = People(spec, seed), min(spec.experiment.horizon, _PEOPLE)
        total = np.zeros(spec.arm_count)
        while left:
            size = min(left, GROUP)
            total += people.next(size).means.sum(axis=0)
            left -= size
        self.arm = int(np.argmax(total))

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Arms of the next people of the round, shape (n,)."""
        return np.full(len(visitors), self.arm)
