"""Amplification by shuffling: the central guarantee of a batch of locally randomized reports."""

import math
from functools import lru_cache
from typing import Final

import numpy as np

from privateer_core.accounting.numerics import binomial_range, largest_local_epsilon
from privateer_core.accounting.special_functions import Array, binomial_pmf, binomial_tails, log_fair_pmf
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
    e, more = math.exp(epsilon), math.expm1(local_epsilon)
    slope, others = more * (1 + e), rest[:, None] + 1
    # The person's own message, uniform in the blanket's bookkeeping, is one of the two symbols or neither.
    delta = 4 * symbols * _TAIL
    for own, share in ((1, 2 / symbols), (0, 1 - 2 / symbols)):
        if share:
            trials, messages = pairs + own, pairs + others
            limits = (more * e * trials + math.expm1(epsilon) * messages) / slope
            excess = _mean_excess(trials, limits, 2 * (others - own) / (more + 2)) / messages
            delta += share * symbols * weight * slope * float(rest_mass @ excess @ pairs_mass)
    return min(1.0, delta * _ROUNDING)


def _exact(trials: int, probability: float) -> tuple[Array, Array]:
    """Return the points of a binomial without its tails, and their probabilities."""
    low, high = binomial_range(trials, probability, _TAIL)
    points = np.arange(low, high + 1, dtype=np.float64)
    return points, binomial_pmf(points, trials, probability)


def _rounded_down(trials: int, probability: float) -> tuple[Array, Array]:
    """Round a binomial down to the lower ends of at most ``_BUCKETS`` intervals; return points and their masses."""
    low, high = binomial_range(trials, probability, _TAIL)
    points = np.unique(np.linspace(low, high + 1, _BUCKETS + 1).astype(np.int64)[:-1])
    below = binomial_tails(points, trials, probability).below if probability else np.ones(len(points))
    below[0] = 0.0
    mass = np.diff(np.append(below, 1.0))
    return points[mass > 0].astype(np.float64), mass[mass > 0]


def _mean_excess(trials: Array, limits: Array, peak: Array) -> Array:
    """Return E[(A - limit)_+] over A ~ Bin(trials, 1/2), for consecutive trials and a row of limits of each.

    A limit is above half of its trials, and rises by at most 1 with each of them. The probability of the next whole
    number, the tail from there on and the mean excess over it follow from those of one trial more or fewer. Sums begin
    at the ends of a row and end at its ``peak``, the trials with the largest tail, so that they cancel no digits.
    """
    # Rounding must not let a number rise by 2.
    least = np.minimum.accumulate(np.floor(limits) + 1 - trials, axis=1) + trials
    rises = np.diff(least, axis=1) > 0
    last, later, above = trials[-1], trials[1:], least[:, 1:]
    log, *ends = _fair_tails(int(last), least[:, -1])
    _, *starts = _fair_tails(int(trials[0]), least[:, 0])
    with np.errstate(divide="ignore"):  # more than all trials have probability 0
        logs = np.log(np.maximum(np.where(rises, above, later - above), 0.0) * (2 / later))
    at = np.exp(log[:, None] + _from_last(np.append(logs, np.zeros((len(logs), 1)), axis=1)))
    # Half of what one trial fewer has at one success less.
    half = at[:, 1:] * above / later
    signs, from_start = np.where(rises, -1.0, 1.0), trials <= peak
    tails = _summed(starts[0], ends[0], signs * half, from_start)
    excess = _summed(starts[1], ends[1], signs * (tails[:, 1:] - half) / 2, from_start)
    return excess + (least - limits) * tails


def _summed(start: Array, end: Array, steps: Array, from_start: Array) -> Array:
    """Return rows with these steps, each place summed from the start or from the end of its row."""
    forwards = np.cumsum(np.append(start[:, None], steps, axis=1), axis=1)
    backwards = _from_last(np.append(-steps, end[:, None], axis=1))
    return np.where(from_start, forwards, backwards)


def _from_last(terms: Array) -> Array:
    """Return the sums of what each row has from a place on."""
    return np.cumsum(terms[:, ::-1], axis=1)[:, ::-1]


def _fair_tails(trials: int, numbers: Array) -> tuple[Array, Array, Array]:
    """Return of numbers above half of the trials log P(A = number), P(A >= number) and E[(A - number)_+]."""
    first = int(numbers.min())
    if first > trials:
        none = np.zeros(len(numbers))
        return none - math.inf, none, none
    # From a number to this one, probabilities fall by more than e^-40.
    last = min(trials, int(numbers.max() + math.sqrt(20 * trials)) + 1)
    points = np.arange(first, last, dtype=np.float64)
    logs = np.cumsum(np.append(log_fair_pmf(first, trials), np.log((trials - points) / (points + 1))))
    tails = np.cumsum(np.exp(logs)[::-1])
    excess = np.cumsum(tails) - tails
    which = np.minimum(numbers - first, len(logs)).astype(np.int64)
    return np.append(logs, -math.inf)[which], np.append(tails[::-1], 0.0)[which], np.append(excess[::-1], 0.0)[which]


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
