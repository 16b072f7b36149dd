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


def subset_delta(epsilon: float, local_epsilon: float, symbols: float, batch: int, share: float = 1.0) -> float:
    """The lemma for as many symbols for each own one, whole or not, person by person: E(X_1 + ... + X_n)_+ / n.

    X is l - e for a blanket message of the one set, 1 - e l of the other, 1 - e of neither, and 0 for another message,
    or for a person who is not in the group that a share of them is in.
    """
    l, e = math.exp(local_epsilon), math.exp(epsilon)  # noqa: E741
    p = share / (l + symbols - 1)
    total = 0.0
    for indice in range(batch + 1):
        reached = stats.binom.pmf(indice, batch, p)
        if reached < _NOTHING:
            continue
        other = np.arange(batch - indice + 1)
        mass = stats.binom.pmf(other, batch - indice, p / (1 - p))
        for count, chance in zip(other[mass > _NOTHING], mass[mass > _NOTHING], strict=True):
            n_remaining = batch - indice - count
            counts = np.arange(n_remaining + 1)
            excess = indice * (l - e) + count * (1 - e * l) + counts * (1 - e)
            rest = max(0.0, (symbols - 2) * p) / (1 - 2 * p)
            total += reached * chance * float(stats.binom.pmf(counts, n_remaining, rest) @ np.maximum(excess, 0))
    return total / (batch * share)
