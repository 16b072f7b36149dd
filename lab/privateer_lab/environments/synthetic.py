"""People by a formula: as many as are wanted, and independent of each other."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.features import Numeric, Ranked
from privateer_core.spec.sections import Section
from privateer_lab.environments.density import AtomsDensity, ShiftedDensity, UniformDensity, VariedDensity
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection

AnyDensity = UniformDensity | ShiftedDensity | VariedDensity | AtomsDensity


class Drift(Section, ABC):
    """How mean rewards move."""

    period: int = Field(ge=1)  # people in a phase: person i is in phase i // period

    def cycle(self, _arms: int) -> int:
        """Return the phases after which all is as in the first, and which start at 0 again; 0 if there is no end."""
        return 0

    @abstractmethod
    def means(self, first: Callable[[Array], Array], contexts: Array, phases: Array) -> Array:
        """Return the means, (n, arms), of contexts (n, d) in phases (n,), by what they were ``first``."""


class SwapDrift(Drift):
    """In phase i, arm k of K has the mean rewards that arm k + i (mod K) began with."""

    name: Literal["swap"]

    def cycle(self, arms: int) -> int:
        """Return the number of arms."""
        return arms

    def means(self, first: Callable[[Array], Array], contexts: Array, phases: Array) -> Array:
        """Return means with the arms turned, shape (n, arms)."""
        began = first(contexts)
        arms = began.shape[1]
        turned = (np.arange(arms) + phases.astype(np.int64)[:, None]) % arms
        return np.asarray(np.take_along_axis(began, turned, axis=1))


class SlideDrift(Drift):
    """In phase i, mean rewards at x1 are those that x1 - i step began with, folded back into [0, 1] at its ends."""

    name: Literal["slide"]
    step: float = Field(ge=-1, le=1, allow_inf_nan=False)

    def means(self, first: Callable[[Array], Array], contexts: Array, phases: Array) -> Array:
        """Return means at the places moved, shape (n, arms)."""
        moved = contexts.copy()
        moved[:, 0] = 1 - np.abs(1 - (contexts[:, 0] - self.step * phases) % 2)
        return first(moved)


class SyntheticSection(EnvironmentSection):
    """Mean rewards by a formula, contexts by a density; features and rewards are in [0, 1]."""

    # the numbers of arms and features that the formula has, 0 where any will do
    sizes: ClassVar[tuple[int, int]] = (0, 0)
    density: Annotated[AnyDensity, Field(discriminator="name")] = UniformDensity()
    drift: Annotated[SwapDrift | SlideDrift, Field(discriminator="name")] | None = None

    @abstractmethod
    def means(self, contexts: Array, arms: int) -> Array:
        """Return the expected reward of every arm at first, in [0, 1]; contexts (n, d), result (n, arms)."""

    def environment(self, spec: ArmsSpec, _seed: int) -> "Synthetic":
        """Make the environment, which is the same for every seed."""
        fields = (("experiment.arms", spec.arm_count), ("context.features", len(spec.features)))
        for (field, has), wants in zip(fields, self.sizes, strict=True):
            if wants and has != wants:
                message = f"population {self.name!r} has {wants}, not {has}"
                raise SpecError(message, field=field, remedy="make them agree")
        for name, feature in spec.features.items():
            if not isinstance(feature, Numeric | Ranked) or feature.missing:
                message = f"population {self.name!r} has numbers only, and nobody's is missing"
                raise SpecError(message, field=f"context.features.{name}", remedy="set population.name = 'mixed'")
        if len(spec.features) > self.density.most:
            message = f"the density {self.density.name!r} is for at most {self.density.most} features"
            raise SpecError(message, field="population.density", remedy="choose another density")
        return Synthetic(self, spec.arm_count, len(spec.features))


class Synthetic(Environment):
    """Contexts of a density, and rewards 0 or 1 with the means of a formula, which may drift.

    density: the distribution of contexts.
    """

    def __init__(self, section: SyntheticSection, arms: int, features: int) -> None:
        self._section, self._drift, self.density = section, section.drift, section.density
        self._arms, self._features = arms, features
        # people in a phase, within which means stand still; 0 if they never move
        self.period = self._drift.period if self._drift else 0
        # phases after which means are as in the first; 1 if they never move, 0 if that never happens
        self.cycle = self._drift.cycle(arms) if self._drift else 1

    def contexts(self, seen: int, people: int, rng: np.random.Generator) -> Array:
        """Draw contexts, (n, d); if means drift, (n, d + 1) with each person's phase last."""
        contexts = self.density.sample(people, self._features, rng)
        return np.column_stack([contexts, self._phase(seen + np.arange(people))]) if self.period else contexts

    def means(self, contexts: Array) -> Array:
        """Return the truth at the time of contexts as `contexts` returns them, shape (n, arms)."""
        if self._drift is None:
            return self._first(contexts)
        return self._drift.means(self._first, contexts[:, : self._features], contexts[:, self._features])

    def _first(self, contexts: Array) -> Array:
        return self._section.means(contexts, self._arms)

    def _phase(self, people: NDArray[np.int64]) -> Any:
        phases = people // self.period
        return phases % self.cycle if self.cycle else phases

    def phases(self, seen: int, people: int) -> Iterator[tuple[int, int]]:
        """Yield the phases of the ``people`` after the first ``seen``, in order, and how many people are in each."""
        end = seen + people
        while seen < end:
            last = min(end, (seen // self.period + 1) * self.period) if self.period else end
            yield int(self._phase(np.array(seen))) if self.period else 0, last - seen
            seen = last

    def averages(self, low: Array, high: Array, phase: int) -> tuple[Array, float]:
        """Return the mean reward of every arm over the people in a box, (arms,), and of each person's best arm."""
        points, weights = self.density.quadrature(low, high)
        if not weights.sum() > 0:
            weights = np.ones(len(points))
        means = self.means(np.column_stack([points, np.full(len(points), phase)]) if self.period else points)
        return np.average(means, axis=0, weights=weights), float(np.average(means.max(axis=1), weights=weights))
