"""Direct sums of delta for shuffled batches: of crowds that hold a single symbol, and of the privacy blanket."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from privateer_core.accounting.numerics import binomial_range

Array = NDArray[np.float64]
_MIN_PROBABILITY: Final = 1e-25
_SIZES_PER_DEVIATION: Final = 8
"""Numbers of people of a group, per standard deviation, to which it is rounded up."""


def crowd_delta(epsilon: float, local_epsilon: float, symbols: float, batch: int) -> float:
    """Return a lower bound of delta at ``epsilon`` of a shuffled randomized response, for a crowd with one symbol.

    epsilon, local_epsilon: central epsilon, and that of one report; > 0.
    symbols: size of the alphabet, 2 or >= 3; of subset selection, over the number of a person's symbols. Of more than
        two the others hold a third symbol, which was the worst crowd in every small batch of up to five symbols that
        was enumerated; of two, that of one neighbour.
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
    """Return the counts of a binomial distribution with a probability above 1e-25, and these probabilities."""
    low, high = binomial_range(trials, probability, _MIN_PROBABILITY)
    numbers = np.arange(low, high + 1)
    probabilities = stats.binom.pmf(numbers, trials, probability)
    is_likely = probabilities > _MIN_PROBABILITY
    return list(zip(numbers[is_likely].tolist(), probabilities[is_likely].tolist(), strict=True))


def _hockey_stick(left: Array, right: Array, e: float) -> float:
    return float(np.maximum(left - e * right, 0.0).sum())


def group_delta(epsilon: float, local_epsilon: float, batch: int, share: float) -> float:
    """Return a lower bound of delta at ``epsilon`` of a bit in a public group of a batch, for a crowd with one bit."""
    step = max(1, int(math.sqrt(batch * share * (1 - share)) / _SIZES_PER_DEVIATION))
    masses: dict[int, float] = {}
    for size, mass in _likely_counts(batch - 1, share) if share < 1 else [(batch - 1, 1.0)]:
        larger = -(-size // step) * step  # a larger crowd hides a participant better
        masses[larger] = masses.get(larger, 0.0) + mass
    return sum(mass * crowd_delta(epsilon, local_epsilon, 2, size + 1) for size, mass in masses.items())


def lemma_delta(epsilon: float, local_epsilon: float, symbols: float, batch: int) -> float:
    """Return delta of the privacy blanket without rounding: E(X_1 + ... + X_n)_+ / n, person by person.

    X is l - e for a blanket message of the one symbol, 1 - e l of the other, 1 - e of neither, and 0 for another
    message. The sum over those of neither, of whom a larger number leaves less, has positive terms alone: with k such
    that k messages leave something and F the distribution of their number, it is (e - 1) (F(0) + ... + F(k - 1)) +
    (X - (e - 1) k) F(k).
    """
    ratio, e, gap = math.exp(local_epsilon), math.exp(epsilon), math.expm1(epsilon)
    p_symbol = 1 / (ratio + symbols - 1)
    pairs, pair_pmf = (np.array(column) for column in zip(*_likely_counts(batch, 2 * p_symbol), strict=True))
    others, other_pmf = _binomials(batch - pairs, max(0.0, symbols - 2) * p_symbol / (1 - 2 * p_symbol))
    at_most = np.cumsum(other_pmf, axis=1)
    below = np.cumsum(at_most, axis=1) - at_most
    own_counts = np.arange(pairs[-1] + 1)
    excess = own_counts * (ratio - e) - (pairs[:, None] - own_counts) * (e * ratio - 1) - gap * others[0]
    largest = np.minimum(np.floor(np.maximum(excess, 0.0) / gap), len(others) - 1).astype(np.int64)
    rows = np.arange(len(pairs))[:, None]
    remainder = gap * below[rows, largest] + (excess - gap * largest) * at_most[rows, largest]
    masses = stats.binom.pmf(own_counts, pairs[:, None], 0.5) * pair_pmf[:, None]
    return float((masses * np.where(excess > 0, remainder, 0.0)).sum() / batch)


def _binomials(trials: Array, probability: float) -> tuple[Array, Array]:
    """Return counts of binomials within 14 standard deviations and 60, and their probabilities by row of ``trials``."""
    low, high = (n * probability for n in (trials.min(), trials.max()))
    width = 60 + 14 * math.sqrt(high * (1 - probability))
    counts = np.arange(max(0, math.floor(low - width)), min(trials.max(), math.ceil(high + width)) + 1)
    return counts, stats.binom.pmf(counts, trials[:, None], probability)
