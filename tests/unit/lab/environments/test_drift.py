"""Mean rewards that move, and the truth at the time."""

import numpy as np
import pytest

from privateer_lab.environments.functions import PeaksSection
from privateer_lab.environments.synthetic import SlideDrift, SwapDrift, Synthetic

SWAP = SwapDrift(name="swap", period=10)


def people(drift):
    return Synthetic(PeaksSection(drift=drift), 3, 2)


def at_first(contexts):
    return PeaksSection().means(contexts, 3)


def test_swap_turns_the_arms():
    population = people(SWAP)
    contexts = population.contexts(5, 40, np.random.default_rng(0))
    assert contexts[:, 2].tolist() == [0] * 5 + [1] * 10 + [2] * 10 + [0] * 10 + [1] * 5
    truth = at_first(contexts[:, :2])
    means = population.means(contexts)
    assert (means[:5] == truth[:5]).all()
    assert (means[5:15] == truth[5:15][:, [1, 2, 0]]).all()
    assert (means[15:25] == truth[15:25][:, [2, 0, 1]]).all()
    assert (means[25:35] == truth[25:35]).all()


def test_slide_moves_what_is_learned_along_the_first_feature():
    population = people(SlideDrift(name="slide", period=100, step=0.25))
    places = np.array([[0.5, 0.1], [0.75, 0.1], [0.1, 0.1]])
    later = np.column_stack([places, np.ones(3)])
    expected = at_first(np.array([[0.25, 0.1], [0.5, 0.1], [0.15, 0.1]]))
    assert population.means(later) == pytest.approx(expected, abs=1e-12)
    there_and_back = np.column_stack([places, np.full(3, 8)])
    assert population.means(there_and_back) == pytest.approx(at_first(places), abs=1e-12)


@pytest.mark.parametrize(("seen", "count"), [(0, 5), (0, 10), (7, 30), (20, 1), (19, 2)])
def test_phases_are_those_of_people_one_by_one(seen, count):
    population = people(SWAP)
    phases = population.contexts(seen, count, np.random.default_rng(0))[:, 2].astype(int)
    expected = [phase for phase, some in population.phases(seen, count) for _ in range(some)]
    assert expected == phases.tolist()
    assert list(people(None).phases(seen, count)) == [(0, count)]


def test_averages_are_of_the_phase():
    population = people(SWAP)
    low, high = np.array([0.0, 0.0]), np.array([0.5, 1.0])
    first, best = population.averages(low, high, 0)
    second, same = population.averages(low, high, 1)
    assert second == pytest.approx(first[[1, 2, 0]])
    assert best == pytest.approx(same)
