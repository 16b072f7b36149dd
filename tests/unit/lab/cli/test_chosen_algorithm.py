"""``plan`` chooses the algorithm of a spec that leaves it open, and writes its name alone."""

import errno
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.cli.chosen_algorithm import candidate_specs, write_name
from privateer_lab.planning.algorithm_choice import AlgorithmChoice
from privateer_lab.toml_file import read_tables
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
BESIDE = OPEN.partition("[algorithm]")[0]
FEW = ("--jobs", "1", "--seconds", "1")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "hours.toml"
    path.write_text(OPEN)
    return path


@pytest.mark.usefixtures("short_search")
def test_plan_chooses_and_writes_the_name_alone(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "plan", str(spec), *FEW)
    assert code == 0, err
    name = tomllib.loads(spec.read_text())["algorithm"]["name"]
    assert spec.read_text() == OPEN.replace('name = "auto"  # to be chosen', f'name = "{name}"  # to be chosen')
    lines = out.splitlines()
    assert lines[0] == f"Wrote algorithm.name = '{name}' into {spec}."
    assert f"algorithm.name is '{name}'" in lines[1]
    second_output = run(capsys, "plan", str(spec), *FEW)[1]
    assert "algorithm.name is" not in second_output


def test_json_says_what_each_algorithm_earned(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", str(spec), *FEW, "--json")
    document = json.loads(out)
    chosen = document["algorithm"]
    assert code == 0
    assert chosen["written"]
    assert set(chosen["earned"]) == {"partition", "linear", "additive", "bandit"}
    assert chosen["earned"][chosen["name"]] > 0
    assert f"algorithm.name is '{chosen['name']}'" in document["words"][1]
    assert tomllib.loads(spec.read_text())["algorithm"]["name"] == chosen["name"]


def test_the_algorithm_is_chosen_for_the_requested_number_of_people(spec, capsys, monkeypatch):
    """Planted: the choice was for the spec's people, whatever ``--users`` said."""
    horizons = []

    def choose(specs: dict[str, ArmsSpec], *_: Any) -> AlgorithmChoice:
        horizons.extend(spec.experiment.horizon for spec in specs.values())
        return AlgorithmChoice("linear", {"linear": 0.5}, 0.4, 0.2, True)

    monkeypatch.setattr("privateer_lab.cli.chosen_algorithm.choose_algorithm", choose)
    code, out, _ = run(capsys, "plan", str(spec), *FEW, "--users", "3000", "--json")
    assert code == 0
    assert set(horizons) == {3000}
    assert json.loads(out)["expected"]["rows"][0]["people"] == 3000


def test_wrong_options_are_refused_before_anything_is_written(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "plan", str(spec), *FEW, "--epsilons", "nobody")
    assert (code, spec.read_text()) == (2, OPEN)
    assert "--epsilons" in err


@pytest.mark.usefixtures("short_search")
def test_a_file_that_names_its_algorithm_stays_as_it_is(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec.write_text(OPEN.replace('name = "auto"  #', 'name = "linear"  #'))
    before = spec.read_text()
    code, out, _ = run(capsys, "plan", str(spec), *FEW, "--set", "algorithm.name=auto")
    assert code == 0
    assert out.startswith(f"Not written into {spec}, since the file has other settings or people: ")
    assert spec.read_text() == before


@pytest.mark.parametrize(
    "text",
    [
        'algorithm.name = "auto"\n' + BESIDE,
        "algorithm = { name = 'auto' }\n" + BESIDE,
        OPEN.replace("\n", "\r\n"),
        OPEN.replace("hour = {", """box = { levels = ["'auto' box", "manual"] }\nhour = {"""),
        OPEN.replace('"auto"  #', "'''auto'''  #"),
    ],
    ids=["dotted", "inline", "CRLF", "in another text", "three quotes"],
)
def test_a_name_is_written_wherever_the_file_has_it(spec: Path, text: str) -> None:
    """Planted: a name in another text ended in a traceback, and line ends were changed."""
    spec.write_bytes(text.encode())
    before = read_tables(spec, [], "SPEC")
    assert not write_name(spec, before, "additive")
    assert tomllib.loads(spec.read_bytes().decode()) == before | {"algorithm": {"name": "additive"}}
    assert spec.read_bytes().count(b"\r") == text.count("\r")


@pytest.mark.parametrize("text", [OPEN.replace("4000", "5000"), "", "[experiment", None])
def test_a_file_that_has_changed_since_stays_as_it_is(spec: Path, text: str | None) -> None:
    before = read_tables(spec, [], "SPEC")
    if text is None:
        spec.unlink()
        assert write_name(spec, before, "linear") == "it is no file"
        return
    spec.write_text(text)
    assert write_name(spec, before, "linear") == "it has changed since"
    assert spec.read_text() == text


def test_a_full_disk_leaves_the_file_as_it_was(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the file was emptied first."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("privateer_lab.cli.chosen_algorithm.os.replace", full)
    error = write_name(spec, read_tables(spec, [], "SPEC"), "linear")
    assert error == "it cannot be replaced: No space left on device"
    assert spec.read_text() == OPEN
    assert list(spec.parent.iterdir()) == [spec]


def test_a_link_and_the_mode_of_its_file_stay(spec: Path) -> None:
    spec.chmod(0o640)
    link = spec.with_name("link.toml")
    link.symlink_to(spec)
    assert not write_name(link, read_tables(link, [], "SPEC"), "linear")
    assert link.is_symlink()
    assert (spec.stat().st_mode & 0o777, "linear" in spec.read_text()) == (0o640, True)


@pytest.mark.usefixtures("short_search")
def test_a_spec_from_a_pipe_is_read_once(spec: Path) -> None:
    """Planted: a spec from a pipe was read twice, and was empty the second time."""
    program = [sys.executable, "-m", "privateer_lab", "plan", "/dev/stdin", *FEW]
    process = subprocess.run(program, input=OPEN, capture_output=True, text=True, check=True)
    assert "Not written into /dev/stdin, since it is no file" in process.stdout


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
        ({"reward": {"kind": "numeric", "low": -5, "high": 0}}, "population"),
    ],
)
def test_a_wrong_spec_is_refused_by_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as refused:
        candidate_specs(tomllib.loads(OPEN) | changes, None)
    assert (refused.value.field or "").startswith(field)
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("people", "field"),
    [("nomodule:X", "--population"), ("csv", "population"), ("tests.support.nowhere:X", "--population")],
)
def test_wrong_people_are_refused_for_their_own_reason(spec, people, field, capsys):
    """Planted: each was called a spec that every algorithm refuses."""
    code, out, err = run(capsys, "plan", str(spec), *FEW, "--population", people)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"privateer: {field}")
    assert spec.read_text() == OPEN
