"""Noise of servers promises nothing that its sampler cannot keep."""

import math

import pytest
from scipy import stats

from privateer_core.errors import SpecError
from privateer_core.mechanisms.server_noise import STEPS, ServerNoise
from privateer_core.sampling.normal import DEVIATIONS_MAX, EPSILON_MAX, STANDARD_DEVIATION_MIN

DELTA = 1e-6


def unreachable_mass(standard_deviation: float) -> float:
    """Return the probability of a count that the sampler cannot draw if the person's vote was for another cell."""
    return float(stats.norm.cdf(1 / standard_deviation - 1.01 * DEVIATIONS_MAX))


def test_a_larger_epsilon_than_the_samplers_is_refused() -> None:
    """Drawn noise ends, so that counts beyond its end tell a vote: at epsilon 100 with 20 times the promised delta."""
    false_claim = 0.138377  # the standard deviation by which the Gaussian curve promises epsilon 100 and delta 1e-6
    assert unreachable_mass(false_claim) > 10 * DELTA
    for delta in (DELTA, 0.0):
        for epsilon in (math.nextafter(EPSILON_MAX, math.inf), 100.0, math.inf, math.nan, 0.0, -1.0):
            with pytest.raises(SpecError, match="epsilon"):
                ServerNoise.calibrated(epsilon, delta)


def test_the_largest_epsilon_leaves_nothing_that_cannot_be_drawn() -> None:
    noise = ServerNoise.calibrated(EPSILON_MAX, DELTA)
    assert unreachable_mass(noise.standard_deviation) < noise.sampling
    assert noise.standard_deviation * STEPS > STANDARD_DEVIATION_MIN
