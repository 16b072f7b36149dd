"""Amplification by shuffling: the central guarantee of a batch of locally randomized reports."""

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.numerics import binomial_range, largest_local_epsilon
from privateer_core.accounting.special_functions import Array, log_fair_pmf
from privateer_core.errors import SpecError

_TAIL: Final = 1e-20
"""Probability that truncation drops on either side. It is added to delta."""
_ROUNDING: Final = 1 + 1e-5
"""Covers what floating point loses in differences of binomial tails (measured: below 2e-7)."""
_WELL_BELOW: Final = 0.9
"""A bound for fewer people may serve for a larger batch if rounding cannot lift it to delta."""
_BUCKETS: Final = 32
"""Intervals into which the number of blanket messages is rounded down."""
_SHORT: Final = 6000
"""Rows of tails are quicker to compute together where there are fewer trials than that."""
_APART: Final = 1 + 1e-7
"""A local epsilon nearer to epsilon is rounded up: their difference would lose more than ``_ROUNDING`` covers."""
_RESOLUTION: Final = 1e-3
"""Local epsilons are searched, and published, in steps of this size."""


@lru_cache(maxsize=1 << 16)
def shuffled_delta(epsilon: float, local_epsilon: float, symbols: float, batch: int, share: float = 1.0) -> float:
    """Return delta at ``epsilon`` of a shuffled batch of randomized responses or subset selections with public coins.

    This is a certified upper bound for replacement neighbours: the privacy-blanket bound of Balle, Bell, Gascon and
    Nissim (CRYPTO 2019, Lemma 5.3) with all rounding towards a larger delta. For two symbols it is the lemma's value,
    which is an upper bound itself: the lemma shows the adversary which of the others' messages are the blanket's.

    A message is (coins, symbol). The coins are uniform and independent of the data; the symbol is randomized response
    around a true symbol that coins and data determine. With probability symbols / (e^local_epsilon + symbols - 1) a
    message is uniform over both whatever the data are: the blanket. The worst neighbours differ in their true symbol
    for all coins, and relabelling the symbols for each value of the coins maps them to plain randomized response.
    Subset selection has the bound of as many symbols as there are for each of a person's own, a whole number or not
    (docs/privacy/shuffling.md has the proof).

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
    share
        The chance, in (0, 1], with which public coins put each of the others in the person's group: the groups are a
        batch each, and everybody may see who is in which (docs/privacy/shuffling.md has the proof).

    Notes
    -----
    With e = e^epsilon, l = e^local_epsilon and M blanket messages, of which A carry the true symbol and B the
    neighbour's, the bound is E[symbols / (l + symbols - 1) * ((l - 1)(A - e B)/M - (e - 1))_+] for
    M = 1 + Bin(batch - 1, share * blanket), T = A + B ~ Bin(M, 2/symbols), A ~ Bin(T, 1/2). Given T it falls with M, so
    M is rounded down.
    """
    if local_epsilon <= epsilon:
        return 4 * _TAIL
    local_epsilon = max(local_epsilon, epsilon * _APART)
    weight = 1.0 / (math.exp(local_epsilon) + symbols - 1)
    each = share * weight
    pairs, pairs_mass = _exact(batch - 1, 2 * each)
    # The fewer the other messages the larger the bound, so the fewest that any number of pairs leaves serve for all.
    least_rest = batch - 1 - int(pairs[-1])
    rest, rest_mass = _rounded_down(least_rest, (symbols - 2) * each / (1 - 2 * each))
    e, more = math.exp(epsilon), math.expm1(local_epsilon)
    slope, fixed = more * (1 + e), math.expm1(epsilon)
    others = rest[:, None] + 1
    masses = rest_mass[:, None] * pairs_mass / (pairs + others)
    # The person's own message, uniform in the blanket's bookkeeping, is one of the two symbols or neither.
    delta = 4 * symbols * _TAIL
    for own, chance in ((1, 2 / symbols), (0, 1 - 2 / symbols)):
        if chance:
            limits = (more * e * (pairs + own) + fixed * pairs) / slope + fixed / slope * others
            excess = _mean_excess(pairs + own, limits)
            delta += chance * symbols * weight * slope * float((masses * excess).sum())
    return min(1.0, delta * _ROUNDING)


def _exact(trials: int, probability: float) -> tuple[Array, Array]:
    """Return the points of a binomial without its tails, and their probabilities."""
    low, high = binomial_range(trials, probability, _TAIL)
    points = np.arange(low, high + 1, dtype=np.float64)
    mode = min(int((trials + 1) * probability), trials) - low
    # From its mode a binomial falls to both sides, and all that it has there is 1 but for its tails.
    odds = (trials - points[:-1]) * probability / ((points[:-1] + 1) * (1 - probability))
    up, down = np.cumprod(odds[mode:]), np.cumprod(1 / odds[:mode][::-1])
    masses = np.concatenate((down[::-1], [1.0], up))
    return points, masses / masses.sum()


