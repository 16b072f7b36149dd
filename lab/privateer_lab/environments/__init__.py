"""Simulated people: contexts, rewards, and the truth that nobody else sees."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privateer.errors import SpecError
from privateer.experiment import Spec
from privateer.population import AdultPopulation, CsvPopulation, PeaksPopulation, QuadrantsPopulation, SmoothPopulation
from privateer_lab.environments.adult import read_adult
from privateer_lab.environments.classified import read_classified
from privateer_lab.environments.density import density_for
from privateer_lab.environments.drift import drift_for
from privateer_lab.environments.function import Function
from privateer_lab.environments.peaks import Peaks
from privateer_lab.environments.quadrants import Quadrants
from privateer_lab.environments.smooth import Smooth
from privateer_lab.environments.synthetic import Synthetic


class Population(Protocol):
    """People one after the other; features and rewards in their own units."""

    @property
    def arms(self) -> int:
        """Number of arms."""
        ...

    @property
    def features(self) -> int:
        """Number of features."""
        ...

    def contexts(self, seen: int, people: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Contexts of the people after the first ``seen``, shape (n, d + more): what no device sees comes last."""
        ...

    def means(self, contexts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Expected reward of every arm, for contexts as `contexts` gives them; shape (n, arms)."""
        ...

    def rewards(
        self, contexts: NDArray[np.float64], arms: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Rewards of the arms played, shape (n,)."""
        ...


def population_for(spec: Spec, seed: int) -> Population:
    """The population that a spec names.

    Parameters
    ----------
    spec
        With a ``population``.
    seed
        Of the order of people who are read from a file.

    Raises
    ------
    SpecError
        If it names none, one with other arms or features than the spec's, or a file that cannot be used.
    """
    section = spec.population
    if section is None:
        raise SpecError("missing", field="population", remedy="add [population] name = 'peaks'")
    if isinstance(section, AdultPopulation):
        return read_adult(section, spec, seed)
    if isinstance(section, CsvPopulation):
        return read_classified(section, spec, seed)
    function = _function(section, spec)
    density = density_for(section.density, function.features)
    return Synthetic(function, density, drift_for(section.drift, function.arms))


def _function(section: PeaksPopulation | QuadrantsPopulation | SmoothPopulation, spec: Spec) -> Function:
    if isinstance(section, SmoothPopulation):
        return Smooth(section.function, section.shape, spec.arm_count, spec.dimension)
    made = Peaks(spec.arm_count) if isinstance(section, PeaksPopulation) else Quadrants()
    for field, has, wants in (
        ("experiment.arms", spec.arm_count, made.arms),
        ("context.features", spec.dimension, made.features),
    ):
        if has != wants:
            raise SpecError(
                f"population {section.name!r} has {wants}, not {has}", field=field, remedy="make them agree"
            )
    return made
