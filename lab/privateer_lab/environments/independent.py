"""People with features of every kind, which are independent of each other."""

from abc import ABC
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from privateer_core.features import Feature, Numeric, Ranked
from privateer_core.levels import Boolean, Categorical, Ordinal
from privateer_lab.environments.environment import Array, Environment


class Independent(Environment, ABC):
    """Numbers uniform in their range or by rank, every level as frequent.

    Parameters
    ----------
    features
        Those of the spec.
    missing
        The share of people without a value, of every feature that may be missing.
    """

    def __init__(self, features: Iterable[Feature], missing: float) -> None:
        self._features, self._missing = list(features), missing

    def contexts(self, _seen: int, people: int, rng: np.random.Generator) -> Array:
        """Draw independent features, shape (n, d), as devices read them."""
        drawn = np.stack([_draw(feature, rng.random(people)) for feature in self._features], axis=1)
        for j, feature in enumerate(self._features):
            if feature.missing:
                drawn[rng.random(people) < self._missing, j] = np.nan
        return drawn


def levels_of(feature: Feature) -> int:
    """Return how many levels without an order a feature has; 0 for numbers."""
    if isinstance(feature, Categorical):
        return len(feature.levels)
    return 2 if isinstance(feature, Boolean) else 0


def slots_of(feature: Feature, values: Array) -> NDArray[np.int64]:
    """Return the place of each person's level, (n,), int64: that after the last one where there is no value."""
    return np.asarray(np.where(np.isnan(values), levels_of(feature), values), np.int64)


def places_of(feature: Feature, values: Array) -> Array:
    """Return each person's number as its place in [0, 1], whatever its range, (n,); any where there is none."""
    return np.asarray(feature.encode(values)[:, 0])


def _draw(feature: Feature, uniform: Array) -> Array:
    """Return the values of people at these uniform places, (n,)."""
    if isinstance(feature, Numeric):
        return np.asarray(feature.low + (feature.high - feature.low) * uniform)
    if isinstance(feature, Ranked):
        return np.interp(uniform, np.linspace(0.0, 1.0, len(feature.quantiles)), feature.quantiles)
    count = len(feature.levels) if isinstance(feature, Categorical | Ordinal) else 2
    return np.floor(count * uniform)
