"""Shuffled bits: sums of integers hidden by binomial noise, accounted exactly (for Li, Zhou and Ji's shuffle model)."""

import math
from functools import lru_cache
from typing import Final

import numpy as np

from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.accounting.loss import Composition, LossDistribution, loss_from_atoms, loss_from_curve
from privateer_core.accounting.numerics import binomial_range, check, find_root
from privateer_core.accounting.special_functions import binomial_pmf, binomial_tails, log_binomial_pmf
from privateer_core.errors import SpecError
from privateer_core.portable import round_up

_TAIL_MASS: Final = 1e-30
"""Mass of a coordinate's noise that is cut off on either side. It is added to delta."""
_POINTS_PER_DEVIATION: Final = 24
"""Grid points per standard deviation of one coordinate's loss."""
_ROUNDING_FACTOR: Final = 1 + 1e-9
"""Factor that covers rounding errors of the noise's probabilities."""
_LOSS_MAX: Final = 700.0
"""Larger losses count as infinite, since their exponential overflows."""
TRIALS_MAX: Final = 10**10
_SIZE_MAX: Final = 1 << 20
_DIGITS: Final = 4


def shuffled_bits_delta(epsilon: float, trials: int, probability: float, levels: int, coordinates: int) -> float:
    """Return a certified upper bound of delta at ``epsilon`` of sums hidden by Bin(trials, probability).

    The analyzer sees, in every coordinate, a sum of integers in 0..levels plus the noise. The worst neighbours differ
    by ``levels`` in all coordinates, since binomials are log-concave. With ``probability`` below 1/2 it matters in
    which coordinates they differ upwards and in which downwards: then a pair is composed that dominates both.

    Parameters
    ----------
    epsilon
        At least 0.
    trials, probability
        Parameters of the noise in one coordinate; probability in (0, 1/2].
    levels
        Largest integer of a participant in a coordinate, at least 1.
    coordinates
        Number of coordinates, at least 1.

    Raises
    ------
    SpecError
        If an argument is out of range.
    """
    _check_arguments(trials, probability, levels, coordinates)
    check("epsilon", epsilon, 0 <= epsilon < math.inf, "at least 0 and finite")
    low, high = binomial_range(trials, probability, _TAIL_MASS)
    if levels > high or trials - levels < low:
        return 1.0
    return min(1.0, _compose_coordinates(trials, probability, levels, coordinates).delta(epsilon))


