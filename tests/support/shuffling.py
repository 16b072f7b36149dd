"""Independent oracles for shuffled randomized response: exact for small batches, the blanket lemma for larger ones."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

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
