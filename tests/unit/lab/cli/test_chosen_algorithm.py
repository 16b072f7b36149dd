"""A spec that leaves its algorithm open: ``plan`` chooses it, and writes its name and nothing else."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.cli.chosen_algorithm import chosen_algorithm, write_name
from privateer_lab.planning.algorithm_choice import AlgorithmChoice
from tests.unit.lab.cli.test_command_line import run

OPEN = """# Who likes what?
[experiment]
name = "hours"  # "auto" is no name
arms = ["auto", "other"]
horizon = 4000

[context.features]
hour = { low = 0, high = 24 }

[privacy]
model = "none"

[algorithm]
name = "auto"  # to be chosen
"""
FEW = ("--jobs", "1", "--seconds", "1")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "hours.toml"
    path.write_text(OPEN)
    return path


def test_plan_chooses_and_writes_the_name_alone(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "plan", str(spec), *FEW)
    assert code == 0, err
    name = tomllib.loads(spec.read_text())["algorithm"]["name"]
    assert spec.read_text() == OPEN.replace('name = "auto"  # to be chosen', f'name = "{name}"  # to be chosen')
    said = out.splitlines()
    assert said[0] == f"Wrote algorithm.name = '{name}' into {spec}."
    assert said[1].startswith(f"algorithm.name is '{name}': in runs on these people it earns ")
    again = run(capsys, "plan", str(spec), *FEW)[1]
    assert "algorithm.name is" not in again


def test_json_says_what_each_algorithm_earned(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", str(spec), *FEW, "--json")
    told = json.loads(out)
    chosen = told["algorithm"]
    assert code == 0
    assert set(chosen["earned"]) == {"partition", "linear", "additive", "bandit"}
    assert chosen["earned"][chosen["name"]] > 0
    assert told["words"][0].startswith(f"algorithm.name is '{chosen['name']}'")
    assert tomllib.loads(spec.read_text())["algorithm"]["name"] == chosen["name"]


def test_a_choice_is_made_for_the_people_that_are_asked_for(
    spec: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the choice was for the spec's people, whatever ``--users`` said."""
    asked = []

    def choose(specs: dict[str, ArmsSpec], *_: Any) -> AlgorithmChoice:
        asked.extend(one.experiment.horizon for one in specs.values())
        return AlgorithmChoice("linear", {"linear": 0.5}, 0.4, 0.01, True)

    monkeypatch.setattr("privateer_lab.cli.chosen_algorithm.choice_of", choose)
    code, out, _ = run(capsys, "plan", str(spec), *FEW, "--users", "3000", "--json")
    assert code == 0
    assert set(asked) == {3000}
    assert json.loads(out)["expected"]["rows"][0]["people"] == 3000


def test_wrong_options_are_refused_before_anything_is_written(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "plan", str(spec), *FEW, "--epsilons", "nobody")
    assert (code, spec.read_text()) == (2, OPEN)
    assert "--epsilons" in err


def test_a_file_that_names_its_algorithm_stays_as_it_is(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec.write_text(OPEN.replace('name = "auto"  #', 'name = "linear"  #'))
    before = spec.read_text()
    code, out, _ = run(capsys, "plan", str(spec), *FEW, "--set", "algorithm.name=auto")
    assert code == 0
    assert out.startswith("algorithm.name is ")
    assert spec.read_text() == before


@pytest.mark.parametrize("algorithm", ['algorithm.name = "auto"', "algorithm = { name = 'auto' }"])
def test_a_name_is_written_wherever_the_file_has_it(spec: Path, algorithm: str) -> None:
    spec.write_text(f"{algorithm}\n{OPEN.partition('[algorithm]')[0]}")
    before = tomllib.loads(spec.read_text())
    write_name(spec, "additive")
    assert tomllib.loads(spec.read_text()) == before | {"algorithm": {"name": "additive"}}


def test_a_name_that_cannot_be_found_is_said(spec: Path) -> None:
    spec.write_text(OPEN.replace('name = "auto"  #', r'name = "aut\u006f"  #'))
    with pytest.raises(SpecError, match=r'algorithm.name: cannot be written into .*write "linear" there yourself'):
        write_name(spec, "linear")


def test_other_commands_say_what_is_missing(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("simulate", "create"):
        code, out, err = run(capsys, command, str(spec), *(("--check",) if command == "create" else ()))
        assert (code, out) == (2, "")
        assert err.startswith("privateer: algorithm.name: 'auto' is still to be chosen (run `privateer plan SPEC`: ")
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"algorithm": {"name": "auto", "bins": 8}}, "algorithm.bins"),
        ({"sources": [{"name": "clinic", "people": 100}]}, "algorithm.name"),
        ({"experiment": None}, "experiment"),
        ({"experiment": {"name": "hours", "arms": ["a"], "horizon": 4000}}, "experiment.arms"),
        ({"context": {"features": {"hour": {"low": 24, "high": 0}}}}, "context.features.hour"),
        ({"population": {"name": "nobody"}}, "population.name"),
        ({"population": {"name": "csv", "path": "nowhere.csv", "label": "x"}}, "population.path"),
    ],
)
def test_a_wrong_spec_is_refused_by_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as refused:
        chosen_algorithm(tomllib.loads(OPEN) | changes, None)
    assert (refused.value.field or "").startswith(field)
    assert refused.value.remedy


def test_a_wrong_spec_is_one_line(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "plan", str(spec), "--set", "experiment.horizon=0")
    assert (code, out) == (2, "")
    assert "experiment.horizon" in err
    assert "auto" in spec.read_text()
