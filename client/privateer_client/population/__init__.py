"""Simulated people: contexts, rewards, and the truth that nobody else sees."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privateer.errors import SpecError
from privateer.experiment import Spec
from privateer_client.population.adult import Adult
from privateer_client.population.peaks import Peaks
from privateer_client.population.quadrants import Quadrants


class Population(Protocol):
    """People drawn one after the other; contexts and rewards in their own units."""

    @property
    def arms(self) -> int:
        """Number of arms."""
        ...

    @property
    def features(self) -> int:
        """Number of features."""
        ...

    @property
    def uniform(self) -> bool:
        """Whether contexts are uniform on the unit cube, and rewards 0 or 1."""
        ...

    def contexts(self, people: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Contexts of the next people, shape (n, d)."""
        ...

    def means(self, contexts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Expected reward of every arm, shape (n, arms)."""
        ...

    def rewards(
        self, contexts: NDArray[np.float64], arms: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Rewards of the arms played, shape (n,)."""
        ...


def population_for(spec: Spec, seed: int) -> Population:
    """The population that a spec names.

    Raises
    ------
    SpecError
        If it names none, or one with other arms or features than the spec's.
    """
    chosen = spec.population
    if chosen is None:
        raise SpecError("missing", field="population", remedy="add [population] name = 'peaks'")
    population = _made(chosen.name, spec.arm_count, chosen.path, seed)
    for field, has, wants in (
        ("experiment.arms", spec.arm_count, population.arms),
        ("context.features", spec.dimension, population.features),
    ):
        if has != wants:
            raise SpecError(f"population {chosen.name!r} has {wants}, not {has}", field=field, remedy="make them agree")
    return population


def _made(name: str, arms: int, path: str | None, seed: int) -> Population:
    if name == "adult":
        if path is None:
            raise SpecError("missing", field="population.path", remedy="give the path of the UCI Adult file")
        return Adult(path, seed)
    return Peaks(arms) if name == "peaks" else Quadrants()
