"""Mean rewards that move, and the truth at the time."""

import numpy as np
import pytest

from privateer_lab.environments.drift import Slide, Swap
from privateer_lab.environments.peaks import Peaks
from privateer_lab.environments.synthetic import Synthetic
from privateer_lab.environments.uniform import Uniform


def people(drift):
    return Synthetic(Peaks(3), Uniform(2), drift)


def test_swap_turns_the_arms():
    population = people(Swap(10, 3))
    contexts = population.contexts(5, 40, np.random.default_rng(0))
    assert contexts[:, 2].tolist() == [0] * 5 + [1] * 10 + [2] * 10 + [0] * 10 + [1] * 5
    truth = Peaks(3).means(contexts[:, :2])
    means = population.means(contexts)
    assert (means[:5] == truth[:5]).all()
    assert (means[5:15] == truth[5:15][:, [1, 2, 0]]).all()
    assert (means[15:25] == truth[15:25][:, [2, 0, 1]]).all()
    assert (means[25:35] == truth[25:35]).all()


def test_slide_moves_what_is_learned_along_the_first_feature():
    population = people(Slide(100, 0.25))
    places = np.array([[0.5, 0.1], [0.75, 0.1], [0.1, 0.1]])
    later = np.column_stack([places, np.ones(3)])
    expected = Peaks(3).means(np.array([[0.25, 0.1], [0.5, 0.1], [0.15, 0.1]]))
    assert population.means(later) == pytest.approx(expected, abs=1e-12)
    there_and_back = np.column_stack([places, np.full(3, 8)])
    assert population.means(there_and_back) == pytest.approx(Peaks(3).means(places), abs=1e-12)


@pytest.mark.parametrize(("seen", "count"), [(0, 5), (0, 10), (7, 30), (20, 1), (19, 2)])
def test_phases_are_those_of_people_one_by_one(seen, count):
    population = people(Swap(10, 3))
    phases = population.contexts(seen, count, np.random.default_rng(0))[:, 2].astype(int)
    told = [phase for phase, some in population.phases(seen, count) for _ in range(some)]
    assert told == phases.tolist()
    assert list(people(None).phases(seen, count)) == [(0, count)]


def test_averages_are_of_the_phase():
    population = people(Swap(10, 3))
    low, high = np.array([0.0, 0.0]), np.array([0.5, 1.0])
    first, best = population.averages(low, high, 0)
    second, same = population.averages(low, high, 1)
    assert second == pytest.approx(first[[1, 2, 0]])
    assert best == pytest.approx(same)
