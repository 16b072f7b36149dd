"""Amplification by shuffling: the central guarantee of a batch of locally randomized reports."""

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.numerics import binomial_range, largest_local_epsilon
from privateer_core.accounting.special_functions import binomial_pmf, binomial_tails
from privateer_core.errors import SpecError

_TAIL: Final = 1e-20
"""Probability that truncation drops on either side. It is added to delta."""
_ROUNDING: Final = 1 + 1e-5
"""Covers what floating point loses in differences of binomial tails (measured: below 2e-7)."""
_WELL_BELOW: Final = 0.9
"""A bound for fewer people may serve for a larger batch if rounding cannot lift it to delta."""
_BUCKETS: Final = 32
"""Intervals into which the number of blanket messages is rounded down."""
_RESOLUTION: Final = 1e-3
"""Local epsilons are searched, and published, in steps of this size."""


@lru_cache(maxsize=1 << 16)
def shuffled_delta(epsilon: float, local_epsilon: float, symbols: float, batch: int) -> float:
    """Return delta at ``epsilon`` of a shuffled batch of randomized responses or subset selections with public coins.

    This is a certified upper bound for replacement neighbours: the privacy-blanket bound of Balle, Bell, Gascon and
    Nissim (CRYPTO 2019, Lemma 5.3) with all rounding towards a larger delta. For two symbols it is the lemma's value,
    which is an upper bound itself: the lemma shows the adversary which of the others' messages are the blanket's.

    A message is (coins, symbol). The coins are uniform and independent of the data; the symbol is randomized response
    around a true symbol that coins and data determine. With probability symbols / (e^local_epsilon + symbols - 1) a
    message is uniform over both whatever the data are: the blanket. The worst neighbours differ in their true symbol
    for all coins, and relabelling the symbols for each value of the coins maps them to plain randomized response.
    Subset selection has the bound of as many symbols as there are for each of a person's own, a whole number or not
    (docs/privacy.md has the proof).

    Parameters
    ----------
    epsilon
        Central epsilon, > 0.
    local_epsilon
        Epsilon of one report, > 0.
    symbols
        Size of the alphabet; of subset selection, over the number of a person's own symbols; >= 2.
    batch
        Reports that the amplification relies on, the person's own included, >= 1.

    Notes
    -----
    With e = e^epsilon, l = e^local_epsilon and M blanket messages, of which A carry the true symbol and B the
    neighbour's, the bound is E[symbols / (l + symbols - 1) * ((l - 1)(A - e B)/M - (e - 1))_+] for
    M = 1 + Bin(batch - 1, blanket), T = A + B ~ Bin(M, 2/symbols), A ~ Bin(T, 1/2). Given T it falls with M, so M is
    rounded down.
    """
    if local_epsilon <= epsilon:
        return 4 * _TAIL
    weight = 1.0 / (math.exp(local_epsilon) + symbols - 1)
    pairs, pairs_mass = _exact(batch - 1, 2 * weight)
    # The fewer the other messages the larger the bound, so the fewest that any number of pairs leaves serve for all.
    least_rest = batch - 1 - int(pairs[-1])
    rest, rest_mass = _rounded_down(least_rest, (symbols - 2) * weight / (1 - 2 * weight))
    # The person's own message, uniform in the blanket's bookkeeping, is one of the two symbols or neither.
    delta = 4 * symbols * _TAIL
    for own, share in ((1, 2 / symbols), (0, 1 - 2 / symbols)):
        messages = pairs[:, None] + rest[None, :] + 1
        excess = _excess(pairs[:, None] + own, messages, epsilon, local_epsilon, symbols)
        delta += share * float(pairs_mass @ excess @ rest_mass)
    return min(1.0, delta * _ROUNDING)


def _exact(trials: int, probability: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points of a binomial without its tails, and their probabilities."""
    low, high = binomial_range(trials, probability, _TAIL)
    points = np.arange(low, high + 1, dtype=np.float64)
    return points, binomial_pmf(points, trials, probability)


def _rounded_down(trials: int, probability: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Round a binomial down to the lower ends of at most ``_BUCKETS`` intervals; return points and their masses."""
    low, high = binomial_range(trials, probability, _TAIL)
    points = np.unique(np.linspace(low, high + 1, _BUCKETS + 1).astype(np.int64)[:-1])
    below = binomial_tails(points, trials, probability).below if probability else np.ones(len(points))
    below[0] = 0.0
    mass = np.diff(np.append(below, 1.0))
    return points[mass > 0].astype(np.float64), mass[mass > 0]


def _excess(
    pairs: NDArray[np.float64], messages: NDArray[np.float64], epsilon: float, local_epsilon: float, symbols: float
) -> NDArray[np.float64]:
    """Return E[(slope A - offset)_+] / messages over A ~ Bin(pairs, 1/2), in closed form by binomial tails."""
    e, l = math.exp(epsilon), math.exp(local_epsilon)  # noqa: E741
    more = math.expm1(local_epsilon)
    slope = more * (1 + e)
    offset = more * e * pairs + math.expm1(epsilon) * messages
    least = np.floor(offset / slope) + 1
    trials, least = np.broadcast_arrays(np.maximum(pairs, 1.0), least)
    # Of one trial more, half of those at the limit reach the next number. Neighbours may ask for the same tails.
    new = np.append(True, (np.diff(least.ravel()) != 0) | (np.diff(trials.ravel()) != 0))
    which = np.cumsum(new).reshape(least.shape) - 1
    asked, of = least.ravel()[new], trials.ravel()[new]
    tails = binomial_tails(asked - 1, of - 1, 0.5)
    one, both = tails.at_least[which], (tails.at_least - tails.at / 2)[which]
    gain = slope * pairs / 2 * one - offset * both
    return np.asarray(np.maximum(np.where(pairs > 0, gain, 0.0), 0.0) * symbols / (l + symbols - 1) / messages)


@lru_cache(maxsize=4096)
def amplified_local_epsilon(epsilon: float, delta: float, symbols: float, batch: int, limit: float) -> float:
    """Return the largest local epsilon, at most ``limit``, whose shuffled batch is (epsilon, delta)-private.

    Parameters
    ----------
    epsilon, delta
        Central promise, > 0.
    symbols, batch
        As `shuffled_delta`.
    limit
        The local epsilon must not exceed it. It protects a person if shuffler and server collude.

    Returns
    -------
    float
        A multiple of 0.001, at least ``min(epsilon, limit)`` (a report that is private alone needs no amplification).

    Raises
    ------
    SpecError
        If ``batch`` is below 1.
    """
    if batch < 1:
        raise SpecError("the amplification relies on no report", field="privacy.honest_fraction", remedy="raise it")
    least = min(epsilon, limit)
    # More people never harm, so a delta that fewer people reach needs no new computation. Large batches rely on this.
    fewer = 1 << (batch.bit_length() - 1)
    if shuffled_delta(epsilon, limit, symbols, fewer) <= _WELL_BELOW * delta:
        return limit

    return largest_local_epsilon(
        lambda local_epsilon: shuffled_delta(epsilon, local_epsilon, symbols, batch), delta, least, limit, _RESOLUTION
    )
