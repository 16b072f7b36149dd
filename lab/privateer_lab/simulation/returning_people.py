"""A simulation of people who come back: each of them several times, with the context that they had before."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.simulation.simulation import Simulation


class ReturningSimulation(Simulation):
    """A simulation in which people come in turn, all of them in every period, and report as their devices do.

    So nobody is in one round twice. There are as many people as make the reports of the horizon, and no fewer than the
    largest round has. Where a device reports one time of several, it draws in advance which one, and the experiment
    ends when all people have come each time.
    """

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        for key in ("delay", "drift"):
            if (spec.population or {}).get(key):
                detail = "must not be given with experiment.reports_per_person above 1: nobody simulates both"
                raise SpecError(detail, field=f"population.{key}", remedy="remove one of them")
        super().__init__(spec, seed, one_by_one=True)
        times, horizon = spec.experiment.reports_per_person, spec.experiment.horizon
        people = horizon if spec.privacy.trust.draws_one else max(-(-horizon // times), spec.largest_batch())
        self.choices = horizon * times // spec.reports
        self._people = self.environment.contexts(0, people, self.rng)
        self._drawn = self.rng.integers(0, times, people) if spec.privacy.trust.draws_one else None

    def play(self, policy: Any, people: int, rng: np.random.Generator, _seen: int = 0) -> Any:
        """Have people come until so many report; return what these contribute."""
        here = self._reporting(self.people + np.arange(self._until(people)))
        return self.played(policy, self._coming(len(here)), rng, here)

    def choose(self, policy: Any, people: int) -> None:
        """Have so many people choose, of whom nobody reports."""
        self.played(policy, self._coming(people), self.rng, np.zeros(people, bool))

    def _coming(self, people: int) -> NDArray[np.float64]:
        return np.asarray(self._people[(self.people + np.arange(people)) % len(self._people)])

    def _reporting(self, visits: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell in which of these visits a person reports."""
        if self._drawn is None:
            return np.ones(len(visits), bool)
        times, people = np.divmod(visits, len(self._people))
        return np.asarray(self._drawn[people] == times)

    def _until(self, reports: int) -> int:
        """Return how many people have to come until so many have reported."""
        if self._drawn is None:
            return reports
        left = self._reporting(np.arange(self.people, self.choices))
        return int(np.flatnonzero(left)[reports - 1]) + 1
