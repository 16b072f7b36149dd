"""Bounded vectors: clipped on the device, on an integer grid, with what that does to sensitivity."""

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import InputError, SpecError
from privateer_core.primitives.contributions import Total
from privateer_core.sampling.entropy import NoiseSource

Array = NDArray[np.float64]
GRID: Final = 1 << 14
"""Grid points per unit of the bound: rounding widens a diameter by sqrt(coordinates) / 16384 of it at most."""
COORDINATES_MAX: Final = 1 << 20
_TINY: Final = 1e-300
_ROUNDING: Final = 1 + 2.0**-40
"""Covers what floating point may leave a clipped vector too long by."""


@dataclass(frozen=True)
class Ball:
    """The vectors that people may contribute: those within ``bound`` of 0 in a norm.

    A joint block of several quantities with one L2 bound is a ball in the ``l2`` norm over all their coordinates.

    Parameters
    ----------
    norm
        ``l2``, or ``max`` for the largest absolute coordinate.
    bound
        Largest norm, above 0.
    coordinates
        1 to 1,048,576.

    Raises
    ------
    SpecError
        If a parameter is out of range.
    """

    norm: Literal["l2", "max"]
    bound: float
    coordinates: int

    def __post_init__(self) -> None:
        if self.norm not in ("l2", "max"):
            raise SpecError("must be 'l2' or 'max'", field="norm", remedy="choose one")
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
    def diameter(self) -> float:
        """Largest L2 distance of two people's vectors on the grid, in grid points; rounding included."""
        return 2 * (self.radius / self.step + math.sqrt(self.coordinates)) * _ROUNDING

    def clip(self, vectors: Array) -> Array:
        """Vectors (n, coordinates) moved into the ball: coordinate by coordinate in ``max``, shortened in ``l2``.

        Raises
        ------
        InputError
            If the shape is another, or a value is not a finite number.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.coordinates or not np.isfinite(vectors).all():
            raise InputError(
                f"must be {self.coordinates} finite numbers", field="vector", remedy="send what the experiment asks for"
            )
        if self.norm == "max":
            return np.clip(vectors, -self.bound, self.bound)
        # Scaled by the largest coordinate first: squares of huge or tiny numbers would leave the range of floats.
        largest = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), _TINY)
        scaled = vectors / largest
        lengths = np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1.0)
        return np.asarray(np.where(largest > self.bound / lengths, scaled * (self.bound / lengths), vectors))

    def on_grid(self, vectors: Array, noise: NoiseSource) -> NDArray[np.int64]:
        """Return clipped vectors as integers, (n, coordinates), rounded at random so that none is moved on average."""
        scaled = self.clip(vectors) / self.step
        floor = np.floor(scaled)
        uniform = (noise.words(scaled.size) >> np.uint64(11)).astype(np.float64).reshape(scaled.shape) * 2.0**-53
        return np.asarray(floor + (uniform < scaled - floor), dtype=np.int64)


@dataclass(frozen=True)
class VectorTotal(Total):
    """Integer sums over reports, or messages, of any shape."""

    sums: NDArray[np.int64]
