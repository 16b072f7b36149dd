"""Independent oracles for shuffled randomized response: exact for small batches, the blanket lemma for larger ones."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from scipy import stats

_NOTHING = 1e-25
"""Probabilities that an oracle leaves out; it is a lower bound."""
Law = dict[tuple[int, ...], float]


def response_law(truth: int, symbols: int, local_epsilon: float, slots: int = 1) -> np.ndarray:
    """Chances of the messages (slot, symbol) of one person; the slot rotates the true symbol."""
    e = math.exp(local_epsilon)
    law = np.full((slots, symbols), 1 / (e + symbols - 1) / slots)
    for slot in range(slots):
        law[slot, (truth + slot) % symbols] *= e
    return law.ravel()


def shuffled_law(laws: Sequence[np.ndarray]) -> Law:
    """Law of the histogram of independent messages: all that a shuffler lets through."""
    total: Law = {(0,) * len(laws[0]): 1.0}
    for law in laws:
        after: Law = {}
        for histogram, probability in total.items():
            for message, weight in enumerate(law):
                changed = (*histogram[:message], histogram[message] + 1, *histogram[message + 1 :])
                after[changed] = after.get(changed, 0.0) + probability * weight
        total = after
    return total


def hockey_stick(left: Law, right: Law, epsilon: float) -> float:
    """Delta at epsilon of two laws, the worse direction."""
    outcomes, e = left.keys() | right.keys(), math.exp(epsilon)
    forward = sum(max(0.0, left.get(o, 0.0) - e * right.get(o, 0.0)) for o in outcomes)
    backward = sum(max(0.0, right.get(o, 0.0) - e * left.get(o, 0.0)) for o in outcomes)
    return max(forward, backward)


def exact_delta(epsilon: float, local_epsilon: float, symbols: int, batch: int, slots: int = 1) -> float:
    """Delta of a small shuffled batch at its worst neighbours, over every input of the others."""
    worst = 0.0
    for others in product(range(symbols), repeat=batch - 1):
        if list(others) != sorted(others):
            continue
        laws = [response_law(other, symbols, local_epsilon, slots) for other in others]
        law = shuffled_law([response_law(0, symbols, local_epsilon, slots), *laws])
        right = shuffled_law([response_law(1, symbols, local_epsilon, slots), *laws])
        worst = max(worst, hockey_stick(law, right, epsilon))
    return worst


def _loss(epsilon: float, local_epsilon: float, symbols: int) -> tuple[float, np.ndarray]:
    """The blanket's weight, and the lemma's L for a message that is x, x', or neither."""
    l, e = math.exp(local_epsilon), math.exp(epsilon)  # noqa: E741
    weight = symbols / (l + symbols - 1)
    loss = np.array([l - e, 1 - e * l, 1 - e]) * symbols / (l + symbols - 1)
    return weight, loss


def blanket_delta(epsilon: float, local_epsilon: float, symbols: int, batch: int) -> float:
    """Lemma 5.3 of Balle, Bell, Gascon and Nissim (CRYPTO 2019), summed over every multinomial outcome."""
    weight, loss = _loss(epsilon, local_epsilon, symbols)
    total = 0.0
    for m in range(1, batch + 1):
        reached = math.comb(batch, m) * weight**m * (1 - weight) ** (batch - m)
        for a in range(m + 1):
            for b in range(m + 1 - a):
                c = m - a - b
                excess = a * loss[0] + b * loss[1] + c * loss[2]
                if excess > 0:
                    ways = math.comb(m, a) * math.comb(m - a, b)
                    total += reached * ways * (1 / symbols) ** (a + b) * (1 - 2 / symbols) ** c * excess
    return total / (weight * batch)


def subset_delta(epsilon: float, local_epsilon: float, symbols: float, batch: int) -> float:
    """The lemma for as many symbols for each own one, whole or not, person by person: E(X_1 + ... + X_n)_+ / n.

    X is l - e for a blanket message of the one set, 1 - e l of the other, 1 - e of neither, and 0 for another message.
    The sum over those of neither, of whom a larger
    number leaves less, has positive terms alone: with k such that k messages leave something and F the distribution of
    their number, it is (e - 1) (F(0) + ... + F(k - 1)) + (X - (e - 1) k) F(k).
    """
    l, e = math.exp(local_epsilon), math.exp(epsilon)  # noqa: E741
    gap = math.expm1(epsilon)
    p = 1 / (l + symbols - 1)
    pairs, pair_masses = _likely_counts(np.array([batch]), 2 * p)
    pairs, pair_masses = pairs[pair_masses[0] > _NOTHING], pair_masses[0, pair_masses[0] > _NOTHING]
    others, other_masses = _likely_counts(batch - pairs, max(0.0, symbols - 2) * p / (1 - 2 * p))
    at_most = np.cumsum(other_masses, axis=1)
    below = np.cumsum(at_most, axis=1) - at_most
    indices = np.arange(pairs[-1] + 1)
    excess = indices * (l - e) - (pairs[:, None] - indices) * (e * l - 1) - gap * others[0]
    largest = np.minimum(np.floor(np.maximum(excess, 0.0) / gap), len(others) - 1).astype(np.int64)
    rows = np.arange(len(pairs))[:, None]
    left = gap * below[rows, largest] + (excess - gap * largest) * at_most[rows, largest]
    chances = stats.binom.pmf(indices, pairs[:, None], 0.5) * pair_masses[:, None]
    return float((chances * np.where(excess > 0, left, 0.0)).sum() / batch)


def _likely_counts(trials: np.ndarray, probability: float) -> tuple[np.ndarray, np.ndarray]:
    """Counts of binomials within 14 standard deviations and 60, and their probabilities by row of ``trials``."""
    low, high = (n * probability for n in (trials.min(), trials.max()))
    width = 60 + 14 * math.sqrt(high * (1 - probability))
    counts = np.arange(max(0, math.floor(low - width)), min(trials.max(), math.ceil(high + width)) + 1)
    return counts, stats.binom.pmf(counts, trials[:, None], probability)
