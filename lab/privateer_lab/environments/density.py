"""How contexts are spread over the unit cube."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privateer.population import AtomsDensity, ShiftedDensity, UniformDensity, VariedDensity
from privateer_lab.environments.atoms import Atoms
from privateer_lab.environments.shifted import Shifted
from privateer_lab.environments.uniform import Uniform
from privateer_lab.environments.varied import Varied


class Density(Protocol):
    """A law of contexts on the unit cube. A box holds its lower faces, and its upper ones where the cube ends."""

    def sample(self, people: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Contexts of people, independent, shape (n, d)."""
        ...

    def masses(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        """Chances of boxes by their corners, (boxes, d) each; result (boxes,)."""
        ...

    def points(
        self, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Points (m, d) in one box by its corners, (d,) each, and weights (m,) for averages over its people."""
        ...


def density_for(section: UniformDensity | ShiftedDensity | VariedDensity | AtomsDensity, features: int) -> Density:
    """The density that a spec names."""
    if isinstance(section, ShiftedDensity):
        return Shifted(section.gamma, features)
    if isinstance(section, VariedDensity):
        return Varied(section.ratio, section.side, section.seed, features)
    if isinstance(section, AtomsDensity):
        return Atoms(section.share, section.points, section.seed, features)
    return Uniform(features)
