"""``privateer simulate --baseline``: figures for machines, a table for people, one line for what is wrong."""

import json
from pathlib import Path

import pytest

from privateer_lab.baselines.base import BASELINES
from privateer_lab.cli.command_line import main

SPEC = str(Path(__file__).parents[4] / "examples" / "peaks-local.toml")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["simulate", SPEC, "--users", "2000", "--seeds", "2", "--jobs", "1", *arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_all_baselines_in_one_document(capsys):
    code, out, _ = run(capsys, "--baseline", "all", "--json")
    figures = json.loads(out)["baselines"]
    assert code == 0
    assert set(figures) == set(BASELINES)
    for name, row in figures.items():
        assert set(row) == {"regret_mean", "regret_ci95", "regret_worst", "reward_mean", "leaks"}
        assert row["leaks"] is (name == "leaky")
        assert row["regret_mean"] <= row["regret_worst"]
    assert figures["oracle"]["regret_mean"] == 0


def test_a_table_says_which_is_not_private(capsys):
    _, out, _ = run(capsys, "--baseline", "uniform", "--baseline", "leaky")
    assert "leaky (leaks: not private)" in out
    assert "uniform" in out
    assert "ldpmab" not in out


def test_without_baselines_there_are_none(capsys):
    _, out, _ = run(capsys, "--json")
    assert "baselines" not in json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--baseline", "greedy"], "--baseline: no baseline 'greedy'"),
        (["--baseline", "linear", "--set", "privacy.model=none"], "privacy.epsilon: "),
    ],
)
def test_what_is_wrong_is_one_line(capsys, arguments, says):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert says in err
    assert len(err.strip().splitlines()) == 1
    assert not out
