"""Randomized response, subset selection, binomial noise, and rounding: words are compared with certified thresholds.

The same numbers randomize and debias.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.sampling.entropy import NoiseSource

_WORD: Final = 1 << 64
_EPSILON_MAX: Final = 30.0
SYMBOLS_MAX: Final = 1 << 15


@dataclass(frozen=True)
class _Response:
    """Sends a symbol of the person's own with a fixed probability, and otherwise a uniform one of all."""

    epsilon: float
    symbols: int

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon <= _EPSILON_MAX:
            raise SpecError(f"must be in (0, {_EPSILON_MAX:g}]", field="epsilon", remedy="choose a smaller epsilon")
        if not 2 <= self.symbols <= SYMBOLS_MAX:
            raise SpecError(f"must be 2 to {SYMBOLS_MAX}", field="symbols", remedy="choose fewer buckets")

    @cached_property
    def threshold(self) -> int:
        """Words below it send one of the own symbols."""
        return _threshold(self.epsilon, self.symbols)

    @property
    def gain(self) -> float:
        """Probability of choosing only among the own symbols. Debiasing divides by it."""
        return self.threshold / _WORD


@dataclass(frozen=True)
class RandomizedResponse(_Response):
    """Keeps the true symbol with a fixed probability, and otherwise sends a uniform one.

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
        """Return symbols to send for true symbols ``truth`` (n,). For -1, no true symbol, it is a uniform one."""
        words = noise.words(2 * len(truth))
        keep = (words[: len(truth)] < np.uint64(self.threshold)) & (truth >= 0)
        return np.where(keep, truth, uniform_below(self.symbols, words[len(truth) :])).astype(np.uint16)


@dataclass(frozen=True)
class SubsetResponse(_Response):
    """Sends one of a person's own symbols, uniformly, with a fixed probability, and otherwise a uniform one of all.

    Parameters and errors are those of `RandomizedResponse`, and ``own``: the number of symbols that are a person's own,
    at least 1 and fewer than all.

    Notes
    -----
    Privacy cost: epsilon-LDP for the set of own symbols, exactly. This is subset selection (Ye and Barg 2018), but not
    every set of that size must be somebody's. With one own symbol it is `RandomizedResponse`, and its probabilities are
    certified in the same way.
    """

    own: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.own < self.symbols:
            raise SpecError("must be at least 1 and less than symbols", field="own", remedy="choose fewer")

    @cached_property
    def threshold(self) -> int:
        """Words below it send one of the own symbols."""
        return _threshold(self.epsilon, self.symbols, self.own)

    def randomize(self, own: NDArray[np.integer], noise: NoiseSource) -> NDArray[np.uint16]:
        """Return symbols to send for people whose own symbols are the rows of ``own`` (n, own)."""
        words = noise.words(3 * len(own)).reshape(3, len(own))
        picked = np.take_along_axis(own, uniform_below(self.own, words[1])[:, None], axis=1)[:, 0]
        keep = words[0] < np.uint64(self.threshold)
        return np.where(keep, picked, uniform_below(self.symbols, words[2])).astype(np.uint16)


def uniform_below(limit: int, words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Map words to 0..limit-1 by multiplication, each value within one part in 2^64 of 1/limit."""
    high, low = words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)
    carry = (low * np.uint64(limit)) >> np.uint64(32)
    return ((high * np.uint64(limit) + carry) >> np.uint64(32)).astype(np.int64)


@lru_cache(maxsize=4096)
def _threshold(epsilon: float, symbols: int, own: int = 1) -> int:
    """Return the largest threshold whose ratio of probabilities is at most e^epsilon, by exact fractions."""
    # expm1 and exp are good to an ulp or two; four ulps down is below the true value.
    e = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))
    least = Fraction(_WORD // symbols, _WORD)
    most = Fraction(-(-_WORD // symbols), _WORD)
    picked = Fraction(-(-_WORD // own), _WORD)
    # (keep picked + (1 - keep) most) / ((1 - keep) least) <= e, solved for keep.
    keep = (e * least - most) / (picked + e * least - most)
    return max(0, math.floor(keep * _WORD))


def binomial(count: int, trials: int, probability: float, noise: NoiseSource) -> NDArray[np.int64]:
    """Draw ``count`` numbers of Bin(trials, probability), shape (count,).

    Fair bits are counted in words, 64 at a time, and exact. For others each draw compares a word with
    ``probability`` * 2^64, rounded up. That is exact, too, for a probability of 2^-11 or more. Below, a bit is up to
    2^-64 fairer than claimed, which hides more.

    trials: at least 0.
    probability: in (0, 1/2].
    """
    if not 0 < probability <= 0.5:
        raise SpecError("must be above 0 and at most 0.5", field="probability", remedy="use what the calibration gives")
    drawn = np.zeros(count, np.int64)
    if probability == 0.5:
        for left in range(trials, 0, -64):
            mask = np.uint64((1 << min(64, left)) - 1)
            drawn += np.bitwise_count(noise.words(count) & mask).astype(np.int64)
        return drawn
    threshold = np.uint64(math.ceil(probability * 2.0**64))
    for _ in range(trials):
        drawn += noise.words(count) < threshold
    return drawn


def bernoulli(values: NDArray[np.float64], noise: NoiseSource) -> NDArray[np.int64]:
    """Draw signs, 1 with probability ``values`` and else -1: unbiased for ``2 values - 1``; shape (n,)."""
    uniform = (noise.words(len(values)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.where(uniform < values, 1, -1)


def rounded(values: NDArray[np.float64], steps: int, source: "NoiseSource | np.random.Generator") -> NDArray[np.int64]:
    """Round values in [0, 1], shape (n,), to whole numbers of ``steps``, of which they are the means.

    Rounding to the nearest would make 0 of all values below half a step, and of their mean.
    """
    places = steps * values
    below = np.minimum(np.floor(places), steps - 1)
    above = places - below
    if isinstance(source, np.random.Generator):
        return below.astype(np.int64) + (source.random(len(values)) < above)
    return below.astype(np.int64) + (bernoulli(above, source) > 0)
