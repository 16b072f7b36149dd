"""Amplification by shuffling for any local message: the clones bound of Feldman, McMillan and Talwar (FOCS 2021)."""

import math
from functools import lru_cache
from typing import Final

import numpy as np

from privateer_core.accounting.numerics import binomial_range, check, largest_local_epsilon
from privateer_core.accounting.special_functions import binomial_pmf, binomial_tails

_TAIL: Final = 1e-20
_ROUNDING: Final = 1 + 1e-9
"""Covers what floating point loses in binomial probabilities."""
_TAIL_ERROR: Final = 4e-15
"""Relative error of a binomial tail, times the root of its trials (measured: a third of it, for 10^3 to 10^9). The
excess is a small difference of tails, so the error is added to it and not multiplied with it."""
BATCH_MAX: Final = 10**9
_RESOLUTION: Final = 1e-4


@lru_cache(maxsize=1 << 16)
def clones_delta(epsilon: float, local_epsilon: float, batch: int) -> float:
    """Return a certified upper bound of delta at ``epsilon`` of a shuffled batch of messages of pure local privacy.

    It holds for every randomizer, also adaptively (Theorem 3.2 and Lemma 3.3, evaluated exactly). The sharper form with
    more clones (SODA 2023) does not, as its authors' erratum says (arXiv 2208.04591), and is not used here.

    Parameters
    ----------
    epsilon
        Central epsilon, > 0.
    local_epsilon
        Pure epsilon of one message, in (0, 30].
    batch
        Messages that the amplification relies on, the person's own included, 1 to 10^9.

    Raises
    ------
    SpecError
        If an argument is out of range.

    Notes
    -----
    With q = e^local_epsilon / (1 + e^local_epsilon), C ~ Bin(batch - 1, e^-local_epsilon) clones and A ~ Bin(C, 1/2),
    the pair is A + Bern(q) against A + Bern(1 - q) with C known; the sum is over C, outside of which at most the
    truncated mass lies.
    """
    check("epsilon", epsilon, 0 < epsilon < math.inf, "above 0 and finite")
    check("local_epsilon", local_epsilon, 0 < local_epsilon <= 30, "above 0 and at most 30")
    check("batch", batch, 1 <= batch <= BATCH_MAX, "1 to 1e9")
    if local_epsilon <= epsilon:
        return 0.0
    q, e = 1 / (1 + math.exp(-local_epsilon)), math.exp(epsilon)
    probability = math.exp(-local_epsilon)
    trials = batch - 1
    low, high = binomial_range(trials, probability, _TAIL)
    clones = np.arange(low, high + 1)
    # The likelihood ratio grows with the count: the best event is 'at least t'.
    share = (e * q - (1 - q)) / ((2 * q - 1) * (1 + e))
    least = np.floor((clones + 1) * share) + 1
    tails = binomial_tails(least - 1, clones, 0.5)
    one, both = tails.at_least, tails.at_least - tails.at
    # Both differences are of tails, each at most P(A >= t - 1).
    error = _TAIL_ERROR * np.sqrt(clones + 1) * (1 + e) * one
    excess = (q * one + (1 - q) * both) - e * ((1 - q) * one + q * both) + error
    delta = float(binomial_pmf(clones, trials, probability) @ np.maximum(excess, 0.0))
    return min(1.0, delta * _ROUNDING + 2 * _TAIL)


@lru_cache(maxsize=1024)
def clones_local_epsilon(epsilon: float, delta: float, batch: int, limit: float = 30.0) -> float:
    """Return the largest local epsilon up to ``limit`` whose batch is (epsilon, delta)-private by `clones_delta`."""
    check("delta", delta, 0 < delta < 1, "above 0 and below 1")
    return largest_local_epsilon(
        lambda local_epsilon: clones_delta(epsilon, local_epsilon, batch),
        delta,
        min(epsilon, limit),
        limit,
        _RESOLUTION,
    )
