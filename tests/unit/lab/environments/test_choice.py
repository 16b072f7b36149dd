"""Which population a spec, or the load driver's command line, names."""

from pathlib import Path

import pytest

from privateer.errors import SpecError
from privateer.population import parse_population
from privateer.tables import read_tables
from privateer_lab.environments import population_for
from privateer_lab.environments.shifted import Shifted
from privateer_lab.environments.synthetic import Synthetic
from privateer_lab.load import command
from privateer_lab.specs import load_spec
from tests.support.specs import make_spec

EXAMPLES = Path(__file__).parents[4] / "examples"


def test_a_population_must_fit_the_spec():
    with pytest.raises(SpecError, match=r"experiment\.arms: .* has 2, not 3"):
        population_for(make_spec({"population": {"name": "quadrants"}}), 0)
    with pytest.raises(SpecError, match=r"context\.features: .* has 2, not 1"):
        population_for(make_spec({"population": {"name": "peaks"}}, dimension=1), 0)
    with pytest.raises(SpecError, match=r"population: missing"):
        population_for(make_spec(), 0)
    assert population_for(make_spec({"population": {"name": "peaks"}}, arms=5), 0).arms == 5


def test_density_and_drift_are_those_of_the_spec():
    section = {"name": "smooth", "function": 1, "density": {"name": "shifted", "gamma": 3.5}}
    made = population_for(make_spec({"population": {**section, "drift": {"name": "swap", "period": 7}}}), 0)
    assert isinstance(made, Synthetic)
    assert isinstance(made.density, Shifted)
    assert made.density.gamma == 3.5
    assert made.drift is not None
    assert made.drift.period == 7


def chosen(*arguments: str):
    return parse_population(command._population(command._parser().parse_args(["experiment", *arguments]), "peaks"))


def test_the_load_driver_takes_a_name_or_a_file_and_settings(tmp_path):
    assert chosen().name == "peaks"
    assert chosen("--population", "adult", "--path", "a.data").path == "a.data"
    drifting = chosen("--set", "population.drift.name=swap", "--set", "population.drift.period=9")
    assert drifting.drift.period == 9
    garden = chosen("--population", str(EXAMPLES / "garden-shuffle.toml"))
    assert garden.path == str(EXAMPLES / "garden.csv")
    (tmp_path / "bare.toml").write_text("[experiment]\n")
    with pytest.raises(SpecError, match="no population section"):
        chosen("--population", str(tmp_path / "bare.toml"))
    with pytest.raises(SpecError, match="--population: cannot read"):
        chosen("--population", "none.toml")
    with pytest.raises(SpecError, match=r"population\.name: must be one of"):
        chosen("--population", "martians")


def with_people_here(path: Path) -> bool:
    data = read_tables(path, [], "SPEC")
    return data["algorithm"]["name"] == "partition" and data["population"]["name"] != "adult"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.toml") if with_people_here(path)))
def test_examples_name_people_who_are_there(name):
    spec = load_spec(EXAMPLES / name, [])
    assert population_for(spec, 0).arms == spec.arm_count
