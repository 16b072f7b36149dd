"""The mean reward by releases, and the warning about a declared rate far from it."""

from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.answer.estimates import MeasuredRate
from privateer_core.spec.reward import Reward
from privateer_server.rounds.schedule import Schedule
from tests.support.people import rounds
from tests.support.specs import tables

PROMISES: dict[str, dict[str, Any]] = {
    "none": {"privacy.epsilon": None},
    "central": {"privacy.epsilon": 1.0},
    "shuffle": {"privacy.epsilon": 1.0, "privacy.delta": 1e-6},
    "local": {"privacy.epsilon": 4.0},
}


def measure(algorithm: str, model: str, declared: float, rate: float) -> tuple[MeasuredRate | None, tuple[str, ...]]:
    """Run 20,000 participants and arms with rates within a tenth of ``rate``; return the rate and the warnings."""
    overrides = {"privacy.delta": 0.0} | PROMISES[model] | {"algorithm.name": algorithm, "privacy.model": model}
    if (algorithm, model) == ("linear", "central"):
        overrides["privacy.delta"] = 1e-6
    changes = {"reward.base_rate": declared, "experiment.horizon": 20_000, "experiment.round_size": 2000}
    sections = tables(overrides | changes)
    if algorithm == "bandit":
        sections.pop("context", None)
    spec: Any = parse_spec(sections)
    learner: Any = Schedule(spec).learner
    assert not learner.answer(learner.start(1)).warnings
    rates = rate * np.linspace(0.9, 1.1, len(spec.options))
    *_, last = rounds(spec, lambda contexts: np.tile(rates, (len(contexts), 1)))
    warnings = tuple(warning for warning in learner.answer(last.state).warnings if "declared" in warning)
    return learner.measured_rate(last.state), warnings


@pytest.mark.battery
@pytest.mark.parametrize("model", PROMISES)
@pytest.mark.parametrize("algorithm", ["trial", "partition", "bandit", "linear"])
def test_a_warning_names_a_rate_declared_ten_times_wrong(algorithm: str, model: str) -> None:
    """Run each case once with a fixed seed; intervals of three deviations miss 1 rate in 370 (16 x 3 here: .12).

    Planted: a rate declared ten times too high, and one ten times too low.
    """
    for declared, rate in ((0.1, 0.01), (0.01, 0.1)):
        measured, (warning,) = measure(algorithm, model, declared, rate)
        assert measured.low <= 1.1 * rate
        assert measured.high >= 0.9 * rate
        assert f"declared as {declared:g}" in warning
        assert f"{measured.value:.3g} ({measured.low:.3g} to {measured.high:.3g})" in warning
    assert not measure(algorithm, model, 0.03, 0.015)[1]


@pytest.mark.parametrize(
    ("declared", "ends", "is_said"),
    [
        (0.1, (0.01, 0.005, 0.03), True),
        (0.1, (0.01, 0.005, 0.034), False),
        (0.01, (0.04, 0.031, 0.05), True),
        (0.01, (0.04, 0.029, 0.05), False),
        (0.99, (0.9, 0.88, 0.92), True),  # failures are ten times as frequent as declared
        (0.9, (0.99, 0.95, 1.0), False),
        (None, (0.9, 0.88, 0.92), False),
    ],
)
def test_a_warning_needs_a_factor_of_three_beyond_the_interval(declared, ends, is_said):
    assert bool(MeasuredRate(*ends).warnings(Reward(base_rate=declared))) is is_said


def test_the_rate_warning_is_short_and_in_the_unit_of_rewards() -> None:
    reward = Reward(low=0.0, high=200.0, kind="numeric", base_rate=20.0)
    (warning,) = MeasuredRate.normal(0.01, 0.001).warnings(reward)
    assert "declared as 20, and reports tell 2 (1.4 to 2.6)" in warning
    assert len(warning) <= 256
