"""The population section, the environment that it selects, and classes of one's own."""

import math
import sys
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privateer_lab as lab
from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_lab.cli.command_line import main
from privateer_lab.environments import check_population, default_environment, environment_for, with_population
from privateer_lab.environments.synthetic import ShiftedDensity, Synthetic
from privateer_lab.simulation.scores import encode_contexts
from privateer_lab.toml_file import read_tables
from tests.support.specs import make_spec, tables

GOOD = [
    {"name": "peaks"},
    {"name": "peaks", "density": {"name": "uniform"}},
    {"name": "peaks", "density": {"name": "shifted", "gamma": 0.2}, "drift": {"name": "swap", "period": 100}},
    {"name": "peaks", "drift": {"name": "slide", "period": 1, "step": -0.5}},
    {"name": "mixed", "function": 3},
    {"name": "csv", "path": "a.csv", "label": "kind", "rewards": [[0, 1], [0.5, 1]], "classes": ["a", "b"]},
    {"name": "csv", "path": "a.csv", "label": "kind", "missing": "drop"},
    {"name": "adult", "path": "adult.data", "task": "effects"},
]
SHIFTED = {"name": "shifted"}
CSV = {"name": "csv", "path": "a", "label": "b"}
BAD = [
    ({}, "population.name", "missing"),
    ({"name": "martians"}, "population.name", "'mixed'"),
    ({"name": ["peaks"]}, "population.name", "'mixed'"),
    ({"name": "linear"}, "population.name", "'mixed'"),
    ({"name": "peaks", "path": "a.csv"}, "population.path", "unknown key"),
    ({"name": "peaks", "function": 3}, "population.function", "unknown key"),
    ({"name": "peaks", "density": "shifted"}, "population.density", None),
    ({"name": "peaks", "density": {"gamma": 1}}, "population.density.name", "missing"),
    ({"name": "peaks", "density": {"name": "normal"}}, "population.density.name", "'shifted'"),
    ({"name": "peaks", "density": {"name": "varied"}}, "population.density.name", "'shifted'"),
    ({"name": "peaks", "density": SHIFTED}, "population.density.gamma", "required"),
    ({"name": "peaks", "density": {**SHIFTED, "gamma": -0.1}}, "population.density.gamma", "greater than or equal"),
    ({"name": "peaks", "density": {**SHIFTED, "gamma": math.nan}}, "population.density.gamma", None),
    ({"name": "peaks", "density": {**SHIFTED, "gamma": 1, "seed": 1}}, "population.density.seed", "unknown key"),
    ({"name": "peaks", "drift": {"name": "jump", "period": 3}}, "population.drift.name", "'slide'"),
    ({"name": "peaks", "drift": {"name": "swap"}}, "population.drift.period", "required"),
    ({"name": "peaks", "drift": {"name": "swap", "period": 0}}, "population.drift.period", "greater than or equal"),
    ({"name": "peaks", "drift": {"name": "slide", "period": 9, "step": math.inf}}, "population.drift.step", None),
    ({"name": "smooth", "function": 1}, "population.name", "no 'smooth' any more"),
    ({"name": "quadrants"}, "population.name", "no 'quadrants' any more"),
    ({"name": "mixed", "function": -1}, "population.function", "greater than or equal"),
    ({"name": "csv", "label": "b"}, "population.path", "required"),
    ({**CSV, "path": ""}, "population.path", "at least 1"),
    ({**CSV, "classes": ["a"]}, "population.classes", "two or more"),
    ({**CSV, "classes": ["a", "a"]}, "population.classes", "distinct"),
    ({**CSV, "rewards": [[0.1], [0.1, 0.2]]}, "population.rewards", "equal length"),
    ({**CSV, "rewards": [[0.1, 1.2]]}, "population.rewards.0.1", "less than or equal to 1"),
    ({**CSV, "missing": "guess"}, "population.missing", "'refuse' or 'drop'"),
    ({**CSV, "project": {}}, "population.project", "no longer a key"),
    ({"name": "adult", "path": "a", "cohort": "target"}, "population.cohort", "no longer a key"),
    ({**CSV, "density": {"name": "uniform"}}, "population.density", "unknown key"),
    ({"name": "adult"}, "population.path", "required"),
    ({"name": "adult", "path": "a", "task": "wage"}, "population.task", "'offers' or 'effects'"),
]


@pytest.mark.parametrize("table", GOOD, ids=str)
def test_valid_population_sections_are_accepted(table):
    check_population(make_spec({"population": table}))


@pytest.mark.parametrize(("table", "field", "constraint"), BAD, ids=lambda value: str(value)[:70])
def test_invalid_keys_are_named_as_in_the_file(table, field, constraint):
    source = {"name": "clinic", "participants": 10, "epsilon": 1.0, "shares": [1, 0, 0], "population": table}
    for changes, prefix in (({"population": table}, ""), ({"sources": [source]}, "sources.0.")):
        with pytest.raises(SpecError) as refused:
            check_population(make_spec(changes))
        assert refused.value.field == prefix + field
        assert constraint is None or constraint in refused.value.detail
        assert refused.value.remedy


@given(
    st.sampled_from(["name", "density", "drift", "function", "path", "label", "rewards", "project", "density.name"]),
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), st.lists, max_leaves=5),
)
def test_any_value_in_any_place_is_a_spec_error_or_fine(key, value):
    for good in GOOD:
        table: Any = deepcopy(good)
        data = {"population": table}
        *path, last = key.split(".")
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
        with suppress(SpecError):
            check_population(make_spec(data))


EXAMPLES = Path(__file__).parents[4] / "examples"
LINEAR = next(iter(PhasedSpec.instances().values()))


def options(environment) -> int:
    return environment.means(environment.contexts(0, 1, np.random.default_rng(0))).shape[1]


