"""Choice of a symbol's public directions, and of how many are a person's own, by the error that is left."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np

from privateer_core.accounting.allotment import Allotment, allot, allotted_subset_epsilon
from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.special_functions import binomial_tails, cap_share, quadrature
from privateer_core.errors import SpecError
from privateer_core.sampling.response import SubsetResponse

_NEARLY: Final = 1.02
"""An error within this factor of the least will do, if it takes fewer directions."""
CROWD: Final = 20_000
"""The most honest people of a batch that several messages count on: more never harm, and devices compose no crowds."""
_TRIED: Final = 50
"""Numbers of chosen directions that are tried for a shuffled batch."""
_RATIOS: Final = (2, 8, 32, 128, 512, 2048)
"""Symbols for each of a person's own, for which the local epsilon that a batch allows is computed to choose by."""
DIRECTIONS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_NODES: Final = 200
"""Number of nodes of the quadrature over products."""


@lru_cache(maxsize=4096)
def products(dimension: int, directions: int, chosen: int) -> tuple[float, float]:
    """Means of product and squared product of a unit vector with one of its chosen directions, picked uniformly.

    One product's square is Beta(1/2, (dimension - 1) / 2), dimension at least 2. With N of the absolute products above
    x, min(chosen, N) of the chosen ones are; N is binomial, and the integral of that number's mean over x sums them.
    """
    # Beyond 12 standard deviations of a product nothing that matters is left; x = end sin(angle) is smooth up to x = 1.
    end = min(1.0, 12 / math.sqrt(dimension))
    angles, weights = (one * math.pi / 2 for one in quadrature(_NODES))
    x, steps = end * np.sin(angles), end * np.cos(angles) * weights
    share = cap_share(dimension, x)
    few = directions * share * binomial_tails(chosen - 1, directions - 1, share).below
    above = few / chosen + binomial_tails(chosen, directions, share).at_least
    return float(steps @ above), float(steps @ (2 * x * above))


def response_of(epsilon: float, directions: int, chosen: int) -> SubsetResponse:
    """Return the randomizer of a symbol: each direction comes with either sign.

    Raises
    ------
    SpecError
        If epsilon is too small for any.
    """
    response = SubsetResponse(epsilon, 2 * directions, chosen)
    if response.threshold == 0:
        raise SpecError("too small to tell anything", field="epsilon", remedy="choose a larger epsilon")
    return response


def unit_variance(coordinates: int, epsilon: float, directions: int, chosen: int, length: float) -> float:
    """Return the exact variance of one symbol for a vector of a length in a ball of radius 1, over all coordinates.

    A named direction is c u + sqrt(1 - c^2) w, u the lifted vector and w uniform among what is orthogonal to it.
    What the report leaves out is its last coordinate.
    """
    gain, (product, squared) = (
        response_of(epsilon, directions, chosen).gain,
        products(coordinates + 1, directions, chosen),
    )
    square, lift = gain * squared + (1 - gain) / (coordinates + 1), 1 - length**2
    last = square * lift + (1 - square) * (1 - lift) / coordinates
    return (1 / (product * gain)) ** 2 * (1 - last) - length**2


@lru_cache(maxsize=1 << 14)
def unit_error(coordinates: int, epsilon: float, directions: int, chosen: int) -> float:
    """Return the variance of one symbol in a ball of radius 1, for the vectors for which it is largest."""
    return max(unit_variance(coordinates, epsilon, directions, chosen, length) for length in (0.0, 1.0))


@lru_cache(maxsize=256)
def best_directions(coordinates: int, epsilon: float) -> tuple[int, int]:
    """Numbers of directions and of chosen ones at a local epsilon; see `VectorSymbol.calibrated`."""
    return _best(coordinates, lambda directions: dict.fromkeys(_counts(directions, epsilon), epsilon))


def _best(coordinates: int, counts: Callable[[int], dict[int, float]]) -> tuple[int, int]:
    """Return the fewest directions, and how many are chosen, within 2 % of the least error.

    ``counts`` has the numbers of chosen ones that are tried with so many directions, each with its local epsilon.
    """
    found: dict[tuple[int, int], float] = {}
    for directions in DIRECTIONS:
        tried = {c: unit_error(coordinates, e, directions, c) for c, e in counts(directions).items()}
        chosen = min(tried, key=tried.__getitem__)
        found[directions, chosen] = tried[chosen]
    return next(pair for pair, error in found.items() if error <= _NEARLY * min(found.values()))


@lru_cache(maxsize=1024)
def amplified_directions(
    coordinates: int, promise: tuple[float, float], honest: int, limit: float, share: Allotment | None
) -> tuple[float, int, int]:
    """Return the local epsilon, directions and chosen ones of a shuffled batch; see `VectorSymbol.amplified`.

    The local epsilon that a batch allows depends on how many symbols there are for each of a person's own, and grows
    with it. To choose, we take it from a few such numbers; what is chosen gets its own.
    """

    def local(symbols: int, own: int, *, proved: bool) -> float:
        if share is None:
            return amplified_local_epsilon(*promise, symbols / own, honest, limit)
        return allotted_subset_epsilon(share, symbols, own, honest, limit, proved=proved)

    most = [local(ratio, 1, proved=False) for ratio in _RATIOS]

    def counts(directions: int) -> dict[int, float]:
        tried = {round(count) for count in np.geomspace(1, directions, _TRIED)}
        return {c: float(np.interp(math.log(2 * directions / c), np.log(_RATIOS), most)) for c in sorted(tried)}

    directions, chosen = _best(coordinates, counts)
    return local(2 * directions, chosen, proved=True), directions, chosen


@lru_cache(maxsize=1024)
def several_directions(
    coordinates: int, promise: tuple[float, float], honest: int, limit: float, repeats: int
) -> tuple[float, int, int]:
    """Return the local epsilon of each of several messages, directions and chosen ones; see `VectorSymbol.amplified`.

    The messages share the promise as several reports would, by a rule that is quick and a little more than enough.
    """
    share = allot(*promise, repeats, 0.0)
    return amplified_directions(coordinates, promise, min(honest, CROWD), math.nextafter(limit, 0.0) / repeats, share)


def _counts(directions: int, epsilon: float) -> list[int]:
    """Numbers of chosen directions worth trying: around the share that serves a response of many symbols best."""
    share = 2 / (1 + math.exp(epsilon))
    around = {round(directions * share * factor) for factor in np.geomspace(0.25, 32.0, 50)}
    return sorted({min(max(count, 1), directions) for count in around})
