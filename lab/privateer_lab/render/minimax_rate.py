"""The minimax rate of regret with features, which no algorithm beats on every problem (Ma et al. 2025)."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MARGIN: Final = 1.0
"""The exponent beta of how many people are close to where the best option changes: gaps grow linearly from there."""


@dataclass(frozen=True)
class MinimaxRate:
    """The rate of mean regret for Lipschitz mean rewards, but for logarithms and a constant (Theorem 2.6).

    With information S = min(n epsilon^2, n^((2 + 2 d)/(2 + d))) it is S^(-(1 + beta)/(2 + 2 d)). Theorem 2.5, from
    below, has (e^epsilon - 1)^2 for epsilon^2, which is of the same order up to 1.
    """

    dimension: int  # d, the number of features
    epsilon: float | None  # local privacy of a report; None: none

    def mean_regret(self, people: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the rate of regret per choice after these numbers of people, with constant 1."""
        return np.asarray(self._information(people) ** (-(1 + _MARGIN) / (2 + 2 * self.dimension)))

    def fit_constant(self, people: NDArray[np.float64], mean_regrets: NDArray[np.float64]) -> float:
        """Return the constant of the rate by the later half of mean regrets, which are above 0, in logarithms."""
        later = slice(len(people) // 2, None)
        return float(np.exp(np.log(mean_regrets[later] / self.mean_regret(people[later])).mean()))

    def factor_of_half_epsilon(self, people: float) -> float:
        """Return how many times the people have the same regret at half of epsilon; 1 without privacy."""
        if self.epsilon is None:
            return 1.0
        return MinimaxRate(self.dimension, self.epsilon / 2)._find_people(self._information_of(people)) / people

    def factor_of_another_feature(self, people: float) -> float:
        """Return how many times the people have the same regret with another feature, and the same constant."""
        exponent = (4 + 2 * self.dimension) / (2 + 2 * self.dimension)
        larger = MinimaxRate(self.dimension + 1, self.epsilon)
        return larger._find_people(math.pow(self._information_of(people), exponent)) / people

    @property
    def _per_person(self) -> float:
        """Information of a person by privacy alone."""
        return math.inf if self.epsilon is None else self.epsilon**2

    @property
    def _power(self) -> float:
        """Power of the number of people that bounds information."""
        return (2 + 2 * self.dimension) / (2 + self.dimension)

    def _information(self, people: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.minimum(people * self._per_person, people**self._power)

    def _information_of(self, people: float) -> float:
        return float(self._information(np.array(people)))

    def _find_people(self, information: float) -> float:
        """Return the number of people who have this information."""
        return max(information / self._per_person, math.pow(information, 1 / self._power))
