"""Amplification by shuffling for any local message: the clones bound of Feldman, McMillan and Talwar (FOCS 2021)."""

import math
from functools import lru_cache
from typing import Final

import numpy as np
import scipy  # loads its parts when they are first used

from privateer.errors import SpecError

_TAIL: Final = 1e-20
_ROUNDING: Final = 1 + 1e-9
"""Covers what floating point loses in binomial probabilities."""
_TAIL_ERROR: Final = 4e-15
"""Relative error of a binomial tail, times the root of its trials (measured: a third of it, for 10^3 to 10^9). The
excess is a small difference of tails, so this counts beside it and not in proportion to it."""
BATCH_MAX: Final = 10**9
_RESOLUTION: Final = 1e-4


def clones_delta(epsilon: float, local_epsilon: float, batch: int) -> float:
    """Delta at ``epsilon`` of a shuffled batch of messages, each of pure local privacy; a certified upper bound.

    It holds for every randomizer, also adaptively (Theorem 3.2 and Lemma 3.3, evaluated exactly). The sharper form with
    more clones (SODA 2023) does not, as its authors' erratum says (arXiv 2208.04591), and is not used here.

    Parameters
    ----------
    epsilon
        Central epsilon, > 0.
    local_epsilon
        Pure epsilon of one message, in (0, 30].
    batch
        Messages that the amplification counts on, the person's own included, 1 to 10^9.

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
    for field, value, good, range_ in (
        ("epsilon", epsilon, 0 < epsilon < math.inf, "above 0 and finite"),
        ("local_epsilon", local_epsilon, 0 < local_epsilon <= 30, "above 0 and at most 30"),
        ("batch", batch, 1 <= batch <= BATCH_MAX, "1 to 1e9"),
    ):
        if not good:
            raise SpecError(f"{value:g} is out of range", field=field, remedy=f"choose one of {range_}")
    if local_epsilon <= epsilon:
        return 0.0
    q, e = 1 / (1 + math.exp(-local_epsilon)), math.exp(epsilon)
    probability = math.exp(-local_epsilon)
    trials = batch - 1
    log = -math.log(_TAIL)
    width = math.sqrt(2 * trials * probability * (1 - probability) * log) + log
    clones = np.arange(
        max(0, math.floor(trials * probability - width)), min(trials, math.ceil(trials * probability + width)) + 1
    )
    # The likelihood ratio grows with the count: the best event is 'at least t'.
    share = (e * q - (1 - q)) / ((2 * q - 1) * (1 + e))
    least = np.floor((clones + 1) * share) + 1
    one, both = scipy.stats.binom.sf(least - 2, clones, 0.5), scipy.stats.binom.sf(least - 1, clones, 0.5)
    # Both differences are of tails, each at most P(A >= t - 1).
    error = _TAIL_ERROR * np.sqrt(clones + 1) * (1 + e) * one
    excess = (q * one + (1 - q) * both) - e * ((1 - q) * one + q * both) + error
    delta = float(scipy.stats.binom.pmf(clones, trials, probability) @ np.maximum(excess, 0.0))
    return min(1.0, delta * _ROUNDING + 2 * _TAIL)


@lru_cache(maxsize=1024)
def clones_local_epsilon(epsilon: float, delta: float, batch: int, limit: float = 30.0) -> float:
    """Largest local epsilon, at most ``limit``, whose shuffled batch is (epsilon, delta)-private by `clones_delta`."""
    if not 0 < delta < 1:
        raise SpecError("must be above 0 and below 1", field="delta", remedy="1e-6 is usual")
    if clones_delta(epsilon, limit, batch) <= delta:
        return limit

    def margin(local_epsilon: float) -> float:
        return math.log(max(1e-300, clones_delta(epsilon, local_epsilon, batch)) / delta)

    found = float(scipy.optimize.brentq(margin, min(epsilon, limit), limit, xtol=_RESOLUTION / 4))
    steps = math.floor(found / _RESOLUTION)
    while steps * _RESOLUTION > epsilon and margin(steps * _RESOLUTION) > 0:
        steps -= 1
    return max(epsilon, steps * _RESOLUTION)
