"""An environment box by box: what people need not be drawn one by one for."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from privateer_core.policies.policy import Boxes
from privateer_core.spec.features import Numeric
from privateer_core.spec.spec import Spec
from privateer_lab.environments import Environment
from privateer_lab.environments.density import FEATURES_EXACT
from privateer_lab.environments.synthetic import Synthetic

_UNIT: Final = Numeric(low=0.0, high=1.0)
_KNOWN_PHASE_MIN: Final = 1000
_NEW_PHASE_MIN: Final = 100_000
"""People whom it costs as much to draw one by one as a phase of some dozen boxes, its averages known or not."""


@dataclass(frozen=True)
class BoxPeople:
    """The people who come to the boxes of a policy, and the rewards that they may expect there."""

    masses: NDArray[np.float64]  # probability that a person is in each box, (boxes,); their sum is 1
    # mean reward of every arm over the people of each box, (boxes, arms), and of each person's best arm, (boxes,)
    means: NDArray[np.float64]
    best: NDArray[np.float64]


class EnvironmentBoxes:
    """Masses and expected rewards box by box, for independent people with rewards of 0 or 1.

    Contexts of one box are alike to a policy, so the rewards of its people who play one arm in one phase are
    independent coins of the arm's mean over the box: sums over boxes have the distribution of sums over people.

    environment: one for which `can_aggregate` holds.
    """

    def __init__(self, environment: Synthetic) -> None:
        self.environment = environment
        self._known: dict[int, dict[Hashable, tuple[float, NDArray[np.float64], float]]] = {}

    def people_of(self, policy: Boxes, phase: int) -> BoxPeople:
        """Return who comes to the boxes of a policy in a phase of the environment."""
        if phase not in self._known and not self.environment.cycle:
            self._known.clear()
        known, names = self._known.setdefault(phase, {}), policy.names()
        new = [b for b, name in enumerate(names) if name not in known]
        if new:
            lower, upper = (corner[new] for corner in policy.edges())
            masses = self.environment.density.masses(lower, upper).tolist()
            for b, low, high, mass in zip(new, lower, upper, masses, strict=True):
                known[names[b]] = (mass, *self.environment.averages(low, high, phase))
        masses, means, best = (np.array(part) for part in zip(*(known[name] for name in names), strict=True))
        return BoxPeople(masses / masses.sum(), means, best)


def can_aggregate(environment: Environment, spec: Spec) -> TypeGuard[Synthetic]:
    """Whether people may be drawn by boxes, and whether that is faster.

    They must be independent, on the cube that the spec scales from, with rewards of 0 or 1; and phases must be long.
    """
    unit = all(feature == _UNIT for feature in spec.features.values()) and spec.dimension <= FEATURES_EXACT
    if (
        not isinstance(environment, Synthetic)
        or not unit
        or (spec.reward.low, spec.reward.high) != (0.0, 1.0)
        or spec.reward.adjust
    ):
        return False
    least = _KNOWN_PHASE_MIN if environment.cycle else _NEW_PHASE_MIN
    return environment.period == 0 or environment.period >= least
