"""`privateer evaluate` prints gains with confidence intervals and numbers of rows; bad input is a single line."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

import privateer_lab as lab
from privateer_server.rounds.open_round import open_first_round
from tests.unit.lab.cli.test_command_line import run

ROWS = 4000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a log of 2,000 people with two rows each: new is better, and the rare arm is undecided."""
    rng = np.random.default_rng(3)
    arm = rng.choice(["new", "old", "rare"], ROWS, p=[0.3, 0.69, 0.01])
    p = np.select([arm == "new", arm == "old"], [0.3, 0.69], 0.01)
    bought = rng.random(ROWS) < np.where(arm == "new", 0.25, 0.1)
    lines = [f"{row // 2},{arm[row]},{p[row]:g},{int(bought[row])}" for row in range(ROWS)]
    file = tmp_path_factory.mktemp("log") / "log.csv"
    file.write_text("user_id,arm,p,bought\n" + "\n".join(lines) + "\n")
    return file


def test_each_option_is_evaluated_and_all_intervals_hold_together(capsys, path):
    code, out, err = run(capsys, "evaluate", str(path), "--reward", "bought")
    assert (code, err) == (0, "")
    evaluations = {arm: lab.evaluate(path, arm, reward="bought", level=1 - 0.05 / 3) for arm in ("new", "old", "rare")}
    gain = evaluations["new"].gain
    first = out.splitlines()[0]
    assert first.startswith(f"Known to earn more than what was logged: new by {gain.value:.4g} ({gain.low:.4g} to ")
    assert "Known to earn less than what was logged: old by 0.0" in first  # planted: by -0.0, twice negative
    assert "rare" not in first
    for arm, evaluation in evaluations.items():
        assert f"│ {arm}" in out
        estimate, high = evaluation.dr, evaluation.gain.high
        assert all(f" {figure:.4g} " in out for figure in (estimate.value, estimate.low, estimate.high, high))
    assert "Figures of bought are rates: 0.05 is 5 in 100 rows." in out
    assert "Intervals hold all at once with a probability of 0.95." in out
    assert "The log has 4,000 rows, which count as different people." in out
    assert "Of 1 of 3 options few rewards decide" in out
    assert "give --person user_id" in out


def test_an_option_by_person_and_as_json(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    options = ["evaluate", str(path), "--reward", "bought", "--policy", "new", "--person", "user_id"]
    code, out, _ = run(capsys, *options)
    assert code == 0
    assert "4,000 rows, of 2,000 people" in out
    assert "bought a row under new" in out
    code, out, _ = run(capsys, *options, "--json", "--level", "0.1")
    document = json.loads(out)
    assert (code, document["rows"], document["people"], document["confidence"]) == (0, 4000, 2000, 0.9)
    evaluation = lab.evaluate(path, "new", reward="bought", person="user_id", level=0.9)
    [policy] = document["policies"]
    for name in ("ips", "snips", "dr", "gain"):
        value = getattr(evaluation, name)
        assert (policy[name]["value"], policy[name]["low"]) == (value.value, value.low)
    assert (policy["policy"], policy["model"]) == ("new", evaluation.model)


def test_a_published_policy_is_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The first policy gives each of three arms to a third of the people, and the log has two of them."""
    spec = lab.spec("examples/peaks-local.toml")
    publication = open_first_round(spec, X25519PrivateKey.generate().public_key().public_bytes_raw()).publication
    log, exported, empty = tmp_path / "log.csv", tmp_path / "policy.json", tmp_path / "empty.json"
    exported.write_text(json.dumps({"publication": base64.b64encode(publication).decode()}))
    empty.write_text("{}")
    log.write_text("arm,reward,x1,x2\n" + "left,1,0.5,0.5\nmiddle,0,0.5,0.5\n" * 200)
    options = ["evaluate", str(log), "--propensity", "0.5"]
    code, out, _ = run(capsys, *options, "--policy", str(exported), "--json")
    [policy] = json.loads(out)["policies"]
    assert code == 0
    assert policy["ips"]["value"] == pytest.approx(1 / 3, abs=0.02)
    assert policy["supported"] == pytest.approx(2 / 3, abs=0.02)
    code, out, err = run(capsys, *options, "--policy", str(empty))
    error = "privateer: policy: is not an exported experiment (give a file that privateer export wrote)\n"
    assert (code, out, err) == (2, "", error)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--reward", "won"], "won: no column has this name (choose from user_id, arm, p, bought)"),
        (
            ["--reward", "bought", "--propensity", "q"],
            "--propensity: no column is named q (name the column of propensities, or give one number",
        ),
        (["--reward", "bought", "--propensity", "1.5"], "propensity: must be above 0 and at most 1"),
        (["--reward", "bought", "--policy", "other"], "policy: there is no arm of this name among new, old, rare"),
        (["--reward", "bought", "--policy", "none.json"], "cannot read none.json"),
        (["--reward", "bought", "--bounds", "x"], "--bounds: cannot read it"),
        (["--reward", "bought", "--bounds", "won=0:1"], "--bounds: are those of the reward alone"),
        (["--reward", "bought", "--bounds", "0:0.5"], "bought: has rewards beyond its bounds"),
        (["--reward", "bought", "--level", "2"], "--level: must be above 0 and below 1"),
        (["--reward", "bought", "--person", "who"], "who: no column has this name"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], path: Path, options: list[str], error: str) -> None:
    code, out, err = run(capsys, "evaluate", str(path), *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("privateer: ")
    assert error in err


def test_a_file_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "evaluate", str(tmp_path / "none.csv"))
    assert code == 2
    assert "there is no file of this name" in err


def test_a_headline_knows_of_propensities_that_the_log_contradicts(capsys, path):
    """Planted: the headline was a gain by wrong propensities, and the warning of them came last."""
    options = ["evaluate", str(path), "--reward", "bought"]
    code, out, _ = run(capsys, *options, "--propensity", "0.5")
    assert code == 0
    assert out.startswith("The log contradicts its own propensities, on which every figure rests. If they were right: ")
    _, out, _ = run(capsys, *options, "--propensity", "0.3", "--policy", "new", "--json")
    [policy] = json.loads(out)["policies"]
    assert not policy["is_contradicted"]  # new has .3 of the rows; the others, of which this does not speak, have not
    assert len(policy["warnings"]) > 1
