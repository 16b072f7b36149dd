"""Whether recent rounds contradict earlier ones: evidence by its exact density, windows, and what a state says."""

import math

import numpy as np
import pytest
from scipy import stats

from privateer_core.answer.parts import Contradiction
from privateer_lab.environments import environment_for
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.partition.change_detection import (
    FALSE_ALARM_RATE,
    FIRST,
    Window,
    evidence,
    verdict,
)
from tests.support.people import rounds
from tests.support.specs import make_spec

QUICK = {"privacy.epsilon": 8.0, "experiment.round_size": 500, "experiment.horizon": 12_000}
PEAKS = environment_for(make_spec({"population.name": "peaks"}), 0).means
NOTHING = np.zeros(0)


def gaussian(earlier, recent):
    """Likelihoods of shares of two observations of a standard normal value: (mean, precision) each."""

    def likelihood(one, other):
        precision = 1 + one * earlier[1] + other * recent[1]
        weighted = one * earlier[0] * earlier[1] + other * recent[0] * recent[1]
        return weighted**2 / precision / 2 - math.log(precision) / 2

    return likelihood


def test_evidence_is_the_ratio_of_exact_densities():
    """Of what is seen now, if all, an eighth or nothing of what was seen earlier still holds."""
    earlier, recent = (0.8, 40.0), (-0.1, 25.0)

    def density(share):
        precision = 1 + share * earlier[1]
        mean, variance = share * earlier[0] * earlier[1] / precision, 1 / precision + 1 / recent[1]
        return stats.norm.pdf(recent[0], mean, math.sqrt(variance))

    exact = (density(0.0) + density(0.125)) / 2 / density(1.0)
    assert evidence(gaussian(earlier, recent)) == pytest.approx(math.log(exact))
    assert exact > 10


def found_in(moves, times=2000, scale=1.0):
    """Share of experiments of one value, seen 200 times in four windows, that are ever said to contradict themselves.

    ``moves``: whether the value is drawn anew halfway. ``scale``: what the precision of observations is taken for.
    """
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(times):
        values = np.repeat(rng.normal(0, 1, 2 if moves else 1), 100 if moves else 200)
        seen = rng.normal(values, 1.0)
        closed, opened = [], []
        for start in (25, 50, 100):
            for now in range(start + 1, 2 * start + 1):
                earlier = (seen[:start].mean(), scale * start)
                recent = (seen[start:now].mean(), scale * (now - start))
                window = evidence(gaussian(earlier, recent))
                said = verdict(np.array([*closed, window]), np.array([*opened, start]))
                if said.found:
                    break
            closed.append(window)
            opened.append(start)
            if said.found:
                alarms += 1
                break
    return alarms / times


@pytest.mark.nightly
def test_the_false_alarm_rate_holds_however_often_one_looks():
    """At every observation; 5,000 experiments exceed the rate by chance with probability 1e-6 at the limit."""
    most = stats.binom.isf(1e-6, 5000, FALSE_ALARM_RATE) / 5000
    assert found_in(False, 5000) <= most


@pytest.mark.nightly
def test_a_value_that_moves_is_found_and_too_high_a_precision_is_caught():
    """Planted: half of the values move far enough to be seen; observations taken for three times as precise."""
    assert found_in(True, 100) > 0.4
    assert found_in(False, 500, scale=3.0) > stats.binom.isf(1e-6, 500, FALSE_ALARM_RATE) / 500


def test_no_window_says_nothing_alone_and_all_share_one_rate():
    limit = -math.log(FALSE_ALARM_RATE)
    assert not verdict(np.array([limit]), np.array([FIRST])).found, "the first window has half of the weight"
    said = verdict(np.array([limit + 1.0, 0.0]), np.array([FIRST, 2 * FIRST]))
    assert said.found
    assert said.since == FIRST
    assert verdict(np.array([-1.0, limit + 3.0]), np.array([FIRST, 2 * FIRST])).since == 2 * FIRST
    assert verdict(np.array([1e3]), np.array([FIRST])).evidence > 100
    assert verdict(np.zeros(3), np.arange(3)).evidence == pytest.approx(0)


def test_bins_that_were_none_when_the_window_opened_knew_nothing():
    depths, paths = np.array([1, 1, 0]), np.array([0, 1, 0])
    known = np.arange(6.0).reshape(3, 2)
    before = Window(2000, depths, paths, known, -known, NOTHING, NOTHING.astype(np.int64))
    precision, moment = before.of(np.array([2, 1, 0]), np.array([0, 1, 0]))
    assert precision.tolist() == [[0, 0], [2, 3], [4, 5]]
    assert moment.tolist() == [[0, 0], [-2, -3], [-4, -5]]


@pytest.mark.parametrize("memory", ["none", "auto", 3000])
def test_windows_open_when_people_have_doubled_and_a_planted_drift_is_found(memory):
    spec = make_spec({**QUICK, "algorithm.memory": memory})
    learner = learner_for(spec)
    seen = 0

    def moves(contexts):
        nonlocal seen
        seen += len(contexts)
        means = PEAKS(contexts)
        return means if seen <= 5000 else means[:, [1, 2, 0]]

    still, moved = (list(rounds(spec, means)) for means in (PEAKS, moves))
    assert learner.contradiction(still[0].state) is None
    opened = [played.state.window.own for played in still if played.state.window]
    assert sorted(set(opened)) == [2000, 4000, 8000]
    assert not any(learner.contradiction(played.state).found for played in still[4:])
    before = [played for played in moved if played.state.own <= 5000][4:]
    assert not any(learner.contradiction(played.state).found for played in before)
    said = learner.answer(moved[-1].state).first_of(Contradiction)
    assert said.found
    assert said.since in (4000, 8000)
    assert said.false_alarm_rate == FALSE_ALARM_RATE
