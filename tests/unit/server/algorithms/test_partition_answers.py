"""Answers of partition learners: mean rewards by bin, drift, forgetting and selected features."""

from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.partition import PartitionSpec
from privateer_core.answer.parts import BinMeans, DriftTest, FeatureSelection, HalfLives
from privateer_server.algorithms import learner_for
from tests.support.people import rounds
from tests.support.specs import make_spec

QUICK = {"privacy.epsilon": 8.0, "experiment.round_size": 500, "experiment.horizon": 4000}
SPECS = PartitionSpec.instances()


def find_part(answer, kind):
    return next((candidate for candidate in answer.parts if isinstance(candidate, kind)), None)


@pytest.mark.parametrize("name", [name for name in SPECS if "memory" not in name])
def test_an_answer_has_an_interval_for_every_arm_that_is_known(name):
    spec = SPECS[name]
    learner = learner_for(spec)
    first = learner.answer(learner.start(0))
    assert (first.stage, first.people, find_part(first, BinMeans)) == ("learning", 0, None)
    *_, last = rounds(spec)
    answer = learner.answer(last.state)
    means = find_part(answer, BinMeans)
    assert (answer.stage, answer.stop_reason) == ("ended", "its horizon")
    assert (answer.people, answer.rounds) == (last.state.seen, last.state.rounds)
    assert len(means.bins) == learner.figures(last.state)["bins"]
    for row in means.bins:
        assert {estimate.name for estimate in row.means} <= set(spec.experiment.arms)
        assert all(0 <= estimate.low <= estimate.value <= estimate.high <= 1 for estimate in row.means)


def test_means_are_in_the_unit_of_rewards_with_intervals_of_their_own_errors():
    spec = make_spec({**QUICK, "reward": {"low": -10.0, "high": 30.0}})
    learner = learner_for(spec)
    *_, last = rounds(spec, lambda contexts: np.tile([0.5, 0.45, 0.4], (len(contexts), 1)))
    posterior, bins = last.state.posterior, find_part(learner.answer(last.state), BinMeans).bins
    for row, bin_means in enumerate(bins):
        for estimate in bin_means.means:
            arm = spec.experiment.arms.index(estimate.name)
            assert estimate.value == pytest.approx(10 + 20 * posterior.mean[row, arm], abs=1e-3)
            radius = 1.96 * 20 * np.sqrt(posterior.variance[row, arm])
            assert estimate.high == pytest.approx(min(30.0, estimate.value + radius), rel=1e-3)


def test_an_answer_has_the_drift_and_the_half_life():
    spec = make_spec({**QUICK, "algorithm.half_life": "auto"})
    learner: Any = learner_for(spec)
    *_, last = rounds(spec)
    answer = learner.answer(last.state)
    assert find_part(answer, DriftTest) == learner.detect_change(last.state)
    lives = find_part(answer, HalfLives)
    assert lives.candidates == (None, 30_000, 10_000, 3_000)
    assert sum(lives.probabilities) == pytest.approx(1, abs=1e-3)
    assert find_part(learner_for(make_spec(QUICK)).answer(learner_for(make_spec(QUICK)).start(0)), HalfLives) is None


def test_an_answer_says_which_features_were_kept():
    spec = make_spec({"privacy.epsilon": 4.0, "experiment.round_size": 200, "experiment.horizon": 6000}, dimension=6)
    learner = learner_for(spec)
    played = list(rounds(spec))
    assert find_part(learner.answer(played[2].state), FeatureSelection) == FeatureSelection(600, 6)
    selection = find_part(learner.answer(played[-1].state), FeatureSelection)
    assert set(selection.gains) == set(spec.features)
    assert set(selection.kept) == {
        name for name, is_kept in zip(spec.features, played[-1].state.selection.kept, strict=True) if is_kept
    }
