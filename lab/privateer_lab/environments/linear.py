"""Paper 5, Section 2: rewards linear in public actions, with a parameter of everybody's own."""

import numpy as np
from numpy.typing import NDArray

from privateer.errors import SpecError
from privateer.phased import PhasedSpec

Array = NDArray[np.float64]


class Linear:
    """People whose parameters are theta, drawn from a sphere, plus normal noise of the spec's deviation.

    Rewards of one action are normal around <theta_u, x>, with half the range of rewards for deviation (1 in the paper's
    range of -1 to 1); what goes beyond the range is for the mechanism to clip.

    Parameters
    ----------
    spec
        With a ``population``.
    seed
        Of theta.

    Raises
    ------
    SpecError
        If the spec has no population.
    """

    def __init__(self, spec: PhasedSpec, seed: int) -> None:
        if spec.population is None:
            raise SpecError("missing", field="population", remedy="add [population] name = 'linear' to the spec")
        self._actions = spec.actions.matrix
        self._standard_deviation = spec.algorithm.client_deviation
        self._middle, self._half = spec.middle, spec.half_range
        direction: Array = np.random.default_rng([seed, 5]).normal(size=self._actions.shape[1:])
        length = spec.population.scale * self._half
        self.theta: Array = np.asarray(length * direction / np.linalg.norm(direction))
        self.values: Array = self._actions @ self.theta
        """Shape (k,): everybody's mean reward of every action, less the middle of the range."""

    def averages(
        self, people: int, support: NDArray[np.int64], plays: NDArray[np.int64], rng: np.random.Generator
    ) -> Array:
        """Average rewards of the next people over ``plays`` (s,) of the actions ``support`` (s,); shape (people, s)."""
        own = self.theta + self._standard_deviation * rng.normal(size=(people, len(self.theta)))
        noise = self._half * rng.normal(size=(people, len(support))) / np.sqrt(plays)
        return np.asarray(self._middle + own @ self._actions[support].T + noise)
