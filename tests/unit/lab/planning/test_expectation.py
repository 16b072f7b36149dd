"""What a plan expects: figures and sentences, which features to keep, and runs that end when their time does."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from privateer_core.answer.people import People
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import environment_for
from privateer_lab.planning.expectation.choices import choices_of
from privateer_lab.planning.expectation.expected import Expectation, ExpectedRow, expectation
from privateer_lab.planning.expectation.kept_features import people_told
from privateer_lab.planning.expectation.partial_runs import PartialRun, played
from privateer_lab.planning.expectation.words import sentences
from privateer_lab.planning.feature_sets.afforded import sets_for, with_some
from privateer_lab.planning.other_algorithms import tables_of, with_own_rounds
from privateer_lab.simulation.simulate import simulate_once
from tests.support.specs import SHUFFLE, make_spec
from tests.unit.lab.cli.test_command_line import SPEC, run

PEOPLE = {"name": "mixed", "relevant": ["x1"], "function": 3}


def spec_of(changes: dict[str, Any] | None = None) -> ArmsSpec:
    return cast(ArmsSpec, make_spec({"experiment.horizon": 3000, "population": PEOPLE, **(changes or {})}))


def whole(spec: ArmsSpec, seed: int = 0) -> PartialRun:
    found = played(spec, seed, math.inf)
    assert isinstance(found, PartialRun)
    return found


def test_a_run_that_ends_early_goes_on_with_what_it_learned() -> None:
    """No time at all is four rounds: later people get the policy that stands after them."""
    spec = spec_of({"experiment.horizon": 30_000, "experiment.round_size": 1000})
    cut, full = played(spec, 0, 0.0), whole(spec)
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
    """Planted: three rounds leave one person for the last policy, whose reward alone says nothing."""
    found = whole(spec_of({"experiment.horizon": 1000, "experiment.round_size": 333}))
    before, last = found.run.path[1], found.run.path[-1]
    assert [one[0] for one in found.run.path][-3:] == [666, 999, 1000]
    gained = (last[2] - before[2]) - (last[1] - before[1])
    assert found.gain_at_the_end == pytest.approx(gained / 334)


def test_a_whole_run_is_that_of_simulate() -> None:
    assert whole(spec_of(), 3).run == simulate_once(spec_of(), 3)


def test_people_of_whom_less_is_known_are_the_same_people() -> None:
    """Hidden features move to the end, and mean rewards do not change."""
    spec = spec_of()
    known, theirs = with_own_rounds(with_some(tables_of(spec), ["x2"]), "partition"), environment_for(spec, 0)
    assert known is not None
    ours = people_told(theirs, spec, known)
    some, same = (one.contexts(0, 50, np.random.default_rng(5)) for one in (ours, theirs))
    assert list(known.features) == ["x2"]
    assert some[:, 0].tolist() == same[:, 1].tolist()
    assert ours.means(some).tolist() == theirs.means(same).tolist()


def test_the_features_that_tell_are_found() -> None:
    """Planted: only the first of two decides anything."""
    assert sets_for(spec_of(SHUFFLE | {"experiment.round_size": 1000})).names == [("x1",)]


def test_choices_change_one_thing_each() -> None:
    made, refused = choices_of(spec_of(SHUFFLE | {"experiment.round_size": 1000}))
    assert not refused
    assert made[0].kind == "as it is"
    models = {one.variant.model for one in made if one.kind == "trust"}
    assert models == {"none", "local", "central"}
    assert sorted(one.variant.epsilon for one in made if one.kind == "epsilon") == [0.5, 2.0]
    assert [tuple(one.spec.features) for one in made if one.kind == "features"] == [("x1",)]
    assert [one.spec.experiment.horizon for one in made if one.kind == "people"] == [1500, 6000]


def row(value: float, **other: Any) -> ExpectedRow:
    given: dict[str, Any] = {
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
    return ExpectedRow(**(given | other))


def expected(*rows: ExpectedRow, **other: Any) -> Expectation:
    given: dict[str, Any] = {
        "experiment": "onboarding",
        "counts": "people",
        "is_test": False,
        "is_rate": True,
        "reward": "bought",
        "single_option": "b",
        "single": 0.051,
        "random": 0.048,
        "best": 0.06,
        "is_made_up": False,
        "population": "csv",
        "people": People(200_000, not_asked=200_000),
        "rows": rows,
    }
    return Expectation(**(given | other))


def test_the_answer_is_in_words_first() -> None:
    found = expected(
        row(0.054),
        row(0.058, kind="trust", change="without privacy", model="none", epsilon=None),
        row(0.0509, kind="trust", change="local, epsilon 1", model="local", detectable=0.011, pays_after=None),
        row(0.057, kind="features", change="platform and days", features=("platform", "days")),
    )
    said = sentences(found)
    assert said[0] == (
        "With 200,000 people, epsilon 1 and a shuffler you can expect a success rate (bought) of 5.40 % (± 0.05) "
        "instead of 5.10 % with the best single option, 'b'; by the end it is 5.50 %."
    )
    assert said[1] == "It takes about 68,000 people until choosing by context pays."
    assert said[2] == "With platform and days alone: 5.70 %. The other features cost more than they tell."
    assert said[3] == "Without privacy: 5.80 %."
    assert said[4] == (
        "Under local, epsilon 1: no gain. Test one option against another instead (detectable: 1.10 points)."
    )


def test_no_test_is_advised_where_fewer_features_gain() -> None:
    """Nor is one feature praised that earns no more than the best single option does."""
    own = row(0.0512, detectable=0.011)
    alone = {"kind": "features", "change": "platform", "features": ("platform",)}
    gains = sentences(expected(own, row(0.054, **alone)))
    assert gains[0].endswith("and 5.10 % with the best single option, 'b'.")
    assert gains[1] == (
        "With platform alone: 5.40 %, 0.30 points above 'b'. The other features cost more than they tell."
    )
    lost = sentences(expected(row(0.049, detectable=0.011), row(0.0511, **alone)))
    assert lost[0].endswith("Test one option against another instead (detectable: 1.10 points).")
    assert lost[1] == "With platform alone: 5.11 %. The other features cost more than they tell."


def test_features_are_judged_only_where_choosing_by_them_gains() -> None:
    alone = {"kind": "features", "change": "platform", "features": ("platform",)}
    gains = " ".join(sentences(expected(row(0.054), row(0.054, **alone))))
    assert "With platform alone: 5.40 %, the same but for chance: the other features tell little." in gains
    lost = " ".join(sentences(expected(row(0.051), row(0.051, **alone))))
    assert "With platform alone: 5.10 %, the same but for chance." in lost


def test_one_figure_that_was_cut_short_is_one() -> None:
    said = " ".join(sentences(expected(row(0.054), row(0.054, learned_from=100_000))))
    assert "1 of 2 figures is from runs that were cut short" in said


def test_what_a_run_that_was_cut_short_earns_is_the_least_of_it() -> None:
    """Else a smaller promise seems to earn more than a larger one that had less time."""
    wider = {"kind": "epsilon", "change": "2", "epsilon": 2.0}
    trust = {"kind": "trust", "change": "without privacy", "model": "none", "epsilon": None, "learned_from": 90_000}
    said = " ".join(sentences(expected(row(0.054), row(0.053, **wider, learned_from=100_000), row(0.053, **trust))))
    assert "2: 5.30 % or more." in said
    assert "Without privacy: 5.30 % or more." in said
    assert "2: 5.30 %." in " ".join(sentences(expected(row(0.054), row(0.053, **wider))))


def test_what_is_within_chance_is_no_gain() -> None:
    """Planted: the same gain, and an interval that is wider than it."""
    said = sentences(expected(row(0.054, margin=0.004, detectable=0.004)))
    assert "no sure gain from choosing by context: a success rate" in said[0]
    assert "detectable: 0.40 points" in said[0]
    assert not any("pays" in one for one in said)


def test_no_gain_of_a_run_that_was_cut_short_is_said_to_be_that() -> None:
    short = sentences(expected(row(0.0511, margin=0.001, learned_from=2000, pays_after=None)))
    assert "no sure gain from choosing by context within the first 2,000 people" in short[0]
    assert "the shortest after 2,000 of 200,000 people" in " ".join(short)


def test_what_chance_does_not_tell_apart_is_level() -> None:
    """Planted: epsilon 2 below epsilon 1, where ten runs show no difference."""
    other = {"kind": "epsilon", "epsilon": 2.0}
    found = expected(
        row(0.054),
        row(0.0536, change="epsilon 2", **other),
        row(0.0558, change="epsilon 4", **other),
        row(0.0522, change="epsilon 0.5", **other),
        row(0.0522, change="epsilon 0.1", **other, margin=None),
    )
    assert [found.compared(one) for one in found.rows] == ["", "level", "better", "worse", ""]
    said = next(one for one in sentences(found) if one.startswith("At epsilon 2"))
    assert said.startswith("At epsilon 2: 5.36 %, level with the spec but for chance; epsilon 4: 5.58 %; epsilon 0.5")


def test_people_whom_rounds_do_not_reach_are_not_learned_from() -> None:
    account = People(5700, not_asked=5000, out_of_reach=700)
    words = sentences(expected(row(0.054, learned_from=5000, reach=5000), people=account))
    assert f"{account.sentence} A horizon of 5,000 fills its rounds." in words
    assert not any("cut short" in one for one in words)
    whole = sentences(expected(row(0.054)))
    assert not any("planned" in one for one in whole)
    drawn = sentences(expected(row(0.054, learned_from=3179, reach=3179), people=People(5700, not_asked=5700)))
    assert "A run asks 3,179 of the 5,700 people whom its rounds could reach." in drawn


def test_a_gain_that_may_be_chance_is_called_so() -> None:
    other = row(0.053, kind="trust", change="without privacy", model="none", epsilon=None, margin=0.004)
    said = sentences(expected(row(0.0505), other, left_out=("epsilon 2", "100,000 people")))
    assert "you can expect no gain from choosing by context" in said[0]
    assert "Without privacy: 5.30 %, a gain that may be chance." in said
    assert "There was no time for: epsilon 2; 100,000 people. --seconds gives more." in said


def test_numbers_keep_their_unit_and_made_up_people_are_called_so() -> None:
    found = expected(row(25.4, margin=0.2, gain=1.1), is_rate=False, single=24.3, best=30.0, random=22.0)
    made_up = msgspec.structs.replace(found, is_made_up=True, population="mixed", reward="")
    assert "a mean reward (bought) of 25.4 (± 0.2) instead of 24.3" in sentences(found)[0]
    assert not any("made up" in one for one in sentences(found))
    assert any("privateer spec-from data.csv" in one for one in sentences(made_up))


def test_where_one_option_is_best_for_all_nothing_is_said_of_context() -> None:
    said = " ".join(sentences(expected(row(0.051), best=0.051)))
    assert "by context" not in said
    assert "options at random have 4.80 %" in said


def test_a_gain_that_comes_late_is_said_and_no_test_is_advised() -> None:
    """Planted: "no sure gain" beside 19 % by the end, where the best single option has 10 %."""
    late = {"margin": 0.02, "value_at_the_end": 0.19, "margin_at_the_end": 0.01, "pays_after": None, "detectable": 0.02}
    other = {"kind": "trust", "change": "without privacy", "model": "none", "epsilon": None}
    said = sentences(
        expected(row(0.108, gain=0.008, **late), row(0.11, gain=0.01, **late, **other), single=0.1, best=0.3)
    )
    assert said[0] == (
        "With 200,000 people, epsilon 1 and a shuffler you can expect a success rate (bought) of 10.8 % (± 2.0), no "
        "sure gain above 10.0 % with the best single option, 'b'; by the end it is 19.0 %, so choosing by context "
        "pays for people who come later."
    )
    assert said[1] == "Without privacy: 11.0 %, no sure gain, and 19.0 % by the end."
    unsure = sentences(expected(row(0.108, gain=0.008, **(late | {"margin_at_the_end": 0.1})), single=0.1, best=0.3))
    assert unsure[0].endswith("Test one option against another instead (detectable: 2.0 points).")


def test_what_is_best_for_all_is_tested_instead_and_a_tie_is_no_best_option() -> None:
    lost = row(0.049, detectable=0.011)
    plain = {"kind": "algorithm", "change": "bandit", "features": ()}
    said = sentences(expected(lost, row(0.0505, **plain), best=0.051))
    assert said[0].endswith(
        "It is best for all of these people. Test one option against another instead (detectable: 1.10 points)."
    )
    better = "With algorithm.name = 'bandit' and without [context.features]: 5.05 %, which is better for these people."
    assert better in said
    assert sentences(expected(row(0.051), best=0.051, random=0.051))[0].endswith(
        "All options are equal: each has 5.10 %."
    )
    tied = sentences(expected(row(0.051), best=0.051, random=0.051, is_test=True))[0]
    assert tied == "While it runs people can expect 5.10 %, and 5.10 % with any option: all are equal."
    few = sentences(expected(row(0.049), best=0.051))[0]
    assert few.endswith("A test of so few finds no difference either: raise the number of people or epsilon.")


def test_of_one_run_each_nothing_is_called_better_or_worse() -> None:
    """Planted: "which is better for these people", beside a table that calls nothing so."""
    alone = {"kind": "features", "change": "platform", "features": ("platform",), "margin": None}
    other = {"kind": "algorithm", "change": "linear", "margin": None}
    rounds = {"kind": "rounds", "change": "first rounds of 300", "margin": None}
    found = expected(row(0.054, margin=None), row(0.058, **alone), row(0.058, **other), row(0.058, **rounds))
    said = sentences(found)
    assert {found.compared(one) for one in found.rows} == {""}
    assert "With platform alone: 5.80 %." in said
    assert "Other algorithms, of which one run each says little ('linear': 5.80 %)." in said
    assert "Rounds of other sizes, of which one run each says little (first rounds of 300)." in said


def test_plans_compare_with_the_algorithm_that_knows_no_features() -> None:
    """Its people are the spec's, of whom devices know nothing."""
    made = {one.change: one for one in choices_of(spec_of())[0] if one.kind == "algorithm"}
    plain, run_of_plain = made["bandit"], made["bandit"].play(0, math.inf)
    assert not plain.spec.features
    assert isinstance(run_of_plain, PartialRun)
    assert run_of_plain.gain <= 0
    assert run_of_plain.single == pytest.approx(whole(spec_of()).single, abs=0.02)


