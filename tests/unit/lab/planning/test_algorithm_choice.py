"""Which algorithm a draft has: by runs on its people, whatever they are."""

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privateer_core.algorithms import read_spec
from privateer_core.errors import SpecError
from privateer_lab.cli.input_files import load_spec
from privateer_lab.drafting.logged_people import LoggedPeople
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.environments import environment_for
from privateer_lab.environments.own_people import OwnPeople
from privateer_lab.planning import candidate_runs
from privateer_lab.planning.algorithm_choice import AlgorithmChoice, choose_algorithm
from privateer_lab.planning.feature_sets.afforded import with_features
from privateer_lab.planning.other_algorithms import (
    build_variants,
    contextual_algorithms,
    featureless_algorithm,
    to_tables,
    with_algorithm,
    with_own_rounds,
)

TABLES = {
    "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 6000},
    "context": {"features": {"age": {"low": 0.0, "high": 80.0}, "job": {"levels": ["x", "y", "z"]}}},
    "privacy": {"model": "none"},
    "algorithm": {"name": "partition"},
}


class People:
    """People for whom the second arm is better below an age."""

    def __init__(self, edge):
        self.edge = edge

    def contexts(self, people, rng):
        return np.column_stack([80 * rng.random(people) ** 4, rng.integers(0, 3, people)])

    def means(self, contexts):
        second = 0.5 + 0.4 * np.sign(self.edge - contexts[:, 0])
        return np.stack([np.full(len(second), 0.5), second], axis=1)


def test_there_is_one_algorithm_by_features_for_each_question_and_one_without():
    assert contextual_algorithms() == ("partition", "linear", "additive")
    assert featureless_algorithm() == "bandit"
    plain = with_algorithm(TABLES | {"experiment": {**TABLES["experiment"], "evaluation_fraction": 0.05}}, "bandit")
    assert not plain.features
    assert with_algorithm(TABLES | {"privacy": {"model": "local"}}, "partition") is None


def test_a_growth_that_is_an_algorithms_own_is_not_that_of_others():
    arms_spec = with_algorithm(TABLES, "additive")
    grown = with_algorithm(TABLES | {"experiment": {**TABLES["experiment"], "min_round_fraction": 0.2}}, "additive")
    assert arms_spec is not None
    assert grown is not None
    assert "min_round_fraction" not in to_tables(arms_spec)["experiment"]
    assert to_tables(grown)["experiment"]["min_round_fraction"] == pytest.approx(0.2)


def test_people_who_are_fewer_than_a_usual_round_have_other_algorithms():
    """Planted: without its rounds of 40 the spec is refused, and so was the plan of it."""
    small_tables = TABLES | {"experiment": {**TABLES["experiment"], "horizon": 400, "round_size": 40}}
    arms_spec = with_algorithm(small_tables, "partition")
    assert arms_spec is not None
    assert to_tables(arms_spec)["experiment"]["round_size"] == 40
    assert with_algorithm(to_tables(arms_spec), "linear") is not None


def test_rounds_that_grow_begin_as_their_algorithm_has_them():
    """Planted: with the draft's first round most participants are invited before the first result."""
    tables = TABLES | {"experiment": {**TABLES["experiment"], "round_size": 3000}}
    planted, usual = with_algorithm(tables, "additive"), with_algorithm(TABLES, "additive")
    growing, even = (with_own_rounds(tables, name) for name in ("additive", "partition"))
    assert growing.experiment.round_size == usual.experiment.round_size < planted.experiment.round_size == 3000
    assert even.experiment.round_size == 3000


def test_the_algorithm_and_cut_points_of_the_highest_reward_are_chosen():
    """Ages crowd at the lower end, where the best arm changes; without differences the default is chosen."""
    cuts = (80 * np.linspace(0, 1, 17) ** 4).tolist()
    with_cuts = TABLES | {"context": {"features": {**TABLES["context"]["features"], "age": {"quantiles": cuts}}}}
    specs = build_variants(TABLES, own_rounds=True)
    choice = choose_algorithm(
        specs,
        lambda spec, _: OwnPeople(People(2.0), spec),
        lambda spec: with_own_rounds(with_cuts, spec.algorithm.name),
    )
    assert isinstance(choice, AlgorithmChoice)
    assert choice.rewards[choice.name] >= max(choice.rewards[name] for name in contextual_algorithms()) - 0.02
    assert choice.rewards["bandit"] < choice.rewards[choice.name]
    assert choice.quantile_reward is None or choice.quantile_reward > choice.rewards[choice.name]
    alike = choose_algorithm(specs, lambda spec, _: OwnPeople(People(100.0), spec))
    assert isinstance(alike, AlgorithmChoice)
    assert (alike.name, alike.quantile_reward) == ("partition", None)


