"""What partition learners answer: mean rewards by bin, and what was found of drift, forgetting and features."""

import numpy as np
import pytest

from privateer_core.algorithms.partition import PartitionSpec
from privateer_core.answer.parts import BinMeans, Contradiction, FeatureSelection, HalfLives
from privateer_server.algorithms import learner_for
from tests.support.people import rounds
from tests.support.specs import make_spec

QUICK = {"privacy.epsilon": 8.0, "experiment.round_size": 500, "experiment.horizon": 4000}
SPECS = PartitionSpec.instances()


def part(answer, kind):
    return next((one for one in answer.parts if isinstance(one, kind)), None)


@pytest.mark.parametrize("name", [name for name in SPECS if "memory" not in name])
def test_an_answer_has_an_interval_for_every_arm_that_is_known(name):
    spec = SPECS[name]
    learner = learner_for(spec)
    first = learner.answer(learner.start(0))
    assert (first.status, first.people, part(first, BinMeans)) == ("learning", 0, None)
    *_, last = rounds(spec)
    answer = learner.answer(last.state)
    means = part(answer, BinMeans)
    assert (answer.status, answer.ended) == ("ended", "its horizon")
    assert (answer.people, answer.rounds) == (last.state.seen, last.state.rounds)
    assert len(means.bins) == learner.figures(last.state)["bins"]
    for one in means.bins:
        assert {estimate.name for estimate in one.means} <= set(spec.experiment.arms)
        assert all(0 <= estimate.low <= estimate.value <= estimate.high <= 1 for estimate in one.means)


def test_means_are_in_the_unit_of_rewards_with_intervals_of_their_own_errors():
    spec = make_spec({**QUICK, "reward": {"low": -10.0, "high": 30.0}})
    learner = learner_for(spec)
    *_, last = rounds(spec, lambda contexts: np.tile([0.5, 0.45, 0.4], (len(contexts), 1)))
    posterior, bins = last.state.posterior, part(learner.answer(last.state), BinMeans).bins
    for row, one in enumerate(bins):
        for estimate in one.means:
            arm = spec.experiment.arms.index(estimate.name)
            assert estimate.value == pytest.approx(10 + 20 * posterior.mean[row, arm], abs=1e-3)
            radius = 1.96 * 20 * np.sqrt(posterior.variance[row, arm])
            assert estimate.high == pytest.approx(min(30.0, estimate.value + radius), rel=1e-3)


def test_an_answer_says_what_moves_and_how_fast_it_forgets():
    spec = make_spec({**QUICK, "algorithm.memory": "auto"})
    learner = learner_for(spec)
    *_, last = rounds(spec)
    answer = learner.answer(last.state)
    assert part(answer, Contradiction) == learner.contradiction(last.state)
    lives = part(answer, HalfLives)
    assert lives.candidates == (None, 30_000, 10_000, 3_000)
    assert sum(lives.probabilities) == pytest.approx(1, abs=1e-3)
    assert part(learner_for(make_spec(QUICK)).answer(learner_for(make_spec(QUICK)).start(0)), HalfLives) is None


def test_an_answer_says_which_features_were_kept():
    spec = make_spec({"privacy.epsilon": 4.0, "experiment.round_size": 200, "experiment.horizon": 6000}, dimension=6)
    learner = learner_for(spec)
    played = list(rounds(spec))
    assert part(learner.answer(played[2].state), FeatureSelection) == FeatureSelection(600, 6)
    found = part(learner.answer(played[-1].state), FeatureSelection)
    assert set(found.gains) == set(spec.features)
    assert set(found.kept) == {
        name for name, kept in zip(spec.features, played[-1].state.selection.kept, strict=True) if kept
    }