def test_the_interval_has_the_spread_of_all_rows() -> None:
    """Gains of .1 and .3 in one row and .2 and .2 in another have a variance of .02, with two degrees of freedom."""
    spec = spec_of()
    made, _ = choices_of(spec, models=["local"], epsilons=[4.0])
    base = whole(spec)

    def gaining(gain: float) -> PartialRun:
        run = replace(base.run, best_constant_regret=0.4 * base.run.choices, regret=(0.4 - gain) * base.run.choices)
        return replace(base, run=run)

    found = expectation(spec, made, {0: [gaining(0.1), gaining(0.3)], 1: [gaining(0.2), gaining(0.2)]})
    assert found.own.gain == pytest.approx(0.2)
    assert found.own.margin == pytest.approx(4.3027 * math.sqrt(0.01 / 2), rel=1e-3)
    lone = expectation(spec, made, {0: [gaining(0.1)]})
    assert lone.own.margin is None

    def ending(gain: float) -> PartialRun:
        choices = base.run.choices
        path = ((choices // 2, 0.0, 0.0, 0.0), (choices, 0.0, gain * (choices - choices // 2), 0.0))
        return replace(base, run=replace(base.run, path=path))

    late = expectation(spec, made, {0: [ending(0.1), ending(0.3)], 1: [ending(0.2), ending(0.2)]})
    assert late.own.margin_at_the_end == pytest.approx(4.3027 * math.sqrt(0.01 / 2), rel=1e-3)
    assert late.own.value_at_the_end == pytest.approx(late.single + 0.2)


FEW = ("--users", "3000", "--jobs", "1", "--set", "experiment.round_size=1000")


def test_a_plan_answers_within_its_time_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "plan.png"
    code, out, err = run(capsys, "plan", SPEC, *FEW, "--seconds", "0.1", "--plot", str(plot))
    assert code == 0
    assert err.startswith("privateer: trying peaks-local and changes of it on simulated people: about 0.1 seconds")
    assert err.count("\n") == 1
    assert out.startswith("With 3,000 people, epsilon ")
    assert out.index("These people are made up") < out.index("what is other")
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert plot.with_suffix(".svg").exists()


def test_a_plan_of_whole_runs_is_the_same_again(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("plan", SPEC, *FEW, "--seeds", "2", "--models", "local,shuffle", "--epsilons", "4", "--json")
    code, out, err = run(capsys, *asked)
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["expected"]["rows"][0]["runs"] == 2
    assert (told["people"]["planned"], told["people"]["not_asked"]) == (3000, 3000)
    assert told["expected"]["rows"][0]["people"] == told["expected"]["rows"][0]["learned_from"] == 3000
    assert [(one["model"], one["epsilon"]) for one in told["outcomes"]][1:] == [("local", 4.0), ("shuffle", 4.0)]
    for one in told["outcomes"]:
        assert one["path"][-1]["regret_mean"] * 3000 == pytest.approx(one["regret_mean"])
    assert json.loads(run(capsys, *asked)[1])["expected"] == told["expected"]


def test_a_spec_without_people_gets_made_up_ones(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    alone = tmp_path / "spec.toml"
    alone.write_text(Path(SPEC).read_text().partition("[population]")[0])
    code, out, _ = run(capsys, "plan", str(alone), *FEW, "--seconds", "0.1")
    assert code == 0
    assert "These people are made up" in out


def test_late_outcomes_are_part_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """Half of the people choose before the first report: nobody gains by theirs."""
    few = ("plan", SPEC, *FEW, "--seeds", "2", "--epsilons", "4", "--models", "local", "--json")
    late = ("--set", "experiment.conversion_window=86400", "--set", "experiment.arrivals=1500")
    early, later = (json.loads(run(capsys, *few, *more)[1]) for more in ((), late))
    assert later["expected"]["rows"][0]["gain"] < early["expected"]["rows"][0]["gain"]
    assert "1,500 choose in between" in later["assumed"][0]


def test_an_interrupted_plan_says_what_is_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(work: Any, todo: Any, *_: object) -> Any:
        yield work(*todo[0])
        raise KeyboardInterrupt

    monkeypatch.setattr("privateer_lab.planning.expectation.search.each", interrupted)
    code, out, err = run(capsys, "plan", SPEC, *FEW, "--seconds", "0.1")
    assert code == 130
    assert "interrupted after 1 of" in err
    assert "too few to say how sure it is" in out
    assert "There was no time for" in out
