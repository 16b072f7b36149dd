"""Amplification by shuffling: the central guarantee of a batch of reports, exact or by clones."""

import math
from functools import lru_cache
from typing import Final

import numpy as np

from privateer_core.accounting.numerics import binomial_range, check, largest_local_epsilon
from privateer_core.accounting.special_functions import binomial_pmf, binomial_tails, log_fair_pmf
from privateer_core.arrays import Array, Bools
from privateer_core.errors import SpecError

TAIL_MASS: Final = 1e-20
_CLONES_ROUNDING_FACTOR: Final = 1 + 1e-9
"""Factor that covers rounding errors of binomial probabilities."""
_TAIL_ERROR: Final = 4e-15
"""Relative error of a binomial tail, times the root of its trials (measured: a third of it, for 10^3 to 10^9). The
excess is a small difference of tails, so the error is added to it and not multiplied with it."""
BATCH_MAX: Final = 10**9
_CLONES_RESOLUTION: Final = 1e-4


@lru_cache(maxsize=1 << 16)
def clones_delta(epsilon: float, local_epsilon: float, batch: int) -> float:
    """Return a certified upper bound of delta at ``epsilon`` of a shuffled batch of messages of pure local privacy.

    It holds for every randomizer, also adaptively (Theorem 3.2 and Lemma 3.3, evaluated exactly). The sharper form with
    more clones (SODA 2023) does not, as its authors' erratum says (arXiv 2208.04591), and is not used here.

    Parameters
    ----------
    epsilon
        Central epsilon, > 0.
    local_epsilon
        Pure epsilon of one message, in (0, 30].
    batch
        Number of messages that the amplification relies on, the participant's included, 1 to 10^9.

    Raises
    ------
    SpecError
        If an argument is out of range.

    Notes
    -----
    With q = e^local_epsilon / (1 + e^local_epsilon), C ~ Bin(batch - 1, e^-local_epsilon) clones and A ~ Bin(C, 1/2),
    the pair is A + Bern(q) against A + Bern(1 - q) with C known; the sum is over C, outside of which at most the
    truncated mass lies.
    """
    check("epsilon", epsilon, 0 < epsilon < math.inf, "above 0 and finite")
    check("local_epsilon", local_epsilon, 0 < local_epsilon <= 30, "above 0 and at most 30")
    check("batch", batch, 1 <= batch <= BATCH_MAX, "1 to 1e9")
    if local_epsilon <= epsilon:
        return 0.0
    q, e = 1 / (1 + math.exp(-local_epsilon)), math.exp(epsilon)
    probability = math.exp(-local_epsilon)
    trials = batch - 1
    low, high = binomial_range(trials, probability, TAIL_MASS)
    clones = np.arange(low, high + 1)
    # The likelihood ratio grows with the count: the best event is 'at least t'.
    threshold_share = (e * q - (1 - q)) / ((2 * q - 1) * (1 + e))
    thresholds = np.floor((clones + 1) * threshold_share) + 1
    tails = binomial_tails(thresholds - 1, clones, 0.5)
    tail_if_one, tail_if_zero = tails.at_least, tails.at_least - tails.at
    # Both differences are of tails, each at most P(A >= t - 1).
    error = _TAIL_ERROR * np.sqrt(clones + 1) * (1 + e) * tail_if_one
    excess = (q * tail_if_one + (1 - q) * tail_if_zero) - e * ((1 - q) * tail_if_one + q * tail_if_zero) + error
    delta = float(binomial_pmf(clones, trials, probability) @ np.maximum(excess, 0.0))
    return min(1.0, delta * _CLONES_ROUNDING_FACTOR + 2 * TAIL_MASS)


@lru_cache(maxsize=1024)
def clones_local_epsilon(epsilon: float, delta: float, batch: int, limit: float = 30.0) -> float:
    """Return the largest local epsilon up to ``limit`` whose batch is (epsilon, delta)-private by `clones_delta`."""
    check("delta", delta, 0 < delta < 1, "above 0 and below 1")
    return largest_local_epsilon(
        lambda e: clones_delta(epsilon, e, batch), delta, min(epsilon, limit), limit, _CLONES_RESOLUTION
    )


