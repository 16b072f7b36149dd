"""Which algorithm a draft has: by runs on its people, whatever they are."""

import tomllib

import numpy as np
import pytest

from privateer_core.algorithms import read_spec
from privateer_core.errors import SpecError
from privateer_lab.cli.input_files import load_spec
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.environments import environment_for
from privateer_lab.environments.own_people import OwnPeople
from privateer_lab.planning import algorithm_choice
from privateer_lab.planning.algorithm_choice import AlgorithmChoice, choice_of
from privateer_lab.planning.feature_sets.afforded import with_some
from privateer_lab.planning.other_algorithms import (
    by_features,
    every_algorithm,
    tables_of,
    with_algorithm,
    with_own_rounds,
    without_features,
)
from tests.unit.lab.cli.test_command_line import run

TABLES = {
    "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 6000},
    "context": {"features": {"age": {"low": 0.0, "high": 80.0}, "job": {"levels": ["x", "y", "z"]}}},
    "privacy": {"model": "none"},
    "algorithm": {"name": "partition"},
}


class People:
    """The second arm is better for some ages, or for nobody."""

    def __init__(self, edge):
        self.edge = edge

    def contexts(self, people, rng):
        return np.column_stack([80 * rng.random(people) ** 4, rng.integers(0, 3, people)])

    def means(self, contexts):
        second = 0.5 + 0.4 * np.sign(self.edge - contexts[:, 0])
        return np.stack([np.full(len(second), 0.5), second], axis=1)


def test_there_is_one_algorithm_by_features_for_each_question_and_one_without():
    assert by_features() == ("partition", "linear", "additive")
    assert without_features() == "bandit"
    plain = with_algorithm(TABLES | {"experiment": {**TABLES["experiment"], "gain_share": 0.05}}, "bandit")
    assert plain is not None
    assert not plain.features
    assert with_algorithm(TABLES | {"privacy": {"model": "local"}}, "partition") is None


def test_a_growth_that_is_an_algorithms_own_is_not_that_of_others():
    own = with_algorithm(TABLES, "additive")
    grown = with_algorithm(TABLES | {"experiment": {**TABLES["experiment"], "round_growth": 0.2}}, "additive")
    assert own is not None
    assert grown is not None
    assert "round_growth" not in tables_of(own)["experiment"]
    assert tables_of(grown)["experiment"]["round_growth"] == pytest.approx(0.2)


def test_people_who_are_fewer_than_a_usual_round_have_other_algorithms():
    """Planted: without its rounds of 40 the spec is refused, and so was the plan of it."""
    few = TABLES | {"experiment": {**TABLES["experiment"], "horizon": 400, "round_size": 40}}
    own = with_algorithm(few, "partition")
    assert own is not None
    assert tables_of(own)["experiment"]["round_size"] == 40
    assert with_algorithm(tables_of(own), "linear") is not None


def test_rounds_that_grow_begin_as_their_algorithm_has_them():
    """Planted: with the draft's first round most people are asked before anything is learned of them."""
    tables = TABLES | {"experiment": {**TABLES["experiment"], "round_size": 3000}}
    planted, usual = with_algorithm(tables, "additive"), with_algorithm(TABLES, "additive")
    own, even = (with_own_rounds(tables, name) for name in ("additive", "partition"))
    assert planted is not None
    assert usual is not None
    assert own is not None
    assert even is not None
    assert own.experiment.round_size == usual.experiment.round_size < planted.experiment.round_size == 3000
    assert even.experiment.round_size == 3000


def test_the_one_that_earns_most_is_chosen_and_cut_points_where_they_earn_more():
    """People crowd at the lower end, where they change; of people who are all alike the usual one stays."""
    cuts = (80 * np.linspace(0, 1, 17) ** 4).tolist()
    drawn = TABLES | {"context": {"features": {**TABLES["context"]["features"], "age": {"quantiles": cuts}}}}
    specs = every_algorithm(TABLES, own_rounds=True)
    found = choice_of(
        specs, lambda spec, _: OwnPeople(People(2.0), spec), lambda one: with_own_rounds(drawn, one.algorithm.name)
    )
    assert isinstance(found, AlgorithmChoice)
    assert found.earned[found.name] >= max(found.earned[name] for name in by_features()) - 0.02
    assert found.earned["bandit"] < found.earned[found.name]
    assert found.drawn is None or found.drawn > found.earned[found.name]
    alike = choice_of(specs, lambda spec, _: OwnPeople(People(100.0), spec))
    assert isinstance(alike, AlgorithmChoice)
    assert (alike.name, alike.drawn) == ("partition", None)


EARNED = {"partition": 0.4, "additive": 0.5, "bandit": 0.6}