def _rounded_down(trials: int, probability: float) -> tuple[Array, Array]:
    """Round a binomial down to the lower ends of at most ``_BUCKETS`` intervals; return points and their masses."""
    points, masses = _exact(trials, probability)
    starts = np.unique(np.linspace(0, len(points), _BUCKETS + 1).astype(np.int64)[:-1])
    mass = np.add.reduceat(masses, starts)
    return points[starts][mass > 0], mass[mass > 0]


def _mean_excess(trials: Array, limits: Array) -> Array:
    """Return E[(A - limit)_+] over A ~ Bin(trials, 1/2), for consecutive trials and rows of limits for them.

    A limit is above half of its trials. Limits rise by less than 1 with each trial, and from row to row. The tails from
    a whole number on, and the mean excess over it, follow from those of the next number.
    """
    least = np.floor(limits) + 1
    # Rounding must not let a number rise by 2.
    low = np.minimum.accumulate(least[0] - trials) + trials
    height = int(np.max(least[-1] - low))
    if len(limits) > 1 and height > len(limits) * (2 + _SHORT / len(trials)):
        return np.concatenate([_mean_excess(trials, row) for row in limits[:, None]])
    numbers = low + np.arange(height + 1)[:, None]
    at, top_tails, top_excess = _band(trials, numbers)
    tails = _from_last(np.concatenate((at[:-1], top_tails[None])))
    excess = _from_last(np.concatenate((tails[1:], top_excess[None])))
    where = (np.maximum(least - low, 0) * len(trials) + np.arange(len(trials))).astype(np.intp)
    return np.asarray(excess.take(where) + (least - limits) * tails.take(where))


def _band(trials: Array, numbers: Array) -> tuple[Array, Array, Array]:
    """Return P(A = number) of all numbers, and P(A >= number) and E[(A - number)_+] of the last row.

    A row is the one before plus 1. Its numbers rise by 0 or 1 with each trial, so that each tail differs by one term
    from the tail of one trial more. Sums begin at both ends and meet at the largest probability: they lose no digits.
    """
    low, top, later = numbers[0], numbers[-1], trials[1:]
    rises = low[1:] > low[:-1]
    with np.errstate(divide="ignore"):  # more than all trials have probability 0
        back = np.log(np.maximum(np.where(rises, low[1:], later - low[1:]), 0.0) * (2 / later))
        up = np.log(np.maximum(trials - numbers[:-1], 0.0) / (numbers[:-1] + 1))
    logs = _from_last(np.concatenate((back, [log_fair_pmf(int(low[-1]), int(trials[-1]))])))
    at = np.exp(np.cumsum(np.concatenate((logs[None], up)), axis=0))
    # What one trial fewer has at one success less, halved.
    half = at[-1, 1:] * top[1:] / later
    signs, from_start = np.where(rises, -1.0, 1.0), np.arange(len(trials)) <= np.argmax(at[-1])
    first_tail, first_excess = _fair_tail(int(top[0]), int(trials[0]))
    last_tail, last_excess = _fair_tail(int(top[-1]), int(trials[-1]))
    tails = _summed(first_tail, signs * half, last_tail, from_start)
    return at, tails, _summed(first_excess, signs * (tails[1:] - half) / 2, last_excess, from_start)


def _summed(first: float, steps: Array, last: float, from_start: NDArray[np.bool_]) -> Array:
    """Return values with these steps between them, summed from the first one or from the last."""
    forwards, backwards = np.cumsum(np.concatenate(([first], steps))), _from_last(np.concatenate((-steps, [last])))
    return np.where(from_start, forwards, backwards)


def _from_last(terms: Array) -> Array:
    """Return for each term the sum from it to the last one, along the first axis."""
    return np.cumsum(terms[::-1], axis=0)[::-1]


def _fair_tail(number: int, trials: int) -> tuple[float, float]:
    """Return P(A >= number) and E[(A - number)_+] over A ~ Bin(trials, 1/2), for a number above half of the trials."""
    # Until the last of these points, probabilities fall by more than e^-40.
    points = np.arange(number, min(trials, number + int(math.sqrt(20 * trials)) + 1))
    ratios = np.cumprod(np.concatenate(([1.0], (trials - points) / (points + 1))))
    at = math.exp(log_fair_pmf(number, trials))
    return at * float(ratios.sum()), at * float(ratios @ np.arange(len(ratios)))


@lru_cache(maxsize=4096)
def amplified_local_epsilon(
    epsilon: float, delta: float, symbols: float, batch: int, limit: float, share: float = 1.0
) -> float:
    """Return the largest local epsilon, at most ``limit``, whose shuffled batch is (epsilon, delta)-private.

    Parameters
    ----------
    epsilon, delta
        Central promise, > 0.
    symbols, batch, share
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
    if shuffled_delta(epsilon, limit, symbols, fewer, share) <= _WELL_BELOW * delta:
        return limit

    return largest_local_epsilon(
        lambda local_epsilon: shuffled_delta(epsilon, local_epsilon, symbols, batch, share),
        delta,
        least,
        limit,
        _RESOLUTION,
    )
