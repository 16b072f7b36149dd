"""Report vectors about contexts, of length 1 at most, and the analyzer of late reports by class."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.arrays import Array, Coins, Ints
from privateer_core.mechanisms.mechanism import VectorTotal
from privateer_core.policies.policy import Analyzer
from privateer_core.primitives.bounded_vectors import BoundedVectors, VectorSums

MOMENT_SCALE: Final = math.sqrt(1 / 3)
PRODUCT_SCALE: Final = math.sqrt(2 / 3)  # scales of a joint report's two parts, which have length 1 together
_MIN_NORM: Final = 1e-100  # minimum norm of a vector with a direction: squares of smaller coordinates underflow


def count_moments(dimension: int) -> int:
    """Return the number of distinct second moments of ``dimension`` coordinates."""
    return dimension * (dimension + 1) // 2


def residuals(whitened: Array, means: Array, rewards: Array) -> Array:
    """Return residuals (reward - mean) / max(mean, 1 - mean), in [-1, 1], times the directions of ``whitened``."""
    return np.asarray(((rewards - means) * weights(means))[:, None] * directions(whitened))


def directions(whitened: Array) -> Array:
    """Return rows (n, d) scaled to length 1; a row of 0 stays 0."""
    return np.asarray(whitened / np.maximum(np.linalg.norm(whitened, axis=1, keepdims=True), _MIN_NORM))


def weights(means: Array) -> Array:
    """Return the factors that scale residuals of expected rewards to [-1, 1]."""
    return np.asarray(1 / np.maximum(means, 1 - means))


def second_moments(whitened: Array) -> Array:
    """Return the packed second moments (n, d (d + 1) / 2) of rows, which are clipped to length 1."""
    shortened = whitened / np.maximum(1.0, np.linalg.norm(whitened, axis=1, keepdims=True))
    left, right = np.triu_indices(whitened.shape[1])
    doubled = np.where(left == right, 1.0, math.sqrt(2))
    return np.asarray(shortened[:, left] * shortened[:, right] * doubled)


def unpack_moments(packed: Array, dimension: int) -> Array:
    """Return the symmetric matrix (d, d) of packed `second_moments`."""
    left, right = np.triu_indices(dimension)
    matrix = np.zeros((dimension, dimension))
    matrix[left, right] = packed / np.where(left == right, 1.0, math.sqrt(2))
    return np.asarray(matrix + np.triu(matrix, 1).T)


def joint_reports(whitened: Array, rewards: Array) -> Array:
    """Return second moments of rows (n, d), and products with rewards in [0, 1]; (n, d (d + 1) / 2 + d)."""
    products = (2 * rewards - 1)[:, None] * whitened
    return np.concatenate([MOMENT_SCALE * second_moments(whitened), PRODUCT_SCALE * products], axis=1)


def combine_vectors(vectors: Array, moments: Array, share: float) -> Array:
    """Concatenate vectors and second moments to length 1 at most; moments have a ``share`` of its square."""
    return np.concatenate([math.sqrt(1 - share) * vectors, math.sqrt(share) * moments], axis=1)


def place_in_blocks(vectors: Array, arms: Ints, n_arms: int) -> Array:
    """Return vectors (n, k) in the blocks of their arms, with 0 in the other blocks; (n, n_arms * k)."""
    placed = np.zeros((len(vectors), n_arms, vectors.shape[1]))
    placed[np.arange(len(vectors)), arms] = vectors
    return placed.reshape(len(vectors), n_arms * vectors.shape[1])


@dataclass(frozen=True)
class ClassAnalyzer(Analyzer):
    """Sums reports by class, where coins had other classes at the time of the choice."""

    classes: int  # number of classes of the round
    find_classes: Callable[[Coins], Ints]  # returns the class of each of the coins

    @override
    def tally(self, mechanism: Any, rows: bytes) -> VectorTotal:
        """Parse reports and return their total, with a sum for each class of their coins."""
        single: Any = msgspec.structs.replace(mechanism, classes=1)
        reports = single.parse(rows)
        classes = self.find_classes(reports["slot"])
        class_sums = [single.add(single.empty(), reports[classes == label]).sums for label in range(self.classes)]
        return VectorTotal(len(reports), np.concatenate(class_sums))

    @override
    def simulate(self, mechanism: Any, contributions: BoundedVectors, rng: np.random.Generator) -> VectorSums:
        """Draw a release with a sum for each class, as if each class had its own mechanism."""
        single: Any = msgspec.structs.replace(mechanism, classes=1)
        classes = self.find_classes(contributions.coins)
        coins, values = contributions.coins, contributions.values
        members = [classes == label for label in range(self.classes)]
        releases = [single.simulate(BoundedVectors(coins[rows], values[rows]), rng) for rows in members]
        noise = sum(release.noise for release in releases) / self.classes
        return VectorSums(len(contributions), np.concatenate([release.sums for release in releases]), noise)
