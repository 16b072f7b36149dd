"""Choice of the numbers of a symbol's public directions and of a participant's own directions, by their error."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np

from privateer_core.accounting.allotment import Allotment, allot, allotted_local_epsilon
from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.special_functions import binomial_tails, cap_share, gauss_legendre_rule
from privateer_core.errors import SpecError
from privateer_core.sampling.randomness import SubsetResponse

_ERROR_TOLERANCE: Final = 1.02
"""Factor of the smallest error within which fewer directions are preferred."""
HONEST_MAX: Final = 20_000
"""Largest number of honest reports that several messages count on: larger batches take devices too long to compose."""
_N_TRIED_COUNTS: Final = 50
"""Number of counts of chosen directions that are tried for a shuffled batch."""
_SYMBOL_RATIOS: Final = (2, 8, 32, 128, 512, 2048)
"""Ratios of symbols to own symbols at which the local epsilon of a batch is computed, for interpolation."""
DIRECTIONS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_QUADRATURE_NODES: Final = 200
"""Number of nodes of the quadrature over products."""


@lru_cache(maxsize=4096)
def mean_products(dimension: int, directions: int, chosen: int) -> tuple[float, float]:
    """Return the means of product and squared product of a unit vector with a uniform one of its chosen directions.

    A product's square is Beta(1/2, (dimension - 1) / 2), dimension at least 2. With N of the absolute products above x,
    min(chosen, N) of the chosen ones are; N is binomial, and the integral of that number's mean over x sums them.
    """
    # Products beyond 12 standard deviations are negligible; x = end sin(angle) is smooth up to x = 1.
    end = min(1.0, 12 / math.sqrt(dimension))
    angles, weights = (column * math.pi / 2 for column in gauss_legendre_rule(_QUADRATURE_NODES))
    x, steps = end * np.sin(angles), end * np.cos(angles) * weights
    share = cap_share(dimension, x)
    mean_above = directions * share * binomial_tails(chosen - 1, directions - 1, share).below
    survival = mean_above / chosen + binomial_tails(chosen, directions, share).at_least
    return float(steps @ survival), float(steps @ (2 * x * survival))


def build_response(epsilon: float, directions: int, chosen: int) -> SubsetResponse:
    """Return the randomizer of a symbol, each direction with either sign; refuse an epsilon too small for any."""
    response = SubsetResponse(epsilon, 2 * directions, chosen)
    if response.threshold == 0:
        raise SpecError("too small to tell anything", field="epsilon", remedy="choose a larger epsilon")
    return response


def unit_variance(coordinates: int, epsilon: float, directions: int, chosen: int, length: float) -> float:
    """Return the exact variance of a symbol for a vector of a length in a ball of radius 1, over all coordinates.

    A named direction is c u + sqrt(1 - c^2) w, u the lifted vector and w a uniform vector orthogonal to it. The
    estimate omits its last coordinate.
    """
    gain = build_response(epsilon, directions, chosen).gain
    product, product_square = mean_products(coordinates + 1, directions, chosen)
    square, lift = gain * product_square + (1 - gain) / (coordinates + 1), 1 - length**2
    last_square = square * lift + (1 - square) * (1 - lift) / coordinates
    return (1 / (product * gain)) ** 2 * (1 - last_square) - length**2


@lru_cache(maxsize=1 << 14)
def unit_error(coordinates: int, epsilon: float, directions: int, chosen: int) -> float:
    """Return the largest variance of a symbol over all vectors in a ball of radius 1."""
    return max(unit_variance(coordinates, epsilon, directions, chosen, length) for length in (0.0, 1.0))


@lru_cache(maxsize=256)
def best_directions(coordinates: int, epsilon: float) -> tuple[int, int]:
    """Return the numbers of directions and of chosen directions at a local epsilon; see `VectorSymbol.calibrated`."""
    return _fewest_directions(coordinates, lambda n: dict.fromkeys(_candidate_counts(n, epsilon), epsilon))


def _fewest_directions(coordinates: int, counts: Callable[[int], dict[int, float]]) -> tuple[int, int]:
    """Return the smallest number of directions within 2 % of the smallest error, and the number of chosen ones.

    ``counts`` maps a number of directions to the tried numbers of chosen ones, each with its local epsilon.
    """
    errors: dict[tuple[int, int], float] = {}
    for directions in DIRECTIONS:
        errors_by_count = {c: unit_error(coordinates, e, directions, c) for c, e in counts(directions).items()}
        chosen = min(errors_by_count, key=errors_by_count.__getitem__)
        errors[directions, chosen] = errors_by_count[chosen]
    return next(pair for pair, error in errors.items() if error <= _ERROR_TOLERANCE * min(errors.values()))


@lru_cache(maxsize=1024)
def amplified_directions(
    coordinates: int, promise: tuple[float, float], honest: int, limit: float, share: Allotment | None
) -> tuple[float, int, int]:
    """Return local epsilon, directions and chosen directions of a shuffled batch; see `VectorSymbol.amplified`.

    The local epsilon that a batch allows grows with the ratio of symbols to own symbols. The search interpolates it
    between a few ratios; the result has its exact local epsilon.
    """

    def largest_epsilon(symbols: int, n_own: int, *, proved: bool) -> float:
        if share is None:
            return amplified_local_epsilon(*promise, symbols / n_own, honest, limit)
        return allotted_local_epsilon(share, symbols, honest, limit, n_own=n_own, proved=proved)

    ratio_epsilons = [largest_epsilon(ratio, 1, proved=False) for ratio in _SYMBOL_RATIOS]

    def counts(directions: int) -> dict[int, float]:
        tried_counts = sorted({round(count) for count in np.geomspace(1, directions, _N_TRIED_COUNTS)})
        log_ratios = [math.log(2 * directions / count) for count in tried_counts]
        epsilons = np.interp(log_ratios, np.log(_SYMBOL_RATIOS), ratio_epsilons).tolist()
        return dict(zip(tried_counts, epsilons, strict=True))

    directions, chosen = _fewest_directions(coordinates, counts)
    return largest_epsilon(2 * directions, chosen, proved=True), directions, chosen


@lru_cache(maxsize=1024)
def several_directions(
    coordinates: int, promise: tuple[float, float], honest: int, limit: float, repeats: int
) -> tuple[float, int, int]:
    """Return the local epsilon of each of several messages, directions and chosen ones; see `amplified_directions`.

    The messages share the promise as several reports do, by a quick and slightly conservative rule.
    """
    share, message_limit = allot(*promise, repeats, 0.0), math.nextafter(limit, 0.0) / repeats
    return amplified_directions(coordinates, promise, min(honest, HONEST_MAX), message_limit, share)


def _candidate_counts(directions: int, epsilon: float) -> list[int]:
    """Return numbers of chosen directions to try, around the best share for a response of many symbols."""
    share = 2 / (1 + math.exp(epsilon))
    candidates = {round(directions * share * factor) for factor in np.geomspace(0.25, 32.0, 50)}
    return sorted({min(max(count, 1), directions) for count in candidates})
