"""``privateer simulate`` of actions that affect all people: figures, actions from a file, and refusals."""

import json
from pathlib import Path

import pytest

from tests.unit.lab.cli.test_command_line import run

SPEC = Path(__file__).parents[4] / "examples" / "dpe.toml"
KEYS = {
    "regret_mean",
    "regret_ci95",
    "best_action_kept",
    "bits_mean",
    "messages_mean",
    "rounds_mean",
    "epsilon",
    "delta",
    "wall_seconds",
}
SMALL = ("--set", "experiment.horizon=20000", "--set", "actions.count=50")


def figures(capsys: pytest.CaptureFixture[str], *arguments: str, spec: Path = SPEC) -> dict[str, object]:
    code, out, _ = run(capsys, "simulate", str(spec), "--json", *arguments)
    assert code == 0
    return dict(json.loads(out))


def test_figures_of_section_7(capsys: pytest.CaptureFixture[str]) -> None:
    output = figures(capsys, "--seeds", "5")
    assert set(output) >= KEYS
    assert (output["epsilon"], output["delta"], output["model"]) == (10.0, 0.25, "shuffle")
    assert output["best_action_kept"] == 1.0
    assert float(str(output["regret_mean"])) <= 58_000
    assert float(str(output["bits_mean"])) <= 2e7
    assert "protects nobody" in str(output["warnings"])


def test_simulate_runs_under_every_trust_model(capsys: pytest.CaptureFixture[str]) -> None:
    no_promise = ("--set", "privacy.model=none", "--set", "privacy.epsilon=", "--set", "privacy.delta=")
    assert figures(capsys, *SMALL, *no_promise)["epsilon"] is None
    assert figures(capsys, *SMALL, "--set", "privacy.model=local")["true_delta"] == 0.0
    published = figures(capsys, *SMALL, "--set", "privacy.model=central", "--set", "algorithm.name=paper-5-dp-dpe")
    assert published["holds"] is False


def test_users_are_the_population(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "simulate", str(SPEC), "--users", "50")
    assert code == 2
    assert "experiment.participants: " in err
    assert "raise it to 3179" in err
    assert figures(capsys, *SMALL, "--users", "5000")["rounds_mean"]


def test_people_see_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "simulate", str(SPEC), *SMALL)
    assert code == 0
    assert "best action kept" in out


def with_actions(tmp_path: Path, text: str) -> Path:
    lines = SPEC.read_text().replace("count = 1000\ndimension = 20\nseed = 1", 'path = "actions.csv"')
    (tmp_path / "actions.csv").write_text(text)
    spec = tmp_path / "spec.toml"
    spec.write_text(lines.replace("horizon = 1000000", "horizon = 5000"))
    return spec


def test_actions_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = figures(capsys, spec=with_actions(tmp_path, "1.0,0,0\n0,0.5,0\n\n0,0,-1\n"))
    assert output["rounds_mean"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1,0\n1,zero\n", "actions.path: not numbers"),
        ("1,0\n0\n", "actions: all must have the same number"),
        ("1,0\n", "actions: a single action"),
        ("1,0\n2,0\n", "divide every action by 2"),
        ("1,nan\n1,0\n", "actions.vectors"),
    ],
)
def test_files_that_hold_no_actions(text: str, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "simulate", str(with_actions(tmp_path, text)))
    assert code == 2
    assert says in err
    assert err.count("\n") == 1


def test_a_missing_file_of_actions_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = with_actions(tmp_path, "")
    (tmp_path / "actions.csv").unlink()
    code, _, err = run(capsys, "simulate", str(spec))
    assert code == 2
    assert "actions.path: cannot read" in err


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("algorithm.alpha=1.5", "algorithm.alpha: "),
        ("actions.count=1", "actions: a single action"),
        ("privacy.min_batch=50", "privacy.min_batch: "),
        ("experiment.horizon=10", "experiment.horizon: "),
        ("algorithm.name=phases", "algorithm.name: "),
        ("population.name=peaks", "population.name: "),
        ("population=", "--set: "),
    ],
)
def test_an_impossible_run_is_refused_in_one_line(setting: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "simulate", str(SPEC), "--set", setting)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1
