"""``privateer simulate --baseline``: figures as JSON, a table for people, and a single line for each error."""

import json
from pathlib import Path

import pytest

from privateer_lab.baselines.run import BASELINES
from tests.unit.lab.cli.test_command_line import run

SPEC = str(Path(__file__).parents[4] / "examples" / "peaks-local.toml")


def simulate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return run(capsys, "simulate", SPEC, "--users", "2000", "--seeds", "2", "--jobs", "1", *arguments)


def test_all_baselines_in_one_document(capsys):
    code, out, _ = simulate(capsys, "--baseline", "all", "--json")
    figures = json.loads(out)["baselines"]
    assert code == 0
    assert set(figures) == set(BASELINES)
    for name, row in figures.items():
        assert set(row) == {"regret_mean", "regret_ci95", "regret_worst", "reward_mean", "leaks"}
        assert row["leaks"] is (name == "leaky")
        assert row["regret_mean"] <= row["regret_worst"]
    assert figures["oracle"]["regret_mean"] == 0


def test_a_table_says_which_is_not_private(capsys):
    _, out, _ = simulate(capsys, "--baseline", "uniform", "--baseline", "leaky")
    assert "leaky (leaks: not private)" in out
    assert "uniform" in out
    assert "ldpmab" not in out


def test_without_baselines_the_document_has_none(capsys):
    _, out, _ = simulate(capsys, "--json")
    assert "baselines" not in json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--baseline", "greedy"], "--baseline: no baseline 'greedy'"),
        (["--baseline", "linear", "--set", "privacy.model=none"], "privacy.epsilon: "),
    ],
)
def test_an_error_is_a_single_line(capsys, arguments, says):
    code, out, err = simulate(capsys, *arguments)
    assert code == 2
    assert says in err
    assert len(err.strip().splitlines()) == 1
    assert not out