EARNED = {"partition": 0.4, "additive": 0.5, "bandit": 0.6}


def test_a_line_says_how_many_features_are_kept_and_why():
    algorithm_choice = AlgorithmChoice("additive", EARNED, 0.41, 1.8, True, None, False, ("age", "job"), 19, 11, 0.3)
    assert algorithm_choice.reason == "2 of 19 features: more would cost more noise than they tell; without privacy 11"
    assert algorithm_choice.sentence.startswith("In runs on these people this earns 50.0 %")
    assert "Kept: age, job. With all 19 features it would earn 30.0 %." in algorithm_choice.sentence
    sufficient = AlgorithmChoice("additive", EARNED, 0.41, 1.8, True, None, False, ("age", "job"), 19, 2, 0.3)
    assert sufficient.reason == "2 of 19 features: the others add no more than chance beside them"
    fewer_options = replace(algorithm_choice, options=("a", "b"), dropped=("c",))
    assert "With all 19 features and all 3 options it would earn 30.0 %." in fewer_options.sentence
    featureless = AlgorithmChoice("bandit", EARNED, 0.41, 1.8, True, None, False, (), 19, 3, 0.3, best_option="a")
    reason = "0 of 19 features: none tells enough to earn more than one option for all; without privacy 3 would"
    assert featureless.reason == reason
    instead = f"{reason}; if options are worth what these rows say, 'a' for everybody earns more than trying others"
    assert replace(featureless, single=max(EARNED.values()) + 0.01).reason == instead
    unknown = replace(featureless, n_without_privacy=0).reason
    assert unknown.startswith(
        "0 of 19 features: these rows show none that changes which option is best; they may be too"
    )


def test_what_a_draft_earns_is_said_of_the_draft_that_is_written():
    """With cut points the draft earns 55 %, less than the featureless algorithm by less than chance."""
    choice = AlgorithmChoice("additive", EARNED | {"bandit": 0.56}, 0.41, 1.8, True, 0.55, margin=0.02)
    assert choice.sentence.startswith("In runs on these people this earns 55.0 % (± 2.0 points)")
    assert "equal widths earn 50.0 %" in choice.sentence
    assert "leave out" not in choice.sentence
    assert "leave out [context.features]" in replace(choice, quantile_reward=None).sentence
    assert choice.gain == pytest.approx(0.14)


@pytest.mark.parametrize(("earned", "promise"), [(0.3, "local"), (0.3, "none"), (0.5, "local")])
def test_the_next_step_of_a_draft_that_earns_less_than_one_option_says_so(tmp_path, monkeypatch, earned, promise):
    rng = np.random.default_rng(0)
    frame = {"x": rng.random(1500).round(3).tolist(), "offer": rng.choice(["a", "b"], 1500).tolist()}
    frame |= {"won": rng.integers(0, 2, 1500).tolist()}
    choice = AlgorithmChoice("linear", {"linear": earned}, 0.4, 0.2, True, n_features=1, best_option="b")
    monkeypatch.setattr("privateer_lab.drafting.draft_choice.choose_algorithm", lambda *_, **__: choice)
    spec_draft, path = draft(frame, arm="offer", reward="won", model=promise), tmp_path / "spec.toml"
    is_short, verdict = earned < 0.4, spec_draft.verdict
    assert spec_draft.choice_notes == [*([verdict] if is_short else []), choice.sentence, f"{choice.reason}."]
    says_more = "In runs 'b' for everybody earns more than this draft, which starts anew, 40.0 % instead of 30.0 %. "
    assert (says_more in verdict) == is_short
    comment = "".join(
        line.removeprefix("#") for line in spec_draft.text_with_choice.splitlines() if line.startswith("# ")
    )
    assert (f" {verdict}" in comment) == is_short, "the file says it, too"
    assert spec_draft.text_with_choice.startswith("# " if is_short else "[experiment]")
    step = spec_draft.next_step(path)
    assert step.endswith(f"privateer plan {path}")
    assert ("--epsilon" in step) == (is_short and promise != "none")


