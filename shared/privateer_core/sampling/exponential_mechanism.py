"""The exponential mechanism, drawn exactly: one of several things, by scores that are whole numbers."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.laplace import happens, uniform_integers

_TRIES: Final = 1024
"""Proposals at a time, at most."""


def choose(scores: NDArray[np.int64], scale: int, noise: NoiseSource) -> int:
    """Return a place of ``scores`` (n,), with probability in proportion to exp(score / scale).

    A uniform place is accepted with probability exp(-(largest score - score) / scale), which compares uniform integers
    only (Canonne, Kamath and Steinke 2020, Algorithm 1): every probability is exact.
    """
    whole, part = np.divmod(int(scores.max()) - scores, scale)
    count = min(_TRIES, 4 * len(scores))
    while True:
        tried = uniform_integers(count, len(scores), noise)
        accepted = np.flatnonzero(_accepts(whole[tried], part[tried], scale, noise))
        if len(accepted):
            return int(tried[accepted[0]])


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


def simulate_choice(scores: NDArray[np.int64], scale: int, rng: np.random.Generator) -> int:
    """Draw the same distribution from a seeded generator, for simulation."""
    return int(np.argmax(scores / scale + rng.gumbel(size=len(scores))))
