"""Options of a log that cost more than they add are left out of a draft, with a comment that restores them."""

import tomllib
from dataclasses import replace

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.policies.policy import Arms
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.cli.input_files import load_spec
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.environments import environment_for
from privateer_lab.environments.rows import RowPeople
from privateer_lab.planning.algorithm_choice import AlgorithmChoice, _choose_subset, choose_algorithm
from privateer_lab.planning.candidate_runs import Candidate, CandidateRuns
from privateer_lab.planning.expectation.partial_runs import KeptFeatures, PartialRun, run_partially
from privateer_lab.planning.feature_sets.afforded import with_features, with_options
from privateer_lab.planning.feature_sets.options import select_options
from privateer_lab.planning.feature_sets.outcomes import PotentialOutcomes, encode_cells
from privateer_lab.planning.feature_sets.selection import evaluate_set
from privateer_lab.planning.other_algorithms import with_own_rounds

TABLES = {
    "experiment": {"name": "test", "arms": ["a", "b", "c", "d", "e"], "horizon": 6_000},
    "context": {"features": {"job": {"levels": ["x", "y", "z"]}, "age": {"low": 0.0, "high": 1.0}}},
    "privacy": {"model": "local", "epsilon": 1.0},
    "algorithm": {"name": "partition"},
}


def spec_of(places, names=("job",), algorithm="partition"):
    return with_own_rounds(with_features(with_options(TABLES, places), names), algorithm)


def outcomes(people, *, seed=0, niche=0.9):
    """Return estimates of a random log: b and c are best for a third each, e is slightly best for the rest."""
    rng = np.random.default_rng(seed)
    contexts, means = people_and_means(rng, people, niche)
    arms = rng.integers(0, 5, people)
    won = rng.random(people) < means[np.arange(people), arms]
    rewards = np.full((people, 5), 0.4)
    rewards[np.arange(people), arms] += 5 * (won - 0.4)
    return of_estimates(contexts, rewards)


def people_and_means(rng, people, niche):
    contexts = np.column_stack([rng.integers(0, 3, people), rng.random(people)])
    means = np.tile([0.2, 0.4, 0.4, 0.1, 0.45], (people, 1))
    means[contexts[:, 0] == 0, 1] = niche
    means[contexts[:, 0] == 1, 2] = niche
    return contexts, means


def of_estimates(contexts, rewards):
    return PotentialOutcomes(
        encode_cells(parse_spec(TABLES).features, contexts), rewards, np.full(len(rewards), 0.4), 0.4, 0.24
    )


def test_the_best_options_for_all_are_those_with_the_highest_means():
    """Planted: the halves of a log have different best options, so that one of the two was left out for the third."""
    gains = np.tile([0.1, 0.32, 0.33, 0.28], (4000, 1))
    potential = PotentialOutcomes({}, gains, np.full(4000, 0.25), 0.25, 0.2)
    potential.gains[potential.halves == 0, 1] += 0.02
    potential.gains[potential.halves == 1, 1] -= 0.02
    chosen = select_options(potential, (), lambda places: spec_of(places, (), "bandit"))
    assert all({1, 2} <= set(options) for options in chosen)
    assert chosen[1] == [1, 2]


def test_options_that_are_best_for_nobody_are_left_out():
    """Planted: with no segments of their own b and c go, too."""
    for chosen in select_options(outcomes(6_000), ("job",), spec_of):
        assert chosen in ([1, 2], [1, 2, 4])
    for alike in select_options(outcomes(6_000, niche=0.2), (), lambda places: spec_of(places, (), "bandit")):
        assert len(alike) == 2
        assert 4 in alike


def test_choices_by_few_rows_earn_more_than_all_options():
    """True means over 8 logs of 300 rows; planted: leaving out the options that are best for most people loses."""
    truth = of_estimates(*people_and_means(np.random.default_rng(99), 6_000, 0.6))
    chosen = [select_options(outcomes(300, seed=seed, niche=0.6), ("job",), spec_of)[0] for seed in range(8)]

    def true_value(places):
        return evaluate_set(truth.select_options(places), ("job",), spec_of(places)).value

    value_of_all = true_value(range(5))
    assert np.mean([true_value(places) for places in chosen]) > value_of_all + 0.01
    assert true_value([0, 3]) < value_of_all - 0.1


