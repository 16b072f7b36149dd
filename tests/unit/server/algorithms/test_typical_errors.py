"""Typical errors of mean rewards are in the unit of rewards."""

import pytest

from privateer_core.algorithms import parse_spec
from privateer_server.algorithms import learner_for

SPAN = 95.0


def typical_error(algorithm: str, levels: int, high: float) -> float:
    """Return the standard error of a mean reward before any report."""
    spec = parse_spec(
        {
            "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 20000},
            "context": {"features": {"group": {"levels": [f"g{level}" for level in range(levels)]}}},
            "reward": {"kind": "numeric", "low": 0.0, "high": high},
            "privacy": {"model": "none"},
            "algorithm": {"name": algorithm},
        }
    )
    learner = learner_for(spec)
    return learner.figures(learner.start(0))["uncertainty"]


@pytest.mark.parametrize(("algorithm", "levels"), [("additive", 3), ("additive", 70), ("linear", 3)])
def test_typical_errors_have_the_unit_of_rewards(algorithm: str, levels: int) -> None:
    error = typical_error(algorithm, levels, 1.0)
    assert error > 0
    assert typical_error(algorithm, levels, SPAN) == pytest.approx(SPAN * error)
