"""The set of decisions, and coins that choose one of its directions."""

import math
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from privateer_core.coins import UNIT, Layout
from privateer_core.sections import Section

Array = NDArray[np.float64]
DIMENSION_MAX: Final = 64
UNIT_MAX: Final = 1e6
"""Lengths and rewards may have any unit whose squares, and theirs, are numbers."""
_ROUNDING: Final = 1e-9


class Domain(Section):
    """The set of decisions: a ball, or a box, around 0.

    Attributes
    ----------
    shape, dimension, radius
        ``ball`` of that radius, or ``box`` of so much to each side; 1 to 64 dimensions.
    """

    shape: Literal["ball", "box"] = "ball"
    dimension: int = Field(ge=1, le=DIMENSION_MAX)
    radius: float = Field(default=1.0, ge=1 / UNIT_MAX, le=UNIT_MAX, allow_inf_nan=False)

    @property
    def reach(self) -> float:
        """Largest distance from the middle."""
        return self.radius * (math.sqrt(self.dimension) if self.shape == "box" else 1.0)

    def sizes(self, points: Array) -> Array:
        """Return the size of points (..., d) by which the set is those of at most ``radius``; shape (...)."""
        return np.asarray(np.linalg.norm(points, axis=-1) if self.shape == "ball" else np.abs(points).max(axis=-1))

    def holds(self, points: Array) -> bool:
        """Whether all points (..., d) are of the set."""
        return bool(np.isfinite(points).all() and (self.sizes(points) <= self.radius * (1 + _ROUNDING)).all())

    def projected(self, point: Array, margin: float = 0.0) -> Array:
        """Return the nearest point that is ``margin`` or more within the set; shape (d,)."""
        most = self.radius - margin
        if self.shape == "box":
            return np.clip(point, -most, most)
        return np.asarray(point * min(1.0, most / max(float(np.linalg.norm(point)), 1e-300)))

    def farthest(self, direction: Array) -> Array:
        """Return the point of the set that is farthest in a direction; shape (d,)."""
        if self.shape == "box":
            return self.radius * np.sign(direction)
        return np.asarray(direction * (self.radius / max(float(np.linalg.norm(direction)), 1e-300)))


def even(seed: int, groups: int) -> Layout:
    """Return the layout whose coins choose one of so many groups, all alike."""
    return Layout(seed, np.rint(UNIT * np.arange(1, groups) / groups).astype(np.uint32)[None, :])