@pytest.mark.parametrize(
    ("gains", "has_gain", "is_kept"),
    [
        ([0.003, 0.001, 0.0, 0.004], False, True),
        ([0.009, -0.006, 0.008, -0.006], False, False),
        ([0.009, -0.006, 0.008, -0.006], True, True),
        ([-0.009, 0.002, -0.008, -0.001], True, True),
        ([-0.009, -0.006, -0.008, -0.006], True, False),
    ],
)
def test_features_are_kept_if_they_clearly_earn_more_than_one_option_for_all(gains, has_gain, is_kept):
    """Planted: the highest mean of few runs was taken for a gain; and where data show a gain, chance was a loss."""
    spec, plain = spec_of(range(2)), spec_of(range(2), (), "bandit")
    assert spec is not None
    run = run_partially(plain.model_copy(update={"population": {"name": "bernoulli"}}), 0, 0.0)
    assert isinstance(run, PartialRun)

    def with_gain(gain):
        regret = run.run.best_constant_regret - gain * run.run.choices
        return replace(run, run=replace(run.run, regret=regret))

    runs = CandidateRuns(spec, environment_for)
    keys = [Candidate.from_spec(spec), Candidate.from_spec(plain)]
    for key, values in zip(keys, (gains, [-0.003, -0.002, -0.004, -0.003]), strict=True):
        runs.runs[key] = [*map(with_gain, values)]
    assert _choose_subset(runs, keys, keys[0], has_gain=has_gain) == keys[not is_kept]


def test_kept_features_have_the_means_of_the_kept_arms():
    means = np.array([[0.1, 0.9, 0.4], [0.8, 0.2, 0.3]])
    spec = parse_spec(TABLES | {"experiment": TABLES["experiment"] | {"arms": ["a", "b", "c"]}})
    assert isinstance(spec, ArmsSpec)
    people = RowPeople(np.zeros((2, 2)), means, spec.reward)
    kept_features = KeptFeatures(people, [0, 1], 2, [2, 1])
    contexts = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert kept_features.means(contexts).tolist() == [[0.4, 0.9], [0.3, 0.2]]
    played = kept_features.play(Arms(np.array([0, 1])), contexts)
    assert (played.expected, played.best) == (0.4 + 0.2, 0.9 + 0.8)


@pytest.mark.usefixtures("short_search")
def test_a_draft_lists_left_out_options_in_a_comment(tmp_path):
    rng = np.random.default_rng(0)
    people, names = 6_000, np.array(["a", "b", "c", "d", "e"])
    age, arms = rng.random(people), rng.integers(0, 5, people)
    means = np.where(arms == 0, np.where(age < 0.5, 0.8, 0.2), np.where(arms == 1, np.where(age < 0.5, 0.2, 0.8), 0.1))
    frame = {"age": age.round(3), "x": rng.random(people).round(3), "offer": names[arms]}
    frame |= {"won": (rng.random(people) < means).astype(int)}
    spec_draft = draft({name: list(values) for name, values in frame.items()}, arm="offer", reward="won", model="local")
    spec_draft.write(tmp_path / "spec.toml")
    assert load_spec(tmp_path / "spec.toml", []).options == ("a", "b")
    text = (tmp_path / "spec.toml").read_text()
    assert "# 2 of 5 options: in this log the others add less beside these than trying them costs\n# arms = " in text
    assert "Left out: 'c', 'd', 'e'." in spec_draft.choice_notes[0]
    lines = [line for line in text.splitlines() if not line.startswith(("arms = ", "rewards = "))]
    lines = [line.removeprefix("# ") if line.startswith(("# arms", "# rewards")) else line for line in lines]
    uncommented = "\n".join(lines)
    (tmp_path / "spec.toml").write_text(uncommented)
    assert load_spec(tmp_path / "spec.toml", []).options == tuple(names)
    assert len(tomllib.loads(uncommented)["population"]["rewards"]) == 5


@pytest.mark.parametrize(("places", "left_out"), [([0, 1], ()), ([1, 2], ("a",))])
def test_options_are_left_out_only_if_runs_with_all_of_them_earn_no_more(places, left_out):
    """Planted: the third is best, so that experiments without it are not chosen; without the first they are."""
    tables = with_features(TABLES | {"experiment": TABLES["experiment"] | {"arms": ["a", "b", "c"]}}, ("job",))
    people = np.random.default_rng(0).integers(0, 3, (500, 1)).astype(np.float64)
    spec, reduced = (with_own_rounds(table, "partition") for table in (tables, with_options(tables, places)))
    assert reduced is not None
    means = np.tile([0.05, 0.5, 0.95], (500, 1))
    means[people[:, 0] == 0] = [0.05, 0.95, 0.5]
    row_people = RowPeople(people, means, spec.reward)
    choice = choose_algorithm({"partition": spec}, lambda *_: row_people, None, [reduced])
    assert isinstance(choice, AlgorithmChoice)
    assert choice.dropped == left_out
