"""People without an invitation get arms of the last policy, even if its round would have no valid terms."""

import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.environments import default_environment
from privateer_lab.planning.expectation.partial_runs import PartialRun, run_partially


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_people_who_measure_a_gain_follow_the_last_policy(epsilon):
    """Planted: their report would have no alphabet in a round without participants."""
    tables = {
        "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 3000, "evaluation_fraction": 0.05},
        "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
        "privacy": {"model": "local", "epsilon": epsilon},
        "algorithm": {"name": "additive"},
    }
    spec = parse_spec(tables)
    partial_run = run_partially(spec.model_copy(update={"population": default_environment(spec)}), 0, 4.0)
    assert isinstance(partial_run, PartialRun)
    assert partial_run.run.choices == 3000
