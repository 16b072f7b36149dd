"""Baselines in a run: the same people for all, by name, and on the command line."""

import numpy as np
import pytest

from privateer_core.algorithms.bandit import BanditSpec
from privateer_core.errors import SpecError
from privateer_lab.baselines import run
from privateer_lab.baselines.run import (
    BASELINES,
    BaselinePeople,
    Visitors,
    play_once,
    run_baselines,
    select_baselines,
    summarize_runs,
)
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.paper_5.phased_regret import section_7_spec
from tests.support.specs import SHUFFLE, make_spec

PEAKS = {"population.name": "peaks", "experiment.horizon": 6000, "experiment.round_size": 500}
UNIFORM = 0.41388
"""Regret of a person under uniform arms; the deviation of 6,000 people's mean is below .006."""


def spec_of(**changes: object):
    return make_spec({**PEAKS, **{name.replace("__", "."): value for name, value in changes.items()}})


@pytest.fixture(scope="module")
def outcomes():
    return {run.name: run for run in play_once(spec_of(), list(BASELINES), 0)}


def test_uniform_constant_and_oracle_have_their_known_regrets(outcomes):
    assert outcomes["uniform"].regret / 6000 == pytest.approx(UNIFORM, abs=0.03)
    assert outcomes["constant"].regret / 6000 == pytest.approx(0.38363, abs=0.03)
    assert outcomes["oracle"].regret == 0
    assert all(outcomes["oracle"].reward > other.reward for name, other in outcomes.items() if name != "oracle")


def test_regret_and_reward_are_of_the_same_people(outcomes):
    """Rewards are coins with the means that regret counts: over 6,000 people they differ by .05 once in 1e12."""
    best = BaselinePeople(spec_of(), 0).next_visitors(6000).means.max(axis=1).mean()
    for outcome in outcomes.values():
        assert outcome.reward == pytest.approx(best - outcome.regret / 6000, abs=0.05)


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_has_the_same_result_alone(name, outcomes):
    assert play_once(spec_of(), [name], 0) == [outcomes[name]]


def test_seeds_give_different_results():
    assert play_once(spec_of(), ["uniform"], 1) != play_once(spec_of(), ["uniform"], 0)


def test_who_plays_the_same_arm_gets_the_same_reward():
    people = BaselinePeople(spec_of(), 3)
    visitors = people.next_visitors(500)
    first_arms, second_arms = np.zeros(500, np.int64), np.ones(500, np.int64)
    mixed = np.arange(500) % 2
    rewards = np.where(mixed, people.rewards(visitors, second_arms), people.rewards(visitors, first_arms))
    assert (people.rewards(visitors, mixed) == rewards).all()


def test_groups_change_no_people(monkeypatch):
    whole = play_once(spec_of(), ["constant"], 0)[0]
    monkeypatch.setattr(run, "MAX_GROUP_SIZE", 128)
    assert play_once(spec_of(), ["constant"], 0)[0].regret == pytest.approx(whole.regret)


@pytest.mark.parametrize("name", BASELINES)
def test_groups_within_a_round_are_one_round(name, monkeypatch):
    """Rounds of 500 in groups of 100 learn as much, within a quarter of uniform's regret."""
    whole = play_once(spec_of(privacy__epsilon=8.0), [name], 0)[0]
    monkeypatch.setattr(run, "MAX_GROUP_SIZE", 100)
    parts = play_once(spec_of(privacy__epsilon=8.0), [name], 0)[0]
    assert abs(parts.regret - whole.regret) < 0.25 * UNIFORM * 6000


@pytest.mark.parametrize("model", [{}, SHUFFLE], ids=["local", "shuffle"])
def test_baselines_have_the_round_sizes_of_the_experiment(model, monkeypatch):
    """Growing rounds follow those of a source, and a remainder of people is in no round."""
    source = {"name": "elsewhere", "participants": 1500, "epsilon": 1.0, "shares": [0.4, 0.3, 0.3]}
    sizes = {"experiment.horizon": 5300, "experiment.round_size": 1000, "experiment.min_round_fraction": 0.6}
    spec = make_spec({**PEAKS, **sizes, **model, "sources": [source]})
    opened, steps = [], []
    monkeypatch.setattr(BASELINES["uniform"], "open", lambda self, batch: opened.append(batch))
    play_once(spec, ["uniform"], 0)
    simulate_once(spec, 0, watch=steps.append)
    assert opened == [step.batch_size for step in steps if not step.policy.cohort]


