"""Shuffled bits: a sum of integers hidden by binomial noise, accounted exactly (for paper 5's shuffle model)."""

import math
from functools import lru_cache
from typing import Final

import numpy as np
import scipy  # loads its parts when they are first used
from scipy.special import gammaln

from privateer.accounting.gaussian import gaussian_standard_deviation
from privateer.accounting.loss import Composition, LossDistribution, from_curve, on_grid
from privateer.errors import SpecError

_TAIL: Final = 1e-30
"""Mass of a coordinate's noise that is cut off on each side; it adds to delta."""
_POINTS: Final = 24
"""Grid points per standard deviation of one coordinate's loss."""
_ROUNDING: Final = 1 + 1e-9
"""Covers what floating point loses in the noise's probabilities."""
_REACH_MAX: Final = 700.0
"""Losses beyond it, of which the exponential is no number, count as infinite."""
TRIALS_MAX: Final = 10**10


def shuffled_bits_delta(epsilon: float, trials: int, probability: float, levels: int, coordinates: int) -> float:
    """Delta at ``epsilon`` of sums hidden by Bin(trials, chance) in every coordinate; a certified upper bound.

    The analyzer sees, coordinate by coordinate, a sum of integers in 0..levels plus the noise. The worst neighbours
    differ by ``levels`` in all coordinates, since binomials are log-concave. With ``chance`` below 1/2 it matters in
    which coordinates they differ upwards and in which downwards: then a pair is composed that dominates both.

    Parameters
    ----------
    epsilon
        At least 0.
    trials, chance
        Of the noise in one coordinate; chance in (0, 1/2].
    levels
        Largest integer of one person in one coordinate, at least 1.
    coordinates
        At least 1.

    Raises
    ------
    SpecError
        If an argument is out of range.
    """
    _check(trials, probability, levels, coordinates)
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        raise SpecError("must be at least 0 and finite", field="epsilon", remedy="choose another value")
    low, high = _range(trials, probability)
    if levels > high or trials - levels < low:
        return 1.0
    return min(1.0, _composed(trials, probability, levels, coordinates).delta(epsilon))


def shuffled_bits_trials(epsilon: float, delta: float, levels: int, coordinates: int) -> int:
    """Smallest number of fair bits in a coordinate that hides it, up to one part in 10^5, rounded up; certified.

    Raises
    ------
    SpecError
        If an argument is out of range, or more than 10^10 bits would be needed.
    """
    return _trials(float(epsilon), float(delta), int(levels), int(coordinates))


