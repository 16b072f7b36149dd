"""Every example has an answer at any time, and no answer claims a gain where there is none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from privateer_core.answer.conclusion import Conclusion
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_lab.cli.input_files import load_spec
from privateer_lab.environments import environment_for
from privateer_lab.simulation.simulation import Simulation
from privateer_server.conclusions.by_context import add_context_findings
from privateer_server.conclusions.conclusion import conclude
from privateer_server.conclusions.texts import AnswerFacts
from privateer_server.rounds.loop import Step

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = {"adult-effects": "effects", "adult-income": "mixed", "adult-linear": "mixed", "adult-shuffle": "mixed"}
"""Examples whose people are in files that this repository does not have, and who takes their place."""
ROUNDS = 2


def simulated(name: str) -> Simulation:
    spec = load_spec(EXAMPLES / f"{name}.toml", [])
    people = {"name": FILES[name]} if name in FILES else spec.population
    return Simulation(spec.model_copy(update={"population": people}), 1)


def concluded(run: Simulation, step: Step) -> Conclusion:
    conclusion = conclude(run.schedule, step, run.schedule.answer(step))
    # It travels, so nothing in it is beyond what a screen may be given.
    assert msgspec.json.decode(msgspec.json.encode(conclusion), type=Conclusion) == conclusion
    assert "no result" not in conclusion.headline.sentence
    return conclusion


def names() -> list[object]:
    """All examples; of one with 20 features a round alone takes long."""
    stems = sorted(path.stem for path in EXAMPLES.glob("*.toml"))
    return [pytest.param(stem, marks=pytest.mark.nightly) if stem == "adult-linear" else stem for stem in stems]


@pytest.mark.parametrize("name", names())
def test_an_example_has_an_answer_at_any_time(name: str) -> None:
    run = simulated(name)
    before = concluded(run, run.step)
    assert (
        before.headline.sentence
        == f"Nothing is known yet: the first result comes after {run.step.batch_size:,} people."
    )
    assert (before.rules, before.gain, before.effects, before.estimates) == (None, None, (), ())
    assert before.privacy.sentence
    for _ in range(ROUNDS):
        run.close_round()
    learned = concluded(run, run.step)
    assert learned.headline.finding != "nothing yet"
    assert learned.headline.sentence.startswith("So far: ")
    if rules := learned.rules:
        assert len(rules.rules) <= 7
        assert sum(rule.share for rule in rules.rules) == pytest.approx(1.0, abs=1e-3)
        assert {rule.arm for rule in rules.rules} <= set(run.spec.options)
    if learned.headline.confidence_label == "not known":
        assert "give everybody" not in learned.headline.sentence
        assert "choose by" not in learned.headline.sentence
    last = run.schedule.learner.open_idle_round(run.step.state, run.step.policy.version + 1, 0)
    over = concluded(run, last)
    assert over.headline.finding == learned.headline.finding


Array = NDArray[np.float64]
SPEC = Path(__file__).parents[2] / "examples" / "peaks-shuffle.toml"
RUNS = 40
CLAIMED_MOST = 5
"""A program that claims a gain in 2.5 % of all runs fails with probability .0005 (binomial)."""


class Flat:
    """The participants of an environment, with rewards that are independent of context and arm."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def means(self, contexts: Array) -> Array:
        return np.full_like(self._inner.means(contexts), 0.5)

    def rewards(self, contexts: Array, _: Any, rng: np.random.Generator) -> Array:
        return (rng.random(len(contexts)) < 0.5).astype(np.float64)


def with_a_tenth_of_errors(expected: ExpectedRewards) -> ExpectedRewards:
    """Return the expected rewards of a learner with a tenth of the standard errors."""

    def at(contexts: Array) -> tuple[Array, Array]:
        means, deviations = expected.at(contexts)
        return means, deviations / 10

    return replace(expected, at=at, deviation=lambda *arguments: expected.deviation(*arguments) / 10)


@pytest.mark.nightly
def test_where_rewards_depend_on_nothing_no_gain_is_claimed() -> None:
    claimed, planted = 0, 0
    for seed in range(RUNS):
        spec = load_spec(SPEC, ["experiment.horizon=3000"])
        run = Simulation(spec, seed, environment=Flat(environment_for(spec, seed)))  # type: ignore[arg-type]
        while run.step.batch_size:
            run.close_round()
        learner, answer = run.schedule.learner, run.schedule.answer(run.step)
        conclusion = conclude(run.schedule, run.step, answer)
        claimed += conclusion.headline.confidence_label != "not known" and conclusion.headline.finding == "rules"
        expected = learner.build_expected_rewards(run.step.state)
        assert expected is not None
        policy = learner.open_idle_round(run.step.state, 1, 0).policy
        wrong = add_context_findings(conclusion, AnswerFacts(spec, answer), with_a_tenth_of_errors(expected), policy)
        planted += wrong.headline.confidence_label != "not known" and wrong.headline.finding == "rules"
    assert claimed <= CLAIMED_MOST
    # Errors that are too small are noticed.
    assert planted > CLAIMED_MOST
