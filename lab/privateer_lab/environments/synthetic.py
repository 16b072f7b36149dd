"""People by a formula: as many as are wanted, and independent of each other."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from privateer_lab.environments.bernoulli import played
from privateer_lab.environments.density import Density
from privateer_lab.environments.drift import Drift, phase_of
from privateer_lab.environments.function import Function


class Synthetic:
    """Contexts of a density, rewards 0 or 1 with the means of a function, which may drift.

    Parameters
    ----------
    function, density, drift
        All of the same number of features.
    """

    def __init__(self, function: Function, density: Density, drift: Drift | None = None) -> None:
        self.function, self.density, self.drift = function, density, drift
        self.arms, self.features = function.arms, function.features

    def contexts(self, seen: int, people: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Shape (n, d), or (n, d + 1) with each person's phase last if means drift."""
        contexts = self.density.sample(people, rng)
        if self.drift is None:
            return contexts
        return np.column_stack([contexts, phase_of(self.drift, seen + np.arange(people))])

    def means(self, contexts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of contexts as `contexts` gives them, shape (n, arms): the truth at the time."""
        if self.drift is None:
            return self.function.means(contexts)
        return self.drift.means(self.function, contexts[:, : self.features], contexts[:, self.features])

    def rewards(
        self, contexts: NDArray[np.float64], arms: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Shape (n,), 0 or 1."""
        return played(self.means(contexts), arms, rng)

    def phases(self, seen: int, people: int) -> Iterator[tuple[int, int]]:
        """Phases of the ``people`` after the first ``seen``, in order, and how many are in each."""
        if self.drift is None:
            yield 0, people
            return
        end, period = seen + people, self.drift.period
        while seen < end:
            last = min(end, (seen // period + 1) * period)
            yield int(phase_of(self.drift, np.array(seen))), last - seen
            seen = last

    def averages(
        self, low: NDArray[np.float64], high: NDArray[np.float64], phase: int
    ) -> tuple[NDArray[np.float64], float]:
        """Mean reward of every arm over the people in a box, shape (arms,), and of the arm that is best for each."""
        points, weights = self.density.points(low, high)
        if not weights.sum() > 0:
            weights = np.ones(len(points))
        if self.drift is not None:
            points = np.column_stack([points, np.full(len(points), phase)])
        means = self.means(points)
        return np.average(means, axis=0, weights=weights), float(np.average(means.max(axis=1), weights=weights))
