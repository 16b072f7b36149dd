"""The design matrix of contexts, report vectors about its rows, and the analyzer of late reports by class."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.arrays import Array, Bools, Coins, Ints
from privateer_core.mechanisms.mechanism import VectorTotal
from privateer_core.policies.policy import Analyzer
from privateer_core.primitives.bounded_vectors import BoundedVectors, VectorSums
from privateer_core.spec.columns import Block, clipped_columns
from privateer_core.spec.features import Feature

_CIRCLE_COORDINATES: Final = ("sine", "cosine")
_NUMBER_VARIANCE: Final = 0.16
_GAP_SHARE: Final = 0.1  # prior variance of a number, and prior share of missing numbers
_MIN_PROBABILITY: Final = 0.02  # minimum distance of a predicted reward from 0 and 1


@dataclass(frozen=True)
class DesignMatrix:
    """The map from columns in [0, 1] to the coordinates of a row: 1, and the coordinates of each block of columns.

    A number is in [-1, 1], a cyclic number is a point of the unit circle, yes and no are 1 and -1, and a level is
    one-hot, of length 1: no row is longer than sqrt(1 + features). Numbers beyond the columns' bounds are clipped
    to them.
    """

    blocks: tuple[Block, ...]  # the blocks of columns

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return 1 + sum(map(width, self.blocks))

    def rows(self, contexts: Array) -> Array:
        """Return the coordinates (n, dimension) of contexts (n, columns)."""
        clipped = clipped_columns(contexts)
        rows, start = [np.ones((len(contexts), 1))], 0
        for previous, block in zip((None, *self.blocks), self.blocks, strict=False):
            block_columns = clipped[:, start : start + block.columns]
            if block.flags and previous and previous.cyclic:
                rows[-1] *= 1 - block_columns  # a missing number is the centre of the circle
            rows.append(_encode_block(block, block_columns))
            start += block.columns
        return np.concatenate(rows, axis=1)

    @property
    def max_norm(self) -> float:
        """The maximum Euclidean norm of a row."""
        return float(np.sqrt(1 + sum(not block.flags for block in self.blocks)))

    @property
    def is_bounded(self) -> Bools:
        """The mask (dimension - 1,) of coordinates in [-1, 1] that are no levels: numbers, yes or no, and flags."""
        return np.concatenate([np.full(width(block), width(block) == 1 or block.cyclic) for block in self.blocks])

    @property
    def is_sign(self) -> Bools:
        """The mask (dimension - 1,) of coordinates that are yes or no: 1 or -1."""
        answers = [width(block) == 1 and bool(block.codes) and not block.flags for block in self.blocks]
        return np.repeat(answers, [width(block) for block in self.blocks])

    def names(self, features: Mapping[str, Feature]) -> list[str]:
        """Return readable names of the coordinates."""
        names = ["1"]
        for name, feature in features.items():
            for block in feature.blocks:
                label = f"{name} is missing" if block.flags else name
                suffixes = _CIRCLE_COORDINATES if block.cyclic else [f"level {k}" for k in range(1, width(block) + 1)]
                names += [label] if width(block) == 1 else [f"{name}, {suffix}" for suffix in suffixes]
        return names


def width(block: Block) -> int:
    """Return the number of coordinates of a block."""
    return len(_CIRCLE_COORDINATES) if block.cyclic else len(block.codes) if len(block.codes) > 2 else 1


def _encode_block(block: Block, columns: Array) -> Array:
    """Return a block's coordinates (n, width): flags, circle, number in [-1, 1], or one-hot level."""
    if block.flags:
        return columns
    if block.cyclic:
        return np.concatenate([np.sin(2 * np.pi * columns), np.cos(2 * np.pi * columns)], axis=1)
    if width(block) == 1:
        return 2 * columns - 1
    powers = 2.0 ** np.arange(block.columns - 1, -1, -1)
    codes = np.rint(columns) @ powers
    return np.asarray(codes[:, None] == np.array(block.codes), np.float64)


def prior_moments(design: DesignMatrix) -> Array:
    """Return the prior second moments (d, d) of rows.

    Numbers have the middle of their range as mean, and .4 of half of it as standard deviation; levels are equally
    likely, and cyclic numbers uniform.
    """
    means, covariance, start = [np.ones(1)], np.zeros((design.dimension, design.dimension)), 1
    for block in design.blocks:
        size = width(block)
        shares = np.full(size, 0.0 if block.cyclic else 1 / size if size > 1 else _GAP_SHARE if block.flags else 0.0)
        means.append(shares)
        variance = np.where(shares > 0, shares, 1.0 if block.codes else 1 / size if block.cyclic else _NUMBER_VARIANCE)
        coordinates = slice(start, start := start + size)
        covariance[coordinates, coordinates] = np.diag(variance) - np.outer(shares, shares)
    mean = np.concatenate(means)
    return covariance + np.outer(mean, mean)


@dataclass(frozen=True)
class Link:
    """A link, for rewards in [0, 1]."""

    name: str  # its name in specs
    centre: float  # x theta of an expected reward of 1/2
    scale: float  # change of x theta per unit of the expected reward, near 1/2
    unit: str  # the unit of x theta, in words

    def means(self, products: Array) -> Array:
        """Return expected rewards at products x theta of any shape, clipped away from 0 and 1."""
        if self.name == "identity":
            return np.asarray(np.minimum(np.maximum(products, _MIN_PROBABILITY), 1 - _MIN_PROBABILITY))
        return np.asarray(_MIN_PROBABILITY + (1 - 2 * _MIN_PROBABILITY) * (1 + np.tanh(products / 2)) / 2)

    def prior_scale(self, rate: float) -> float:
        """Return the prior scale of differences of x theta between arms, where the mean reward is ``rate``.

        Differences of mean rewards are in proportion to the variance at ``rate``; those of log odds are constant.
        """
        return self.scale * (4 * rate * (1 - rate) if self.name == "identity" else 1.0)

    def unclipped_means(self, products: Array) -> Array:
        """Return the expected rewards of the model without clipping; those of the identity may be beyond 0 and 1."""
        return products if self.name == "identity" else np.asarray((1 + np.tanh(products / 2)) / 2)

    def linear_predictor(self, truth: float) -> float:
        """Return the product x theta of an expected reward strictly between 0 and 1: the link function."""
        return truth if self.name == "identity" else math.log(truth / (1 - truth))

    def derivatives(self, products: Array) -> Array:
        """Return the derivatives of `unclipped_means`."""
        if self.name == "identity":
            return np.ones_like(products)
        truths = self.unclipped_means(products)
        return np.asarray(truths * (1 - truths))


LINKS: Final = {
    link.name: link
    for link in (
        Link("identity", 0.5, 1.0, "the mean reward, from 0 at its lower bound to 1 at its upper one"),
        Link("logistic", 0.0, 4.0, "log odds of the mean reward, from 0 at its lower bound to 1 at its upper one"),
    )
}


def weights(means: Array) -> Array:
    """Return the factors that scale residuals of expected rewards to [-1, 1]."""
    return np.asarray(1 / np.maximum(means, 1 - means))


def unpack_moments(packed: Array, dimension: int) -> Array:
    """Return the symmetric matrix (d, d) of packed `second_moments`."""
    left, right = np.triu_indices(dimension)
    matrix = np.zeros((dimension, dimension))
    matrix[left, right] = packed / np.where(left == right, 1.0, math.sqrt(2))
    return np.asarray(matrix + np.triu(matrix, 1).T)


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
