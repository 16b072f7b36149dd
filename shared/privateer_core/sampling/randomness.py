"""Random numbers: their sources, and randomized response, subset selection and rounding by certified thresholds."""

import math
import os
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Final, Protocol, TypeAlias

import msgspec
import numpy as np

from privateer_core.arrays import Array, Bools, Ints, NDArray, Words
from privateer_core.errors import SpecError


class NoiseSource(Protocol):
    """A source of independent uniform 64-bit words."""

    def words(self, count: int) -> Words:
        """Return ``count`` uniform words, shape (count,)."""
        ...


RandomSource: TypeAlias = "NoiseSource | np.random.Generator"


class SecureNoise:
    """Entropy of the operating system. It has no seed, and no session accepts another source."""

    def words(self, count: int) -> Words:
        """Return ``count`` uniform words from ``os.urandom``, shape (count,)."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def draw_uniform(shape: tuple[int, ...], source: RandomSource) -> Array:
    """Draw uniform multiples of 2^-53 in [0, 1)."""
    if isinstance(source, np.random.Generator):
        return source.random(shape)
    return (source.words(math.prod(shape)) >> np.uint64(11)).astype(np.float64).reshape(shape) * 2.0**-53


def sample_by_rejection(count: int, propose: Callable[[int], tuple[Ints, Bools]]) -> Ints:
    """Draw ``count`` integers by rejection, shape (count,).

    ``propose`` returns a number of candidates, and a mask of the accepted ones.
    """
    samples = np.empty(count, np.int64)
    missing = np.arange(count)
    while len(missing):
        candidates, is_accepted = propose(len(missing))
        samples[missing[is_accepted]] = candidates[is_accepted]
        missing = missing[~is_accepted]
    return samples


_WORD_RANGE: Final = 1 << 64
_EPSILON_MAX: Final = 30.0
SYMBOLS_MAX: Final = 1 << 15


class _Response(msgspec.Struct, frozen=True, dict=True):
    """A randomizer that sends an own symbol of the participant with a fixed probability, otherwise a uniform symbol."""

    epsilon: float
    symbols: int

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon <= _EPSILON_MAX:
            raise SpecError(f"must be in (0, {_EPSILON_MAX:g}]", field="epsilon", remedy="choose a smaller epsilon")
        if not 2 <= self.symbols <= SYMBOLS_MAX:
            raise SpecError(f"must be 2 to {SYMBOLS_MAX}", field="symbols", remedy="choose fewer buckets")

    @cached_property
    def threshold(self) -> int:
        """Threshold of the first word: words below it send an own symbol."""
        return _certified_threshold(self.epsilon, self.symbols)

    @property
    def gain(self) -> float:
        """Probability of choosing among the own symbols only. Debiasing divides by it."""
        return self.threshold / _WORD_RANGE


class RandomizedResponse(_Response, frozen=True):
    """A randomizer that keeps the true symbol with a fixed probability, and otherwise sends a uniform symbol.

    Privacy cost: epsilon-LDP for the true symbol, exactly. A 64-bit word decides whether to keep it, and another picks
    the uniform symbol by multiplication, so every probability is a multiple of 2^-128. `threshold` is the largest for
    which the ratio of the most to the least likely cause of any symbol, in exact rational arithmetic, is at most
    e^epsilon.

    epsilon: pure local privacy of one symbol, in (0, 30].
    symbols: size of the alphabet, 2 to 32768.
    """

    @property
    def truth(self) -> float:
        """Probability of sending the true symbol."""
        return self.other + self.gain

    @property
    def other(self) -> float:
        """Probability of each of the other symbols."""
        return (1.0 - self.gain) / self.symbols

    def randomize(self, truth: NDArray[np.integer], noise: NoiseSource) -> NDArray[np.uint16]:
        """Randomize the true symbols ``truth`` (n,). For -1, no true symbol, the sent symbol is uniform."""
        words = noise.words(2 * len(truth))
        is_kept = (words[: len(truth)] < np.uint64(self.threshold)) & (truth >= 0)
        return np.where(is_kept, truth, scale_words_below(self.symbols, words[len(truth) :])).astype(np.uint16)


class SubsetResponse(_Response, frozen=True):
    """A randomizer that sends a uniform own symbol with a fixed probability, and otherwise a uniform symbol.

    Parameters and errors are those of `RandomizedResponse`, and ``n_own``: the number of a participant's own symbols,
    at least 1 and fewer than all.

    Notes
    -----
    Privacy cost: epsilon-LDP for the set of own symbols, exactly. This is subset selection (Ye and Barg 2018), but not
    every set of that size must occur. With one own symbol it is `RandomizedResponse`, and its probabilities are
    certified in the same way.
    """

    n_own: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.n_own < self.symbols:
            raise SpecError("must be at least 1 and less than symbols", field="n_own", remedy="choose fewer")

    @cached_property
    def threshold(self) -> int:
        """Threshold of the first word: words below it send an own symbol."""
        return _certified_threshold(self.epsilon, self.symbols, self.n_own)

    def randomize(self, own_sets: NDArray[np.integer], noise: NoiseSource) -> NDArray[np.uint16]:
        """Randomize the own symbols of participants, the rows of ``own_sets`` (n, n_own)."""
        words = noise.words(3 * len(own_sets)).reshape(3, len(own_sets))
        own_symbols = np.take_along_axis(own_sets, scale_words_below(self.n_own, words[1])[:, None], axis=1)[:, 0]
        is_own = words[0] < np.uint64(self.threshold)
        return np.where(is_own, own_symbols, scale_words_below(self.symbols, words[2])).astype(np.uint16)


def scale_words_below(limit: int, words: Words) -> Ints:
    """Map words to 0..limit-1 by multiplication, each value within one part in 2^64 of 1/limit."""
    high, low = words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)
    carry = (low * np.uint64(limit)) >> np.uint64(32)
    return ((high * np.uint64(limit) + carry) >> np.uint64(32)).astype(np.int64)


@lru_cache(maxsize=4096)
def _certified_threshold(epsilon: float, symbols: int, n_own: int = 1) -> int:
    """Return the largest threshold whose ratio of probabilities is at most e^epsilon, by exact fractions."""
    # exp is exact to one or two ulps; four ulps less is below the true value.
    e = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))
    min_uniform = Fraction(_WORD_RANGE // symbols, _WORD_RANGE)
    max_uniform = Fraction(-(-_WORD_RANGE // symbols), _WORD_RANGE)
    max_own = Fraction(-(-_WORD_RANGE // n_own), _WORD_RANGE)
    # (own_probability max_own + (1 - own_probability) max_uniform) / ((1 - own_probability) min_uniform) <= e, solved.
    own_probability = (e * min_uniform - max_uniform) / (max_own + e * min_uniform - max_uniform)
    return max(0, math.floor(own_probability * _WORD_RANGE))


def draw_binomial(count: int, trials: int, probability: float, noise: NoiseSource) -> Ints:
    """Draw ``count`` numbers of Bin(trials, probability), shape (count,); refuse a probability above 1/2.

    Fair bits are counted in words, 64 at a time, and exact. For other bits each draw compares a word with
    ``probability`` * 2^64, rounded up. That is exact, too, for a probability of 2^-11 or more. Below, a bit is up to
    2^-64 fairer than claimed, which hides more.

    trials: at least 0.
    probability: in (0, 1/2].
    """
    if not 0 < probability <= 0.5:
        raise SpecError("must be above 0 and at most 0.5", field="probability", remedy="use what the calibration gives")
    counts = np.zeros(count, np.int64)
    if probability == 0.5:
        for n_remaining in range(trials, 0, -64):
            mask = np.uint64((1 << min(64, n_remaining)) - 1)
            counts += np.bitwise_count(noise.words(count) & mask).astype(np.int64)
        return counts
    threshold = np.uint64(math.ceil(probability * 2.0**64))
    for _ in range(trials):
        counts += noise.words(count) < threshold
    return counts


def draw_signs(values: Array, noise: NoiseSource) -> Ints:
    """Draw signs, 1 with probability ``values`` and else -1: unbiased for ``2 values - 1``; shape (n,)."""
    return np.where(draw_uniform(values.shape, noise) < values, 1, -1)


def round_stochastically(values: Array, steps: int, source: RandomSource) -> Ints:
    """Round values in [0, 1] to whole numbers of ``steps`` at random, with the values as their means."""
    return np.minimum(round_to_integers(steps * values, source), steps)


def round_to_integers(values: Array, source: RandomSource) -> Ints:
    """Round values of any shape to the whole numbers below or above at random, with the values as their means."""
    floors = np.floor(values)
    return floors.astype(np.int64) + (draw_uniform(values.shape, source) < values - floors)


def round_shares_stochastically(shares: Array, steps: int, source: RandomSource) -> Ints:
    """Round shares of 1, (shares, n), to whole numbers of ``steps`` that sum up to it, with the shares as their means.

    One uniform number rounds all sums of the first shares.
    """
    edges = np.minimum(steps * np.cumsum(shares, axis=0), steps)
    edges[-1] = steps
    rounded = np.floor(edges + draw_uniform(edges.shape[1:], source)).astype(np.int64)
    return np.diff(rounded, prepend=0, axis=0)
