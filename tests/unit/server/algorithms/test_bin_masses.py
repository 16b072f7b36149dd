"""Masses that values tell: how many people are in a slab, read from what all arms seem to be worth there."""

import numpy as np
import pytest

from privateer_server.algorithms.partition.posterior.bin_masses import mass_ratios

VALUE = -0.7
"""What all arms are worth together."""
RATIOS = np.array([2.4, 1.0, 0.4, 0.2])
EXPECTED = np.full(4, 0.25)


def told(ratios, value=VALUE, precision=1e4):
    known = np.full((4, 3), precision)
    return known, known * np.outer(ratios, np.full(3, value))


def test_masses_are_found_where_much_is_known_and_their_mean_is_one():
    found = mass_ratios(*told(RATIOS), EXPECTED)
    assert found == pytest.approx(RATIOS, rel=0.01)
    assert EXPECTED @ found == pytest.approx(1)


def test_little_knowledge_is_shrunk_to_what_is_expected():
    """The posterior mean of a ratio with a normal prior of deviation .8 around 1, by hand."""
    precision, moment = told(RATIOS, precision=5.0)
    of_ratio = 3 * 5 * VALUE**2
    by_hand = (RATIOS * of_ratio + 1 / 0.64) / (of_ratio + 1 / 0.64)
    assert mass_ratios(precision, moment, EXPECTED) == pytest.approx(by_hand / (EXPECTED @ by_hand))


@pytest.mark.parametrize(("value", "precision"), [(0.1, 1e4), (0.7, 1.0), (0.7, 0.0)])
def test_rewards_near_the_middle_and_few_reports_tell_no_masses(value, precision):
    assert (mass_ratios(*told(RATIOS, value, precision), EXPECTED) == 1).all()


def test_no_choice_depends_on_what_passes_for_mass():
    """A true difference in favour of one arm scales all arms of its slab alike: their order stays."""
    precision, moment = told(RATIOS)
    moment[2, 1] = precision[2, 1] * 0.6
    found = mass_ratios(precision, moment, EXPECTED)
    assert (found > 0).all()
    values = moment / precision
    assert (np.argsort(values / found[:, None], axis=1) == np.argsort(values, axis=1)).all()
