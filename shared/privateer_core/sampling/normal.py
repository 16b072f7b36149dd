"""Normal noise on a grid of integers, drawn from random words so that floating point leaks no data.

A mechanism that adds noise to an integer and rounds the sum is post-processing of the Gaussian mechanism, and
rounding (x + noise) is x plus rounded noise. So the exact curve of the Gaussian holds for integers with the
distribution of a rounded normal variable. The sampler's distribution differs from it by at most `sampling_cost`.
"""

import math
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Final

import msgspec
import numpy as np

from privateer_core.arrays import Array, Bools, Ints, Words
from privateer_core.errors import SpecError
from privateer_core.sampling.randomness import NoiseSource, sample_by_rejection

STANDARD_DEVIATION_MIN: Final = 256.0
"""Smallest standard deviation, in grid units, at which the series of the rounded distribution has all digits."""
STANDARD_DEVIATION_MAX: Final = 2.0**40
"""Largest standard deviation, in grid units."""
DEVIATIONS_MAX: Final = 11.3
"""Noise is drawn up to this number of standard deviations, and to the end of a bin. Beyond lies 2^-95 of the mass."""
EPSILON_MAX: Final = 30.0
"""Largest epsilon for which `sampling_cost` is certified."""
_COST_PER_NUMBER: Final = 2.0**-47
_SPARE_BITS: Final = 29
"""Number of bits of the second word that neither offset nor sign uses. They extend the third word."""


def sampling_cost(count: int) -> float:
    """Return the delta that drawing ``count`` numbers adds to exact rounded normal noise, for epsilon up to 30.

    Notes
    -----
    Let P, Q be the exact distributions of the noisy numbers for two neighbours, P', Q' the drawn ones, and S the set
    where P' > e^epsilon Q'. Drawn noise z (in standard deviations) has its exact probability times 1 + r(z), |r(z)| <=
    (1.5 z^2 + 23.5) 2^-53 (floating point; see `RoundedNormal`), up to `DEVIATIONS_MAX`. So P'(S) - e^epsilon Q'(S)
    exceeds P(S) - e^epsilon Q(S) <= delta by at most: e^epsilon 2^-95 a number for the tail; the mean of r under P,
    25 * 2^-53 a number; and e^epsilon times Q's sum of |r| over S, where e^epsilon Q is at most P, so the mean of r
    under P at the noise shifted by the neighbours' distance, 25 * 2^-53 a number and 1.5 D^2 2^-53 in all, D < 9.2 the
    distance in standard deviations for any promise with epsilon to 30 and delta to 1/2. Together less than (count + 2)
    2^-47. A bare bound of the total variation would cost 1 + e^epsilon times as much.
    """
    return (count + 2) * _COST_PER_NUMBER


