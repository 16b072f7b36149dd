"""Masses that values tell: how many people are in a slab, read from what all arms seem to be worth there."""

import numpy as np
import pytest

from privateer_server.algorithms.partition.posterior.bin_masses import mass_ratios

LEVEL = np.array([0.5, -0.8, -0.9])
RATIOS = np.array([2.4, 1.0, 0.4, 0.2])
EXPECTED = np.full(4, 0.25)


def told(ratios, level=LEVEL, precision=1e4):
    known = np.full((4, 3), precision)
    return known, known * np.outer(ratios, level)


def test_masses_are_found_where_much_is_known_and_their_mean_is_one():
    found = mass_ratios(*told(RATIOS), EXPECTED, LEVEL)
    assert found == pytest.approx(RATIOS, rel=0.01)
    assert EXPECTED @ found == pytest.approx(1)


def test_little_knowledge_is_shrunk_to_what_is_expected():
    """The posterior mean of a slope with a normal prior of deviation .8 around 1, by hand."""
    precision, moment = told(RATIOS, precision=5.0)
    of_slope = 5 * (LEVEL**2).sum()
    by_hand = (RATIOS * of_slope + 1 / 0.64) / (of_slope + 1 / 0.64)
    assert mass_ratios(precision, moment, EXPECTED, LEVEL) == pytest.approx(by_hand / (EXPECTED @ by_hand))


@pytest.mark.parametrize("level", [np.full(3, 0.05), np.array([0.1, -0.1, 0.0])])
def test_rewards_near_the_middle_tell_no_masses(level):
    assert (mass_ratios(*told(RATIOS, level), EXPECTED, level) == 1).all()
    assert (mass_ratios(np.zeros((4, 3)), np.zeros((4, 3)), EXPECTED, LEVEL) == 1).all()


def test_no_choice_depends_on_what_passes_for_mass():
    """A true difference in favour of one arm scales all arms of its slab alike: their order stays."""
    precision, moment = told(RATIOS)
    moment[2, 1] = precision[2, 1] * 0.6
    found = mass_ratios(precision, moment, EXPECTED, LEVEL)
    assert (found > 0).all()
    values = moment / precision
    assert (np.argsort(values / found[:, None], axis=1) == np.argsort(values, axis=1)).all()