@lru_cache(maxsize=1024)
def _trials(epsilon: float, delta: float, levels: int, coordinates: int) -> int:
    guess = 4 * levels**2 * coordinates * gaussian_standard_deviation(epsilon, delta) ** 2
    _check(1, 0.5, levels, coordinates)
    if guess > TRIALS_MAX:
        raise SpecError("more than 10^10 bits a coordinate", field="epsilon", remedy="raise it, or lower the levels")

    def margin(log_trials: float) -> float:
        return math.log(shuffled_bits_delta(epsilon, round(math.exp(log_trials)), 0.5, levels, coordinates) / delta)

    low, high = math.log(guess) - 0.02, math.log(guess) + 0.02
    while margin(low) < 0:
        low -= 0.3
    while margin(high) > 0:
        high += 0.3
    found = math.ceil(math.exp(scipy.optimize.brentq(margin, low, high, xtol=2e-6)))
    while shuffled_bits_delta(epsilon, found, 0.5, levels, coordinates) > delta:
        found += max(1, found // 10**5)
    return found


@lru_cache(maxsize=4096)
def shuffled_bits_each(epsilon: float, delta: float, levels: int, coordinates: int, people: int) -> int:
    """Number of fair bits in a coordinate that hide it if each of ``people`` adds so many; certified.

    The fewest, or where that is above 10^4, up to one part in 10^4 more: quicker than `shuffled_bits_trials`.

    Raises
    ------
    SpecError
        As `shuffled_bits_trials`.
    """
    guess = 4 * levels**2 * coordinates * gaussian_standard_deviation(epsilon, delta) ** 2
    if guess > TRIALS_MAX:
        raise SpecError("more than 10^10 bits a coordinate", field="epsilon", remedy="raise it, or lower the levels")
    bits = max(1, math.ceil(guess / people))

    def hides(each: int) -> bool:
        return shuffled_bits_delta(epsilon, each * people, 0.5, levels, coordinates) <= delta

    # Binomial noise is close to normal noise, and seldom hides as much with fewer bits than that guess.
    while bits > 1 and bits * people > guess * 1.0001 and hides(bits - 1):
        bits -= 1
    while not hides(bits):
        bits += max(1, bits // 10_000)
    return bits


def shuffled_bits_probability(epsilon: float, delta: float, levels: int, coordinates: int, trials: int) -> float:
    """Smallest chance at which ``trials`` bits in a coordinate hide it, rounded up to four digits; certified.

    Used where one bit a person is more than fair bits need.

    Raises
    ------
    SpecError
        If fair bits are too few.
    """
    fair = shuffled_bits_trials(epsilon, delta, levels, coordinates)
    if trials < fair:
        raise SpecError(f"{trials} bits, {fair} are needed", field="min_batch", remedy="raise it, or send more bits")
    start = (1 - math.sqrt(1 - fair / trials)) / 2

    def hides(probability: float) -> bool:
        return shuffled_bits_delta(epsilon, trials, probability, levels, coordinates) <= delta

    probability = min(0.5, _up(start))
    while not hides(probability):
        probability = min(0.5, _up(probability * 1.002))
    return probability


def _up(probability: float) -> float:
    scale = 10.0 ** (4 - math.ceil(math.log10(probability)))
    return math.ceil(probability * scale) / scale


@lru_cache(maxsize=8)
def _composed(trials: int, probability: float, levels: int, coordinates: int) -> Composition:
    upwards = _losses(trials, probability, levels)
    if probability == 0.5:
        return Composition(((upwards, coordinates),))
    downwards = _losses(trials, probability, -levels)
    return Composition(((_either(upwards, downwards), coordinates),))


def _either(left: LossDistribution, right: LossDistribution) -> LossDistribution:
    """A pair that dominates two others, in both directions of each."""
    reach = min(_REACH_MAX, max(np.abs(left.losses).max(), np.abs(right.losses).max()) + left.step)
    return from_curve(lambda epsilon: max(left.delta(epsilon), right.delta(epsilon)), left.step, float(reach))


def _range(trials: int, probability: float) -> tuple[int, int]:
    """Closed range that holds Bin(trials, chance) but for _TAIL on either side, by Bernstein's inequality."""
    log = -math.log(_TAIL)
    width = math.sqrt(2 * log * trials * probability * (1 - probability)) + log
    return max(0, math.floor(trials * probability - width)), min(trials, math.ceil(trials * probability + width))


def _losses(trials: int, probability: float, shift: int) -> LossDistribution:
    """Loss of Bin(trials, chance) + shift against Bin(trials, chance)."""
    low, high = _range(trials, probability)
    points = np.arange(max(low, -shift), min(high, trials - shift) + 1)
    # Points of the noise whose shifted value the other law cannot reach have infinite loss.
    law = scipy.stats.binom
    unreachable = law.sf(trials - shift, trials, probability) if shift > 0 else law.cdf(-shift - 1, trials, probability)
    masses = law.pmf(points, trials, probability) * _ROUNDING
    losses = -_log_ratio(points, trials, probability, shift)
    # Beyond a step of 1 there is next to no noise, and no promise to keep.
    step = min(1.0, abs(shift) / math.sqrt(trials * probability * (1 - probability)) / _POINTS)
    return on_grid(losses, masses, step, min(1.0, float(unreachable) * _ROUNDING + 2 * _TAIL))


def _log_ratio(points: np.ndarray, trials: int, probability: float, shift: int) -> np.ndarray:
    """Log of Bin(points + shift) over Bin(points), term by term where few terms keep all digits."""
    if abs(shift) > 64:
        last = points + shift
        combinations = (
            gammaln(points + 1) - gammaln(last + 1) + gammaln(trials - points + 1) - gammaln(trials - last + 1)
        )
        return np.asarray(combinations + shift * math.log(probability / (1 - probability)) - 1e-14 * trials)
    ratio = np.full(len(points), shift * math.log(probability / (1 - probability)))
    for j in range(1, abs(shift) + 1):
        if shift > 0:
            ratio += np.log((trials - points - j + 1) / (points + j))
        else:
            ratio += np.log((points - j + 1) / (trials - points + j))
    return ratio


def _check(trials: int, probability: float, levels: int, coordinates: int) -> None:
    for field, value, good in (
        ("trials", trials, 1 <= trials <= TRIALS_MAX),
        ("probability", probability, 0 < probability <= 0.5),
        ("levels", levels, 1 <= levels <= 1 << 20),
        ("coordinates", coordinates, 1 <= coordinates <= 1 << 20),
    ):
        if not good:
            raise SpecError(f"{value:g} is out of range", field=field, remedy="see the docs of shuffled bits")