_BLANKET_ROUNDING_FACTOR: Final = 1 + 1e-5
"""Factor that covers rounding errors of differences of binomial tails (measured: below 2e-7)."""
_SAFE_DELTA_SHARE: Final = 0.8
"""The bound of a smaller batch holds for a larger batch if it is below this share of delta, despite rounding."""
_NODES_MAX: Final = 96
"""Largest number of intervals between the nodes to which counts of the blanket's other messages are moved."""
_NODES_MIN: Final = 16
_CELLS_MAX: Final = 40_000
"""Largest number of nodes times numbers of pairs, which determines the time of an evaluation."""
_JOINT_ROWS_TRIALS: Final = 6000
"""With fewer trials than this, it is quicker to compute rows of tails together."""
_EPSILON_RATIO_MIN: Final = 1 + 1e-7
"""A local epsilon nearer to epsilon is rounded up: ``_BLANKET_ROUNDING_FACTOR`` would not cover their difference."""
_RESOLUTION: Final = 1e-3
"""Local epsilons are searched, and published, in steps of this size."""


@lru_cache(maxsize=1 << 16)
def shuffled_delta(epsilon: float, local_epsilon: float, symbols: float, batch: int) -> float:
    """Return delta at ``epsilon`` of a shuffled batch of randomized responses or subset selections with public coins.

    This is a certified upper bound for replacement neighbours: the privacy-blanket bound of Balle, Bell, Gascon and
    Nissim (CRYPTO 2019, Lemma 5.3) with all rounding towards a larger delta. For two symbols it is the lemma's value,
    which is an upper bound itself: the lemma shows the adversary which other messages are the blanket's.

    A message is (coins, symbol). The coins are uniform and independent of the data; the symbol is randomized response
    around a true symbol that coins and data determine. With probability symbols / (e^local_epsilon + symbols - 1) a
    message is uniform over both for all data: the blanket. The worst neighbours differ in their true symbol for all
    coins, and relabelling the symbols for each value of the coins maps them to plain randomized response. Subset
    selection has the bound of randomized response with the ratio of all symbols to the participant's own ones, a whole
    number or not (docs/privacy/shuffling.md has the proof).

    Parameters
    ----------
    epsilon
        Central epsilon, > 0.
    local_epsilon
        Epsilon of one report, > 0.
    symbols
        Size of the alphabet; of subset selection, divided by the number of a participant's own symbols; >= 2.
    batch
        Number of reports that the amplification relies on, the participant's included, >= 1.

    Notes
    -----
    With e = e^epsilon, l = e^local_epsilon and the weight w = 1 / (l + symbols - 1), the bound is

        slope / batch E[(A - ((e l - 1) T + (e - 1) C) / slope)_+],  slope = (l - 1)(1 + e)

    for T ~ Bin(batch, 2 w) messages of either of the two symbols, of which A ~ Bin(T, 1/2) are the participant's, and
    C ~ Bin(batch - T, (symbols - 2) w / (1 - 2 w)) other messages of the blanket. The excess is convex in C, so that C
    may be moved to nodes on both sides of it while its mean stays: that never lowers the bound, and costs little.
    """
    if local_epsilon <= epsilon:
        return 4 * TAIL_MASS
    local_epsilon = max(local_epsilon, epsilon * _EPSILON_RATIO_MIN)
    weight = 1 / (math.exp(local_epsilon) + symbols - 1)
    pair_counts, pair_masses = trim_binomial(batch, 2 * weight)
    blanket_counts, blanket_masses = _move_to_nodes(batch - pair_counts, (symbols - 2) * weight / (1 - 2 * weight))
    e, e_minus_1 = math.exp(epsilon), math.expm1(epsilon)
    slope = math.expm1(local_epsilon) * (1 + e)
    limits = (math.expm1(epsilon + local_epsilon) * pair_counts + e_minus_1 * blanket_counts[:, None]) / slope
    excess = float((pair_masses * blanket_masses * _mean_excess(pair_counts, limits)).sum())
    return min(1.0, (4 * symbols * TAIL_MASS + slope / batch * excess) * _BLANKET_ROUNDING_FACTOR)


