"""Densities of contexts on the unit cube."""

import math
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
import scipy  # loads its parts when they are first used
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import hyp2f1

from privateer_core.spec.context import FEATURES_MAX, EqualBins
from privateer_core.spec.sections import Section

Array = NDArray[np.float64]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
_POWER: Final = {1: 12, 2: 14, 3: 14, 4: 16, 5: 16}
"""Logarithm of the points in the whole cube, by number of features; each halving of a box saves half of them."""
_POWER_MIN: Final = {1: 12, 2: 12, 3: 11, 4: 11, 5: 11}
FEATURES_EXACT: Final = max(_POWER)
"""Features up to which means over boxes are known."""


class Density(Section, ABC):
    """A distribution of contexts on the unit cube; a box holds its lower faces, and upper ones where the cube ends."""

    most: ClassVar[int] = FEATURES_MAX  # features that it may have at most
    name: str

    @abstractmethod
    def sample(self, people: int, features: int, rng: np.random.Generator) -> Array:
        """Draw independent contexts, shape (n, d)."""

    @abstractmethod
    def masses(self, low: Array, high: Array) -> Array:
        """Return the probabilities of boxes by their corners, (boxes, d) each; result (boxes,)."""

    def weights(self, points: Array) -> Array:
        """Return the density at points (m, d) up to a factor, shape (m,)."""
        return np.ones(len(points))

    def quadrature(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return points (m, d) of a box by its corners, (d,) each, and weights (m,) for averages over its people."""
        points = net(low, high)
        return points, self.weights(points)


def net(low: Array, high: Array) -> Array:
    """Return points spread evenly over a box by its corners, (d,) each; shape (m, d), m a power of 2.

    The points are Sobol's, in the middle of their intervals: every dyadic part of a dyadic box, down to those that get
    a few dozen points, gets its share of them exactly. In the environments here, averages over the cube are off by less
    than 2e-4 at five features and 1e-5 at two, those over smaller boxes by less.
    """
    features = len(low)
    halvings = round(-math.log2(float(np.prod(high - low))))
    return low + (high - low) * _unit_net(features, max(_POWER_MIN[features], _POWER[features] - halvings))


@lru_cache
def _unit_net(features: int, power: int) -> Array:
    return np.asarray(scipy.stats.qmc.Sobol(features, scramble=False).random_base2(power) + 0.5 ** (power + 1))


class UniformDensity(Density):
    """Contexts uniform on the unit cube."""

    name: Literal["uniform"] = "uniform"

    def sample(self, people: int, features: int, rng: np.random.Generator) -> Array:
        """Draw points of the cube, shape (n, d)."""
        return rng.random((people, features))

    def masses(self, low: Array, high: Array) -> Array:
        """Return volumes, shape (boxes,)."""
        return np.asarray(np.prod(high - low, axis=1))


class ShiftedDensity(Density):
    """Density c ||x - 1/2||_inf^gamma, c = 2^gamma (d + gamma)/d: fewer people in the middle (Ma et al. 2025)."""

    # The distance from the middle, r in [0, 1/2], has the distribution function (2r)^(d + gamma). The authors' sampler
    # takes (2r)^(d (gamma + 1)), which at two features is the distribution of twice their gamma.

    name: Literal["shifted"] = "shifted"
    gamma: float = Field(ge=0, le=100, allow_inf_nan=False)

    def sample(self, people: int, features: int, rng: np.random.Generator) -> Array:
        """Draw a face of the cube, a point of the face, and the distance; shape (n, d)."""
        places = rng.uniform(-1.0, 1.0, (people, features))
        faces = rng.integers(0, features, people)
        places[np.arange(people), faces] = rng.choice([-1.0, 1.0], people)
        distance = rng.random((people, 1)) ** (1 / (features + self.gamma))
        return np.asarray((1 + places * distance) / 2)

    def masses(self, low: Array, high: Array) -> Array:
        """Return exact probabilities, shape (boxes,)."""
        # Let V(r) be the volume of what a box has within r of the middle: its mass is c times the integral of
        # r^gamma dV(r). V is a product of lengths that grow with slopes 0, 1 or 2 between the distances of the box's
        # faces, so in each stretch it is a polynomial in r - start without negative coefficients: nothing cancels.
        boxes, features = low.shape
        left, right = low - 0.5, high - 0.5
        stops = np.sort(np.concatenate([np.zeros((boxes, 1)), np.abs(left), np.abs(right)], axis=1), axis=1)
        total = np.zeros(boxes)
        for start, stop in zip(stops.T[:-1], stops.T[1:], strict=True):
            total += self._stretch(left, right, start[:, None], stop[:, None])
        return np.asarray(2.0**self.gamma * (features + self.gamma) / features * total)

    def _stretch(self, left: Array, right: Array, start: Array, stop: Array) -> Array:
        """Return the integral of r^gamma dV(r) between two distances, (boxes, 1) each; result (boxes,)."""
        lengths, slopes = np.zeros_like(left), np.zeros_like(left)
        for side in ((left, right), (-right, -left)):
            near, far = (np.maximum(face, 0.0) for face in side)
            lengths += np.clip(start - near, 0.0, far - near)
            slopes += (near <= start) & (far >= stop)
        boxes, features = left.shape
        volume = np.zeros((boxes, features + 1))
        volume[:, 0] = 1.0
        for length, slope in zip(lengths.T, slopes.T, strict=True):
            volume[:, 1:] = volume[:, 1:] * length[:, None] + volume[:, :-1] * slope[:, None]
            volume[:, 0] *= length
        powers = np.arange(1, features + 1)
        return np.asarray((powers * volume[:, 1:] * self._moments(start, stop, powers - 1)).sum(axis=1))

    def _moments(self, start: Array, stop: Array, powers: NDArray[np.int64]) -> Array:
        """Return the integrals of r^gamma (r - start)^i from start to stop, (boxes, powers)."""
        width = stop - start
        with np.errstate(invalid="ignore"):
            inner = np.where(stop > 0, width / stop, 0.0)
        series = hyp2f1(-self.gamma, 1.0, powers + 2.0, inner)
        return np.asarray(width ** (powers + 1) * stop**self.gamma / (powers + 1) * series)

    def weights(self, points: Array) -> Array:
        """Return the density up to its factor c 2^-gamma, shape (m,)."""
        return np.asarray(np.abs(points - 0.5).max(axis=1) ** self.gamma)


class VariedDensity(Density):
    """A constant density in every cell of a grid."""

    most: ClassVar[int] = FEATURES_EXACT
    """A cell more than there can be memory for, otherwise."""
    name: Literal["varied"] = "varied"
    # the highest density divided by the lowest; those between are evenly spaced in their logarithm
    ratio: float = Field(default=40.0, ge=1, le=1e6, allow_inf_nan=False)
    side: Literal[2, 4] = 4  # cells along a feature
    seed: Seed = 0  # decides which cell has which density

    def _probabilities(self, features: int) -> Array:
        return _varied(self.ratio, self.side**features, self.seed)

    def sample(self, people: int, features: int, rng: np.random.Generator) -> Array:
        """Draw a cell, and a point of the cell; shape (n, d)."""
        cells = rng.choice(self.side**features, people, p=self._probabilities(features))
        corners = np.stack(np.unravel_index(cells, [self.side] * features), axis=1)
        return np.asarray((corners + rng.random((people, features))) / self.side)

    def masses(self, low: Array, high: Array) -> Array:
        """Return the sum over cells of probability times the part of the cell inside, shape (boxes,)."""
        boxes, features = low.shape
        edges = np.arange(self.side + 1) / self.side
        upper, lower = np.minimum(high[..., None], edges[1:]), np.maximum(low[..., None], edges[:-1])
        parts = np.clip(upper - lower, 0.0, None) * self.side
        total = np.broadcast_to(self._probabilities(features), (boxes, self.side**features))
        for j in range(features):
            total = np.einsum("bcr,bc->br", total.reshape(boxes, self.side, -1), parts[:, j])
        return np.asarray(total[:, 0])

    def weights(self, points: Array) -> Array:
        """Return the probabilities of the points' cells, shape (m,)."""
        features = points.shape[1]
        cells = EqualBins(self.side, features).locate(points)
        return np.asarray(self._probabilities(features)[cells])


@lru_cache
def _varied(ratio: float, cells: int, seed: int) -> Array:
    levels = np.random.default_rng([seed, 6]).permutation(ratio ** np.linspace(0.0, 1.0, cells))
    return np.asarray(levels / levels.sum())


class AtomsDensity(Density):
    """A share of people at a few points, in equal parts; the others are uniform."""

    name: Literal["atoms"] = "atoms"
    share: float = Field(gt=0, le=1, allow_inf_nan=False)  # the share of people who are at points
    points: int = Field(default=5, ge=1, le=1000)  # how many points there are
    seed: Seed = 0  # decides where they are, uniformly on the cube

    def places(self, features: int) -> Array:
        """Return the points, shape (points, d)."""
        return np.random.default_rng([self.seed, 5]).random((self.points, features))

    def sample(self, people: int, features: int, rng: np.random.Generator) -> Array:
        """Draw uniform contexts, and move a share of the people to the points; shape (n, d)."""
        contexts = rng.random((people, features))
        shared = np.flatnonzero(rng.random(people) < self.share)
        contexts[shared] = self.places(features)[rng.integers(0, self.points, len(shared))]
        return contexts

    def masses(self, low: Array, high: Array) -> Array:
        """Return the parts of volumes and of points inside, shape (boxes,)."""
        places = self.places(low.shape[1])
        inside = np.array([_inside(places, a, b).mean() for a, b in zip(low, high, strict=True)])
        return np.asarray((1 - self.share) * np.prod(high - low, axis=1) + self.share * inside)

    def quadrature(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return even points for the uniform part, then the points inside where people are."""
        places = self.places(len(low))
        here = places[_inside(places, low, high)]
        even = net(low, high)
        each = (1 - self.share) * float(np.prod(high - low)) / len(even), self.share / self.points
        return np.concatenate([even, here]), np.repeat(each, (len(even), len(here)))


def _inside(places: Array, low: Array, high: Array) -> NDArray[np.bool_]:
    below = (places < high) | (high == 1.0)
    return np.asarray(((places >= low) & below).all(axis=1))