@lru_cache(maxsize=1024)
def shuffled_bits_trials(epsilon: float, delta: float, levels: int, coordinates: int) -> int:
    """Return the smallest certified number of fair bits that hide a coordinate, up to one part in 10^5 too many.

    Raises
    ------
    SpecError
        If an argument is out of range, or more than 10^10 bits would be needed.
    """
    normal_trials = _guess_fair_trials(epsilon, delta, levels, coordinates)

    def margin(log_trials: float) -> float:
        return math.log(shuffled_bits_delta(epsilon, round(math.exp(log_trials)), 0.5, levels, coordinates) / delta)

    low, high = math.log(normal_trials) - 0.02, math.log(normal_trials) + 0.02
    while margin(low) < 0:
        low -= 0.3
    while margin(high) > 0:
        high += 0.3
    trials = math.ceil(math.exp(find_root(margin, low, high, 2e-6)))
    while shuffled_bits_delta(epsilon, trials, 0.5, levels, coordinates) > delta:
        trials += max(1, trials // 10**5)
    return trials


@lru_cache(maxsize=4096)
def shuffled_bits_each(epsilon: float, delta: float, levels: int, coordinates: int, people: int) -> int:
    """Return a certified number of fair bits of each of ``people`` participants that together hide a coordinate.

    It is the smallest number, or if that is above 10^4, up to one part in 10^4 more. The function is quicker than
    `shuffled_bits_trials`, and raises the same errors.
    """
    normal_trials = _guess_fair_trials(epsilon, delta, levels, coordinates)
    bits = max(1, math.ceil(normal_trials / people))

    def is_private(candidate: int) -> bool:
        return shuffled_bits_delta(epsilon, candidate * people, 0.5, levels, coordinates) <= delta

    # Binomial noise is close to normal noise, and seldom hides as much with fewer bits than the guess.
    while bits > 1 and bits * people > normal_trials * 1.0001 and is_private(bits - 1):
        bits -= 1
    while not is_private(bits):
        bits += max(1, bits // 10_000)
    return bits


def shuffled_bits_probability(epsilon: float, delta: float, levels: int, coordinates: int, trials: int) -> float:
    """Return the smallest certified probability at which ``trials`` bits hide a coordinate, rounded up to four digits.

    It is for batches in which one fair bit of each participant is more than the promise requires.

    Raises
    ------
    SpecError
        If fair bits are too few.
    """
    fair_trials = shuffled_bits_trials(epsilon, delta, levels, coordinates)
    if trials < fair_trials:
        raise SpecError(f"{trials} bits are too few, {fair_trials} are needed", field="min_batch", remedy="raise it")
    start = (1 - math.sqrt(1 - fair_trials / trials)) / 2

    def is_private(probability: float) -> bool:
        return shuffled_bits_delta(epsilon, trials, probability, levels, coordinates) <= delta

    probability = min(0.5, round_up(start, _DIGITS))
    while not is_private(probability):
        probability = min(0.5, round_up(probability * 1.002, _DIGITS))
    return probability


@lru_cache(maxsize=8)
def _compose_coordinates(trials: int, probability: float, levels: int, coordinates: int) -> Composition:
    """Return the composed privacy loss of a shift by ``levels`` in every coordinate of binomial noise."""
    upwards = _compute_shift_loss(trials, probability, levels)
    if probability == 0.5:
        return Composition(((upwards, coordinates),))
    downwards = _compute_shift_loss(trials, probability, -levels)
    # A pair that dominates both pairs, in both directions of each.
    max_loss = min(_LOSS_MAX, max(np.abs(upwards.losses).max(), np.abs(downwards.losses).max()) + upwards.step)
    loss = loss_from_curve(lambda e: max(upwards.delta(e), downwards.delta(e)), upwards.step, float(max_loss))
    return Composition(((loss, coordinates),))


def _compute_shift_loss(trials: int, probability: float, shift: int) -> LossDistribution:
    """Return the privacy loss of Bin(trials, probability) + shift against Bin(trials, probability)."""
    low, high = binomial_range(trials, probability, _TAIL_MASS)
    points = np.arange(max(low, -shift), min(high, trials - shift) + 1)
    # Points of the noise whose shifted value the other distribution cannot reach have infinite loss.
    first_unreachable = trials - shift + 1 if shift > 0 else -shift
    tails = binomial_tails(first_unreachable, trials, probability)
    unreachable = tails.at_least if shift > 0 else tails.below
    probabilities = binomial_pmf(points, trials, probability) * _ROUNDING_FACTOR
    losses = -_log_ratio(points, trials, probability, shift)
    # With a step above 1 there is next to no noise, and the loss is far above any promise.
    step = min(1.0, abs(shift) / math.sqrt(trials * probability * (1 - probability)) / _POINTS_PER_DEVIATION)
    infinite = min(1.0, float(unreachable) * _ROUNDING_FACTOR + 2 * _TAIL_MASS)
    return loss_from_atoms(losses, probabilities, step, infinite)


def _log_ratio(points: np.ndarray, trials: int, probability: float, shift: int) -> np.ndarray:
    """Return the logarithm of Bin(points + shift) over Bin(points)."""
    if abs(shift) > 64:
        shifted_log_pmf = log_binomial_pmf(points + shift, trials, probability)
        return shifted_log_pmf - log_binomial_pmf(points, trials, probability) - 1e-14 * trials
    # Few terms, added one by one, keep all digits.
    ratio = np.full(len(points), shift * math.log(probability / (1 - probability)))
    for j in range(1, abs(shift) + 1):
        if shift > 0:
            ratio += np.log((trials - points - j + 1) / (points + j))
        else:
            ratio += np.log((points - j + 1) / (trials - points + j))
    return ratio


def _guess_fair_trials(epsilon: float, delta: float, levels: int, coordinates: int) -> float:
    """Return the number of fair bits with the variance of sufficient normal noise; refuse more than 10^10."""
    _check_arguments(1, 0.5, levels, coordinates)
    trials = 4 * levels**2 * coordinates * gaussian_standard_deviation(epsilon, delta) ** 2
    if trials > TRIALS_MAX:
        raise SpecError("needs more than 10^10 bits a coordinate", field="epsilon", remedy="raise it, or lower levels")
    return trials


def _check_arguments(trials: int, probability: float, levels: int, coordinates: int) -> None:
    """Refuse parameters of shuffled bits that are out of range."""
    check("trials", trials, 1 <= trials <= TRIALS_MAX, "1 to 1e10")
    check("probability", probability, 0 < probability <= 0.5, "above 0 and at most 0.5")
    check("levels", levels, 1 <= levels <= _SIZE_MAX, f"1 to {_SIZE_MAX}")
    check("coordinates", coordinates, 1 <= coordinates <= _SIZE_MAX, f"1 to {_SIZE_MAX}")
