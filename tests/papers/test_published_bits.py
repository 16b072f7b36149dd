"""Paper 5's shuffled bits: eq. (22) as it stands, private and far noisier than it needs to be."""

import math

import pytest

from privateer_core.accounting.accountant import account
from privateer_core.accounting.gaussian import (
    classic_gaussian_standard_deviation,
    gaussian_epsilon,
    gaussian_standard_deviation,
)
from privateer_core.errors import SpecError
from privateer_papers.published_trust import published_bits


def test_equation_22_by_hand():
    """n = 1024, s = 60 at (10, .25): log terms by hand."""
    bits = published_bits(10, 0.25, 60, 1024)
    scaled, log = 10 / (18 * math.sqrt(math.log(8))), math.log(960)
    assert bits.levels == 10
    assert bits.bits == math.ceil(180 * 100 * log / (scaled**2 * 1024)) == 814
    assert bits.probability == pytest.approx(90 * 100 * log / (814 * scaled**2 * 1024))


def test_the_claim_at_ten_and_a_quarter_is_really_below_a_tenth():
    bits = published_bits(10, 0.25, 60, 1024)
    assert gaussian_epsilon(1e-6, bits.standard_deviation) == pytest.approx(0.078, abs=0.001)
    assert account(bits.event).delta(10) < 1e-20


@pytest.mark.parametrize("epsilon", [1, 5, 10, 15])
def test_the_published_bits_are_hundreds_of_times_noisier_than_needed(epsilon):
    assert published_bits(epsilon, 0.25, 60, 1024).standard_deviation > 250 * classic_gaussian_standard_deviation(
        epsilon, 0.25
    )
    assert published_bits(epsilon, 1e-6, 20, 1024).standard_deviation > 250 * gaussian_standard_deviation(epsilon, 1e-6)


@pytest.mark.parametrize(
    "arguments", [(0, 0.25, 60, 10), (16, 0.25, 60, 10), (1, 0, 60, 10), (1, 0.1, 0, 10), (1, 0.1, 1, 0)]
)
def test_settings_that_the_theorem_does_not_cover_are_refused(arguments):
    with pytest.raises(SpecError):
        published_bits(*arguments)
