"""Expectations of a plan: figures and sentences, features to keep, and runs with a time limit."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.answer.people import People
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import environment_for
from privateer_lab.planning.expectation.choices import list_choices
from privateer_lab.planning.expectation.expected import Expectation, ExpectedRow, summarize_runs, write_sentences
from privateer_lab.planning.expectation.partial_runs import PartialRun, restrict_to, run_partially
from privateer_lab.planning.feature_sets.afforded import find_affordable_sets, with_features
from privateer_lab.planning.feature_sets.outcomes import estimate_outcomes
from privateer_lab.planning.other_algorithms import to_tables, with_own_rounds
from privateer_lab.simulation.simulate import simulate_once
from tests.support.specs import SHUFFLE, make_spec
from tests.unit.lab.cli.test_command_line import SPEC, run

PEOPLE = {"name": "mixed", "relevant": ["x1"], "function": 3}


def spec_of(changes: dict[str, Any] | None = None) -> ArmsSpec:
    return cast(ArmsSpec, make_spec({"experiment.horizon": 3000, "population": PEOPLE, **(changes or {})}))


def run_whole(spec: ArmsSpec, seed: int = 0) -> PartialRun:
    run = run_partially(spec, seed, math.inf)
    assert isinstance(run, PartialRun)
    return run


def test_a_run_that_ends_early_goes_on_with_what_it_learned() -> None:
    """A run without time plays four rounds; later people get the last policy."""
    spec = spec_of({"experiment.horizon": 30_000, "experiment.round_size": 1000})
    cut, full = run_partially(spec, 0, 0.0), run_whole(spec)
    assert isinstance(cut, PartialRun)
    assert (cut.run.account.counted, full.run.account.counted) == (4000, 30_000)
    assert (cut.is_cut, full.is_cut, cut.reach, full.reach) == (True, False, 30_000, 30_000)
    assert cut.run.choices == full.run.choices == 30_000
    last = cut.run.path[-2:]
    assert last[1][0] == 30_000
    slope = (last[1][1] - last[0][1]) / (last[1][0] - last[0][0])
    assert slope == pytest.approx((cut.run.regret - cut.run.path[3][1]) / 26_000, rel=0.02)
    assert cut.gain < full.gain


def test_the_end_of_a_run_is_more_than_a_few_people() -> None:
    """Planted: three rounds leave a single person for the last policy, too few for a mean reward."""
    partial_run = run_whole(spec_of({"experiment.horizon": 1000, "experiment.round_size": 333}))
    before, last = partial_run.run.path[1], partial_run.run.path[-1]
    assert [point[0] for point in partial_run.run.path][-3:] == [666, 999, 1000]
    gained = (last[2] - before[2]) - (last[1] - before[1])
    assert partial_run.gain_at_the_end == pytest.approx(gained / 334)


def test_a_whole_run_is_that_of_simulate() -> None:
    assert run_whole(spec_of(), 3).run == simulate_once(spec_of(), 3)


def test_hidden_features_do_not_change_the_mean_rewards() -> None:
    """Hidden features move to the end, and mean rewards do not change."""
    spec = spec_of()
    arms_spec, environment = (
        with_own_rounds(with_features(to_tables(spec), ["x2"]), "partition"),
        environment_for(spec, 0),
    )
    restricted = restrict_to(environment, spec, arms_spec)
    visible, full = (people.contexts(0, 50, np.random.default_rng(5)) for people in (restricted, environment))
    assert list(arms_spec.features) == ["x2"]
    assert visible[:, 0].tolist() == full[:, 1].tolist()
    assert restricted.means(visible).tolist() == environment.means(full).tolist()


def test_the_informative_features_are_selected() -> None:
    """Planted: only the first of two decides anything."""
    spec = spec_of(SHUFFLE | {"experiment.round_size": 1000})
    outcomes = estimate_outcomes(spec, environment_for(spec, 0))
    assert find_affordable_sets(to_tables(spec), outcomes).names == [("x1",)]


def test_choices_change_one_thing_each() -> None:
    choices, refused = list_choices(spec_of(SHUFFLE | {"experiment.round_size": 1000}))
    assert not refused
    assert choices[0].kind == "as it is"
    models = {choice.variant.model for choice in choices if choice.kind == "trust"}
    assert models == {"none", "local", "central"}
    assert sorted(choice.variant.epsilon for choice in choices if choice.kind == "epsilon") == [0.5, 2.0]
    assert [tuple(choice.spec.features) for choice in choices if choice.kind == "features"] == [("x1",)]
    assert [choice.spec.experiment.horizon for choice in choices if choice.kind == "people"] == [1500, 6000]


def test_a_model_that_no_service_runs_is_compared_where_it_is_asked_for_and_says_so() -> None:
    choices, _ = list_choices(spec_of(SHUFFLE | {"experiment.round_size": 1000}), models=["split"])
    assert [choice.change for choice in choices if choice.kind == "trust"] == ["split, epsilon 1, in simulation alone"]


def row(value: float, **other: Any) -> ExpectedRow:
    fields: dict[str, Any] = {
        "kind": "as it is",
        "change": "as the spec says",
        "model": "shuffle",
        "epsilon": 1.0,
        "features": ("platform", "days", "country"),
        "people": 200_000,
        "value": value,
        "margin": 0.0005,
        "gain": value - 0.051,
        "value_at_the_end": value + 0.001,
        "pays_after": 68_400,
        "detectable": None,
        "runs": 2,
        "learned_from": 200_000,
        "reach": 200_000,
    }
    return ExpectedRow(**(fields | {"margin_compared": other.get("margin", 0.0005)} | other))


def expect(*rows: ExpectedRow, **other: Any) -> Expectation:
    fields: dict[str, Any] = {
        "experiment": "onboarding",
        "counts": "people",
        "is_test": False,
        "is_rate": True,
        "reward": "bought",
        "single_option": "b",
        "single": 0.051,
        "worst": 0.039,
        "random": 0.048,
        "best": 0.06,
        "is_made_up": False,
        "population": "csv",
        "people": People(200_000, not_asked=200_000),
        "rows": rows,
    }
    return Expectation(**(fields | other))


def test_the_first_sentence_has_the_expected_rate_and_the_gain() -> None:
    assert write_sentences(expect(row(0.054)))[0] == (
        "With 200,000 people, epsilon 1 and a shuffler you can expect a success rate (bought) of 5.40 % "
        "(± 0.05 points) instead of 5.10 % with the best single option, 'b'; by the end it is 5.50 %."
    )
    expected_by_a_file = "Rewards of these people are what a file expects"
    for population in ("rows", "csv"):
        sentences = write_sentences(expect(row(0.054), population=population))
        assert any(expected_by_a_file in sentence for sentence in sentences) == (population == "rows")
    sure = write_sentences(expect(row(0.054, margin_at_the_end=0.002)))[0]
    assert sure.endswith("by the end it is 5.50 % (± 0.20 points).")


@pytest.mark.parametrize(("detectable", "is_advised"), [(0.0549, True), (0.0551, False), (0.11, False)])
def test_a_test_is_advised_only_where_it_finds_how_much_options_differ(detectable: float, is_advised: bool) -> None:
    """Planted: a test that finds 11 points was advised where options differ by 5.5."""
    sentence = write_sentences(expect(row(0.3, gain=-0.01, detectable=detectable), single=0.31, worst=0.255, best=0.4))[
        0
    ]
    assert "differ by 5.5 points" in sentence
    assert ("test one option against another" in sentence) == is_advised
    assert ("it takes about 800,000 people" in sentence) == (detectable > 0.1)


def test_values_within_the_margin_compare_as_level() -> None:
    """Planted: epsilon 2 below epsilon 1, where ten runs show no difference."""
    other = {"kind": "epsilon", "epsilon": 2.0}
    expectation = expect(
        row(0.054),
        row(0.0536, change="epsilon 2", **other),
        row(0.0558, change="epsilon 4", **other),
        row(0.0522, change="epsilon 0.5", **other),
        row(0.0522, change="epsilon 0.1", **other, margin=None),
    )
    assert [expectation.compare_with_spec(row) for row in expectation.rows] == ["", "level", "better", "worse", ""]


def test_a_difference_that_more_time_may_turn_is_no_verdict() -> None:
    """Planted: a change whose runs ended after 2,000 of 200,000 people was called worse than the spec."""
    other = {"kind": "algorithm", "change": "linear"}
    short = expect(row(0.054), row(0.0522, **other, learned_from=2000), row(0.0558, **other, learned_from=2000))
    assert [short.compare_with_spec(row) for row in short.rows] == ["", "cut short", "better"]
    own = expect(row(0.0512, learned_from=2000), row(0.0558, **other), row(0.0494, **other))
    assert [own.compare_with_spec(row) for row in own.rows] == ["", "cut short", "worse"]
    assert own.has_gaining_change
    assert "a success rate (bought) of at least 5.12 %" in write_sentences(own)[0]


def test_people_whom_rounds_do_not_reach_are_not_learned_from() -> None:
    account = People(5700, not_asked=5000, out_of_reach=700)
    words = write_sentences(expect(row(0.054, learned_from=5000, reach=5000), people=account))
    assert f"{account.sentence} A horizon of 5,000 fills its rounds." in words
    assert not any("cut short" in sentence for sentence in words)
    complete = write_sentences(expect(row(0.054)))
    assert not any("planned" in sentence for sentence in complete)
    partial = write_sentences(expect(row(0.054, learned_from=3179, reach=3179), people=People(5700, not_asked=5700)))
    assert "A run asks 3,179 of the 5,700 people whom its rounds could reach." in partial


def test_a_gain_that_comes_late_is_said_and_no_test_is_advised() -> None:
    """Planted: "no sure gain" beside 19 % by the end, where the best single option has 10 %."""
    late = {"margin": 0.02, "value_at_the_end": 0.19, "margin_at_the_end": 0.01, "pays_after": None, "detectable": 0.02}
    sentences = write_sentences(expect(row(0.108, gain=0.008, **late), single=0.1, best=0.3))
    assert sentences[0] == (
        "With 200,000 people, epsilon 1 and a shuffler you can expect a success rate (bought) of 10.8 % "
        "(± 2.0 points), no sure gain above 10.0 % with the best single option, 'b'; by the end it is 19.0 % (± "
        "1.0 points), so choosing by context pays for people who come later."
    )
    unsure = write_sentences(
        expect(row(0.108, gain=0.008, **(late | {"margin_at_the_end": 0.1})), single=0.1, best=0.3)
    )
    assert unsure[0].endswith("finds 2.0 points or more: test one option against another instead.")


def test_a_test_is_advised_without_gain_and_a_tie_has_no_best_option() -> None:
    losing = row(0.049, detectable=0.011)
    sentences = write_sentences(expect(losing, best=0.051))
    assert "It is best for all of these people." in sentences[0]
    assert sentences[0].endswith("test one option against another instead.")
    assert write_sentences(expect(row(0.051), best=0.051, random=0.051))[0].endswith(
        "All options are equal: each has 5.10 %."
    )
    equal_runs = " ".join(write_sentences(expect(row(0.051, margin=None), best=0.051, random=0.051)))
    assert "all options are equal, so that no run differs" in equal_runs
    assert "too few" not in equal_runs
    tied = write_sentences(expect(row(0.051), best=0.051, random=0.051, is_test=True))[0]
    assert tied == "While it runs people can expect 5.10 %, and 5.10 % with any option: all are equal."
    too_few = write_sentences(expect(row(0.049), best=0.051))[0]
    assert too_few.endswith("a test of so few finds no difference either: raise the number of people or epsilon.")


def test_single_runs_are_not_compared() -> None:
    single_feature = {"kind": "features", "change": "platform", "features": ("platform",), "margin": None}
    expectation = expect(row(0.054, margin=None), row(0.058, **single_feature))
    assert {expectation.compare_with_spec(row) for row in expectation.rows} == {""}


def test_plans_compare_with_the_algorithm_that_knows_no_features() -> None:
    """Its people are the spec's, without features."""
    choices = {
        list_choice.change: list_choice for list_choice in list_choices(spec_of())[0] if list_choice.kind == "algorithm"
    }
    plain, run_of_plain = choices["bandit"], choices["bandit"].play(0, math.inf)
    assert not plain.spec.features
    assert isinstance(run_of_plain, PartialRun)
    assert run_of_plain.gain <= 0
    assert run_of_plain.single == pytest.approx(run_whole(spec_of()).single, abs=0.02)