def test_a_sentence_says_why():
    found = AlgorithmChoice("additive", EARNED, 0.41, 1.8, True, 0.55)
    assert found.sentence == (
        "algorithm.name is 'additive': in runs on these people it earns 50.0 % ('partition' 40.0 %, 'bandit' 60.0 %); "
        "the best single option earns 41.0 %. Not tried, as the spec does not fit or time was short: "
        "'linear'. Cut points of numbers from the data earn 55.0 %: confirm that they may be public. "
        "'bandit', which knows no features, earns more: to use it, leave out [context.features]."
    )


def test_a_sentence_says_why_what_earned_more_is_not_chosen():
    found = AlgorithmChoice("partition", EARNED | {"linear": 0.3, "bandit": 0.2}, 0.61, 4.0, False)
    assert found.sentence == (
        "algorithm.name is 'partition': in runs on these people it earns 0.40 ('additive' 0.50, 'bandit' 0.20, "
        "'linear' 0.30); the best single option earns 0.61, more than any of them. Less than 0.20 more, a "
        "twentieth of what choosing by features could gain, do not count."
    )
    alike = AlgorithmChoice(
        "partition", {"partition": 0.4, "linear": 0.3, "additive": 0.5, "bandit": 0.6}, 0.6, 0.0, True
    )
    assert alike.sentence.endswith(
        "the best single option earns 60.0 %. One option is best for all of these people, so features gain nothing "
        "here. 'partition' stays in case yours differ; if not, leave out [context.features]: 'bandit', which knows "
        "none, is enough."
    )


def test_a_line_says_how_many_features_are_kept_and_why():
    kept = AlgorithmChoice("additive", EARNED, 0.41, 1.8, True, None, False, ("age", "job"), 19, 11, 0.3)
    assert kept.why == "2 of 19 features: more would cost more noise than they tell; without privacy 11"
    assert "Kept: age, job. With all of them it would earn 30.0 %. algorithm.name is 'additive'" in kept.sentence
    same = AlgorithmChoice("additive", EARNED, 0.41, 1.8, True, None, False, ("age", "job"), 19, 2, 0.3)
    assert same.why == "2 of 19 features: others add nothing to them that is more than chance"
    nothing = AlgorithmChoice("bandit", EARNED, 0.41, 1.8, True, None, False, (), 19, 3, 0.3)
    assert (
        nothing.why
        == "0 of 19 features: none tells enough to earn more than one option for all; without privacy 3 would"
    )


def test_a_draft_of_a_log_keeps_the_feature_that_tells_and_comments_the_others(tmp_path):
    """The copy of the age is a feature, too; one of both is kept."""
    rng = np.random.default_rng(0)
    age, got, people = rng.random(6000), rng.integers(0, 2, 6000), 6000
    won = rng.random(people) < np.where((age < 0.5) == (got == 1), 0.8, 0.2)
    noise = {f"x{place}": rng.random(people).round(3) for place in range(3)}
    table = {"age": age.round(3), "near": (age + 0.01 * rng.standard_normal(people)).round(3), **noise}
    frame = table | {"offer": np.array(["a", "b"])[got], "won": won.astype(int)}
    made = draft({name: list(one) for name, one in frame.items()}, arm="offer", reward="won")
    made.write(tmp_path / "spec.toml")
    written, text = load_spec(tmp_path / "spec.toml", []), made.fitted
    assert len(written.features) == 1
    assert {*written.features} < {"age", "near"}
    assert "\n# 1 of 5 features: " in text
    assert text.count("\n# x") == 3
    assert not any(one.startswith("x0") for one in made.confirmed)
    assert made.chosen[0].startswith("1 of 5 features: ")


def test_a_draft_of_a_log_that_tells_nothing_has_one_option_for_all(tmp_path):
    rng = np.random.default_rng(0)
    frame = {name: rng.random(1500).round(3).tolist() for name in ("x", "y")}
    frame |= {"offer": rng.choice(["a", "b"], 1500).tolist(), "won": rng.integers(0, 2, 1500).tolist()}
    made = draft(frame, arm="offer", reward="won")
    made.write(tmp_path / "spec.toml")
    written = load_spec(tmp_path / "spec.toml", [])
    assert not written.features
    assert written.algorithm.name == without_features()
    assert "# [context.features]" in made.fitted


def test_options_that_are_all_equal_are_no_best_option():
    tied = AlgorithmChoice("partition", {"partition": 0.5, "bandit": 0.5}, 0.5, 0.0, True, is_tie=True)
    assert "every option by itself earns 50.00 %." in tied.sentence
    assert "All options are equal for all of these people, so features gain nothing here." in tied.sentence
    assert "best" not in tied.sentence
    found = choice_of({"bandit": with_algorithm(TABLES, "bandit")}, lambda spec, _: OwnPeople(People(100.0), spec))
    assert isinstance(found, AlgorithmChoice)
    assert not found.is_tie


