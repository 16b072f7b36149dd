"""People whose mean rewards are linear in correlated features, or logistic, with parameters of every arm's own."""

from typing import Final, Literal

import numpy as np
from pydantic import Field
from scipy.special import expit

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.features import Numeric
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection

_CORRELATION: Final = 0.7
_SCALES: Final = (0.15, 0.6)
_STEEPNESS: Final = 4.0
"""Slope of log odds near a mean of 1/2, so that both links have the same mean rewards there."""


class DisjointSection(EnvironmentSection):
    """Features z in [-1, 1], scaled to their bounds, correlate along their order; rewards are 0 or 1.

    Attributes
    ----------
    link
        ``identity``: arm k has the mean 1/2 + b_k + z s_k, at least 0 and at most 1. ``logistic``: its log odds are
        4 (b_k + z s_k).
    slopes, intercepts
        Standard deviations of the s_k, coordinate by coordinate, and of the b_k: normal variables of the run's seed.
    """

    name: Literal["disjoint"]
    link: Literal["identity", "logistic"] = "identity"
    slopes: float = Field(default=0.15, ge=0, le=10, allow_inf_nan=False)
    intercepts: float = Field(default=0.05, ge=0, le=10, allow_inf_nan=False)

    def environment(self, spec: ArmsSpec, seed: int) -> "Disjoint":
        """Make the environment of a seed, which decides the parameters."""
        features = spec.features
        for name, feature in features.items():
            if not isinstance(feature, Numeric) or feature.missing:
                detail = "population 'disjoint' has numbers between bounds only, and nobody's is missing"
                raise SpecError(detail, field=f"context.features.{name}", remedy="give it low and high")
        bounds = np.array([(one.low, one.high) for one in features.values() if isinstance(one, Numeric)])
        return Disjoint(self, bounds, spec.arm_count, seed)


class Disjoint(Environment):
    """Mean rewards of arms that share no parameter.

    Attributes
    ----------
    slopes, intercepts
        Shapes (d, arms) and (arms,).
    """

    def __init__(self, section: DisjointSection, bounds: Array, arms: int, seed: int) -> None:
        self._logistic, self._low, self._width = section.link == "logistic", bounds[:, 0], bounds[:, 1] - bounds[:, 0]
        rng = np.random.default_rng([seed, 11, arms, len(bounds)])
        self.slopes: Array = section.slopes * rng.normal(size=(len(bounds), arms))
        self.intercepts: Array = section.intercepts * rng.normal(size=arms)
        self._scales = np.linspace(*_SCALES, len(bounds))

    def contexts(self, _seen: int, people: int, rng: np.random.Generator) -> Array:
        """Draw features of an autoregression, (n, d), in their own units."""
        z = rng.normal(size=(people, len(self._low)))
        for j in range(1, z.shape[1]):
            z[:, j] = _CORRELATION * z[:, j - 1] + np.sqrt(1 - _CORRELATION**2) * z[:, j]
        places = (np.clip(z * self._scales, -1.0, 1.0) + 1) / 2
        return np.asarray(self._low + self._width * places)

    def means(self, contexts: Array) -> Array:
        """Return the expected reward of every arm, (n, arms)."""
        z = 2 * (contexts - self._low) / self._width - 1
        effects = self.intercepts + z @ self.slopes
        return np.asarray(expit(_STEEPNESS * effects) if self._logistic else np.clip(0.5 + effects, 0.0, 1.0))
