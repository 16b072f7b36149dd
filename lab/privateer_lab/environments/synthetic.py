"""Synthetic environments: densities of contexts on the unit cube, and drifting mean rewards."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.features import Numeric, Ranked
from privateer_core.spec.sections import Section
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection

Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Density(Section, ABC):
    """A distribution of contexts on the unit cube."""

    name: str

    @abstractmethod
    def sample(self, n_participants: int, features: int, rng: np.random.Generator) -> Array:
        """Draw independent contexts, shape (n, d)."""


class UniformDensity(Density):
    """Contexts uniform on the unit cube."""

    name: Literal["uniform"] = "uniform"

    def sample(self, n_participants: int, features: int, rng: np.random.Generator) -> Array:
        """Draw points of the cube, shape (n, d)."""
        return rng.random((n_participants, features))


class ShiftedDensity(Density):
    """Density c ||x - 1/2||_inf^gamma, c = 2^gamma (d + gamma)/d: fewer people in the middle (Ma et al. 2025)."""

    # The distance from the middle, r in [0, 1/2], has the distribution function (2r)^(d + gamma). The authors' sampler
    # takes (2r)^(d (gamma + 1)), which at two features is the distribution of twice their gamma.

    name: Literal["shifted"] = "shifted"
    gamma: float = Field(ge=0, le=100, allow_inf_nan=False)

    def sample(self, n_participants: int, features: int, rng: np.random.Generator) -> Array:
        """Draw a face of the cube, a point of the face, and the distance; shape (n, d)."""
        positions = rng.uniform(-1.0, 1.0, (n_participants, features))
        faces = rng.integers(0, features, n_participants)
        positions[np.arange(n_participants), faces] = rng.choice([-1.0, 1.0], n_participants)
        distance = rng.random((n_participants, 1)) ** (1 / (features + self.gamma))
        return np.asarray((1 + positions * distance) / 2)


AnyDensity = UniformDensity | ShiftedDensity


class Drift(Section, ABC):
    """The drift of mean rewards."""

    period: int = Field(ge=1)  # people in a phase: person i is in phase i // period

    @abstractmethod
    def means(self, initial_means: Callable[[Array], Array], contexts: Array, phases: Array) -> Array:
        """Return the means, (n, arms), of contexts (n, d) in phases (n,), given the function of initial means."""


class SwapDrift(Drift):
    """Drift by rotation: in phase i, arm k of K has the initial mean rewards of arm k + i (mod K)."""

    name: Literal["swap"]

    def means(self, initial_means: Callable[[Array], Array], contexts: Array, phases: Array) -> Array:
        """Return means with rotated arms, shape (n, arms)."""
        means = initial_means(contexts)
        arms = means.shape[1]
        arm_order = (np.arange(arms) + phases.astype(np.int64)[:, None]) % arms
        return np.asarray(np.take_along_axis(means, arm_order, axis=1))


class SlideDrift(Drift):
    """Drift by translation: in phase i, means at x1 are the initial means at x1 - i step, reflected into [0, 1]."""

    name: Literal["slide"]
    step: float = Field(ge=-1, le=1, allow_inf_nan=False)

    def means(self, initial_means: Callable[[Array], Array], contexts: Array, phases: Array) -> Array:
        """Return initial means at the moved contexts, shape (n, arms)."""
        moved = contexts.copy()
        moved[:, 0] = 1 - np.abs(1 - (contexts[:, 0] - self.step * phases) % 2)
        return initial_means(moved)


class SyntheticSection(EnvironmentSection):
    """Mean rewards by a formula, contexts by a density; features and rewards are in [0, 1]."""

    n_features: ClassVar[int] = 0  # the number of features of the formula
    density: Annotated[AnyDensity, Field(discriminator="name")] = UniformDensity()
    drift: Annotated[SwapDrift | SlideDrift, Field(discriminator="name")] | None = None

    @abstractmethod
    def means(self, contexts: Array, arms: int) -> Array:
        """Return the expected reward of every arm at first, in [0, 1]; contexts (n, d), result (n, arms)."""

    def environment(self, spec: ArmsSpec, _seed: int) -> "Synthetic":
        """Make the environment, which is the same for every seed."""
        if len(spec.features) != self.n_features:
            message = f"population {self.name!r} has {self.n_features}, not {len(spec.features)}"
            raise SpecError(message, field="context.features", remedy="make them agree")
        for name, feature in spec.features.items():
            if not isinstance(feature, Numeric | Ranked) or feature.missing:
                message = f"population {self.name!r} has numbers only, and nobody's is missing"
                raise SpecError(message, field=f"context.features.{name}", remedy="set population.name = 'mixed'")
        return Synthetic(self, spec.arm_count, len(spec.features))


class Synthetic(Environment):
    """Environment with contexts of a density, and 0 or 1 rewards with means by formula, which may drift."""

    def __init__(self, section: SyntheticSection, arms: int, features: int) -> None:
        self._section, self._drift, self.density = section, section.drift, section.density
        self._arms, self._features = arms, features
        self.period = self._drift.period if self._drift else 0  # people in a phase; 0: means never move

    def contexts(self, n_previous: int, n_participants: int, rng: np.random.Generator) -> Array:
        """Draw contexts, (n, d); if means drift, (n, d + 1) with each person's phase last."""
        contexts = self.density.sample(n_participants, self._features, rng)
        if not self.period:
            return contexts
        return np.column_stack([contexts, (n_previous + np.arange(n_participants)) // self.period])

    def means(self, contexts: Array) -> Array:
        """Return the mean rewards at the participants' times, shape (n, arms)."""
        if self._drift is None:
            return self._initial_means(contexts)
        return self._drift.means(self._initial_means, contexts[:, : self._features], contexts[:, self._features])

    def _initial_means(self, contexts: Array) -> Array:
        return self._section.means(contexts, self._arms)
