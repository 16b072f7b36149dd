"""Every example has an answer at any time: before the first report, while it learns, and when it is over."""

from pathlib import Path

import msgspec
import pytest

from privateer_core.answer.conclusion import Conclusion
from privateer_lab.cli.input_files import load_spec
from privateer_lab.simulation.simulation import Simulation
from privateer_server.conclusions.conclusion import conclude
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
