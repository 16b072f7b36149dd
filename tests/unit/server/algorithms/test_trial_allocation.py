"""The allocation of arms, and the gain of choosing by segment over one arm for all."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_server.algorithms.trial.allocation import (
    Holdout,
    best_probabilities,
    match_probabilities,
    raise_to_floor,
)
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.group_sequential import critical_values
from tests.support.trials import SETTINGS, Trials, named_symbol

SEGMENTS = np.array([0.5, 0.5])
DESIGN = TrialDesign(0.05, 5e3, np.array([0.5, 0.5]), np.array([0.5, 0.25, 0.25]))
EVEN = np.full((3, 2), 0.5)


def draw_evidence(means: list[list[float]], people: float, seed: int = 0) -> TrialEvidence:
    arms = len(means[0])
    trials = Trials(SETTINGS["none"], SEGMENTS, np.array(means), people, 1, arms=(1 / arms,) * arms)
    shares = np.full((2, arms), 1 / arms)
    return trials.begin().add(trials.epoch(np.random.default_rng(seed), people, shares))


def test_the_probability_of_being_best_is_that_of_draws() -> None:
    values, variances = np.array([[0.0, 0.02, 0.03, -0.05]]), np.array([[1e-4, 4e-4, 2e-4, 9e-4]])
    draws = np.random.default_rng(1).normal(values, np.sqrt(variances), (100_000, 4)).argmax(axis=1)
    assert best_probabilities(values, variances)[0] == pytest.approx(np.bincount(draws) / 1e5, abs=0.007)
    pair = best_probabilities(values[:, :2], variances[:, :2])
    assert pair[0, 1] == pytest.approx(0.8145, abs=1e-4)  # Phi(.02 / sqrt(.0005))


def test_every_arm_keeps_its_minimum_share() -> None:
    assert raise_to_floor(np.array([[0.999, 0.001], [0.7, 0.3]]), 0.05) == pytest.approx(
        np.array([[0.95, 0.05], [0.7, 0.3]])
    )
    shares = raise_to_floor(np.random.default_rng(2).dirichlet(np.full(5, 0.2), 50), 0.04)
    assert shares.min() >= 0.04 - 1e-12
    assert shares.sum(axis=1) == pytest.approx(np.ones(50))


def test_matching_favours_the_better_arm_and_starts_as_planned() -> None:
    shares = match_probabilities(draw_evidence([[0.3, 0.4], [0.4, 0.3]], 5_000), 0.02)
    assert shares[0, 1] > 0.9 > 0.1 > shares[1, 1] >= 0.02
    blank = Trials(SETTINGS["none"], SEGMENTS, np.full((2, 2), 0.5), 1e4, 1, arms=(0.3, 0.7)).begin()
    assert match_probabilities(blank, 0.02) == pytest.approx(np.tile([0.3, 0.7], (2, 1)))


def test_matching_waits_until_both_arms_have_events() -> None:
    """Seven events of 500 people against one are 2.1 standard deviations apart, and move no shares."""
    rates, planned = np.array([[0.002, 0.014]]), np.array([[0.5, 0.5]])
    design = TrialDesign(0.05, 1e5, np.array([0.5, 0.5]), np.ones(1))
    shares = [
        match_probabilities(
            TrialEvidence.begin(design).add(Epoch(2 * n, n * rates, n * planned * 2, 1, 0, 0, planned)), 0.02
        )
        for n in (500.0, 5_000.0)
    ]
    assert shares[0] == pytest.approx(planned)
    assert shares[1] == pytest.approx(np.array([[0.02, 0.98]]))


@pytest.mark.parametrize("setting", [named_symbol(2.0, 4), SETTINGS["central 1"]])
def test_the_gain_of_choosing_by_segment_is_unbiased(setting: object) -> None:
    """200 trials: the mean of z within four standard errors, .28, of 0, and its deviation within .2 of 1.

    Planted: a policy that is worse by .02 in half of the people.
    """
    rng, segments = np.random.default_rng(5), np.array([0.4, 0.3, 0.2, 0.1])
    means = np.array([[0.3, 0.36], [0.3, 0.3], [0.5, 0.58], [0.2, 0.2]])
    scores: dict[float, list[float]] = {0.0: [], 0.02: []}
    for _ in range(200):
        trials = Trials(setting, segments, means, 1e5, 1, arms=(0.5, 0.5))
        holdout = Holdout.begin(trials.begin().design, 4e4, np.array([1, 0, 1, 0]), 0)
        gain = holdout.add(trials.epoch(rng, 6e4, np.full((4, 2), 0.5))).gain()
        assert gain is not None
        value, low, _ = gain
        deviation = (value - low) / critical_values((1.0,), 0.05)[-1]
        for off, errors in scores.items():
            errors.append((value + off - (0.4 * 0.06 + 0.2 * 0.08)) / deviation)
    assert np.mean(scores[0.0]) == pytest.approx(0, abs=0.28)
    assert np.std(scores[0.0]) == pytest.approx(1, abs=0.2)
    assert np.mean(scores[0.02]) > 0.28


def released(people: float, hits: np.ndarray, rates: np.ndarray) -> Epoch:
    return Epoch(people, hits * rates, hits, 1.0, 0.0, 0.0, EVEN)


def test_a_gain_is_the_sum_over_segments_where_the_arms_differ() -> None:
    """By hand: the treatment for all loses .2 where a fifth of people are, whom the control would suit."""
    holdout = Holdout.begin(DESIGN, 3e3, np.array([1, 0, 1]), constant=1)
    assert holdout.gain() is None
    hits = np.array([[600.0, 600.0], [200.0, 200.0], [200.0, 200.0]])
    rates = np.array([[0.3, 0.5], [0.5, 0.3], [0.4, 0.4]])
    gain = holdout.add(released(2_000, hits, rates)).gain()
    assert gain is not None
    deviation = 0.2 * np.sqrt((0.5 * 0.5 + 0.3 * 0.7) / 200)
    between = critical_values((1.0,), 0.05)[-1] * deviation
    assert gain == pytest.approx((0.2 * 0.2, 0.04 - between, 0.04 + between), rel=0.002)


def test_there_is_no_gain_with_the_same_arm_in_all_segments() -> None:
    holdout = Holdout.begin(DESIGN, 3e3, np.ones(3, np.int64), constant=1)
    assert holdout.add(released(2_000, np.full((3, 2), 300.0), np.full((3, 2), 0.4))).gain() is None


def test_an_empty_segment_does_not_change_the_gain() -> None:
    hits = np.array([[600.0, 600.0], [400.0, 400.0], [0.0, 0.0]])
    rates = np.array([[0.3, 0.5], [0.5, 0.3], [0.0, 0.0]])
    gain = Holdout.begin(DESIGN, 3e3, np.array([1, 0, 0]), constant=1).add(released(2_000, hits, rates)).gain()
    assert gain is not None
    assert gain[0] == pytest.approx(0.4 * 0.2)


def test_a_segment_with_few_events_adds_to_a_gain_the_variance_of_rare_events() -> None:
    """The third segment has twenty participants of each arm without rewards; the overall rate is .02."""
    hits = np.array([[600.0, 600.0], [380.0, 380.0], [20.0, 20.0]]) * 10
    rates = np.array([[0.02, 0.02], [0.02, 0.02], [0.02, 0.02]])
    holdout = Holdout.begin(replace(DESIGN, people=1e5), 3e3, np.array([0, 0, 1]), constant=0)
    gain = holdout.add(released(20_000, hits, rates)).gain()
    assert gain is not None
    deviation = np.sqrt(2 * 200 * 4 * 0.02 * 0.98) / 20_000
    assert gain[0] == pytest.approx(0.0)
    assert (gain[2] - gain[1]) / 2 == pytest.approx(critical_values((20_000 / 97_000,), 0.05)[-1] * deviation)
