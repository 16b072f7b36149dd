"""The people whom baselines play: the same for all baselines of a seed."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.policies.decisions import Arms
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.base import Visitors
from privateer_lab.environments import environment_for
from privateer_lab.simulation.devices import scaled

GROUP: Final = 1 << 16
"""Most people at a time: bounds memory, whatever the size of a round."""


class People:
    """Contexts in order, and rewards with common random numbers: two baselines that play one arm get one reward.

    Parameters
    ----------
    spec
        A spec with a ``population``.
    seed
        Seeds the environment, as in the experiment's own run, and contexts and rewards.
    """

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        self._spec, self._seed = spec, seed
        self._environment = environment_for(spec, seed)
        self._rng = np.random.default_rng([seed, 3])
        self._groups = self._seen = 0

    def next(self, people: int) -> Visitors:
        """Return the next people, at most `GROUP`."""
        raw = self._environment.contexts(self._seen, people, self._rng)
        self._seen += people
        self._groups += 1
        return Visitors(self._groups - 1, raw, scaled(raw, self._spec), self._environment.means(raw))

    def rewards(self, visitors: Visitors, arms: NDArray[np.int64]) -> NDArray[np.float64]:
        """Draw the rewards of the arms played, shape (n,), in their own units."""
        rng = np.random.default_rng([self._seed, 4, visitors.number])
        return self._environment.rewards(visitors.raw, Arms(arms), rng)