class RoundedNormal(msgspec.Struct, frozen=True, dict=True):
    """A sampler of integers distributed as a normal variable rounded to the nearest integer.

    The sampler rejects from bins, each a power of two of integers: a word picks a bin of magnitudes, another the offset
    in the bin and the sign, and a third, with the spare bits of the second, accepts. The probabilities of bins are
    multiples of 2^-64, and acceptance divides by these very numbers, so rounding them costs nothing. The error that
    remains is relative: in a weight, whose exponent z^2/2 is off by 1.5 z^2 2^-53, and in last digits, 11 * 2^-53; as
    much again, on average, in the sum of all weights. The number of words drawn depends only on the noise.

    standard_deviation: standard deviation of the normal variable, in grid units, 256 to 2^40.
    """

    standard_deviation: float

    def __post_init__(self) -> None:
        if not STANDARD_DEVIATION_MIN <= self.standard_deviation <= STANDARD_DEVIATION_MAX:
            detail = f"must be {STANDARD_DEVIATION_MIN:g} to 2^40 grid units"
            raise SpecError(detail, field="standard_deviation", remedy="choose a finer grid")

    def draw(self, count: int, noise: NoiseSource) -> Ints:
        """Draw ``count`` integers, shape (count,)."""
        return sample_by_rejection(count, lambda missing: self._propose_candidates(missing, noise))

    def _propose_candidates(self, count: int, noise: NoiseSource) -> tuple[Ints, Bools]:
        """Return ``count`` candidates from three words each, and a mask of the accepted ones."""
        words = noise.words(3 * count).reshape(3, count)
        bins = np.searchsorted(self._edges, words[0], side="right").astype(np.int64)
        offsets = words[1] & np.uint64(self._width - 1)
        spare_bits = (words[1] >> np.uint64(63 - _SPARE_BITS)) & np.uint64((1 << _SPARE_BITS) - 1)
        is_negative = words[1] >> np.uint64(63) == 1
        magnitudes = bins * self._width + offsets.astype(np.int64)
        is_accepted = draw_bernoulli(words[2], spare_bits, self._acceptance_probabilities(bins, magnitudes))
        is_accepted &= ~(is_negative & (magnitudes == 0))  # zero has one sign only
        return np.where(is_negative, -magnitudes, magnitudes), is_accepted

    @cached_property
    def _width(self) -> int:
        """Number of integers in a bin: a power of two, between 1/128 and 1/64 of a standard deviation."""
        return 1 << max(0, math.floor(math.log2(self.standard_deviation / 64)))

    @cached_property
    def _max_weights(self) -> Array:
        """Largest weight in each bin, the weight of its smallest magnitude."""
        bins = math.ceil(DEVIATIONS_MAX * self.standard_deviation / self._width)
        return self._density_weights(np.arange(bins, dtype=np.int64) * self._width)

    @cached_property
    def _bin_word_counts(self) -> list[int]:
        """Numbers of the 2^64 words that pick each bin, proportional to its largest weight; the first has the rest."""
        weights = [Fraction(float(weight)) for weight in self._max_weights]
        total = sum(weights)
        later_counts = [math.ceil((1 << 64) * weight / total) for weight in weights[1:]]
        return [(1 << 64) - sum(later_counts), *later_counts]

    @cached_property
    def _edges(self) -> Words:
        """Upper edges of bins: words below the i-th edge pick bin i or an earlier bin. The last bin has no edge."""
        return np.array(list(accumulate(self._bin_word_counts))[:-1], dtype=np.uint64)

    @cached_property
    def _scales(self) -> Array:
        """Factors from the weights of each bin to probabilities of acceptance, all below 1."""
        words = np.array(self._bin_word_counts, dtype=np.float64)
        return np.asarray(float(np.min(words / self._max_weights)) * (1 - 2.0**-40) / words)

    def _acceptance_probabilities(self, bins: Ints, magnitudes: Ints) -> Array:
        """Return the probability of accepting a magnitude of a bin."""
        return self._density_weights(magnitudes) * self._scales[bins]

    def _density_weights(self, magnitudes: Ints) -> Array:
        """Return the probabilities of integers, up to a constant."""
        # The density's average over an interval of length 1 is the density times 1 + He2/24 + He4/1920 + He6/322560 +
        # ..., in units of the standard deviation s: He_n(x) / s^n, x = k / s. The next term is below 1e-19 for the
        # standard deviations allowed.
        s = self.standard_deviation
        x = magnitudes / s
        y = x * x
        second = (y - 1) / (24 * s**2)
        fourth = (y * y - 6 * y + 3) / (1920 * s**4)
        sixth = (y**3 - 15 * y * y + 45 * y - 15) / (322560 * s**6)
        return np.asarray(np.exp(-y / 2) * (1 + second + fourth + sixth))


def draw_bernoulli(words: Words, spare_bits: Words, probabilities: Array) -> Bools:
    """Draw booleans, true with these probabilities, each below 1, up to an error of 2^-93. Spare bits break ties."""
    scaled = probabilities * 2.0**64
    floors = np.floor(scaled)
    fractions = ((scaled - floors) * 2.0**_SPARE_BITS).astype(np.uint64)
    thresholds = floors.astype(np.uint64)
    return np.asarray((words < thresholds) | ((words == thresholds) & (spare_bits < fractions)))
