"""What `account published` says of the papers' claims, computed a second way."""

import math

import pytest
from scipy.stats import norm

from privateer_papers.claims import list_claims


def normal_delta(epsilon: float, deviation: float) -> float:
    """Delta of normal noise at sensitivity 1 (Balle and Wang, 2018, Theorem 8)."""
    half, shift = 1 / (2 * deviation), epsilon * deviation
    return float(norm.cdf(half - shift) - math.exp(epsilon) * norm.cdf(-half - shift))


@pytest.mark.parametrize(("paper", "factor", "count"), [(2, 2.0, 4), (5, 2.0, 4), (5, 1.0, 4)])
def test_a_constant_of_normal_noise_holds_up_to_the_stated_epsilon(paper, factor, count):
    start = f"normal noise of sqrt({factor:g} ln"
    rows = [row for row in list_claims(paper) if row["claim"].startswith(start)]
    assert len(rows) == count
    for row in rows:
        delta, end = row["claimed_delta"], row["holds_up_to_epsilon"]
        deviation = math.sqrt(factor * math.log(1.25 / delta))
        assert normal_delta(0.999 * end, deviation / (0.999 * end)) < delta
        assert normal_delta(1.001 * end, deviation / (1.001 * end)) > delta
        assert row["true_delta"] == pytest.approx(normal_delta(10.0, deviation / 10.0), rel=1e-6)


def test_lap_plus_as_printed_has_negative_probabilities():
    """The chances of all changes of a length of 3 at epsilon 1 sum to 1 by the sign that is missing in print."""
    row = next(row for row in list_claims(4) if "Lap+" in row["claim"])
    total = sum(row["true_probability"] * math.exp(-abs(change) / 2) for change in range(-3, 200))
    assert total == pytest.approx(1.0, rel=1e-9)
    assert row["printed_probability"] < 0
