"""The minimax rate of regret with features, which no algorithm beats on every problem (Ma et al. 2025)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class MinimaxRate:
    """The rate of mean regret for Lipschitz mean rewards, but for logarithms and a constant (Theorem 2.6).

    With information S = min(n epsilon^2, n^((2 + 2 d)/(2 + d))) it is S^(-(1 + beta)/(2 + 2 d)), where beta = 1 says
    that gaps grow linearly from where the best option changes. Theorem 2.5, from below, has (e^epsilon - 1)^2 for
    epsilon^2, which is of the same order up to 1.
    """

    dimension: int  # d, the number of features
    epsilon: float | None  # local privacy of a report; None: none

    def mean_regret(self, people: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the rate of regret per choice after these numbers of people, with constant 1."""
        per_person, power = self._information
        return np.asarray(np.minimum(people * per_person, people**power) ** (-1 / (1 + self.dimension)))

    def fit_constant(self, people: NDArray[np.float64], mean_regrets: NDArray[np.float64]) -> float:
        """Return the constant of the rate by the later half of mean regrets, which are above 0, in logarithms."""
        later = slice(len(people) // 2, None)
        return float(np.exp(np.log(mean_regrets[later] / self.mean_regret(people[later])).mean()))

    def count_people(self, mean_regret: float) -> float:
        """Return the number of people after whom the rate with constant 1 is this."""
        information, (per_person, power) = math.pow(mean_regret, -(1 + self.dimension)), self._information
        return max(information / per_person, math.pow(information, 1 / power))

    @property
    def _information(self) -> tuple[float, float]:
        """Information of a person by privacy alone, and the power of the number of people that bounds it."""
        per_person = math.inf if self.epsilon is None else self.epsilon**2
        return per_person, (2 + 2 * self.dimension) / (2 + self.dimension)
