"""Regret of high-dimensional bandits against the figures of docs/sparse.md, and what they find."""

import sys
from typing import Any

import numpy as np
import pytest

from privateer_core.answer.facts import Table
from privateer_core.answer.parts import Figures
from privateer_lab.simulation.simulate import make_simulation, simulate_without_path
from privateer_server.algorithms.sparse.coefficients import RewardTotals, estimate_coefficients, has_clearer_residuals
from privateer_server.algorithms.sparse.learner import EpochLearner
from tests.support.specs import sparse_spec


def shares(spec, seeds: int) -> list[float]:
    """Regret over that of arms at random."""
    return [run.regret / run.uniform_regret for run in (simulate_without_path(spec, seed) for seed in range(seeds))]


def run_to_end(spec, seed: int = 0):
    """A simulation at its end."""
    run = make_simulation(spec, seed)
    while run.step.batch_size:
        run.close_round()
    run.finish()
    return run


@pytest.mark.parametrize(
    ("model", "changes", "max_share"),
    [
        ("central", {}, 0.2),
        ("none", {}, 0.1),
        ("shuffle", {"experiment__round_size": 2000}, 0.35),
        ("local", {"context__features": 10, "experiment__horizon": 60_000, "experiment__round_size": 4000}, 0.3),
    ],
)
def test_regret_falls_under_every_trust_model(model, changes, max_share):
    """The mean of four seeds: one moves by a third of it. The bounds have room above what was measured."""
    assert np.mean(shares(sparse_spec(model, **changes), 4)) < max_share


def test_rewards_far_from_the_middle_are_estimated_by_their_residuals(monkeypatch):
    """Rewards of -1.5 of 2, four seeds: less what arms have they vary little, and so do products with features.

    Planted: choices are by products with rewards as they are. Of eight seeds it has twice the regret.
    """
    low = {"intercept": -1.5, "coefficients": [0.1, -0.1, 0.1], "deviation": 0.3}
    spec = sparse_spec("none", experiment__horizon=32_000, **{f"population__{k}": v for k, v in low.items()})
    assert np.mean(shares(spec, 4)) < 0.1
    monkeypatch.setattr(sys.modules[EpochLearner.__module__], "has_clearer_residuals", lambda *_: False)
    assert np.mean(shares(spec, 4)) > 0.1


def test_residual_moments_are_used_where_noise_leaves_them_clearer():
    """Figures are computed by hand for three arms at -.9: 2,430 and 1,717.

    They are of 9,000 people .81/3 each, and noise of scale 20 times 1.9^2 - 1.
    """
    assert has_clearer_residuals(9000, (-0.9, -0.9, -0.9), 3, 20.0, 0.0)
    assert not has_clearer_residuals(6000, (-0.9, -0.9, -0.9), 3, 20.0, 0.0)
    assert has_clearer_residuals(1, (-0.9, -0.9, -0.9), 3, 0.0, 0.0)
    assert not has_clearer_residuals(9000, (0.0, 0.0, 0.0, 0.25), 3, 20.0, 0.0)
    assert has_clearer_residuals(1000, (-0.4, -0.4, -0.4), 3, 20.0, 0.4), (
        "products with features that decide are off by 200"
    )


def test_an_arm_without_reports_is_expected_at_the_common_mean():
    """Of 3,000 participants at -.9 with noise of 8 only the common mean is beyond chance."""
    equal_arms = RewardTotals(3000, np.full(3, 1000.0), np.array([-905.0, -890.0, -910.0]), 64.0)
    assert equal_arms.shrunk_means == pytest.approx(np.full(3, -2705 / 3000))
    reward_totals = RewardTotals(3000, np.full(3, 1000.0), np.array([-905.0, -890.0, -600.0]), 64.0)
    assert reward_totals.shrunk_means[2] == pytest.approx(-0.6, abs=0.02)
    moments = np.diag([1000.0, 0.0, 2000.0, 3000.0])
    moments[:3, 3] = moments[3, :3] = -900.0, 0.0, -1800.0
    estimates = estimate_coefficients(3000, moments, np.zeros((4, 4)), np.full(3, -0.9))
    assert estimates.shrunk == pytest.approx(np.full(3, -0.9))


def test_intervals_hold_as_often_as_they_say():
    """All of an experiment's intervals hold together with .95: that 3 of 10 experiments have one that misses, with .01.

    Planted: intervals of a third of the width.
    """
    missed, too_narrow = 0, 0
    for seed in range(10):
        run = run_to_end(sparse_spec(experiment__horizon=8000), seed)
        result = run.schedule.answer(run.step)
        names = run.spec.context.names
        truth = {
            names[place]: c
            for place, c in zip(run.environment.relevant_features, run.environment.coefficients, strict=True)
        }
        off = [
            abs(estimate.value - truth.get(estimate.name, 0.0)) / (estimate.high - estimate.value)
            for estimate in result.estimates
        ]
        missed += max(off) > 1
        too_narrow += max(off) > 1 / 3
    assert missed < 3 <= too_narrow


def test_the_relevant_features_are_found_and_their_gain_is_estimated():
    run = run_to_end(sparse_spec(), 1)
    result = run.schedule.answer(run.step)
    names = run.spec.context.names
    assert {estimate.name for estimate in result.estimates} == {
        names[place] for place in run.environment.relevant_features
    }
    first, gain = result.first_of(Table), result.gain
    assert all(confidence > 0.95 for _, _, confidence in first.rows)
    policy, constant = gain.means
    best = run.environment.means(run.environment.contexts(0, 20_000, run.rng)).max(axis=1).mean()
    assert policy.low <= best + 0.02
    assert policy.value == pytest.approx(best, abs=0.1)
    assert constant.low <= 0 <= constant.high, "no arm is better for everybody"
    assert gain.value == pytest.approx(policy.value - constant.value, abs=1e-3)


def test_correlated_features_are_detected_and_distinguished():
    run = run_to_end(sparse_spec(experiment__horizon=32_000, population__correlation=0.7), 1)
    facts = run.schedule.answer(run.step).first_of(Figures).facts
    assert {fact.name: fact.value for fact in facts}["features correlate"] is True
    names = run.spec.context.names
    kept_features = {estimate.name for estimate in run.schedule.answer(run.step).estimates}
    assert {names[place] for place in run.environment.relevant_features} <= kept_features
    assert run.score.regret / run.score.uniform_regret < 0.3


def test_a_plan_says_how_many_features_there_may_be():
    for model, learns, fails in (("central", 30, None), ("shuffle", 30, 10_000), ("local", 10, 30)):
        ten_features = {"context__features": 10, "experiment__round_size": 4000, "experiment__horizon": 60_000}
        changes = ten_features if model == "local" else {}
        learner: Any = make_simulation(sparse_spec(model, **changes), 0).schedule.learner
        (table,) = learner.build_forecast()
        verdicts = {row[0]: row[-1] for row in table.rows}
        assert verdicts[learns] == "yes"
        assert fails is None or verdicts[fails] == "no"
        smallest = [row[2] for row in table.rows]
        assert smallest == sorted(smallest), "more features take larger coefficients"
