"""Means of a population over bins: what people need not be drawn one by one for."""

import numpy as np
from numpy.typing import NDArray

from privateer.experiment import Spec
from privateer.policies.partition import PartitionPolicy
from privateer_client.population import Population

_POINTS = 4096
"""Midpoints in a bin, over all features: means with a kink are off by less than 1e-4, smooth ones by far less."""


class Cells:
    """Expected rewards bin by bin, for contexts uniform on the unit cube and rewards of 0 or 1.

    Contexts of one bin are alike to a policy, so the rewards of its people who play one arm are independent coins of
    the arm's mean over the bin: sums over bins have the law of sums over people.

    Parameters
    ----------
    population
        One for which `can_aggregate` holds.
    """

    def __init__(self, population: Population) -> None:
        self._population = population
        self._known: dict[tuple[int, int], tuple[NDArray[np.float64], float]] = {}
        side = round(_POINTS ** (1 / population.features))
        axis = (np.arange(side) + 0.5) / side
        grid = np.meshgrid(*[axis] * population.features, indexing="ij")
        self._grid = np.stack(grid, axis=-1).reshape(-1, population.features)

    def means(self, policy: PartitionPolicy) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean reward of every arm over each bin, (bins, arms), and of the best arm at every point, (bins,)."""
        names = list(zip(policy.depths.tolist(), policy.paths.tolist(), strict=True))
        if any(name not in self._known for name in names):
            lower, upper = policy.edges()
            for name, low, high in zip(names, lower, upper, strict=True):
                if name not in self._known:
                    self._known[name] = self._integral(low, high)
        found = [self._known[name] for name in names]
        return np.array([arms for arms, _ in found]), np.array([best for _, best in found])

    def _integral(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        means = self._population.means(low + (high - low) * self._grid)
        return means.mean(axis=0), float(np.amax(means, axis=1).mean())


def can_aggregate(population: Population, spec: Spec) -> bool:
    """Whether people may be drawn by bins: uniform on the cube that the spec scales from, with rewards of 0 or 1."""
    unit = all((feature.low, feature.high) == (0.0, 1.0) for feature in spec.context.features.values())
    return population.uniform and unit and (spec.reward.low, spec.reward.high) == (0.0, 1.0)