def test_a_population_must_fit_the_spec():
    with pytest.raises(SpecError, match=r"context\.features: .* has 2, not 1"):
        environment_for(make_spec({"population": {"name": "peaks"}}, dimension=1), 0)
    with pytest.raises(SpecError, match=r"population: missing .*name = 'peaks'"):
        environment_for(make_spec(), 0)
    with pytest.raises(SpecError, match=r"population: missing .*name = 'linear'"):
        environment_for(LINEAR, 0)
    assert options(environment_for(make_spec({"population": {"name": "peaks"}}, arms=5), 0)) == 5


def test_a_spec_has_people_of_its_kind():
    with pytest.raises(SpecError, match=r"population\.name: must be one of 'linear'"):
        environment_for(LINEAR, 0, {"name": "peaks"})
    with pytest.raises(SpecError, match=r"population\.name: must be one of 'peaks', 'bernoulli', .*'adult'"):
        environment_for(make_spec(), 0, {"name": "linear"})


def test_the_usual_environment_needs_no_parameters():
    assert default_environment(make_spec()) == {"name": "peaks"}
    assert default_environment(make_spec(dimension=3)) == {"name": "mixed"}
    assert default_environment(make_spec({"context.features.b": {"boolean": True}})) == {"name": "mixed"}
    assert default_environment(LINEAR) == {"name": "linear"}
    for spec in (make_spec(), LINEAR):
        assert options(environment_for(spec, 0, default_environment(spec))) == len(spec.options)


FEATURELESS: dict[str, dict[str, object]] = {
    "bernoulli": {},
    "mixed": {"base": 0.2, "lift": 0.1},
    "slopes": {},
    "shapes": {"apart": 0.1, "shared": 0.5, "drift": {"name": "swap", "period": 5}},
    "effects": {"effects": {"b": 0.1}},
    "numbers": {"mean": 0.5, "deviation": 0.1},
    "disjoint": {},
    "csv": {"path": "csv.csv", "label": "class", "classes": ["p", "q"], "ignore": ["*"]},
    "rows": {"path": "rows.csv"},
    "adult": {"path": "adult.csv", "task": "effects"},
}
ADULT_ROW = "20, Private, 7, Bachelors, 13, Never, Sales, Wife, White, Male, 0, 0, 40, US, "
TABLES = {
    "csv.csv": "x,class\n1,p\n2,q\n",
    "rows.csv": "x,a,b\n1,0.2,0.5\n2,0.3,0.4\n",
    "adult.csv": f"{ADULT_ROW}>50K\n{ADULT_ROW}<=50K\n",
}


@pytest.mark.parametrize("algorithm", ["bandit", "trial"])
def test_people_without_features_are_of_every_population_that_has_some(tmp_path, algorithm):
    """All are alike but for their rows."""
    for name, text in TABLES.items():
        (tmp_path / name).write_text(text)
    spec = parse_spec(tables({"context": None, "experiment.arms": ["a", "b"], "algorithm.name": algorithm}))
    assert default_environment(spec) == {"name": "bernoulli"}
    for name, keys in FEATURELESS.items():
        files = {"path": str(tmp_path / str(keys["path"]))} if "path" in keys else {}
        environment, rng = environment_for(spec, 0, {"name": name, **keys, **files}), np.random.default_rng(0)
        contexts = environment.contexts(0, 5, rng)
        means = environment.means(contexts)
        assert means.shape == (5, 2), name
        assert files or np.allclose(means, means[0], rtol=1e-12, atol=0), name
        assert encode_contexts(contexts, spec).shape == (5, 0), name
        assert environment.rewards(contexts, Arms(np.zeros(5, np.int64)), rng).shape == (5,), name


REFUSED_WITHOUT_FEATURES = {
    "peaks": ({}, r"context\.features: .* has 2, not 0"),
    "mixed": ({"relevant": ["x1"]}, r"population\.relevant\.x1: .*remove it"),
    "effects": ({"by": "x1"}, r"population: no feature is 'x1'"),
    "needles": ({}, r"population\.name: must be one of"),
}


@pytest.mark.parametrize("name", REFUSED_WITHOUT_FEATURES)
def test_other_people_need_features(name):
    keys, message = REFUSED_WITHOUT_FEATURES[name]
    spec = parse_spec(tables({"context": None, "algorithm.name": "bandit"}))
    with pytest.raises(SpecError, match=message):
        environment_for(spec, 0, {"name": name, **keys})


def test_another_section_stands_in_for_the_specs_own():
    spec = make_spec({"population": {"name": "peaks"}}, dimension=1)
    assert options(environment_for(spec, 0, {"name": "mixed", "function": 3})) == 3
    check_population(spec)
    check_population(make_spec())


def test_density_and_drift_are_those_of_the_spec():
    section = {"name": "peaks", "density": {"name": "shifted", "gamma": 3.5}}
    environment = environment_for(make_spec({"population": {**section, "drift": {"name": "swap", "period": 7}}}), 0)
    assert isinstance(environment, Synthetic)
    assert environment.density == ShiftedDensity(gamma=3.5)
    assert environment.period == 7


def with_people_here(path: Path) -> bool:
    return read_tables(path, [], "SPEC")["population"]["name"] != "adult"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.toml") if with_people_here(path)))
def test_examples_name_people_who_are_there(name):
    spec = parse_spec(read_tables(EXAMPLES / name, [], "SPEC"))
    check_population(spec)
    # Some points stand for all those of a set.
    assert options(environment_for(spec, 0)) == (4096 if hasattr(spec, "domain") else len(spec.options))


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
        (Failing(), r"means raised ZeroDivisionError: oh \(see line \d+ of test_sections.py"),
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
