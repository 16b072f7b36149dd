"""Reports about a context: vectors of length 1 at most; and those on decisions of earlier policies."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.policies.analyzers import Analyzer
from privateer_core.primitives.bounded_vectors import BoundedVectors, VectorSums
from privateer_core.primitives.clipping import VectorTotal

Array = NDArray[np.float64]
MATRIX: Final = math.sqrt(1 / 3)
PRODUCT: Final = math.sqrt(2 / 3)
"""Parts of a joint report: the matrix is scaled by 1 / sqrt 2 of the products, and both have length 1 together."""
_SHORTEST: Final = 1e-100
"""Shorter vectors have no direction: squares of their coordinates would leave the range of floats."""
Coins = NDArray[np.uint32]


def pairs(dimension: int) -> int:
    """Return the number of second moments of so many coordinates."""
    return dimension * (dimension + 1) // 2


def residuals(whitened: Array, means: Array, rewards: Array) -> Array:
    """Return everybody's (reward - mean) / max(mean, 1 - mean), in [-1, 1], times the direction of ``whitened``."""
    return np.asarray(((rewards - means) * weights(means))[:, None] * directions(whitened))


def directions(whitened: Array) -> Array:
    """Return rows (n, d) divided by their lengths; 0 stays 0, since anybody who has such a row reports as others do."""
    return np.asarray(whitened / np.maximum(np.linalg.norm(whitened, axis=1, keepdims=True), _SHORTEST))


def weights(means: Array) -> Array:
    """Return what a residual of an expected reward is multiplied by, so that it is 1 at most."""
    return np.asarray(1 / np.maximum(means, 1 - means))


def moments(whitened: Array) -> Array:
    """Return the second moments (n, d (d + 1) / 2) of rows, which are shortened to length 1: the products' length."""
    shortened = whitened / np.maximum(1.0, np.linalg.norm(whitened, axis=1, keepdims=True))
    left, right = np.triu_indices(whitened.shape[1])
    doubled = np.where(left == right, 1.0, math.sqrt(2))
    return np.asarray(shortened[:, left] * shortened[:, right] * doubled)


def matrix_of(packed: Array, dimension: int) -> Array:
    """Return the symmetric matrix (d, d) that a sum of `moments` says."""
    left, right = np.triu_indices(dimension)
    matrix = np.zeros((dimension, dimension))
    matrix[left, right] = packed / np.where(left == right, 1.0, math.sqrt(2))
    return np.asarray(matrix + np.triu(matrix, 1).T)


def joint(whitened: Array, rewards: Array) -> Array:
    """Return second moments, and products of rows (n, d) with rewards in [0, 1]; (n, d (d + 1) / 2 + d)."""
    products = (2 * rewards - 1)[:, None] * whitened
    return np.concatenate([MATRIX * moments(whitened), PRODUCT * products], axis=1)


def beside(vectors: Array, told: Array, share: float) -> Array:
    """Return both of two vectors, of length 1 at most together; ``told`` has a share of the squared length."""
    return np.concatenate([math.sqrt(1 - share) * vectors, math.sqrt(share) * told], axis=1)


def in_blocks(vectors: Array, arms: NDArray[np.int64], count: int) -> Array:
    """Return vectors (n, k) in the blocks of their arms, and 0 in those of others; (n, count * k)."""
    placed = np.zeros((len(vectors), count, vectors.shape[1]))
    placed[np.arange(len(vectors)), arms] = vectors
    return placed.reshape(len(vectors), count * vectors.shape[1])


@dataclass(frozen=True)
class ByClasses(Analyzer):
    """Counts reports whose coins had other classes when they chose."""

    classes: int  # how many classes the round has
    of: Callable[[Coins], NDArray[np.int64]]  # returns the class of each of the coins

    @override
    def tally(self, mechanism: Any, rows: bytes) -> VectorTotal:
        alone: Any = msgspec.structs.replace(mechanism, classes=1)
        reports = alone.parse(rows)
        own = self.of(reports["slot"])
        parts = [alone.add(alone.empty(), reports[own == one]).sums for one in range(self.classes)]
        return VectorTotal(len(reports), np.concatenate(parts))

    @override
    def simulate(self, mechanism: Any, contributions: BoundedVectors, rng: np.random.Generator) -> VectorSums:
        alone: Any = msgspec.structs.replace(mechanism, classes=1)
        own = self.of(contributions.coins)
        parts = [
            alone.simulate(BoundedVectors(contributions.coins[own == one], contributions.values[own == one]), rng)
            for one in range(self.classes)
        ]
        noise = sum(part.noise for part in parts) / self.classes
        return VectorSums(len(contributions), np.concatenate([part.sums for part in parts]), noise)