@pytest.mark.parametrize("is_better", [False, True])
def test_one_option_is_advised_only_if_the_log_shows_that_it_is_best(tmp_path, monkeypatch, is_better):
    """Planted: a lead by chance of .4 points in 5,000 rows was to be given to everybody."""
    rng = np.random.default_rng(0)
    offers = rng.choice(["a", "b"], 3000)
    won = rng.random(3000) < np.where(is_better & (offers == "b"), 0.8, 0.5)
    frame = {"x": rng.random(3000).round(3).tolist(), "offer": offers.tolist(), "won": won.astype(int).tolist()}
    choice = AlgorithmChoice("linear", {"linear": 0.3}, 0.4, 0.2, True, n_features=1, best_option="b")
    monkeypatch.setattr("privateer_lab.drafting.draft_choice.choose_algorithm", lambda *_, **__: choice)
    spec_draft = draft(frame, arm="offer", reward="won", model="local")
    lead = spec_draft.people.lead
    assert lead.margin == pytest.approx(2 * np.sqrt(won.var() * 4 / 3000), rel=0.2)
    assert (spec_draft.single_option, lead.is_clear) == (lead.best, is_better)
    assert f" points) more than {lead.other!r}" in spec_draft.verdict
    assert spec_draft.verdict.startswith("One option for all: 'b'. ") == is_better
    assert ("which may be chance" in spec_draft.verdict) != is_better
    assert spec_draft.next_step(tmp_path / "spec.toml").startswith("Next: give 'b' to everybody, ") == is_better


@pytest.mark.parametrize(
    ("held_out_gain", "kept", "is_advised"), [(0.05, None, True), (0.15, None, False), (0.15, (), True)]
)
def test_one_option_is_advised_though_choosing_gains_if_the_draft_loses_more(
    monkeypatch, held_out_gain, kept, is_advised
):
    """The draft loses .1 in runs of simulated people, who gain nothing by features; without any it cannot gain so."""
    rng = np.random.default_rng(0)
    frame = {"x": [0.1, 0.2] * 150, "offer": ["a", "b", "c"] * 100, "won": rng.integers(0, 2, 300).tolist()}
    choice = AlgorithmChoice(
        "linear", {"linear": 0.3}, 0.4, 0.2, True, kept_features=kept, n_features=1, best_option="b"
    )
    monkeypatch.setattr("privateer_lab.drafting.draft_choice.choose_algorithm", lambda *_, **__: choice)
    monkeypatch.setattr(LoggedPeople, "has_held_out_gain", True)
    monkeypatch.setattr(LoggedPeople, "held_out_gain", (held_out_gain, 0.01))
    spec_draft = draft(frame, arm="offer", reward="won", model="local")
    assert (spec_draft.single_option is not None) == is_advised
    assert ("Choosing by features gains more, but so few people do not learn it" in spec_draft.verdict) == is_advised
    assert ("do not give one option to everybody yet" in spec_draft.next_step(Path("spec.toml"))) != is_advised


@pytest.mark.parametrize("known", [(), ("x",)])
def test_a_gain_by_a_suspected_feature_counts_if_it_is_known_before_the_choice(monkeypatch, known):
    """Planted: a feature that explains half of all rewards was a comment, since its gain did not count."""
    effect = 0.7
    rng = np.random.default_rng(0)
    x, arm = rng.random(2_000).round(3), rng.integers(0, 2, 2_000)
    expected = 0.5 + np.where(x > 0.5, effect, -effect) / 2 + np.where((x > 0.5) == (arm == 1), 0.1, -0.1)
    frame = {"x": x.tolist(), "offer": [*np.array(["a", "b"])[arm]], "won": [*(rng.random(2_000) < expected) * 1]}
    choice, counted = AlgorithmChoice("linear", {"linear": 0.3}, 0.4, 0.2, True), list[bool]()

    def choose(*_specs, has_gain, **_named):
        counted.append(has_gain)
        return choice

    monkeypatch.setattr("privateer_lab.drafting.draft_choice.choose_algorithm", choose)
    spec_draft = draft(frame, arm="offer", reward="won", model="local", known=known)
    assert spec_draft.choice == replace(choice, suspects=() if known else ("x",))
    assert counted == [bool(known)]
    assert spec_draft.people.has_held_out_gain == bool(known)


