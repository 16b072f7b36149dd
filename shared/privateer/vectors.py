"""Bounded vectors: clipped on the device, on an integer grid, with what that does to sensitivity."""

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from privateer.errors import InputError, SpecError
from privateer.privacy.noise import NoiseSource

Array = NDArray[np.float64]
GRID: Final = 1 << 14
"""Grid points per unit of the bound: rounding widens a diameter by sqrt(coordinates) / 16384 of it at most."""
COORDINATES_MAX: Final = 1 << 16


@dataclass(frozen=True)
class Ball:
    """The vectors that people may tell: those within ``bound`` of 0 in a norm.

    Parameters
    ----------
    norm
        ``l2``, or ``max`` for the largest absolute coordinate.
    bound
        Largest norm, above 0.
    coordinates
        1 to 65536.

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
        return 2 * (self.radius / self.step + math.sqrt(self.coordinates))

    def clip(self, vectors: Array) -> Array:
        """Vectors (n, coordinates) moved into the ball; the norm decides how.

        Raises
        ------
        InputError
            If the shape is another, or a value is not a number.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.coordinates or np.isnan(vectors).any():
            raise InputError(
                f"must be {self.coordinates} numbers", field="vector", remedy="send what the experiment asks for"
            )
        bounded = np.clip(vectors, -self.bound, self.bound)
        if self.norm == "max":
            return bounded
        norms = np.linalg.norm(bounded, axis=1, keepdims=True)
        return np.asarray(bounded * np.minimum(1.0, self.bound / np.maximum(norms, 1e-300)))

    def on_grid(self, vectors: Array, noise: NoiseSource) -> NDArray[np.int64]:
        """Clipped vectors as integers, shape (n, coordinates), rounded at random so that none is moved on average."""
        scaled = self.clip(vectors) / self.step
        floor = np.floor(scaled)
        uniform = (noise.words(scaled.size) >> np.uint64(11)).astype(np.float64).reshape(scaled.shape) * 2.0**-53
        return np.asarray(floor + (uniform < scaled - floor), dtype=np.int64)


@dataclass(frozen=True)
class VectorTotal:
    """Integer sums over reports, shape (coordinates,): additive in any order, mergeable."""

    reports: int
    sums: NDArray[np.int64]

    def merged(self, other: "VectorTotal") -> "VectorTotal":
        """The total of two disjoint sets of reports."""
        return VectorTotal(self.reports + other.reports, self.sums + other.sums)


def rounding_variance(vectors: Array, ball: Ball) -> Array:
    """Variance that rounding to the grid adds to the sum of these vectors, shape (coordinates,)."""
    share = np.modf(ball.clip(vectors) / ball.step)[0] % 1.0
    return np.asarray((share * (1 - share)).sum(axis=0) * ball.step**2)
