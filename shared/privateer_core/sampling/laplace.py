"""Discrete Laplace noise of a whole scale, and the exponential mechanism, drawn exactly: they cost no delta."""

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.sampling.entropy import NoiseSource, accepted

_SCALE_MAX: Final = 1 << 52
"""Floating-point numbers tell its neighbours apart, and products with the few numbers that a draw counts up to (beyond
64 once in 2^89) stay below 2^63."""
_WORD: Final = 1 << 64
_TRIES: Final = 1024
"""Proposals at a time, at most."""


@dataclass(frozen=True)
class DiscreteLaplace:
    """Draws integers with probability proportional to exp(-|k| / scale).

    The sampler compares uniform integers only (Canonne, Kamath and Steinke 2020, Algorithm 2), so that every
    probability is exact and no floating-point number takes part.

    scale: a whole number, 1 to 2^52.
    """

    scale: int

    def __post_init__(self) -> None:
        if not 1 <= self.scale <= _SCALE_MAX:
            raise SpecError("must be 1 to 2^52", field="scale", remedy="choose another epsilon")

    @classmethod
    def at_least(cls, scale: float) -> Self:
        """Return the distribution with the next whole scale, which hides as much or a little more."""
        return cls(math.ceil(scale))

    @property
    def variance(self) -> float:
        """The variance of a number."""
        return 2 * math.exp(-1 / self.scale) / math.expm1(-1 / self.scale) ** 2

    def draw(self, count: int, noise: NoiseSource) -> NDArray[np.int64]:
        """Draw ``count`` integers, shape (count,)."""
        return accepted(count, lambda missing: self._propose(missing, noise))

    def _propose(self, count: int, noise: NoiseSource) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        inside = uniform_integers(count, self.scale, noise)
        good = happens(inside, self.scale, noise)
        magnitudes = inside + self.scale * _geometric(count, noise)
        negative = uniform_integers(count, 2, noise) == 1
        # Zero has one sign only.
        good &= ~(negative & (magnitudes == 0))
        return np.where(negative, -magnitudes, magnitudes), good

    def simulate(self, count: int, rng: "np.random.Generator") -> NDArray[np.int64]:
        """Draw the same distribution from a seeded generator, for simulation."""
        success = -math.expm1(-1 / self.scale)
        return np.asarray(rng.geometric(success, count) - rng.geometric(success, count))


def uniform_integers(count: int, below: int, noise: NoiseSource) -> NDArray[np.int64]:
    """Draw ``count`` exactly uniform integers from 0 to ``below`` - 1, shape (count,)."""
    return accepted(count, lambda missing: _below(below, noise.words(missing)))


def _below(below: int, words: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    # Words above the largest multiple of ``below`` are drawn again.
    last = np.uint64(_WORD // below * below - 1)
    return (words % np.uint64(below)).astype(np.int64), words <= last


def happens(numerators: NDArray[np.int64], denominator: int, noise: NoiseSource) -> NDArray[np.bool_]:
    """Return true with probability exp(-numerator / denominator), which is at most 1: their Algorithm 1."""
    odd = np.ones(len(numerators), bool)
    going, factor = np.arange(len(numerators)), 1
    while len(going):
        goes_on = uniform_integers(len(going), denominator * factor, noise) < numerators[going]
        going = going[goes_on]
        odd[going] = ~odd[going]
        factor += 1
    return odd


def _geometric(count: int, noise: NoiseSource) -> NDArray[np.int64]:
    """Count, ``count`` times, how often an event of probability 1/e happens before it fails once."""
    successes = np.zeros(count, np.int64)
    going = np.arange(count)
    while len(going):
        going = going[happens(np.ones(len(going), np.int64), 1, noise)]
        successes[going] += 1
    return successes


def choose(scores: NDArray[np.int64], scale: int, noise: NoiseSource) -> int:
    """Return a place of ``scores`` (n,), with probability in proportion to exp(score / scale).

    A uniform place is accepted with probability exp(-(largest score - score) / scale), which compares uniform integers
    only (Canonne, Kamath and Steinke 2020, Algorithm 1): every probability is exact.
    """
    whole, part = np.divmod(int(scores.max()) - scores, scale)
    count = min(_TRIES, 4 * len(scores))
    while True:
        tried = uniform_integers(count, len(scores), noise)
        good = np.flatnonzero(_accepts(whole[tried], part[tried], scale, noise))
        if len(good):
            return int(tried[good[0]])


def _accepts(whole: NDArray[np.int64], part: NDArray[np.int64], scale: int, noise: NoiseSource) -> NDArray[np.bool_]:
    """Return true with probability exp(-(whole + part / scale)), shape (tries,)."""
    good = happens(part, scale, noise)
    left = np.flatnonzero(good & (whole > 0))
    passed = np.zeros(len(whole), np.int64)
    while len(left):
        good[left] = happens(np.ones(len(left), np.int64), 1, noise)
        passed[left] += 1
        left = left[good[left] & (passed[left] < whole[left])]
    return good


def simulate_choice(scores: NDArray[np.int64], scale: int, rng: "np.random.Generator") -> int:
    """Draw the same distribution from a seeded generator, for simulation."""
    return int(np.argmax(scores / scale + rng.gumbel(size=len(scores))))