def trim_binomial(trials: int, probability: float) -> tuple[Array, Array]:
    """Return the points of a binomial without its tails, and their probabilities."""
    low, high = binomial_range(trials, probability, TAIL_MASS)
    points = np.arange(low, high + 1, dtype=np.float64)
    mode = min(int((trials + 1) * probability), trials) - low
    # Probabilities fall from the mode to both sides, and their sum is 1 without the tails.
    ratios = (trials - points[:-1]) * probability / ((points[:-1] + 1) * (1 - probability))
    up, down = np.cumprod(ratios[mode:]), np.cumprod(1 / ratios[:mode][::-1])
    probabilities = np.concatenate((down[::-1], [1.0], up))
    return points, probabilities / probabilities.sum()


def _move_to_nodes(trials: Array, probability: float) -> tuple[Array, Array]:
    """Move binomials of falling trials to common nodes; return the nodes, and masses of shape (nodes, trials).

    A mass is shared by the nodes on both sides, so that its mean stays: a chord is never below a convex function.
    """
    if not probability:
        return np.zeros(1), np.ones((1, len(trials)))
    low = binomial_range(int(trials[-1]), probability, TAIL_MASS)[0]
    width = binomial_range(int(trials[0]), probability, TAIL_MASS)[1] - low
    spacing = max(1, math.ceil(width / min(_NODES_MAX, max(_NODES_MIN, _CELLS_MAX // len(trials)))))
    node_masses = np.zeros((math.ceil(width / spacing) + 1, len(trials)))
    # The binomial of a block's smallest number of trials serves the whole block. The extra successes of more trials,
    # at most `spacing`, move to the next node by a chord, too. A wider block would not be covered by that chord.
    for start in range(0, len(trials), spacing + 1):
        block = trials[start : start + spacing + 1]
        points, masses = trim_binomial(int(block[-1]), probability)
        nodes = np.minimum((points - low) // spacing, len(node_masses) - 2).astype(np.intp)
        upper = masses * ((points - low) / spacing - nodes)
        base = np.bincount(nodes, masses - upper, len(node_masses)) + np.bincount(nodes + 1, upper, len(node_masses))
        moved = base[:, None] * ((block - block[-1]) * (probability / spacing))
        moved[-1] = 0.0  # fewer other messages are the larger bound
        node_masses[:, start : start + spacing + 1] = base[:, None] - moved
        node_masses[1:, start : start + spacing + 1] += moved[:-1]
    return low + spacing * np.arange(len(node_masses), dtype=np.float64), node_masses


def _mean_excess(trials: Array, limits: Array) -> Array:
    """Return E[(A - limit)_+] over A ~ Bin(trials, 1/2), for consecutive trials and rows of limits for them.

    A limit is above half of its trials. Limits rise by less than 1 with each trial, and from row to row. The tails from
    a whole number on, and the mean excess over it, follow from those of the next number.
    """
    thresholds = np.floor(limits) + 1
    # Rounding must not let a row's number rise by 2.
    first_numbers = np.minimum.accumulate(thresholds[0] - trials) + trials
    height = int(np.max(thresholds[-1] - first_numbers))
    if len(limits) > 1 and height > len(limits) * (2 + _JOINT_ROWS_TRIALS / len(trials)):
        return np.concatenate([_mean_excess(trials, row) for row in limits[:, None]])
    numbers = first_numbers + np.arange(height + 1)[:, None]
    pmf, top_tails, top_excess = _compute_tail_rows(trials, numbers)
    tails = _sum_from_last(np.concatenate((pmf[:-1], top_tails[None])))
    excess = _sum_from_last(np.concatenate((tails[1:], top_excess[None])))
    indices = (np.maximum(thresholds - first_numbers, 0) * len(trials) + np.arange(len(trials))).astype(np.intp)
    return np.asarray(excess.take(indices) + (thresholds - limits) * tails.take(indices))


def _compute_tail_rows(trials: Array, numbers: Array) -> tuple[Array, Array, Array]:
    """Return P(A = number) for all rows of numbers, and P(A >= number) and E[(A - number)_+] for the last row.

    A row is the one before plus 1. Its numbers rise by 0 or 1 with each trial, so that each tail differs by one term
    from the tail of one trial more. Sums begin at both ends and meet at the largest probability: they lose no digits.
    """
    low, top, later_trials = numbers[0], numbers[-1], trials[1:]
    is_rising = low[1:] > low[:-1]
    with np.errstate(divide="ignore"):  # more than all trials have probability 0
        back_logs = np.log(np.maximum(np.where(is_rising, low[1:], later_trials - low[1:]), 0.0) * (2 / later_trials))
        up_logs = np.log(np.maximum(trials - numbers[:-1], 0.0) / (numbers[:-1] + 1))
    first_row_logs = _sum_from_last(np.concatenate((back_logs, [log_fair_pmf(int(low[-1]), int(trials[-1]))])))
    pmf = np.exp(np.cumsum(np.concatenate((first_row_logs[None], up_logs)), axis=0))
    # Half of the probability of one success less in one trial less.
    half_pmf = pmf[-1, 1:] * top[1:] / later_trials
    signs, from_start = np.where(is_rising, -1.0, 1.0), np.arange(len(trials)) <= np.argmax(pmf[-1])
    first_tail, first_excess = _fair_tail(int(top[0]), int(trials[0]))
    last_tail, last_excess = _fair_tail(int(top[-1]), int(trials[-1]))
    tails = _sum_steps(first_tail, signs * half_pmf, last_tail, from_start)
    return pmf, tails, _sum_steps(first_excess, signs * (tails[1:] - half_pmf) / 2, last_excess, from_start)


def _sum_steps(first: float, steps: Array, last: float, from_start: Bools) -> Array:
    """Return the sequence of values with these steps, summed from the first value or from the last."""
    forwards, backwards = np.cumsum(np.concatenate(([first], steps))), _sum_from_last(np.concatenate((-steps, [last])))
    return np.where(from_start, forwards, backwards)


def _sum_from_last(terms: Array) -> Array:
    """Return for each term the sum from it to the last term, along the first axis."""
    return np.cumsum(terms[::-1], axis=0)[::-1]


def _fair_tail(number: int, trials: int) -> tuple[float, float]:
    """Return P(A >= number) and E[(A - number)_+] over A ~ Bin(trials, 1/2), for a number above half of the trials."""
    # Until the last of these points, probabilities fall by more than e^-40.
    points = np.arange(number, min(trials, number + int(math.sqrt(20 * trials)) + 1))
    ratios = np.cumprod(np.concatenate(([1.0], (trials - points) / (points + 1))))
    pmf = math.exp(log_fair_pmf(number, trials))
    return pmf * float(ratios.sum()), pmf * float(ratios @ np.arange(len(ratios)))


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
        Largest allowed local epsilon. It protects a participant if shuffler and server collude.

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
    # Delta falls with the batch, so the promise of a smaller batch needs no new computation. Large batches rely on it.
    smaller_batch = 1 << (batch.bit_length() - 1)
    if shuffled_delta(epsilon, limit, symbols, smaller_batch) <= _SAFE_DELTA_SHARE * delta:
        return limit
    return largest_local_epsilon(
        lambda e: shuffled_delta(epsilon, e, symbols, batch), delta, min(epsilon, limit), limit, _RESOLUTION
    )
