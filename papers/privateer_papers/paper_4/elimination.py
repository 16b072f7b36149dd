"""What becomes of one bin's people under ConSE and DP-ConSE, person by person in distribution."""

import numpy as np
from numpy.typing import NDArray

from privateer_papers.paper_4.numbers import ConSE

Array = NDArray[np.float64]


def eliminate(algorithm: ConSE, people: int, means: Array, rng: np.random.Generator) -> tuple[int, int | None]:
    """Return after how many of a bin's people one arm is left, and which; None if both are after all of them."""
    used, epoch = 0, 0
    while True:
        length = algorithm.randomized(algorithm.length(epoch), rng) if epoch else 1
        if used + length > people:
            return people, None
        used += length
        if epoch:
            apart = algorithm.apart(*_tossed(length, means, rng), length, rng)
            if abs(apart) > algorithm.margin(epoch):
                return used, int(apart > 0)
        epoch += 1


def estimate(algorithm: ConSE, people: int, means: Array, rng: np.random.Generator) -> tuple[int, float]:
    """Return how many people of a wide bin flip coins, and the effect that is published of it."""
    length = algorithm.randomized(algorithm.coins, rng)
    used = min(people, length)
    return used, algorithm.effect(*_tossed(used, means, rng), length, rng)


def _tossed(people: int, means: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Have so many people flip coins: return what each arm won, and how often it was played."""
    treated = rng.binomial(people, 0.5)
    played = np.array([people - treated, treated])
    return rng.binomial(played, means).astype(np.float64), played.astype(np.float64)
