"""Clipping of vectors to a ball and rounding to an integer grid, with the sensitivity that results."""

import math
from typing import Final, Literal

import msgspec
import numpy as np

from privateer_core.arrays import Array, Ints, NDArray
from privateer_core.errors import InputError, SpecError
from privateer_core.sampling.randomness import NoiseSource, round_to_integers

GRID: Final = 1 << 14
"""Grid points per unit of the bound: rounding adds at most sqrt(coordinates) / 16384 of it to a sensitivity."""
COORDINATES_MAX: Final = 1 << 20
_SCALE_MIN: Final = 1e-300
_DIAMETERS: Final = {"l2": 2.0, "max": 2.0, "joint": math.sqrt(8 / 3)}
"""Largest L2 distance of two participants' vectors, in radii."""
_ROUNDING: Final = 1 + 2.0**-40
"""Factor that covers rounding errors in the norm of a clipped vector."""


class Ball(msgspec.Struct, frozen=True):
    """The ball of vectors that participants may contribute: at most ``bound`` in a norm.

    A joint block of several quantities with one L2 bound is a ball in the ``l2`` norm over all their coordinates.

    norm: ``l2``, or ``max`` for the largest absolute coordinate; or ``joint``, the L2 norm of vectors that are second
        moments and products of a row (`privateer_core.primitives.row_ball.joint_reports`), of which no two
        are opposite. A policy has to make them so.
    bound: largest norm, above 0.
    coordinates: 1 to 1,048,576.
    """

    norm: Literal["l2", "max", "joint"]
    bound: float
    coordinates: int

    def __post_init__(self) -> None:
        if self.norm not in _DIAMETERS:
            raise SpecError("must be 'l2', 'max' or 'joint'", field="norm", remedy="choose one")
        if not (self.bound > 0 and math.isfinite(self.bound)):
            raise SpecError("must be above 0 and finite", field="bound", remedy="choose another value")
        if not 1 <= self.coordinates <= COORDINATES_MAX:
            raise SpecError(f"must be 1 to {COORDINATES_MAX}", field="coordinates", remedy="choose another value")

    @property
    def radius(self) -> float:
        """Largest L2 norm."""
        return self.bound * (math.sqrt(self.coordinates) if self.norm == "max" else 1.0)

    @property
    def step(self) -> float:
        """Distance of grid points."""
        return self.bound / GRID

    @property
    def max_norm(self) -> float:
        """Largest L2 norm of a participant's vector on the grid, in grid points; rounding included."""
        return (self.radius / self.step + math.sqrt(self.coordinates)) * _ROUNDING

    @property
    def sensitivity(self) -> float:
        """Largest L2 distance of two participants' vectors on the grid, in grid points; rounding included."""
        rounding = 2 * math.sqrt(self.coordinates)
        return (_DIAMETERS[self.norm] * self.radius / self.step + rounding) * _ROUNDING

    def contains(self, reports: NDArray[np.integer]) -> bool:
        """Whether vectors (n, coordinates) on the grid are in the ball, rounding included."""
        return not np.any(np.linalg.norm(reports.astype(np.float64), axis=1) > self.max_norm)

    def clip(self, vectors: Array) -> Array:
        """Clip vectors (n, coordinates) to the ball, by coordinate in ``max``, else by scaling; refuse others."""
        if vectors.ndim != 2 or vectors.shape[1] != self.coordinates or not np.isfinite(vectors).all():
            detail = f"must be {self.coordinates} finite numbers"
            raise InputError(detail, field="vector", remedy="send what the experiment asks for")
        if self.norm == "max":
            return np.clip(vectors, -self.bound, self.bound)
        return clip_norm(vectors, self.bound)

    def round_to_grid(self, vectors: Array, noise: NoiseSource) -> Ints:
        """Return clipped vectors as integers, (n, coordinates), rounded at random without bias."""
        return round_to_integers(self.clip(vectors) / self.step, noise)


def clip_norm(vectors: Array, bound: float) -> Array:
    """Scale down vectors (n, coordinates) whose L2 norm is above the bound."""
    # Scaled by the largest coordinate first: squares of huge or tiny numbers would leave the range of floats.
    largest = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), _SCALE_MIN)
    scaled = vectors / largest
    lengths = np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1.0)
    return np.asarray(np.where(largest > bound / lengths, scaled * (bound / lengths), vectors))
