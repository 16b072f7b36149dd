"""Normal noise on a grid of integers, from random words: floating point leaks nothing.

A mechanism that adds noise to an integer and rounds the sum is post-processing of the Gaussian mechanism, and
rounding (x + noise) is x plus rounded noise. So the exact curve of the Gaussian holds for integers with the
distribution of a rounded normal variable. A sampler meets that distribution up to `sampling_cost`.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.sampling.entropy import NoiseSource, accepted

STANDARD_DEVIATION_MIN: Final = 256.0
"""In grid units. Above it the series for the rounded distribution is exact to the last digit."""
_STANDARD_DEVIATION_MAX: Final = 2.0**40
REACH: Final = 11.3
"""Noise is drawn up to so many standard deviations, and to the end of a bin. Beyond lies 2^-95 of the mass."""
EPSILON_MAX: Final = 30.0
"""Largest epsilon for which `sampling_cost` is certified."""
_COST: Final = 2.0**-47
_SPARE_BITS: Final = 29
"""Bits of the second word that neither place nor sign uses. They extend the third word."""


def sampling_cost(count: int) -> float:
    """Return what drawing ``count`` numbers adds to the delta of exact rounded normal noise, for epsilon up to 30.

    Notes
    -----
    Let P, Q be the exact distributions of the noisy numbers for two neighbours, P', Q' the drawn ones, and S the set
    where P' > e^epsilon Q'. Drawn noise z (in standard deviations) has its exact probability times 1 + r(z), |r(z)| <=
    (1.5 z^2 + 23.5) 2^-53 (floating point; see `RoundedNormal`), up to `REACH`. So P'(S) - e^epsilon Q'(S) exceeds
    P(S) - e^epsilon Q(S) <= delta by at most: e^epsilon 2^-95 a number for the tail; the mean of r under P, 25 * 2^-53
    a number; and e^epsilon times Q's sum of |r| over S, where e^epsilon Q is at most P, so the mean of r under P at
    the noise shifted by the neighbours' distance, 25 * 2^-53 a number and 1.5 D^2 2^-53 in all, D the distance in
    standard deviations: below 9.2 for any promise with epsilon to 30 and delta to 1/2. Together less than (count + 2)
    2^-47. A bare bound of the total variation would cost 1 + e^epsilon times as much.
    """
    return (count + 2) * _COST


@dataclass(frozen=True)
class RoundedNormal:
    """Draws integers distributed as a normal variable rounded to the nearest one.

    The sampler rejects from bins, each a power of two of integers: a word picks a bin of magnitudes, another the place
    in the bin and the sign, and a third, with the bits left of the second, accepts. The probabilities of bins are whole
    multiples of 2^-64, and acceptance divides by these very numbers, so rounding them costs nothing. The error that
    remains is relative: in a weight, whose exponent z^2/2 is off by 1.5 z^2 2^-53, and in some last digits, 11 * 2^-53;
    as much again, on average, in the sum of all weights. The number of words drawn depends only on the noise.

    standard_deviation: of the normal variable, in grid units, 256 to 2^40.
    """

    standard_deviation: float

    def __post_init__(self) -> None:
        if not STANDARD_DEVIATION_MIN <= self.standard_deviation <= _STANDARD_DEVIATION_MAX:
            raise SpecError(
                f"must be {STANDARD_DEVIATION_MIN:g} to 2^40 grid units",
                field="standard_deviation",
                remedy="choose a finer grid",
            )

    def draw(self, count: int, noise: NoiseSource) -> NDArray[np.int64]:
        """Draw ``count`` integers, shape (count,)."""
        return accepted(count, lambda missing: self._propose(missing, noise))

    def _propose(self, count: int, noise: NoiseSource) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        words = noise.words(3 * count).reshape(3, count)
        bins = np.searchsorted(self._edges, words[0], side="right").astype(np.int64)
        inside = words[1] & np.uint64(self._width - 1)
        spare = (words[1] >> np.uint64(63 - _SPARE_BITS)) & np.uint64((1 << _SPARE_BITS) - 1)
        negative = words[1] >> np.uint64(63) == 1
        magnitudes = bins * self._width + inside.astype(np.int64)
        # Zero has one sign only.
        good = below(words[2], spare, self._ratio(bins, magnitudes)) & ~(negative & (magnitudes == 0))
        return np.where(negative, -magnitudes, magnitudes), good

    @cached_property
    def _width(self) -> int:
        """Integers in a bin: a power of two, between 1/128 and 1/64 of a standard deviation."""
        return 1 << max(0, math.floor(math.log2(self.standard_deviation / 64)))

    @cached_property
    def _heads(self) -> NDArray[np.float64]:
        """The largest weight in each bin, that of its least magnitude."""
        bins = math.ceil(REACH * self.standard_deviation / self._width)
        return self._weight(np.arange(bins, dtype=np.int64) * self._width)

    @cached_property
    def _words(self) -> list[int]:
        """How many of the 2^64 words pick each bin: in proportion to its head, rounded up. The first has the rest."""
        exact = [Fraction(float(head)) for head in self._heads]
        total = sum(exact)
        later = [math.ceil((1 << 64) * head / total) for head in exact[1:]]
        return [(1 << 64) - sum(later), *later]

    @cached_property
    def _edges(self) -> NDArray[np.uint64]:
        """Words below the i-th edge pick bin i or an earlier one. The last bin needs no edge."""
        return np.array(list(accumulate(self._words))[:-1], dtype=np.uint64)

    @cached_property
    def _scales(self) -> NDArray[np.float64]:
        """Factors that turn the weights of each bin into probabilities of acceptance, all below 1."""
        words = np.array(self._words, dtype=np.float64)
        return np.asarray(float(np.min(words / self._heads)) * (1 - 2.0**-40) / words)

    def _ratio(self, bins: NDArray[np.int64], magnitudes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probability of accepting a magnitude of a bin."""
        return self._weight(magnitudes) * self._scales[bins]

    def _weight(self, magnitudes: NDArray[np.int64]) -> NDArray[np.float64]:
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


def below(
    words: NDArray[np.uint64], spare: NDArray[np.uint64], probabilities: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return true with these probabilities, each below 1 and met within 2^-93. Spare bits decide where a word ties."""
    scaled = probabilities * 2.0**64
    whole = np.floor(scaled)
    part = ((scaled - whole) * 2.0**_SPARE_BITS).astype(np.uint64)
    limit = whole.astype(np.uint64)
    return np.asarray((words < limit) | ((words == limit) & (spare < part)))
