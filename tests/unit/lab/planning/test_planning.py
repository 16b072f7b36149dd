"""Plans and sweeps are correct, continue after an interruption, and report an error in a single line."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

import privateer_lab as lab
from privateer_core.accounting.amplification import shuffled_delta
from privateer_core.answer.people import People
from privateer_core.errors import SpecError
from privateer_core.privacy.trust import count_honest
from privateer_lab.cli import output
from privateer_lab.planning import sweep as sweeps
from privateer_lab.planning.plans import (
    count_until_gain_share,
    describe_batches,
    find_promises,
    find_smallest_batch,
    make_variants,
    summarize_promise,
)
from privateer_lab.simulation.simulate import simulate_once
from privateer_lab.simulation.simulation import Costs, Run
from tests.support.specs import SHUFFLE, linear_spec, make_spec, sparse_spec
from tests.unit.lab.cli.test_command_line import DPE, SMALL, SPEC, run
from tests.unit.lab.planning.test_sweeps import rows

PATH = tuple((n, 0.4 * min(n, 1000) + 0.05 * max(0, n - 1000), 0.3 * n, 0.5 * n) for n in range(100, 4100, 100))


def make_run(path: tuple[tuple[int, float, float, float], ...]) -> Run:
    people, regret, constant, uniform = path[-1]
    return Run(
        0, regret, uniform, constant, 0.5, people, len(path), People(people, people), {"bins": 4.0}, Costs(), path
    )


def test_people_needed_is_where_the_policy_begins_to_earn() -> None:
    """From 1,000 people on .05 a person is lost where the best constant arm loses .3: five sixths are gained."""
    assert count_until_gain_share(make_run(PATH), 0.8) == 1000
    assert count_until_gain_share(make_run(PATH), 0.9) is None


def test_a_lead_by_chance_that_is_lost_again_does_not_pay() -> None:
    """Planted: a run that was ahead early, by chance, and whose last policy is below the best single option."""

    def play(*rates: float) -> Run:
        regrets = [sum(rates[: n // 1000]) * 1000 for n in range(1000, 1000 * len(rates) + 1, 1000)]
        return make_run(tuple((1000 * n, regret, 300.0 * n, 500.0 * n) for n, regret in enumerate(regrets, 1)))

    assert count_until_gain_share(play(0.4, 0.2, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4), 0.0) is None
    assert count_until_gain_share(play(0.4, 0.2, 0.4, 0.4, 0.2, 0.2, 0.2, 0.2), 0.0) == 4000


def test_nobody_gains_where_one_arm_is_best_for_all() -> None:
    assert count_until_gain_share(make_run(tuple((n, 0.1 * n, 0.0, 0.5 * n) for n in (100, 200))), 0.5) is None


def test_the_smallest_batch_keeps_the_promise_and_a_smaller_one_does_not() -> None:
    privacy = make_spec(SHUFFLE).privacy
    batch = find_smallest_batch(privacy, 1.0, 4.0)
    assert batch is not None
    assert shuffled_delta(1.0, 4.0, 2, count_honest(privacy, batch)) <= 1e-6
    assert shuffled_delta(1.0, 4.0, 2, count_honest(privacy, int(0.97 * batch))) > 1e-6
    variants = make_variants(make_spec(SHUFFLE), ("local", "shuffle"), (1.0, 4.0))
    assert [row["epsilon"] for row in describe_batches(variants)] == [1.0, 4.0]
    assert describe_batches(variants)[1]["min_batch_to_double"] is None


def test_a_promise_that_the_learner_refuses_is_left_out_with_the_reason() -> None:
    """A spec is valid, but under a shuffler a batch of 1,000 is too small for its features."""
    spec = sparse_spec("shuffle", context__features=100, experiment__horizon=8000)
    plan = lab.plan(spec, trust=["central", "shuffle"], epsilon=[0.5], seeds=1)
    (refused,) = plan.refused
    assert refused.startswith("shuffle at epsilon 0.5: ")
    assert "experiment.round_size, under the shuffle model at epsilon 0.5" in refused
    assert "4000 people can" in refused
    assert [row["model"] for row in plan.outcomes] == ["central"]
    with pytest.raises(SpecError, match="under the shuffle model"):
        lab.plan(spec, trust=["shuffle"], epsilon=[0.5], seeds=1)


def test_a_promise_that_is_not_possible_refuses_its_row_alone() -> None:
    spec = make_spec({"experiment.horizon": 900, "experiment.round_size": 100})
    possible, refused = find_promises(spec, ("local", "shuffle"), (1.0,))
    assert [variant.model for variant in possible] == ["local"]
    assert [refusal.as_row["model"] for refusal in refused] == ["shuffle"]
    assert "horizon" in refused[0].as_row["why"] or "round_size" in refused[0].as_row["why"]


def test_variants_are_specs_under_other_promises() -> None:
    variants = make_variants(make_spec({"experiment.round_size": 100}), ("local", "shuffle", "central"), (1.0, 8.0))
    assert [(variant.model, variant.epsilon) for variant in variants] == [
        (model, epsilon) for model in ("local", "shuffle", "central") for epsilon in (1.0, 8.0)
    ]
    assert [variant.spec.model_dump()["experiment"]["round_size"] for variant in variants[::2]] == [100, 1000, 100]
    assert [variant.spec.privacy.delta for variant in variants[::2]] == [0.0, 1e-6, 1e-6]


def run_with_seed(seed: int, regret: float) -> Run:
    return replace(make_run(PATH), seed=seed, regret=regret)


def test_promises_are_compared_on_the_same_seeds() -> None:
    """A notebook plans every promise with the same seeds as the command line."""
    spec = make_spec({"experiment.horizon": 600, "experiment.round_size": 200, "population": {"name": "peaks"}})
    plan = lab.plan(spec, trust=["local"], epsilon=[1.0, 4.0], seeds=2)
    for variant, row in zip(make_variants(spec, ("local",), (1.0, 4.0)), plan.outcomes, strict=True):
        regrets = [simulate_once(variant.spec, seed).regret for seed in range(2)]
        assert (row["seeds"], row["epsilon"]) == (2, variant.epsilon)
        assert row["regret_mean"] == pytest.approx(sum(regrets) / 2)


def test_the_interval_of_two_seeds_is_as_wide_as_it_must_be() -> None:
    """Planted: the normal interval, which would hold the mean in 7 of 10 cases."""
    (variant,) = make_variants(make_spec(), ("local",), (1.0,))
    row = summarize_promise(variant, [run_with_seed(0, 10.0), run_with_seed(1, 20.0)])
    assert row["regret_ci95"] == pytest.approx(12.706 * 5.0, rel=1e-4)
    assert row["regret_ci95"] > 6 * 1.96 * 5.0
    assert summarize_promise(variant, [run_with_seed(0, 10.0)])["regret_ci95"] is None


@pytest.mark.parametrize(("growth", "warns"), [("0.5", True), ("0", False)])
def test_rounds_that_are_too_large_for_a_memory_are_a_warning(growth, warns, capsys):
    grows = ("--set", "algorithm.half_life=auto", "--set", f"experiment.min_round_fraction={growth}", "--users", "9000")
    for command in ("simulate", "plan"):
        args = ("--seeds", "1", "--jobs", "1", *(("--models", "local", "--epsilons", "4") if command == "plan" else ()))
        code, out, _ = run(capsys, command, SPEC, *grows, *args, "--json")
        assert code == 0
        assert sum("experiment.min_round_fraction" in warning for warning in json.loads(out)["warnings"]) == warns
        words = " ".join(run(capsys, command, SPEC, *grows, *args)[1].split())
        assert ("warning: with algorithm.half_life rounds of up to" in words) is warns


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
        (["simulate", SPEC, "--out", "x.csv", "--vary", "reward.low=1", "--vary", "reward.low=2"], "--vary: "),
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
def test_an_error_is_a_single_line(arguments, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert says in err
    # What takes long says first what it does.
    assert len([line for line in err.splitlines() if not line.endswith(" ...")]) == 1


FULL = {"name": "clinic", "participants": 1000, "epsilon": 8.0, "shares": [0.4, 0.3, 0.3]}


def test_a_plan_takes_sources_that_are_promised_more_than_a_report_may_cost() -> None:
    (variant,) = make_variants(make_spec({"sources": [FULL]}), ("shuffle",), (1.0,))
    assert variant.spec.privacy.local_epsilon_max == 8.0


def test_a_plan_asks_for_several_messages_where_a_batch_makes_them_cheap() -> None:
    planned = make_variants(
        linear_spec("shuffle", messages_per_report=3), ("local", "shuffle", "central", "none"), (1.0,)
    )
    assert [variant.spec.algorithm.model_dump()["messages_per_report"] for variant in planned] == [1, 3, 1, 1]


def test_a_value_may_have_commas_and_one_source_be_meant() -> None:
    axes = sweeps.parse_axes(["sources.clinic.shares=[.5,.3,.2],[.2, .3, .5]", "population.density={name='a,b',x=1},c"])
    assert axes == {
        "sources.clinic.shares": ["[.5,.3,.2]", "[.2, .3, .5]"],
        "population.density": ["{name='a,b',x=1}", "c"],
    }


@pytest.mark.parametrize("arguments", [("plan", "--plot"), ("reproduce", "--out")])
def test_a_folder_that_cannot_be_written_is_refused_before_the_runs(arguments, capsys, tmp_path, monkeypatch):
    def never(*_: object) -> None:
        raise AssertionError("ran")

    monkeypatch.setattr("privateer_lab.cli.plan.list_choices", never)
    monkeypatch.setattr("privateer_papers.paper_1.figures.jump_start.simulate_once", never)
    (tmp_path / "taken").write_text("a file")
    name = SPEC if arguments[0] == "plan" else "paper-1-figure-6"
    code, _, err = run(capsys, arguments[0], name, arguments[1], str(tmp_path / "taken" / "here"))
    assert code == 2
    assert err.count("\n") == 1
    assert "taken" in err


def test_tiny_promises_have_no_batch_and_none_is_below_what_a_spec_may_name() -> None:
    privacy = make_spec(SHUFFLE).privacy
    assert find_smallest_batch(privacy, 1e-9, 6.0) is None
    assert find_smallest_batch(privacy, 0.01, 16.0) is None
    assert find_smallest_batch(privacy, 0.01, 0.02) == find_smallest_batch(privacy, 1.0, 1.0) == 100
    make_spec(SHUFFLE | {"privacy.min_batch": 100})


def test_a_terminated_sweep_keeps_its_finished_runs(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_missing_file_of_people_is_found_before_anything_runs(monkeypatch, capsys):
    def never(*_: object) -> None:
        raise AssertionError("a run began")

    monkeypatch.setattr("privateer_lab.cli.plan.list_choices", never)
    code, out, err = run(capsys, "plan", SPEC, "--set", "population.name=adult", "--set", "population.path=none.csv")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("privateer: population.path: cannot read none.csv")


def test_a_warning_of_a_change_says_which_change(capsys: pytest.CaptureFixture[str]) -> None:
    """Planted: a curator's spec was warned of a limit that only shuffled reports have."""
    central = str(Path(SPEC).with_name("additive-central.toml"))
    options = ("--seconds", "0.1", "--jobs", "1", "--json")
    warnings = json.loads(run(capsys, "plan", central, *options)[1])["warnings"]
    of_reports = [warning for warning in warnings if "local_epsilon_max" in warning]
    assert of_reports
    assert all(warning.startswith("with shuffle, epsilon 1: ") for warning in of_reports)
