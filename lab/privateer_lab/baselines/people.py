"""The people whom references play: the same for all references of a seed."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.experiment import Spec
from privateer_lab.baselines.base import Visitors
from privateer_lab.environments import population_for
from privateer_lab.simulation import scaled

GROUP: Final = 1 << 16
"""Most people at a time: bounds memory, whatever the size of a round."""


class People:
    """Contexts in order, and rewards with common random numbers: two references that play one arm get one reward.

    Parameters
    ----------
    spec
        With a ``population``.
    seed
        Of the population, as in the experiment's own run, and of contexts and rewards.
    """

    def __init__(self, spec: Spec, seed: int) -> None:
        self._spec, self._seed = spec, seed
        self._population = population_for(spec, seed)
        self._rng = np.random.default_rng([seed, 3])
        self._groups = self._seen = 0

    def next(self, people: int) -> Visitors:
        """The next people; call with at most `GROUP`."""
        raw = self._population.contexts(self._seen, people, self._rng)
        self._seen += people
        visitors = Visitors(self._groups, raw, scaled(raw, self._spec), self._population.means(raw))
        self._groups += 1
        return visitors

    def rewards(self, visitors: Visitors, arms: NDArray[np.int64]) -> NDArray[np.float64]:
        """Rewards of the arms played, shape (n,), in their own units."""
        rng = np.random.default_rng([self._seed, 4, visitors.number])
        return self._population.rewards(visitors.raw, arms, rng)

    def values(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rewards clipped and scaled to [0, 1], as a device does."""
        low, high = self._spec.reward.low, self._spec.reward.high
        return np.asarray(np.clip((rewards - low) / (high - low), 0.0, 1.0))
