"""Lower bounds of delta for shuffled batches in which the crowd holds a single symbol."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.numerics import binomial_range, largest_local_epsilon

Array = NDArray[np.float64]
_MIN_PROBABILITY: Final = 1e-20
_RESOLUTION: Final = 1e-3


def crowd_delta(epsilon: float, local_epsilon: float, symbols: int, batch: int) -> float:
    """Return a lower bound of delta at ``epsilon`` of a shuffled randomized response, for a crowd with one symbol.

    epsilon, local_epsilon: central epsilon, and that of one report; > 0.
    symbols: size of the alphabet, >= 2. Of more than two the others hold a third symbol, which was the worst crowd in
        every small batch of up to five symbols that was enumerated; of two, that of one neighbour.
    batch: number of reports, that of the participant included, >= 1.

    With l = e^local_epsilon, the histogram (A, B, C, D) counts the symbols of the person, of the neighbour, of the
    crowd, and all others. It is multinomial for n people of the crowd, and one of the others in place of the person
    changes its chance by (l A + B + C / l + D) / n. So delta is E[(l - e) A + (1 - e l) B - (e - 1) (C / l + D)]_+ / n.
    """
    e, ratio = math.exp(epsilon), math.exp(local_epsilon)
    p_symbol = 1 / (ratio + symbols - 1)
    if symbols == 2:
        counts = np.arange(batch + 1)
        shifted, pmf = (stats.binom.pmf(counts - shift, batch - 1, p_symbol) for shift in (1, 0))
        first, second = (p_symbol * shifted + ratio * p_symbol * pmf, ratio * p_symbol * shifted + p_symbol * pmf)
        return max(_hockey_stick(first, second, e), _hockey_stick(second, first, e))
    total = 0.0
    for pairs, pair_pmf in _likely_counts(batch, 2 * p_symbol):
        n_others = batch - pairs
        other_counts, other_pmf = np.array(_likely_counts(n_others, (symbols - 3) * p_symbol / (1 - 2 * p_symbol))).T
        own_counts = np.arange(pairs + 1)[:, None]
        excess = (ratio - e) * own_counts + (1 - e * ratio) * (pairs - own_counts)
        excess = excess - (e - 1) * (n_others / ratio + other_counts * (1 - 1 / ratio))
        total += pair_pmf * float(stats.binom.pmf(own_counts[:, 0], pairs, 0.5) @ np.maximum(excess, 0.0) @ other_pmf)
    return total / batch


def _likely_counts(trials: int, probability: float) -> list[tuple[int, float]]:
    """Return the counts of a binomial distribution with a probability above 1e-20, and these probabilities."""
    low, high = binomial_range(trials, probability, _MIN_PROBABILITY)
    numbers = np.arange(low, high + 1)
    probabilities = stats.binom.pmf(numbers, trials, probability)
    is_likely = probabilities > _MIN_PROBABILITY
    return list(zip(numbers[is_likely].tolist(), probabilities[is_likely].tolist(), strict=True))


def _hockey_stick(left: Array, right: Array, e: float) -> float:
    return float(np.maximum(left - e * right, 0.0).sum())


def tightness(epsilon: float, delta: float, batch: int, symbols: int, limit: float) -> dict[str, float]:
    """Compare the proved local epsilon with an upper limit, at which the delta of a crowd exceeds the promise.

    Returns ``symbols``; ``allowed`` and ``never_above``, local epsilons; and ``variance``, that of a mean of reports at
    the first over that at the second: what a perfect proof could still save at most.
    """
    allowed = amplified_local_epsilon(epsilon, delta, symbols, batch, limit)
    upper = largest_local_epsilon(
        lambda local_epsilon: crowd_delta(epsilon, local_epsilon, symbols, batch), delta, allowed, limit, _RESOLUTION
    )
    gains = [math.expm1(local) / (math.exp(local) + symbols - 1) for local in (allowed, upper)]
    return {"symbols": symbols, "allowed": allowed, "never_above": upper, "variance": (gains[1] / gains[0]) ** 2}