def test_people_left_at_the_end_play_and_are_not_asked(monkeypatch):
    """Under shuffle 300 people are too few for a round of at least 1,000."""
    sizes = []
    monkeypatch.setattr(BASELINES["uniform"], "learn", lambda self, visitors, arms, values: sizes.append(len(arms)))
    changes = {**PEAKS, **SHUFFLE, "experiment.horizon": 2300, "experiment.round_size": 1000}
    outcome = play_once(make_spec(changes), ["uniform"], 0)[0]
    assert sizes == [1000, 1000]
    assert outcome.regret / 2300 == pytest.approx(UNIFORM, abs=0.06)


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_plays_at_every_size_and_in_the_end(name):
    """The last 300 participants report nothing, with two arms and a feature as with sixteen and five."""
    for dimension, arms in ((1, 2), (5, 16)):
        changes = {**SHUFFLE, "experiment.horizon": 2300, "experiment.round_size": 1000, "population.name": "peaks"}
        size_of_people = 2 if name == "constant" else dimension  # it looks at the population, which has two features
        baseline = BASELINES[name](make_spec(changes, dimension=size_of_people, arms=arms), 0)
        rng = np.random.default_rng(1)
        for batch, size in ((1000, 1000), (1000, 1000), (0, 300)):
            baseline.open(batch)
            contexts = rng.random((size, dimension))
            visitors = Visitors(0, contexts, contexts, rng.random((size, arms)))
            played = baseline.choose(visitors)
            assert played.shape == (size,)
            assert 0 <= played.min() <= played.max() < arms
            if batch:
                baseline.learn(visitors, played, (rng.random(size) < 0.5).astype(float))
                baseline.close()


def test_figures_over_seeds(outcomes):
    first_run = play_once(spec_of(), ["uniform", "leaky"], 0)
    figures = summarize_runs([first_run, play_once(spec_of(), ["uniform", "leaky"], 1)])
    assert set(figures) == {"uniform", "leaky"}
    assert figures["leaky"]["leaks"]
    assert not figures["uniform"]["leaks"]
    assert figures["uniform"]["regret_worst"] >= figures["uniform"]["regret_mean"]
    assert figures["uniform"]["regret_ci95"] > 0
    assert summarize_runs([first_run])["uniform"]["regret_ci95"] is None


def test_the_number_of_processes_does_not_change_the_results():
    spec = spec_of(experiment__horizon=1000)
    expected = sorted(run_baselines(spec, ["uniform", "tree"], 2, jobs=1), key=str)
    assert sorted(run_baselines(spec, ["uniform", "tree"], 2, jobs=2), key=str) == expected


WITHOUT_ARMS = section_7_spec("none")
NONE = {"privacy.model": "none", "privacy.epsilon": None}


def test_names_without_repetition():
    assert select_baselines(["tree", "oracle", "tree"], make_spec()) == ["oracle", "tree"]
    assert select_baselines([], make_spec()) == []


def test_all_selects_the_baselines_that_the_promise_allows():
    assert select_baselines(["all"], make_spec(SHUFFLE)) == list(BASELINES)
    assert select_baselines(["all"], make_spec(NONE)) == ["abse", "constant", "oracle", "tree", "uniform"]


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(SpecError, match=r"no baseline 'greedy'.*uniform") as refusal:
        select_baselines(["greedy"], make_spec())
    assert refusal.value.field == "--baseline"


def test_local_privacy_without_an_epsilon_is_refused():
    with pytest.raises(SpecError, match="promises none"):
        select_baselines(["ldpmab"], make_spec(NONE))


def test_an_experiment_without_arms_is_refused():
    with pytest.raises(SpecError, match="no arms") as refusal:
        select_baselines(["uniform"], WITHOUT_ARMS)
    assert refusal.value.field == "--baseline"
    with pytest.raises(SpecError, match="no arms"):
        play_once(WITHOUT_ARMS, ["uniform"], 0)
    assert select_baselines([], WITHOUT_ARMS) == []


def test_without_features_nothing_that_learns_is_left():
    spec = BanditSpec.instances()["local"]
    assert select_baselines(["all"], spec) == ["constant", "oracle", "uniform"]
    with pytest.raises(SpecError, match="1 to 8 columns"):
        select_baselines(["tree"], spec)


def test_one_leaks_and_no_spec_can_name_it():
    assert [name for name, baseline in BASELINES.items() if baseline.leaks] == ["leaky"]
    for field in ("algorithm.name", "privacy.calibration", "privacy.model"):
        with pytest.raises(SpecError) as refusal:
            make_spec({field: "leaky"})
        assert refusal.value.field == field
