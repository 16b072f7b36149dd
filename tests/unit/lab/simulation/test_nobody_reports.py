"""People whom nobody asks get what the last policy gives, also where what would be asked has no terms then."""

import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.environments import default_environment
from privateer_lab.planning.expectation.partial_runs import PartialRun, played


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_people_who_measure_a_gain_follow_the_last_policy(epsilon):
    """Planted: what they would have been asked has no alphabet where nobody hides a report and nobody is asked."""
    tables = {
        "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 3000, "gain_share": 0.05},
        "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
        "privacy": {"model": "local", "epsilon": epsilon},
        "algorithm": {"name": "additive"},
    }
    spec = parse_spec(tables)
    found = played(spec.model_copy(update={"population": default_environment(spec)}), 0, 4.0)
    assert isinstance(found, PartialRun)
    assert found.run.choices == 3000
