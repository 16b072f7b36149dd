"""An answer claims no gain of choosing by context where there is none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_lab.cli.input_files import load_spec
from privateer_lab.environments import environment_for
from privateer_lab.simulation.simulation import Simulation
from privateer_server.conclusions.by_context import context_findings
from privateer_server.conclusions.conclusion import conclude
from privateer_server.conclusions.wording import LearnedAnswer

Array = NDArray[np.float64]
SPEC = Path(__file__).parents[2] / "examples" / "peaks-shuffle.toml"
RUNS = 40
CLAIMED_MOST = 5
"""A program that claims a gain in 2.5 % of all runs fails with probability .0005 (binomial)."""


class Flat:
    """The people of an environment, whose rewards depend on nothing."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def means(self, contexts: Array) -> Array:
        return np.full_like(self._inner.means(contexts), 0.5)

    def rewards(self, contexts: Array, _: Any, rng: np.random.Generator) -> Array:
        return (rng.random(len(contexts)) < 0.5).astype(np.float64)


def too_sure(expected: ExpectedRewards) -> ExpectedRewards:
    """What a learner would expect whose errors are a tenth of what they are."""

    def at(contexts: Array) -> tuple[Array, Array]:
        means, deviations = expected.at(contexts)
        return means, deviations / 10

    return replace(expected, at=at, deviation=lambda *of: expected.deviation(*of) / 10)


@pytest.mark.nightly
def test_where_rewards_depend_on_nothing_no_gain_is_claimed() -> None:
    claimed, planted = 0, 0
    for seed in range(RUNS):
        spec = load_spec(SPEC, ["experiment.horizon=3000"])
        run = Simulation(spec, seed, one_by_one=True, environment=Flat(environment_for(spec, seed)))  # type: ignore[arg-type]
        while run.step.batch:
            run.close_round()
        learner, answer = run.schedule.learner, run.schedule.answer(run.step)
        found = conclude(run.schedule, run.step, answer)
        claimed += found.headline.sureness != "not known" and found.headline.finding == "rules"
        expected = learner.expected(run.step.state)
        assert expected is not None
        policy = learner.last(run.step.state, 1, 0).policy
        wrong = context_findings(found, LearnedAnswer(spec, answer), too_sure(expected), policy)
        planted += wrong.headline.sureness != "not known" and wrong.headline.finding == "rules"
    assert claimed <= CLAIMED_MOST
    # Errors that are too small are noticed.
    assert planted > CLAIMED_MOST
