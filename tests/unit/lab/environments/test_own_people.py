"""People of an own class: their methods, refused classes, and files, which cannot name a class."""

import sys
from pathlib import Path

import numpy as np
import pytest

import privateer_lab as lab
from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_lab.cli.command_line import main
from privateer_lab.environments import environment_for, with_population
from tests.support.specs import make_spec

PAGE = Path(__file__).parents[4] / "docs" / "environments" / "own.md"
SPEC_OF_SHOPPERS = """
[experiment]
name = "x"
arms = ["a", "b"]
horizon = 2000
[context.features]
age = { low = 18, high = 78 }
plan = { levels = ["free", "basic", "pro"] }
[privacy]
model = "none"
[algorithm]
name = "partition"
"""
SPEC = make_spec({"experiment.horizon": 4000, "population": {"name": "peaks"}})


class Shoppers:
    """Coins of means."""

    def __init__(self, _spec: object = None) -> None:
        pass

    def contexts(self, people: int, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(0, 1, (people, 2))

    def means(self, contexts: np.ndarray) -> np.ndarray:
        return np.stack([contexts[:, 0], 1 - contexts[:, 0], np.zeros(len(contexts))], axis=1)


def test_people_may_be_a_class_or_an_object_and_are_simulated():
    for people in (Shoppers, Shoppers()):
        environment = environment_for(with_population(SPEC, people), 0)
        contexts, rng = environment.contexts(0, 20_000, np.random.default_rng(0)), np.random.default_rng(1)
        rewards = environment.rewards(contexts, Arms(np.ones(20_000, np.int64)), rng)
        assert rewards.mean() == pytest.approx(0.5, abs=0.015)  # 4 deviations
    simulated = lab.simulate(SPEC, people=Shoppers, users=4000, seeds=1)
    assert simulated.runs[0].uniform_regret == pytest.approx(4000 * (0.75 - 1 / 3), rel=0.05)
    assert lab.spec(simulated.spec).population == simulated.spec.population
    assert lab.simulate(SPEC, people="mixed", users=2000, seeds=1).spec.population == {"name": "mixed"}


def test_the_commands_find_the_class_of_the_page_in_the_working_directory(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = PAGE.read_text(encoding="utf-8").partition("`shoppers.py`:\n\n```python\n")[2].partition("```")[0]
    (tmp_path / "shoppers.py").write_text(module, encoding="utf-8")
    (tmp_path / "spec.toml").write_text(SPEC_OF_SHOPPERS, encoding="utf-8")
    for command in (
        ["simulate", "spec.toml"],
        ["plan", "spec.toml", "--models", "central", "--epsilons", "1", "--seeds", "1", "--jobs", "1"],
    ):
        with pytest.raises(SystemExit) as stop:
            main([*command, "--population", "shoppers:Shoppers"])
        assert stop.value.code == 0, capsys.readouterr()


def stub(method: str, answer: object) -> object:
    shoppers = Shoppers()
    setattr(shoppers, method, lambda *_: answer)
    return shoppers


class Failing(Shoppers):
    def means(self, contexts):
        raise ZeroDivisionError("oh")


@pytest.mark.parametrize(
    ("people", "message"),
    [
        ("no_such_module:X", r"--population: no module is named 'no_such_module' \(run this in the folder"),
        ("math:Nobody", "the module 'math' has no 'Nobody'"),
        (object(), "the class has no method 'contexts'"),
        (stub("contexts", np.zeros((16, 1))), "contexts must have 2 columns, one a feature, and has 1"),
        (stub("contexts", np.full((16, 2), np.nan)), "contexts has people without 'x1'"),
        (stub("contexts", [["a", "b"]] * 16), "contexts returned something else than numbers"),
        (stub("means", np.zeros((16, 2))), r"means must be finite numbers of shape \(16, 3\), and has \(16, 2\)"),
        (stub("means", np.full((16, 3), 1.5)), "means must be from reward.low = 0 to reward.high = 1"),
        (Failing(), r"means raised ZeroDivisionError: oh \(see line \d+ of test_own_people.py"),
    ],
)
def test_an_error_in_a_class_of_people_is_a_single_line(people, message):
    with pytest.raises(SpecError, match=message):
        environment_for(with_population(SPEC, people), 0)


def test_numbers_need_rewards_of_their_own():
    spec = make_spec({"reward.kind": "numeric"})
    with pytest.raises(SpecError, match="the class has no method 'rewards', and the rewards of the spec are numbers"):
        environment_for(with_population(spec, Shoppers), 0)


def test_no_file_and_no_spec_can_name_a_class(tmp_path):
    named = {"name": "own", "people": "os:getcwd"}
    with pytest.raises(SpecError, match=r"population.name: no spec can name a class"):
        lab.spec(SPEC.model_dump() | {"population": named})
    path = tmp_path / "people.toml"
    path.write_text('[population]\nname = "own"\npeople = "os:getcwd"\n', encoding="utf-8")
    with pytest.raises(SpecError, match=r"no file can name a class"):
        with_population(SPEC, str(path))
