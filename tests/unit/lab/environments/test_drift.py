"""Mean rewards that move, and the truth at the time."""

import numpy as np
import pytest

from privateer_lab.environments.functions import PeaksSection
from privateer_lab.environments.synthetic import SlideDrift, SwapDrift, Synthetic

SWAP = SwapDrift(name="swap", period=10)


def people(drift):
    return Synthetic(PeaksSection(drift=drift), 3, 2)


def initial_means(contexts):
    return PeaksSection().means(contexts, 3)


def test_swap_turns_the_arms():
    population = people(SWAP)
    contexts = population.contexts(5, 40, np.random.default_rng(0))
    assert contexts[:, 2].tolist() == [0] * 5 + [1] * 10 + [2] * 10 + [3] * 10 + [4] * 5
    truth = initial_means(contexts[:, :2])
    means = population.means(contexts)
    assert (means[:5] == truth[:5]).all()
    assert (means[5:15] == truth[5:15][:, [1, 2, 0]]).all()
    assert (means[15:25] == truth[15:25][:, [2, 0, 1]]).all()
    assert (means[25:35] == truth[25:35]).all()


def test_slide_moves_what_is_learned_along_the_first_feature():
    population = people(SlideDrift(name="slide", period=100, step=0.25))
    places = np.array([[0.5, 0.1], [0.75, 0.1], [0.1, 0.1]])
    later = np.column_stack([places, np.ones(3)])
    expected = initial_means(np.array([[0.25, 0.1], [0.5, 0.1], [0.15, 0.1]]))
    assert population.means(later) == pytest.approx(expected, abs=1e-12)
    there_and_back = np.column_stack([places, np.full(3, 8)])
    assert population.means(there_and_back) == pytest.approx(initial_means(places), abs=1e-12)