@pytest.mark.parametrize(("share", "rows"), [(0.55, 2_000), (0.505, None)])
def test_a_log_that_tells_no_option_says_how_many_rows_would(share, rows):
    """Two options that differ by 5 points are told apart in four logs of five by 3,100 rows, by half a point never."""
    won = np.concatenate([np.arange(400) < 400 * share, np.arange(400) < 200]).astype(int)
    frame = {"x": [0.0, 1.0] * 400, "offer": ["a"] * 400 + ["b"] * 400, "won": won.tolist()}
    explanation = draft(frame, arm="offer", reward="won").people.explain_lead()
    assert explanation.startswith("These rows do not tell which option is best: 'a' earns ")
    assert ("If it is none, a log of about 3,000 rows shows it." in explanation) == bool(rows)


def test_a_draft_of_a_log_keeps_an_informative_feature_and_comments_the_others(tmp_path):
    """A near-copy of the age is a feature, too; either is kept."""
    rng = np.random.default_rng(0)
    age, arms, people = rng.random(6000), rng.integers(0, 2, 6000), 6000
    won = rng.random(people) < np.where((age < 0.5) == (arms == 1), 0.8, 0.2)
    noise = {f"x{n}": rng.random(people).round(3) for n in range(3)}
    table = {"age": age.round(3), "near": (age + 0.01 * rng.standard_normal(people)).round(3), **noise}
    frame = table | {"offer": np.array(["a", "b"])[arms], "won": won.astype(int)}
    spec_draft = draft({name: list(values) for name, values in frame.items()}, arm="offer", reward="won")
    spec_draft.write(tmp_path / "spec.toml")
    spec, text = load_spec(tmp_path / "spec.toml", []), spec_draft.text_with_choice
    assert len(spec.features) == 1
    assert {*spec.features} < {"age", "near"}
    assert "\n# 1 of 5 features: " in text
    assert "\n# to ask for another, uncomment it" in text
    assert text.count("\n# x") == 3
    assert not any(note.startswith("x0") for note in spec_draft.confirm_with_choice)
    assert " 1 of 5 features: " in spec_draft.choice_notes[0]
    public = spec_draft.summarize_public(is_written=True)
    assert len(public) == 1
    assert f"from the data: {len(spec_draft.confirm_with_choice) - 4} of its lines, and 4 comments." in public[0]
    assert text.count("# from the data: confirm") == len(spec_draft.confirm_with_choice)


def test_a_draft_of_an_uninformative_log_has_no_features(tmp_path):
    rng = np.random.default_rng(0)
    frame = {name: rng.random(1500).round(3).tolist() for name in ("x", "y")}
    frame |= {"offer": rng.choice(["a", "b"], 1500).tolist(), "won": rng.integers(0, 2, 1500).tolist()}
    spec_draft = draft(frame, arm="offer", reward="won")
    spec_draft.write(tmp_path / "spec.toml")
    spec = load_spec(tmp_path / "spec.toml", [])
    assert not spec.features
    assert spec.algorithm.name == featureless_algorithm()
    assert "# [context.features]" in spec_draft.text_with_choice


def test_options_that_are_all_equal_are_no_best_option():
    tied = AlgorithmChoice("partition", {"partition": 0.5, "bandit": 0.5}, 0.5, 0.0, True, is_tie=True)
    assert "everything earns 50.00 %" in tied.sentence
    assert "All options are equal for all of these people, so features gain nothing here." in tied.sentence
    assert "best" not in tied.sentence
    choice = choose_algorithm(
        {"bandit": with_algorithm(TABLES, "bandit")}, lambda spec, _: OwnPeople(People(100.0), spec)
    )
    assert isinstance(choice, AlgorithmChoice)
    assert not choice.is_tie


