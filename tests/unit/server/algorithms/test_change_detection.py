"""Tests of whether recent rounds contradict earlier ones: evidence by its exact density, windows, and state."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privateer_core.answer.parts import DriftTest
from privateer_lab.environments import environment_for
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.partition.forgetting import (
    FALSE_ALARM_RATE,
    FIRST_WINDOW_SIZE,
    Window,
    combine_windows,
    log_evidence_ratio,
)
from tests.support.people import rounds
from tests.support.specs import make_spec

QUICK = {"privacy.epsilon": 8.0, "experiment.round_size": 500, "experiment.horizon": 12_000}
PEAKS = environment_for(make_spec({"population.name": "peaks"}), 0).means
NOTHING = np.zeros(0)


def gaussian(earlier, recent):
    """Likelihoods of shares of two observations of a standard normal value: (mean, precision) each."""

    def likelihood(old_weight, new_weight):
        precision = 1 + old_weight * earlier[1] + new_weight * recent[1]
        weighted = old_weight * earlier[0] * earlier[1] + new_weight * recent[0] * recent[1]
        return weighted**2 / precision / 2 - math.log(precision) / 2

    return likelihood


def test_evidence_is_the_ratio_of_exact_densities():
    """The weights of earlier on recent observations are 1, an eighth and 0."""
    earlier, recent = (0.8, 40.0), (-0.1, 25.0)

    def density(share):
        precision = 1 + share * earlier[1]
        mean, variance = share * earlier[0] * earlier[1] / precision, 1 / precision + 1 / recent[1]
        return stats.norm.pdf(recent[0], mean, math.sqrt(variance))

    exact = (density(0.0) + density(0.125)) / 2 / density(1.0)
    assert log_evidence_ratio(gaussian(earlier, recent)) == pytest.approx(math.log(exact))
    assert exact > 10


def detection_rate(is_drifting, times=2000, scale=1.0):
    """Share of experiments of one value, seen 200 times in four windows, that are ever said to contradict themselves.

    ``moves``: whether the value is drawn anew halfway. ``scale``: what the precision of observations is taken for.
    """
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(times):
        values = np.repeat(rng.normal(0, 1, 2 if is_drifting else 1), 100 if is_drifting else 200)
        values_seen = rng.normal(values, 1.0)
        closed, opened = [], []
        for start in (25, 50, 100):
            for now in range(start + 1, 2 * start + 1):
                earlier = (values_seen[:start].mean(), scale * start)
                recent = (values_seen[start:now].mean(), scale * (now - start))
                window = log_evidence_ratio(gaussian(earlier, recent))
                contradiction = combine_windows(np.array([*closed, window]), np.array([*opened, start]))
                if contradiction.detected:
                    break
            closed.append(window)
            opened.append(start)
            if contradiction.detected:
                alarms += 1
                break
    return alarms / times


@pytest.mark.nightly
def test_the_false_alarm_rate_holds_however_often_one_looks():
    """At every observation; 5,000 experiments exceed the rate by chance with probability 1e-6 at the limit."""
    limit = stats.binom.isf(1e-6, 5000, FALSE_ALARM_RATE) / 5000
    assert detection_rate(False, 5000) <= limit


@pytest.mark.nightly
def test_drift_is_detected_and_an_overstated_precision_is_caught():
    """Planted: half of the values move far enough to be seen; observations taken for three times as precise."""
    assert detection_rate(True, 100) > 0.4
    assert detection_rate(False, 500, scale=3.0) > stats.binom.isf(1e-6, 500, FALSE_ALARM_RATE) / 500


def test_windows_share_one_false_alarm_rate():
    limit = -math.log(FALSE_ALARM_RATE)
    assert not combine_windows(np.array([limit]), np.array([FIRST_WINDOW_SIZE])).detected, (
        "the first window has half of the weight"
    )
    contradiction = combine_windows(np.array([limit + 1.0, 0.0]), np.array([FIRST_WINDOW_SIZE, 2 * FIRST_WINDOW_SIZE]))
    assert contradiction.detected
    assert contradiction.since == FIRST_WINDOW_SIZE
    assert (
        combine_windows(np.array([-1.0, limit + 3.0]), np.array([FIRST_WINDOW_SIZE, 2 * FIRST_WINDOW_SIZE])).since
        == 2 * FIRST_WINDOW_SIZE
    )
    assert combine_windows(np.array([1e3]), np.array([FIRST_WINDOW_SIZE])).evidence > 100
    assert combine_windows(np.zeros(3), np.arange(3)).evidence == pytest.approx(0)


def test_bins_split_after_the_window_opened_have_no_earlier_evidence():
    depths, paths = np.array([1, 1, 0]), np.array([0, 1, 0])
    evidence = np.arange(6.0).reshape(3, 2)
    before = Window(2000, depths, paths, evidence, -evidence, NOTHING, NOTHING.astype(np.int64))
    precision, moment = before.evidence_for(np.array([2, 1, 0]), np.array([0, 1, 0]))
    assert precision.tolist() == [[0, 0], [2, 3], [4, 5]]
    assert moment.tolist() == [[0, 0], [-2, -3], [-4, -5]]


@pytest.mark.parametrize("memory", ["none", "auto", 3000])
def test_windows_open_when_people_have_doubled_and_a_planted_drift_is_found(memory):
    spec = make_spec({**QUICK, "algorithm.half_life": memory})
    learner: Any = learner_for(spec)
    n_people = 0

    def drifting_means(contexts):
        nonlocal n_people
        n_people += len(contexts)
        means = PEAKS(contexts)
        return means if n_people <= 5000 else means[:, [1, 2, 0]]

    stable, drifting = (list(rounds(spec, means)) for means in (PEAKS, drifting_means))
    assert learner.detect_change(stable[0].state) is None
    opened = [played.state.window.own for played in stable if played.state.window]
    assert sorted(set(opened)) == [2000, 4000, 8000]
    assert not any(learner.detect_change(played.state).detected for played in stable[4:])
    before = [played for played in drifting if played.state.own <= 5000][4:]
    assert not any(learner.detect_change(played.state).detected for played in before)
    first = learner.answer(drifting[-1].state).first_of(DriftTest)
    assert first.detected
    assert first.since in (4000, 8000)
    assert first.false_alarm_rate == FALSE_ALARM_RATE
