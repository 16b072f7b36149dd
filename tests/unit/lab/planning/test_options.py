"""Which options of a log are worth trying: those that cost more than they add are left out, said and easily undone."""

import tomllib

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.policies.decisions import Arms
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.cli.input_files import load_spec
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.environments.rows import RowPeople
from privateer_lab.planning.algorithm_choice import AlgorithmChoice, choice_of
from privateer_lab.planning.expectation.kept_features import KeptFeatures
from privateer_lab.planning.feature_sets.afforded import with_options, with_some
from privateer_lab.planning.feature_sets.options import worth_trying
from privateer_lab.planning.feature_sets.outcomes import PotentialOutcomes
from privateer_lab.planning.feature_sets.selection import feature_set
from privateer_lab.planning.other_algorithms import with_own_rounds

TABLES = {
    "experiment": {"name": "test", "arms": ["a", "b", "c", "d", "e"], "horizon": 6_000},
    "context": {"features": {"job": {"levels": ["x", "y", "z"]}, "age": {"low": 0.0, "high": 1.0}}},
    "privacy": {"model": "local", "epsilon": 1.0},
    "algorithm": {"name": "partition"},
}


def spec_of(places, names=("job",), algorithm="partition"):
    return with_own_rounds(with_some(with_options(TABLES, places), names), algorithm)


def outcomes(people, *, seed=0, niche=0.9):
    """Estimates as of a random log: b and c are best for a third each, e for others a little; a and d for nobody."""
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
    return PotentialOutcomes(parse_spec(TABLES).features, contexts, rewards, np.full(len(rewards), 0.4), 0.4, 0.24)


def test_options_that_are_best_for_nobody_are_left_out():
    """Planted: with no segments of their own b and c go, too."""
    assert worth_trying(outcomes(6_000), ("job",), spec_of) in ([1, 2], [1, 2, 4])
    alike = worth_trying(outcomes(6_000, niche=0.2), (), lambda places: spec_of(places, (), "bandit"))
    assert len(alike) == 2
    assert 4 in alike


def test_choices_by_few_rows_earn_more_than_all_options():
    """Means of 8 logs of 300 rows, by what is true; planted: who leaves out what is best for most loses."""
    truth = of_estimates(*people_and_means(np.random.default_rng(99), 6_000, 0.6))
    chosen = [worth_trying(outcomes(300, seed=seed, niche=0.6), ("job",), spec_of) for seed in range(8)]

    def earned(places):
        return feature_set(truth.of(places), ("job",), spec_of(places)).value

    every = earned(range(5))
    assert np.mean([earned(places) for places in chosen]) > every + 0.01
    assert earned([0, 3]) < every - 0.1


def test_people_get_the_options_that_are_left():
    means = np.array([[0.1, 0.9, 0.4], [0.8, 0.2, 0.3]])
    spec = parse_spec(TABLES | {"experiment": TABLES["experiment"] | {"arms": ["a", "b", "c"]}})
    assert isinstance(spec, ArmsSpec)
    people = RowPeople(np.zeros((2, 2)), means, spec.reward)
    some = KeptFeatures(people, [0, 1], 2, [2, 1])
    contexts = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert some.means(contexts).tolist() == [[0.4, 0.9], [0.3, 0.2]]
    played = some.play(Arms(np.array([0, 1])), contexts)
    assert (played.expected, played.best) == (0.4 + 0.2, 0.9 + 0.8)


def test_a_draft_says_which_options_it_leaves_out_and_how_to_take_them_back(tmp_path):
    rng = np.random.default_rng(0)
    people, names = 6_000, np.array(["a", "b", "c", "d", "e"])
    age, got = rng.random(people), rng.integers(0, 5, people)
    means = np.where(got == 0, np.where(age < 0.5, 0.8, 0.2), np.where(got == 1, np.where(age < 0.5, 0.2, 0.8), 0.1))
    frame = {"age": age.round(3), "x": rng.random(people).round(3), "offer": names[got]}
    frame |= {"won": (rng.random(people) < means).astype(int)}
    made = draft({name: list(one) for name, one in frame.items()}, arm="offer", reward="won", model="local")
    made.write(tmp_path / "spec.toml")
    assert load_spec(tmp_path / "spec.toml", []).options == ("a", "b")
    text = (tmp_path / "spec.toml").read_text()
    assert "# 2 of 5 options: in this log the others add less than trying them costs\n# arms = " in text
    assert "Left out: c, d, e." in made.chosen[0]
    kept = [one for one in text.splitlines() if not one.startswith(("arms = ", "rewards = "))]
    taken = "\n".join(one.removeprefix("# ") if one.startswith(("# arms", "# rewards")) else one for one in kept)
    (tmp_path / "spec.toml").write_text(taken)
    assert load_spec(tmp_path / "spec.toml", []).options == tuple(names)
    assert len(tomllib.loads(taken)["population"]["rewards"]) == 5


@pytest.mark.parametrize(("places", "left_out"), [([0, 1], ()), ([1, 2], ("a",))])
def test_options_are_left_out_only_if_runs_with_all_of_them_earn_no_more(places, left_out):
    """Planted: the third is best, so that experiments without it are not chosen; without the first they are."""
    tables = with_some(TABLES | {"experiment": TABLES["experiment"] | {"arms": ["a", "b", "c"]}}, ("job",))
    people = np.random.default_rng(0).integers(0, 3, (500, 1)).astype(np.float64)
    spec, fewer = (with_own_rounds(one, "partition") for one in (tables, with_options(tables, places)))
    assert spec is not None
    assert fewer is not None
    means = np.tile([0.05, 0.5, 0.95], (500, 1))
    means[people[:, 0] == 0] = [0.05, 0.95, 0.5]
    known = RowPeople(people, means, spec.reward)
    found = choice_of({"partition": spec}, lambda *_: known, None, {("partition", ("job",)): fewer})
    assert isinstance(found, AlgorithmChoice)
    assert found.left_out == left_out
