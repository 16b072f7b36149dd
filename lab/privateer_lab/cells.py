"""A population bin by bin: what people need not be drawn one by one for."""

from dataclasses import dataclass
from typing import Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.partition import PartitionPolicy
from privateer.experiment import Spec
from privateer_lab.environments import Population
from privateer_lab.environments.synthetic import Synthetic

_KNOWN_PHASE_MIN: Final = 1000
_NEW_PHASE_MIN: Final = 100_000
"""People whom it costs as much to draw one by one as a phase of some dozen bins, its averages known or not."""


@dataclass(frozen=True)
class BinLaw:
    """Who comes to the bins of a policy, and what they may expect there.

    Attributes
    ----------
    masses
        Chance of a person to be in each bin, (bins,); their sum is 1.
    means, best
        Mean reward of every arm over the people of each bin, (bins, arms), and of each person's best arm, (bins,).
    """

    masses: NDArray[np.float64]
    means: NDArray[np.float64]
    best: NDArray[np.float64]


class Cells:
    """Masses and expected rewards bin by bin, for independent people with rewards of 0 or 1.

    Contexts of one bin are alike to a policy, so the rewards of its people who play one arm in one phase are
    independent coins of the arm's mean over the bin: sums over bins have the law of sums over people.

    Parameters
    ----------
    population
        One for which `can_aggregate` holds.
    """

    def __init__(self, population: Synthetic) -> None:
        self.population = population
        self._known: dict[int, dict[tuple[int, int], tuple[float, NDArray[np.float64], float]]] = {}

    def law(self, policy: PartitionPolicy, phase: int) -> BinLaw:
        """The bins of a policy in a phase of the population."""
        if phase not in self._known and not cycle_of(self.population):
            self._known.clear()
        known = self._known.setdefault(phase, {})
        names = list(zip(policy.depths.tolist(), policy.paths.tolist(), strict=True))
        new = [b for b, name in enumerate(names) if name not in known]
        if new:
            lower, upper = (corner[new] for corner in policy.edges())
            masses = self.population.density.masses(lower, upper).tolist()
            for b, low, high, mass in zip(new, lower, upper, masses, strict=True):
                known[names[b]] = (mass, *self.population.averages(low, high, phase))
        masses, means, best = (np.array(part) for part in zip(*(known[name] for name in names), strict=True))
        return BinLaw(masses / masses.sum(), means, best)


def cycle_of(population: Synthetic) -> int:
    """Phases that a population has in all; 0 if there is no end of them."""
    return population.drift.cycle if population.drift else 1


def can_aggregate(population: Population, spec: Spec) -> TypeGuard[Synthetic]:
    """Whether people may be drawn by bins: independent, on the cube that the spec scales from, rewards of 0 or 1.

    And whether that is faster: phases must be long.
    """
    unit = all((feature.low, feature.high) == (0.0, 1.0) for feature in spec.context.features.values())
    if not isinstance(population, Synthetic) or not unit or (spec.reward.low, spec.reward.high) != (0.0, 1.0):
        return False
    least = _KNOWN_PHASE_MIN if cycle_of(population) else _NEW_PHASE_MIN
    return population.drift is None or population.drift.period >= least
