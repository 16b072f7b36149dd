"""Plans and sweeps: what they say is right, what is interrupted goes on, and what is wrong is one line."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import privateer_lab as lab
from privateer_core.accounting.amplification import shuffled_delta
from privateer_core.answer.people import People
from privateer_core.errors import SpecError
from privateer_core.privacy.trust import honest_people
from privateer_lab.cli import output
from privateer_lab.cli import plan as planning
from privateer_lab.planning import sweep as sweeps
from privateer_lab.planning.plans import batches, outcome, people_needed, possible, smallest_batch, variants
from privateer_lab.simulation.simulate import simulate_once
from privateer_lab.simulation.simulation import Costs, Run
from tests.support.linears import linear_spec
from tests.support.sparse import sparse_spec
from tests.support.specs import SHUFFLE, make_spec
from tests.unit.lab.cli.test_command_line import DPE, SMALL, SPEC, run
from tests.unit.lab.planning.test_sweeps import rows

PATH = tuple((n, 0.4 * min(n, 1000) + 0.05 * max(0, n - 1000), 0.3 * n, 0.5 * n) for n in range(100, 4100, 100))


def made(path: tuple[tuple[int, float, float, float], ...]) -> Run:
    people, regret, constant, uniform = path[-1]
    return Run(
        0, regret, uniform, constant, 0.5, people, len(path), People(people, people), {"bins": 4.0}, Costs(), path
    )


def test_people_needed_is_where_the_policy_begins_to_earn() -> None:
    """From 1,000 people on .05 a person is lost where the best constant arm loses .3: five sixths are gained."""
    assert people_needed(made(PATH), 0.8) == 1000
    assert people_needed(made(PATH), 0.9) is None


def test_nobody_gains_where_one_arm_is_best_for_all() -> None:
    assert people_needed(made(tuple((n, 0.1 * n, 0.0, 0.5 * n) for n in (100, 200))), 0.5) is None


def test_the_smallest_batch_keeps_the_promise_and_a_smaller_one_does_not() -> None:
    privacy = make_spec(SHUFFLE).privacy
    batch = smallest_batch(privacy, 1.0, 4.0)
    assert batch is not None
    assert shuffled_delta(1.0, 4.0, 2, honest_people(privacy, batch)) <= 1e-6
    assert shuffled_delta(1.0, 4.0, 2, honest_people(privacy, int(0.97 * batch))) > 1e-6
    wanted = variants(make_spec(SHUFFLE), ("local", "shuffle"), (1.0, 4.0))
    assert [row["epsilon"] for row in batches(wanted)] == [1.0, 4.0]
    assert batches(wanted)[1]["min_batch_to_double"] is None


def test_what_a_learner_refuses_is_left_out_and_names_the_promise() -> None:
    """A spec is possible, but under a shuffler a thousand people say too little of its features."""
    spec = sparse_spec("shuffle", context__features=100, experiment__horizon=8000)
    found = lab.plan(spec, trust=["central", "shuffle"], epsilon=[0.5], seeds=1)
    (refused,) = found.refused
    assert refused.startswith("shuffle at epsilon 0.5: ")
    assert "experiment.round_size, under the shuffle model at epsilon 0.5" in refused
    assert "4000 people can" in refused
    assert [row["model"] for row in found.outcomes] == ["central"]
    with pytest.raises(SpecError, match="under the shuffle model"):
        lab.plan(spec, trust=["shuffle"], epsilon=[0.5], seeds=1)


def test_a_promise_that_is_not_possible_refuses_its_row_alone() -> None:
    spec = make_spec({"experiment.horizon": 900, "experiment.round_size": 100})
    wanted, refused = possible(spec, ("local", "shuffle"), (1.0,))
    assert [one.model for one in wanted] == ["local"]
    assert [one.row["model"] for one in refused] == ["shuffle"]
    assert "horizon" in refused[0].row["why"] or "round_size" in refused[0].row["why"]


def test_variants_are_specs_under_other_promises() -> None:
    found = variants(make_spec({"experiment.round_size": 100}), ("local", "shuffle", "central"), (1.0, 8.0))
    assert [(one.model, one.epsilon) for one in found] == [
        (model, epsilon) for model in ("local", "shuffle", "central") for epsilon in (1.0, 8.0)
    ]
    assert [one.spec.experiment.round_size for one in found[::2]] == [100, 1000, 100]
    assert [one.spec.privacy.delta for one in found[::2]] == [0.0, 1e-6, 1e-6]


def seeded(seed: int, regret: float) -> Run:
    return replace(made(PATH), seed=seed, regret=regret)


def test_promises_are_compared_on_the_same_seeds() -> None:
    """Of every promise a notebook has the runs of as many seeds, which are those of the command line."""
    spec = make_spec({"experiment.horizon": 600, "experiment.round_size": 200, "population": {"name": "peaks"}})
    found = lab.plan(spec, trust=["local"], epsilon=[1.0, 4.0], seeds=2)
    for variant, row in zip(variants(spec, ("local",), (1.0, 4.0)), found.outcomes, strict=True):
        regrets = [simulate_once(variant.spec, seed).regret for seed in range(2)]
        assert (row["seeds"], row["epsilon"]) == (2, variant.epsilon)
        assert row["regret_mean"] == pytest.approx(sum(regrets) / 2)


def test_the_interval_of_two_seeds_is_as_wide_as_it_must_be() -> None:
    """Planted: the normal interval, which would hold the mean in 7 of 10 cases."""
    (variant,) = variants(make_spec(), ("local",), (1.0,))
    row = outcome(variant, [seeded(0, 10.0), seeded(1, 20.0)])
    assert row["regret_ci95"] == pytest.approx(12.706 * 5.0, rel=1e-4)
    assert row["regret_ci95"] > 6 * 1.96 * 5.0
    assert outcome(variant, [seeded(0, 10.0)])["regret_ci95"] is None


@pytest.mark.parametrize(("growth", "warns"), [("0.5", True), ("0", False)])
def test_rounds_that_are_too_large_for_a_memory_are_a_warning(
    growth: str, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    grows = ("--set", "algorithm.memory=auto", "--set", f"experiment.round_growth={growth}", "--users", "9000")
    for command in ("simulate", "plan"):
        few = ("--seeds", "1", "--jobs", "1", *(("--models", "local", "--epsilons", "4") if command == "plan" else ()))
        code, out, _ = run(capsys, command, SPEC, *grows, *few, "--json")
        assert code == 0
        assert sum("experiment.round_growth" in said for said in json.loads(out)["warnings"]) == warns
        words = " ".join(run(capsys, command, SPEC, *grows, *few)[1].split())
        assert ("warning: with algorithm.memory rounds of up to" in words) is warns


def test_plan_and_sweep_take_any_algorithm(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sizes = ("--seeds", "8", "--jobs", "1", "--epsilons", "4", *SMALL)
    code, out, _ = run(capsys, "plan", DPE, *sizes, "--json")
    outcomes = json.loads(out)["outcomes"]
    assert (code, {row["model"] for row in outcomes}) == (0, {"local", "shuffle", "central"})
    assert all(0 < row["regret_mean"] < row["uniform_regret"] for row in outcomes)
    assert json.loads(out)["batches"] == []
    first = json.loads(out)["words"][0]
    assert "20,000 choices" in first
    assert "options at random" in first
    assert "by context" not in first
    table = tmp_path / "dpe.csv"
    vary = ("--vary", "algorithm.alpha=0.5,0.8", "--seeds", "1", "--jobs", "1", "--out", str(table))
    assert run(capsys, "simulate", DPE, *SMALL, *vary)[0] == 0
    assert {(row["algorithm.alpha"], row["best_action_kept"]) for row in rows(table)} == {
        ("0.5", "1.0"),
        ("0.8", "1.0"),
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["simulate", SPEC, "--out", "x.txt"], "--out: must end in .csv or .parquet"),
        (["simulate", SPEC, "--out", "x.csv", "--vary", "privacy.epsilon"], "--vary: cannot read"),
        (["simulate", SPEC, "--out", "x.csv", "--vary", "privacy.epsilon=0"], "privacy.epsilon"),
        (
            ["simulate", SPEC, "--out", "x.csv", "--vary", "reward.low=1", "--vary", "reward.low=2"],
            "--vary: ",
        ),
        (["simulate", SPEC, "--out", "x.csv", "--seeds", "100001"], "equal to 100000"),
        (
            ["simulate", SPEC, "--out", "x.csv", "--seeds", "60000", "--vary", "privacy.epsilon=1,2"],
            "--vary: more than 100000 runs",
        ),
        (["plan", SPEC, "--models", "magic"], "--models: "),
        (["plan", SPEC, "--epsilons", "1,nan"], "--epsilons: "),
        (["simulate", SPEC, "--backend", "ray", "--users", "1000"], "--backend: ray is not installed"),
        (["reproduce", "paper-9"], "NAME: no reproduction"),
        (["reproduce", "paper-1-table-2", "--quick"], "--adult: missing"),
        (["reproduce", "paper-1-figure-7", "--quick", "--published", "none.csv"], "--published: "),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert says in err
    # What takes long says first what it does.
    assert len([line for line in err.splitlines() if not line.endswith(" ...")]) == 1


def test_progress_returns_what_came_before_an_interruption(capsys: pytest.CaptureFixture[str]) -> None:
    def items():  # type: ignore[no-untyped-def]
        yield 1
        raise KeyboardInterrupt

    assert output.progress(items(), 3, "runs") == [1]
    assert "interrupted after 1 of 3 runs" in capsys.readouterr().err


FULL = {"name": "clinic", "people": 1000, "epsilon": 8.0, "shares": [0.4, 0.3, 0.3]}


def test_a_plan_takes_sources_that_are_promised_more_than_a_report_may_cost() -> None:
    (one,) = variants(make_spec({"sources": [FULL]}), ("shuffle",), (1.0,))
    assert one.spec.privacy.local_epsilon_max == 8.0


def test_a_plan_asks_for_several_messages_where_a_batch_makes_them_cheap() -> None:
    planned = variants(linear_spec("shuffle", messages=3), ("local", "shuffle", "central", "none"), (1.0,))
    assert [one.spec.algorithm.model_dump()["messages"] for one in planned] == [1, 3, 1, 1]


def test_a_promise_that_the_spec_cannot_be_under_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    few = ("--users", "500", "--seeds", "1", "--epsilons", "1")
    code, out, err = run(capsys, "plan", SPEC, *few, "--models", "shuffle")
    assert (code, err.count("\n")) == (0, 1)
    why = "shuffle at epsilon 1 is not possible: experiment.round_size, under the shuffle model at epsilon 1: is 1,000,"
    assert out.count(why) == 1


def test_a_value_may_have_commas_and_one_source_be_meant() -> None:
    axes = sweeps.parse_axes(["sources.clinic.shares=[.5,.3,.2],[.2, .3, .5]", "population.density={name='a,b',x=1},c"])
    assert axes == {
        "sources.clinic.shares": ["[.5,.3,.2]", "[.2, .3, .5]"],
        "population.density": ["{name='a,b',x=1}", "c"],
    }


def test_no_more_processes_than_runs_and_no_absurd_number(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ("simulate", SPEC, "--set", "experiment.horizon=1000", "--seeds", "1", "--out", str(tmp_path / "a.csv"))
    assert run(capsys, *asked, "--jobs", "500")[0] == 0
    code, _, err = run(capsys, *asked, "--jobs", "100000")
    assert code == 2
    assert "--jobs" in err


@pytest.mark.parametrize("asked", [("plan", "--plot"), ("reproduce", "--out")])
def test_a_folder_that_cannot_be_written_is_refused_before_the_runs(
    asked: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("ran")

    monkeypatch.setattr("privateer_lab.cli.plan.choices_of", never)
    monkeypatch.setattr("privateer_papers.paper_1.figures.jump_start.simulate_once", never)
    (tmp_path / "taken").write_text("a file")
    name = SPEC if asked[0] == "plan" else "paper-1-figure-6"
    code, _, err = run(capsys, asked[0], name, asked[1], str(tmp_path / "taken" / "here"))
    assert code == 2
    assert err.count("\n") == 1
    assert "taken" in err


def test_the_legend_of_a_plan_hides_no_curve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("privateer_lab.pages.plots.plt.close", drawn.append)
    path = [{"people": people, "regret_mean": 0.3, "regret_worst": 0.4} for people in (1000, 20_000)]
    fixed = {"path": path, "best_constant_regret": 300.0, "people": 1000}
    rows = [{"model": model, "epsilon": 1.0, **fixed} for model in ("local", "shuffle")]
    planning._draw(rows, "test", "people", tmp_path / "plan.png")
    [figure] = drawn
    [legend] = [axis.get_legend() for axis in figure.axes if axis.get_legend()]
    assert not any(legend.get_window_extent().overlaps(axis.get_window_extent()) for axis in figure.axes)
    assert legend.get_window_extent().x1 <= figure.bbox.x1 + 1


def test_tiny_promises_have_no_batch_and_none_is_below_what_a_spec_may_name() -> None:
    privacy = make_spec(SHUFFLE).privacy
    assert smallest_batch(privacy, 1e-9, 6.0) is None
    assert smallest_batch(privacy, 0.01, 16.0) is None
    assert smallest_batch(privacy, 0.01, 0.02) == smallest_batch(privacy, 1.0, 1.0) == 100
    make_spec(SHUFFLE | {"privacy.min_batch": 100})


def test_the_list_of_reproductions_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "reproduce", "list", "--json")
    assert code == 0
    assert "paper-1-figure-7" in [row["name"] for row in json.loads(out)]


def test_a_run_that_is_terminated_keeps_what_came(capsys: pytest.CaptureFixture[str]) -> None:
    def items():  # type: ignore[no-untyped-def]
        yield 1
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert output.progress(items(), 3, "runs") == [1]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "interrupted after 1 of 3 runs" in capsys.readouterr().err


def test_a_missing_file_of_people_is_found_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a run began")

    monkeypatch.setattr("privateer_lab.cli.plan.choices_of", never)
    code, out, err = run(capsys, "plan", SPEC, "--set", "population.name=adult", "--set", "population.path=none.csv")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("privateer: population.path: cannot read none.csv")


def test_a_warning_of_a_change_says_which_change(capsys: pytest.CaptureFixture[str]) -> None:
    """Planted: a curator's spec was warned of a limit that only shuffled reports have."""
    central = str(Path(SPEC).with_name("additive-central.toml"))
    few = ("--seconds", "0.1", "--jobs", "1", "--json")
    warnings = json.loads(run(capsys, "plan", central, *few)[1])["warnings"]
    of_reports = [one for one in warnings if "local_epsilon_max" in one]
    assert of_reports
    assert all(one.startswith("with shuffle, epsilon 1: ") for one in of_reports)
