"""Every reproduction runs in small, draws, and computes its verdict from its rows."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_papers.catalogue import all_reproductions
from privateer_papers.paper_1.figures import regret, sources
from privateer_papers.paper_1.setting import PAPER
from privateer_papers.reproduction import OURS, Effort, ReproductionCase, Row, Rows
from tests.unit.lab.cli.test_command_line import run

LOGS = """experiment,reward,eps,eps_aux,gamma,kappa,n,n_aux,d,M,K,weighted,reps,regret_mean,regret_ci95,seconds_mean
sample_size_target,exponential,1,1,0.0,1.0,2000,0,2,2,3,True,30,800.0,10.0,1.0
sample_size_target,exponential,8,1,0.0,1.0,10000,0,2,2,3,True,30,{},10.0,1.0
sample_size_target,symmetric,8,1,0.0,1.0,10000,0,2,2,2,True,30,5.0,10.0,1.0
"""


NOT_TO_BE_HAD = ("paper-1-table-2-jobs", "paper-1-table-2-taxi")
ELSEWHERE = ("paper-1-table-2", *NOT_TO_BE_HAD, "paper-2-table-1")
"""Those whose small versions need a file, or take longer than a test may."""
BY_NIGHT = (
    *("paper-1-figure-7", "paper-1-figure-9", "paper-1-supplement", "paper-1-rates", "paper-2-theorems"),
    *("paper-3-theorems", "paper-4-welfare"),
)
"""Those that take longest in small. By day other tests draw the one and interrupt the other."""
ROWS = Rows(
    [
        {"policy": "a", "n": 2, "regret": 1.0},
        {"policy": "a", "n": 2, "regret": 3.0},
        {"policy": "a", "n": 1, "regret": 5.0},
        {"policy": "b", "published": True, "regret": 7.0, "ci95": 0.5},
    ]
)


def test_rows_by_their_facts() -> None:
    assert ROWS.where(policy="a", n=1) == [ROWS[2]]
    assert {key: len(rows) for key, rows in ROWS.group_by("policy", "n").items()} == {
        ("a", 2): 2,
        ("a", 1): 1,
        ("b", None): 1,
    }
    assert ROWS.values("n") == [1, 2]


def test_rows_come_in_the_order_of_tasks_whatever_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_backwards(run: Callable[..., Any], tasks: list[tuple[Any, ...]], *_options: object) -> Iterator[Any]:
        return (run(*task) for task in reversed(tasks))

    monkeypatch.setattr("privateer_papers.reproduction.run_tasks", run_backwards)
    results = list(Effort(seeds=2).play(lambda setting, seed: (setting, seed), [("a",), ("b",)]))
    assert results == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_means_have_intervals_and_published_rows_bring_their_own() -> None:
    assert ROWS.where(n=2).mean() == (2.0, pytest.approx(12.706, abs=1e-3))
    assert ROWS.where(n=1).mean() == (5.0, 0.0)
    assert ROWS.where(policy="b").mean() == (7.0, 0.5)
    with pytest.raises(LookupError):
        ROWS.where(policy="c").mean()


def test_a_curve_is_a_mean_at_every_value() -> None:
    at, (middle, half) = ROWS.where(policy="a").curve("n")
    assert at == [1, 2]
    assert middle.tolist() == [5.0, 2.0]
    assert half == pytest.approx([0.0, 12.706], abs=1e-3)
    assert ROWS.where(policy="c").curve("n")[1].shape == (2, 0)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.nightly] * (name in BY_NIGHT))
        for name in all_reproductions()
        if name not in ELSEWHERE
    ],
)
@pytest.mark.battery
def test_in_small(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(
        capsys, "reproduce", name, "--quick", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path), "--json"
    )
    document = json.loads(out)
    assert code == 0
    assert document["rows"]
    assert document["verdict"]
    for ending in (".png", ".svg", ".json", ".txt"):
        assert (tmp_path / (name + ending)).stat().st_size > 0


@pytest.mark.data
def test_table_2_in_small(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = (
        "--quick",
        "--seeds",
        "2",
        "--jobs",
        "1",
        "--out",
        str(tmp_path),
        "--adult",
        os.environ["PRIVATEER_ADULT"],
    )
    document = json.loads(run(capsys, "reproduce", "paper-1-table-2", *options, "--json")[1])
    rewards = [row["reward"] for row in document["rows"] if row["policy"] == OURS and row["part"] == "n"]
    assert 0.7 < np.mean(rewards) < 0.85
    assert (tmp_path / "paper-1-table-2.png").stat().st_size > 0


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.data] * (name == "paper-1-table-2"))
        for name in all_reproductions()
        if name not in NOT_TO_BE_HAD
    ],
)
def test_in_full(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    adult = ("--adult", os.environ["PRIVATEER_ADULT"]) if name == "paper-1-table-2" else ()
    code, out, _ = run(
        capsys, "reproduce", name, "--seeds", "1", "--jobs", "1", "--out", str(tmp_path), *adult, "--json"
    )
    assert code == 0
    assert json.loads(out)["verdict"]


def test_published_figures_are_drawn_and_counted(capsys, tmp_path, monkeypatch):
    """Published regrets above and below ours, and of another problem; ours are simulated once."""
    run_cases, logs = regret.run_cases, tmp_path / "logs.csv"
    cached: list[Row] = []

    def run_once(cases: list[ReproductionCase], effort: Effort) -> list[Row]:
        cached.extend([] if cached else run_cases(cases, effort))
        return cached

    monkeypatch.setattr(regret, "run_cases", run_once)
    for far_below, cells in ((1.0, "1 of 2"), (9000.0, "2 of 2")):
        logs.write_text(LOGS.format(far_below))
        options = ("--quick", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path), "--published", str(logs), "--json")
        document = json.loads(run(capsys, "reproduce", "paper-1-figure-7", *options)[1])
        policies = [row["policy"] for row in document["rows"]]
        assert (policies.count(PAPER), policies.count(OURS)) == (2, 8)
        assert f"at or below the published in {cells} cells" in document["verdict"]


def test_the_order_of_sources_in_figure_9() -> None:
    ordered, rows = {"panel": "order", "epsilon": 1.0, "n": 5, "n_aux": 9}, Rows()
    for policy, last in ((OURS, 150.0), (PAPER, 310.0)):
        rows += [
            ordered | {"policy": policy, "order": order, "regret": loss}
            for order, loss in (("first_sup", 100.0), ("first_inf", last))
        ]
    assert "by +50% to +50%, the published by +210% to +210%" in all_reproductions()["paper-1-figure-9"].sentence(rows)


def test_the_published_orders_are_drawn_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the logs' four lines the third has another shift, and the fourth other rewards."""
    logs = tmp_path / "logs.csv"
    line = "order_of_auxiliary,{},1,{},{},1.0,10000,10000,2,2,3,True,30,{},10.0,1.0\n"
    planted = [
        ("exponential", "first_inf", 0.0, 3000),
        ("exponential", "first_sup", 0.0, 2000),
        ("exponential", "first_sup", 1.0, 9),
        ("symmetric", "first_sup", 0.0, 9),
    ]
    logs.write_text(LOGS.splitlines()[0] + "\n" + "".join(line.format(*row) for row in planted))
    monkeypatch.setattr(sources, "run_cases", lambda cases, _effort: iter(()))
    rows = all_reproductions()["paper-1-figure-9"].rows(Effort(quick=True, data={"published": str(logs)}))
    assert [(row["panel"], row["order"], row["regret"]) for row in rows] == [
        ("order", "first_inf", 3000.0),
        ("order", "first_sup", 2000.0),
    ]


def test_the_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(name in run(capsys, "reproduce", "list")[1] for name in all_reproductions())


@pytest.mark.parametrize(("name", "count"), [("paper-1-figure-6", 1), ("paper-1-figure-9", 1), ("paper-5-table-1", 3)])
def test_an_early_interrupted_reproduction_keeps_its_rows(name, count, capsys, tmp_path, monkeypatch):
    """Far too few rows for a verdict or a picture."""
    reproduction = all_reproductions()[name]

    def stopped(effort: Effort) -> Iterator[Row]:
        yield from islice(reproduction.rows(effort), count)
        raise KeyboardInterrupt

    monkeypatch.setitem(all_reproductions(), name, replace(reproduction, rows=stopped))
    options = ("--quick", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path))
    code, out, err = run(capsys, "reproduce", name, *options)
    assert code == 130
    assert f"Interrupted after {count} rows" in " ".join(out.split())
    assert err.splitlines()[-1] == f"privateer: interrupted after {count} of more rows"
    assert len(json.loads((tmp_path / f"{name}.json").read_text())["rows"]) == count