def test_a_draft_of_a_log_has_what_was_chosen_and_what_is_to_be_confirmed(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    ages, got = 80 * rng.random(3000) ** 4, rng.integers(0, 2, 3000)
    won = rng.random(3000) < np.where((ages < 2) == (got == 1), 0.9, 0.1)
    table = {"age": ages.round(2), "offer": np.array(["a", "b"])[got], "bought": won.astype(int)}
    made = draft({name: one.tolist() for name, one in table.items()}, arm="offer", reward="bought")
    choice = AlgorithmChoice("additive", {"partition": 0.5, "additive": 0.6}, 0.5, 0.2, True, 0.7)
    monkeypatch.setattr("privateer_lab.drafting.draft_choice.choice_of", lambda *_: choice)
    made.write(tmp_path / "spec.toml")
    text = (tmp_path / "spec.toml").read_text()
    assert 'name = "additive"' in text
    assert "round_size" not in text
    assert "quantiles" in text
    assert any("cut points" in one for one in made.confirmed)
    assert not any(one.startswith("age: low") for one in made.confirmed)


def test_nothing_is_tried_without_people():
    assert draft({"age": list(range(50, 90)), "job": ["x", "y"] * 20}).choice is None


def test_algorithms_that_refuse_the_spec_are_left_out(monkeypatch):
    monkeypatch.setattr(algorithm_choice, "played", lambda *_: SpecError("no", field="x", remedy="y"))
    found = choice_of(every_algorithm(TABLES), lambda spec, _: OwnPeople(People(2.0), spec))
    assert isinstance(found, SpecError)


def test_without_features_the_algorithm_that_knows_none_is_chosen():
    tables = {name: one for name, one in TABLES.items() if name != "context"}
    specs = every_algorithm(tables)
    assert list(specs) == [without_features()]
    found = choice_of(specs, lambda spec, seed: environment_for(spec, seed, {"name": "bernoulli"}))
    assert isinstance(found, AlgorithmChoice)
    assert found.sentence.startswith("algorithm.name is 'bandit', since the spec has no [context.features]: in runs ")


def test_a_draft_whose_people_are_refused_says_so(tmp_path, monkeypatch, capsys):
    rows = ["age,class", *(f"{20 + row % 50},{'ab'[row % 2]}" for row in range(2000))]
    (tmp_path / "people.csv").write_text("\n".join(rows))
    monkeypatch.setattr(
        "privateer_lab.drafting.draft_choice.choice_of", lambda *_: SpecError("no", field="x", remedy="y")
    )
    out = tmp_path / "spec.toml"
    asked = ("spec-from", str(tmp_path / "people.csv"), "--label", "class", "--out", str(out))
    code, _, err = run(capsys, *asked)
    assert code == 0
    assert "No algorithm was tried on these people: x: no (y)." in err
    assert 'name = "partition"' in out.read_text()


@pytest.mark.parametrize(
    ("rows", "people", "few"),
    [(7, 7, 1), (999, 990, 33), (4999, 4900, 163), (61_234, 60_000, None), (5700, 5000, None)],
)
def test_rounds_are_the_usual_ones_but_for_few_people(rows, people, few):
    """Planted: a first round of a tenth of 35,000 rows, whom nothing was learned of, cost a third of the rewards.

    And a horizon that counts rows one by one tells everybody whether somebody's row is there. Its rounds fill it:
    planted, 5,700 people of whom 700 were in no round.
    """
    text = draft({"age": np.arange(rows) % 70, "job": ["x", "y", "z"] * (rows // 3) + ["x"] * (rows % 3)}).text
    experiment = tomllib.loads(text)["experiment"]
    assert (experiment["horizon"], experiment.get("round_size")) == (people, few)
    assert read_spec(text).out_of_reach("", 0) == 0


def test_cut_points_of_kept_features_are_tried_on_these_features():
    """Planted: the first column of people was taken for the feature that is kept, whichever it was."""
    tables = TABLES | {
        "context": {"features": {"job": TABLES["context"]["features"]["job"], "age": {"low": 0.0, "high": 80.0}}}
    }
    specs = every_algorithm(tables, own_rounds=True)
    kept = with_own_rounds(with_some(tables, ["age"]), "partition")
    assert kept is not None

    class Turned(People):
        def contexts(self, people, rng):
            return super().contexts(people, rng)[:, ::-1]

        def means(self, contexts):
            return super().means(contexts[:, ::-1])

    seen = []

    def drawn(spec):
        seen.append((spec.algorithm.name, tuple(spec.features)))
        cuts = (80 * np.linspace(0, 1, 17) ** 4).tolist()
        return with_own_rounds(tables | {"context": {"features": {"age": {"quantiles": cuts}}}}, spec.algorithm.name)

    found = choice_of(
        {name: specs[name] for name in ("partition", "bandit")},
        lambda spec, _: OwnPeople(Turned(2.0), specs["partition"]),
        drawn,
        {("partition", ("age",)): kept},
    )
    assert isinstance(found, AlgorithmChoice)
    assert (found.name, found.kept) == ("partition", ("age",))
    assert seen == [("partition", ("age",))]
    assert found.drawn is not None