def test_the_interval_has_the_spread_of_all_rows() -> None:
    """Gains of .1 and .3 in one row and .2 and .2 in another have a variance of .02, with two degrees of freedom."""
    spec = spec_of()
    compared, _ = list_choices(spec, models=["local"], epsilons=[4.0])
    base = run_whole(spec)

    def with_gain(gain: float) -> PartialRun:
        run = replace(base.run, best_constant_regret=0.4 * base.run.choices, regret=(0.4 - gain) * base.run.choices)
        return replace(base, run=run)

    summary = summarize_runs(spec, compared, {0: [with_gain(0.1), with_gain(0.3)], 1: [with_gain(0.2), with_gain(0.2)]})
    assert summary.own_row.gain == pytest.approx(0.2)
    assert summary.own_row.margin == pytest.approx(4.3027 * math.sqrt(0.01 / 2), rel=1e-3)
    lone = summarize_runs(spec, compared, {0: [with_gain(0.1)]})
    assert lone.own_row.margin is None
    equal = summarize_runs(spec, compared, {0: [with_gain(0.1), with_gain(0.1)]})
    assert equal.own_row.margin is None, 'of a tie, "± 0.00" was said'

    def late_gain(gain: float) -> PartialRun:
        choices = base.run.choices
        path = ((choices // 2, 0.0, 0.0, 0.0), (choices, 0.0, gain * (choices - choices // 2), 0.0))
        return replace(base, run=replace(base.run, path=path))

    late = summarize_runs(spec, compared, {0: [late_gain(0.1), late_gain(0.3)], 1: [late_gain(0.2), late_gain(0.2)]})
    assert late.own_row.margin_at_the_end == pytest.approx(4.3027 * math.sqrt(0.01 / 2), rel=1e-3)
    assert late.own_row.value_at_the_end == pytest.approx(late.single + 0.2)


def play_with(base: PartialRun, gain: float) -> PartialRun:
    """Change a run to one of this gain throughout."""
    choices = base.run.choices
    path = ((choices // 2, 0.0, gain * (choices // 2), 0.0), (choices, 0.0, gain * choices, 0.0))
    run = replace(base.run, best_constant_regret=gain * choices, regret=0.0, path=path)
    return replace(base, run=run)


def test_it_pays_only_where_the_lead_at_the_end_is_beyond_its_error() -> None:
    """Planted: a lead in each of two runs, whose difference is as large as the lead."""
    spec = spec_of()
    compared, base = list_choices(spec, models=["local"], epsilons=[4.0])[0], run_whole(spec)

    def pays_after(*gains: float) -> int | None:
        return summarize_runs(spec, compared, {0: [play_with(base, gain) for gain in gains]}).own_row.pays_after

    assert pays_after(0.1, 0.11) == base.run.choices // 2
    assert pays_after(0.1, 0.3) is None
    assert pays_after(0.1) is None


def test_lines_of_few_runs_are_compared_by_student_t_for_all_lines() -> None:
    """Planted: four runs of a line called better, which is chance among eight."""
    spec = spec_of()
    choices, base = list_choices(spec)[0], run_whole(spec)
    gains = {index: np.array([-0.01, 0.01, -0.01, 0.01]) for index in range(9)} | {9: np.array([0.3])}
    gains |= {1: gains[1] + 0.06, 2: np.array([0.0, 0.0, 0.0, 0.2]), 3: gains[3] + 0.6}
    runs = {index: [play_with(base, 0.5 + gain) for gain in some] for index, some in gains.items()}
    summary = summarize_runs(spec, choices, runs)
    own, wide = summary.own_row, summary.rows[2]
    assert wide.margin == pytest.approx(3.1824 * 0.1 / 2, rel=1e-3)
    assert wide.margin_compared == pytest.approx(6.8952 * 0.1 / 2, rel=1e-3)
    assert own.margin is not None
    assert math.sqrt(2) * own.margin < 0.06  # what was called better
    words = [summary.compare_with_spec(row) for row in summary.rows]
    assert (words[1], words[2], words[3], words[9]) == ("level", "level", "better", "")


FEW = ("--users", "3000", "--jobs", "1", "--set", "experiment.round_size=1000")


def test_a_plan_answers_within_its_time_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "plan.png"
    code, out, err = run(capsys, "plan", SPEC, *FEW, "--seconds", "0.1", "--plot", str(plot))
    assert code == 0
    assert err.startswith("privateer: trying peaks-local and changes of it on simulated people: about 0.1 seconds")
    assert err.count("\n") == 1
    assert out.startswith("With 3,000 people, epsilon ")
    assert out.index("These people are made up") < out.index("what is other")
    assert "features that pay for made-up people" in out
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert plot.with_suffix(".svg").exists()


def test_a_plan_says_whether_a_single_feature_pays(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Planted: features were compared where there are two or more, and a draft of a log often keeps one."""
    text = Path(SPEC).read_text(encoding="utf-8")
    second = next(line for line in text.splitlines() if line.startswith("x2"))
    (tmp_path / "single.toml").write_text(text.replace(second, "").replace('"peaks"', '"mixed"'), encoding="utf-8")
    code, out, _ = run(capsys, "plan", str(tmp_path / "single.toml"), *FEW, "--seconds", "0.1", "--json")
    assert code == 0
    assert {name for budget in json.loads(out)["features"] for name in budget["features"]} <= {"x1"}
    assert json.loads(out)["features"]


def test_a_plan_of_complete_runs_is_reproducible(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("plan", SPEC, *FEW, "--seeds", "2", "--models", "local,shuffle", "--epsilons", "4", "--json")
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["expected"]["rows"][0]["runs"] == 2
    assert (document["people"]["planned"], document["people"]["not_asked"]) == (3000, 3000)
    assert document["expected"]["rows"][0]["people"] == document["expected"]["rows"][0]["learned_from"] == 3000
    assert [(outcome["model"], outcome["epsilon"]) for outcome in document["outcomes"]][1:] == [
        ("local", 4.0),
        ("shuffle", 4.0),
    ]
    for outcome in document["outcomes"]:
        assert outcome["path"][-1]["regret_mean"] * 3000 == pytest.approx(outcome["regret_mean"])
    assert json.loads(run(capsys, *arguments)[1])["expected"] == document["expected"]


@pytest.mark.parametrize(("people", "gains"), [("2000", False), ("6000", True)])
def test_a_plan_that_gains_advises_no_log_to_find_features(capsys, people, gains):
    """Planted: "3,000 people tell little of the feature" stood beside a table whose runs gain with it."""
    arguments = ("plan", SPEC, *FEW, "--users", people, "--seeds", "2", "--models", "local", "--epsilons", "2")
    document = json.loads(run(capsys, *arguments, "--json")[1])
    own_row = document["expected"]["rows"][0]
    assert (own_row["gain"] > own_row["margin"]) == gains
    assert any("people tell little of" in warning for warning in document["warnings"]) != gains


def test_late_outcomes_are_part_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """Half of the people choose before the first report, so their reports help fewer others."""
    arguments = ("plan", SPEC, *FEW, "--seeds", "2", "--epsilons", "4", "--models", "local", "--json")
    late = ("--set", "experiment.conversion_window_seconds=86400", "--set", "experiment.arrivals_per_day=1500")
    early, later = (json.loads(run(capsys, *arguments, *options)[1]) for options in ((), late))
    assert later["expected"]["rows"][0]["gain"] < early["expected"]["rows"][0]["gain"]
    assert "1,500 choose in between" in later["assumed"][0]


def test_an_interrupted_plan_prints_the_finished_rows(capsys, monkeypatch):
    def run_first_task(work: Any, todo: Any, *_: object) -> Any:
        yield work(*todo[0])
        raise KeyboardInterrupt

    monkeypatch.setattr("privateer_lab.planning.expectation.search.run_tasks", run_first_task)
    code, out, err = run(capsys, "plan", SPEC, *FEW, "--seconds", "0.1")
    assert code == 130
    assert "interrupted after 1 of" in err
    assert "too few to say how sure it is" in out
    assert "There was no time for" in out


def test_plans_say_what_forgetting_costs_where_nothing_moves() -> None:
    """Only a spec that forgets has the line; its people are the same."""
    for half_life, n_lines in (("auto", 1), ("none", 0)):
        choices, _ = list_choices(spec_of({"algorithm.half_life": half_life}))
        plain = [choice for choice in choices if choice.kind == "forgetting"]
        assert len(plain) == n_lines
        assert all(cast(Any, choice.spec).algorithm.half_lives == () for choice in plain)


def test_plans_without_forgetting_have_rounds_of_their_own_default() -> None:
    """Rounds of `additive` grow if it forgets nothing; planted: rounds as large as with a half-life."""
    tables = spec_of().model_dump(exclude_none=True) | {"algorithm": {"name": "additive", "half_life": "auto"}}
    del tables["experiment"]["min_round_fraction"]
    choices, _ = list_choices(parse_spec(tables))
    plain, as_it_is = (
        next(cast(Any, choice.spec) for choice in choices if choice.kind == kind) for kind in ("forgetting", "as it is")
    )
    assert as_it_is.experiment.min_round_fraction == 0
    assert plain.experiment.min_round_fraction > 0
