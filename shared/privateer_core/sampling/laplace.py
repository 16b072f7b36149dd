"""Exact samplers of discrete Laplace noise of a whole scale and of the exponential mechanism, at no cost in delta."""

import math
from typing import Final, Self

import msgspec
import numpy as np

from privateer_core.arrays import Bools, Ints, Words
from privateer_core.errors import SpecError
from privateer_core.sampling.randomness import NoiseSource, sample_by_rejection

_SCALE_MAX: Final = 1 << 52
"""Largest scale whose products with the counts of a draw (above 64 with probability 2^-89) stay below 2^63."""
_WORD_RANGE: Final = 1 << 64
_PROPOSALS_MAX: Final = 1024
"""Largest number of proposals at a time."""


class DiscreteLaplace(msgspec.Struct, frozen=True):
    """A sampler of integers k with probability proportional to exp(-|k| / scale).

    The sampler compares uniform integers only (Canonne, Kamath and Steinke 2020, Algorithm 2), so that every
    probability is exact, without floating-point numbers.

    scale: a whole number, 1 to 2^52.
    """

    scale: int

    def __post_init__(self) -> None:
        if not 1 <= self.scale <= _SCALE_MAX:
            raise SpecError("must be 1 to 2^52", field="scale", remedy="choose another epsilon")

    @classmethod
    def from_min_scale(cls, scale: float) -> Self:
        """Return the distribution with the next whole scale, whose privacy is at least as strong."""
        return cls(math.ceil(scale))

    @property
    def variance(self) -> float:
        """Variance of the noise."""
        return 2 * math.exp(-1 / self.scale) / math.expm1(-1 / self.scale) ** 2

    def draw(self, count: int, noise: NoiseSource) -> Ints:
        """Draw ``count`` integers, shape (count,)."""
        return sample_by_rejection(count, lambda missing: self._propose_candidates(missing, noise))

    def _propose_candidates(self, count: int, noise: NoiseSource) -> tuple[Ints, Bools]:
        """Return ``count`` candidates, and a mask of the accepted ones."""
        remainders = draw_uniform_integers(count, self.scale, noise)
        is_accepted = draw_bernoulli_exp(remainders, self.scale, noise)
        magnitudes = remainders + self.scale * _draw_geometric(count, noise)
        is_negative = draw_uniform_integers(count, 2, noise) == 1
        is_accepted &= ~(is_negative & (magnitudes == 0))  # zero has one sign only
        return np.where(is_negative, -magnitudes, magnitudes), is_accepted

    def simulate(self, count: int, rng: "np.random.Generator") -> Ints:
        """Draw the same distribution from a seeded generator, for simulation."""
        stop_probability = -math.expm1(-1 / self.scale)
        return np.asarray(rng.geometric(stop_probability, count) - rng.geometric(stop_probability, count))


def draw_uniform_integers(count: int, below: int, noise: NoiseSource) -> Ints:
    """Draw ``count`` exactly uniform integers from 0 to ``below`` - 1, shape (count,)."""
    return sample_by_rejection(count, lambda missing: _reduce_words(below, noise.words(missing)))


def _reduce_words(below: int, words: Words) -> tuple[Ints, Bools]:
    # Words above the largest multiple of ``below`` are drawn again.
    last_word = np.uint64(_WORD_RANGE // below * below - 1)
    return (words % np.uint64(below)).astype(np.int64), words <= last_word


def draw_bernoulli_exp(numerators: Ints, denominator: int, noise: NoiseSource) -> Bools:
    """Draw booleans, true with probability exp(-numerator / denominator) (Canonne et al. 2020, Algorithm 1)."""
    is_odd = np.ones(len(numerators), bool)
    active, factor = np.arange(len(numerators)), 1
    while len(active):
        has_next = draw_uniform_integers(len(active), denominator * factor, noise) < numerators[active]
        active = active[has_next]
        is_odd[active] = ~is_odd[active]
        factor += 1
    return is_odd


def _draw_geometric(count: int, noise: NoiseSource) -> Ints:
    """Draw ``count`` geometric numbers: successes of probability 1/e before the first failure."""
    successes = np.zeros(count, np.int64)
    active = np.arange(count)
    while len(active):
        active = active[draw_bernoulli_exp(np.ones(len(active), np.int64), 1, noise)]
        successes[active] += 1
    return successes


def draw_choice(scores: Ints, scale: int, noise: NoiseSource) -> int:
    """Draw an index of ``scores`` (n,), with probability proportional to exp(score / scale): the exponential mechanism.

    A uniform index is accepted with probability exp(-(largest score - score) / scale), which compares uniform integers
    only (Canonne, Kamath and Steinke 2020, Algorithm 1): every probability is exact.
    """
    quotients, remainders = np.divmod(int(scores.max()) - scores, scale)
    count = min(_PROPOSALS_MAX, 4 * len(scores))
    while True:
        proposals = draw_uniform_integers(count, len(scores), noise)
        accepted = np.flatnonzero(_accept_proposals(quotients[proposals], remainders[proposals], scale, noise))
        if len(accepted):
            return int(proposals[accepted[0]])


def _accept_proposals(quotients: Ints, remainders: Ints, scale: int, noise: NoiseSource) -> Bools:
    """Draw booleans, true with probability exp(-(quotient + remainder / scale)), shape (proposals,)."""
    is_accepted = draw_bernoulli_exp(remainders, scale, noise)
    active = np.flatnonzero(is_accepted & (quotients > 0))
    n_passed = np.zeros(len(quotients), np.int64)
    while len(active):
        is_accepted[active] = draw_bernoulli_exp(np.ones(len(active), np.int64), 1, noise)
        n_passed[active] += 1
        active = active[is_accepted[active] & (n_passed[active] < quotients[active])]
    return is_accepted


def simulate_choice(scores: Ints, scale: int, rng: "np.random.Generator") -> int:
    """Draw an index with the distribution of `draw_choice` from a seeded generator, for simulation."""
    return int(np.argmax(scores / scale + rng.gumbel(size=len(scores))))
