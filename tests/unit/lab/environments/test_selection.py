"""The environment that a spec names, and the default environment."""

from pathlib import Path

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.errors import SpecError
from privateer_lab.environments import check_population, default_environment, environment_for
from privateer_lab.environments.synthetic import ShiftedDensity, Synthetic
from privateer_lab.toml_file import read_tables
from tests.support.specs import make_spec

EXAMPLES = Path(__file__).parents[4] / "examples"
LINEAR = next(iter(PhasedSpec.instances().values()))


def options(environment) -> int:
    return environment.means(environment.contexts(0, 1, np.random.default_rng(0))).shape[1]


def test_a_population_must_fit_the_spec():
    with pytest.raises(SpecError, match=r"experiment\.arms: .* has 2, not 3"):
        environment_for(make_spec({"population": {"name": "quadrants"}}), 0)
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
    with pytest.raises(SpecError, match=r"population\.name: must be one of 'peaks', 'quadrants', .*'adult'"):
        environment_for(make_spec(), 0, {"name": "linear"})


def test_the_usual_environment_needs_no_parameters():
    assert default_environment(make_spec()) == {"name": "peaks"}
    assert default_environment(make_spec(dimension=3)) == {"name": "mixed"}
    assert default_environment(make_spec({"context.features.b": {"boolean": True}})) == {"name": "mixed"}
    assert default_environment(LINEAR) == {"name": "linear"}
    for spec in (make_spec(), LINEAR):
        assert options(environment_for(spec, 0, default_environment(spec))) == len(spec.options)


def test_another_section_stands_in_for_the_specs_own():
    spec = make_spec({"population": {"name": "peaks"}}, dimension=1)
    assert options(environment_for(spec, 0, {"name": "smooth", "function": 3})) == 3
    check_population(spec)
    check_population(make_spec())


def test_density_and_drift_are_those_of_the_spec():
    section = {"name": "smooth", "function": 1, "density": {"name": "shifted", "gamma": 3.5}}
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