def test_a_draft_of_a_log_has_the_chosen_algorithm_and_cut_points(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    ages, arms = 80 * rng.random(3000) ** 4, rng.integers(0, 2, 3000)
    won = rng.random(3000) < np.where((ages < 2) == (arms == 1), 0.9, 0.1)
    table = {"age": ages.round(2), "offer": np.array(["a", "b"])[arms], "bought": won.astype(int)}
    spec_draft = draft({name: values.tolist() for name, values in table.items()}, arm="offer", reward="bought")
    choice = AlgorithmChoice("additive", {"partition": 0.5, "additive": 0.6}, 0.5, 0.2, True, 0.7)
    monkeypatch.setattr("privateer_lab.drafting.draft_choice.choose_algorithm", lambda *_, **__: choice)
    spec_draft.write(tmp_path / "spec.toml")
    text = (tmp_path / "spec.toml").read_text()
    assert 'name = "additive"' in text
    assert "round_size" not in text
    assert "quantiles" in text
    assert any("cut points" in message for message in spec_draft.confirm_with_choice)
    assert not any(message.startswith("age: low") for message in spec_draft.confirm_with_choice)


def test_no_algorithm_is_tried_without_people():
    assert draft({"age": list(range(50, 90)), "job": ["x", "y"] * 20}).choice is None


def test_algorithms_that_refuse_the_spec_are_left_out(monkeypatch):
    monkeypatch.setattr(candidate_runs, "run_partially", lambda *_: SpecError("no", field="x", remedy="y"))
    error = choose_algorithm(build_variants(TABLES), lambda spec, _: OwnPeople(People(2.0), spec))
    assert isinstance(error, SpecError)


def test_without_features_the_algorithm_that_knows_none_is_chosen():
    tables = {name: table for name, table in TABLES.items() if name != "context"}
    specs = build_variants(tables)
    assert list(specs) == [featureless_algorithm()]
    choice = choose_algorithm(specs, lambda spec, seed: environment_for(spec, seed, {"name": "bernoulli"}))
    assert isinstance(choice, AlgorithmChoice)
    assert "algorithm.name is 'bandit', since the spec has no [context.features]" in choice.sentence


@pytest.mark.parametrize(
    ("rows", "people", "round_size"),
    [(7, 7, 1), (999, 990, 33), (4999, 4900, 163), (61_234, 60_000, None), (5700, 5000, None)],
)
def test_rounds_are_the_usual_ones_but_for_few_people(rows, people, round_size):
    """Planted: a first round of a tenth of 35,000 rows, all before the first result, cost a third of the rewards.

    And a horizon that counts rows one by one tells everybody whether somebody's row is there. Its rounds fill it:
    planted, 5,700 people of whom 700 were in no round.
    """
    text = draft({"age": np.arange(rows) % 70, "job": ["x", "y", "z"] * (rows // 3) + ["x"] * (rows % 3)}).text
    experiment = tomllib.loads(text)["experiment"]
    assert (experiment["horizon"], experiment.get("round_size")) == (people, round_size)
    assert read_spec(text).count_unreachable("", 0) == 0


def test_cut_points_of_kept_features_are_tried_on_these_features():
    """Planted: the first column of people was taken for the feature that is kept, whichever it was."""
    tables = TABLES | {
        "context": {"features": {"job": TABLES["context"]["features"]["job"], "age": {"low": 0.0, "high": 80.0}}}
    }
    specs = build_variants(tables, own_rounds=True)
    arms_spec = with_own_rounds(with_features(tables, ["age"]), "partition")
    assert arms_spec is not None

    class Turned(People):
        def contexts(self, people, rng):
            return super().contexts(people, rng)[:, ::-1]

        def means(self, contexts):
            return super().means(contexts[:, ::-1])

    specs_seen = []

    def add_cut_points(spec):
        specs_seen.append((spec.algorithm.name, tuple(spec.features)))
        cuts = (80 * np.linspace(0, 1, 17) ** 4).tolist()
        return with_own_rounds(tables | {"context": {"features": {"age": {"quantiles": cuts}}}}, spec.algorithm.name)

    choice = choose_algorithm(
        {name: specs[name] for name in ("partition", "bandit")},
        lambda spec, _: OwnPeople(Turned(2.0), specs["partition"]),
        add_cut_points,
        [arms_spec],
    )
    assert isinstance(choice, AlgorithmChoice)
    assert (choice.name, choice.kept_features) == ("partition", ("age",))
    assert specs_seen == [("partition", ("age",))]
    assert choice.quantile_reward is not None
