"""Normal noise on a grid of integers, from random words: nothing leaks through floating point.

A mechanism that adds noise to an integer and rounds the sum is post-processing of the Gaussian mechanism, and
rounding (x + noise) is x plus rounded noise. So the exact curve of the Gaussian holds for integers drawn from the law
of a rounded normal variable; what is left is how well a sampler meets that law, and that is bounded here.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.errors import SpecError
from privateer.privacy.noise import NoiseSource

DEVIATION_MIN: Final = 256.0
"""In grid units; above it the series for the rounded law is exact to the last digit."""
_DEVIATION_MAX: Final = 2.0**40
_REACH: Final = 9.5
"""Deviations up to which noise is drawn; beyond lies 2^-68 of the mass."""
TOTAL_VARIATION: Final = 2.0**-47
"""Distance of one drawn integer from the law of a rounded normal variable, at most; it adds to delta."""


@dataclass(frozen=True)
class RoundedNormal:
    """Draws integers distributed as a normal variable rounded to the nearest one.

    Parameters
    ----------
    deviation
        Of the normal variable, in grid units, 256 to 2^40.

    Raises
    ------
    SpecError
        If ``deviation`` is out of range.

    Notes
    -----
    Rejection from bins of a power of two of integers: a word picks a bin of magnitudes by thresholds of 64 bits, others
    the place in the bin and the sign, and one accepts. The total variation from the exact law is at most
    `TOTAL_VARIATION`: thresholds, of which there are fewer than 2^12, are off by 2^-64 each, weights of bins and
    chances of acceptance by relative 2^-49 (floating point), acceptance by 2^-53 (its own word), the tail by 2^-68.
    How many words are drawn depends on the noise alone.
    """

    deviation: float

    def __post_init__(self) -> None:
        if not DEVIATION_MIN <= self.deviation <= _DEVIATION_MAX:
            raise SpecError(
                f"must be {DEVIATION_MIN:g} to 2^40 grid units", field="deviation", remedy="choose a finer grid"
            )

    def draw(self, count: int, noise: NoiseSource) -> NDArray[np.int64]:
        """``count`` integers, shape (count,)."""
        drawn = np.empty(count, np.int64)
        missing = np.arange(count)
        while len(missing):
            values, accepted = self._propose(len(missing), noise)
            drawn[missing[accepted]] = values[accepted]
            missing = missing[~accepted]
        return drawn

    def _propose(self, count: int, noise: NoiseSource) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        words = noise.words(3 * count).reshape(3, count)
        bins = np.searchsorted(self._thresholds, words[0], side="right").astype(np.int64)
        bins = np.minimum(bins, len(self._heads) - 1)
        inside = words[1] & np.uint64(self._width - 1)
        negative = words[1] >> np.uint64(63) == 1
        magnitudes = bins * self._width + inside.astype(np.int64)
        ratio = self._weight(magnitudes) / self._heads[bins]
        uniform = (words[2] >> np.uint64(11)).astype(np.float64) * 2.0**-53
        # Zero has one sign only.
        accepted = (uniform < ratio) & ~(negative & (magnitudes == 0))
        return np.where(negative, -magnitudes, magnitudes), accepted

    @cached_property
    def _width(self) -> int:
        """Integers of a bin: a power of two, between 1/128 and 1/64 of a deviation."""
        return 1 << max(0, math.floor(math.log2(self.deviation / 64)))

    @cached_property
    def _heads(self) -> NDArray[np.float64]:
        """Largest weight in each bin, that of its least magnitude."""
        bins = math.ceil(_REACH * self.deviation / self._width)
        return self._weight(np.arange(bins, dtype=np.int64) * self._width)

    @cached_property
    def _thresholds(self) -> NDArray[np.uint64]:
        """Words below the i-th pick bin i or an earlier one; the last bin needs none."""
        exact = [Fraction(float(head)) for head in self._heads]
        sums = list(accumulate(exact))
        return np.array([max(1, (1 << 64) * share // sums[-1]) for share in sums[:-1]], dtype=np.uint64)

    def _weight(self, magnitudes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Probability of an integer, up to a constant.

        The density's average over an interval of length 1 is the density times 1 + He2/24 + He4/1920 + ... in units
        of the deviation s: He_n(x) / s^n, x = k / s; the next term is below 1e-16 for the deviations allowed.
        """
        s = self.deviation
        x = magnitudes / s
        square = x * x
        second = (square - 1) / (24 * s**2)
        fourth = (square * square - 6 * square + 3) / (1920 * s**4)
        return np.asarray(np.exp(-square / 2) * (1 + second + fourth))
