"""Expected rewards of decisions, and the figures that are known of the UCI Adult census."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms, Plays
from privateer_lab.environments import environment_for
from privateer_lab.environments.files import ADDED_EFFECTS
from tests.support.specs import make_spec

SPEC = next(iter(PhasedSpec.instances().values()))


def linear(seed=7, scale=1.0) -> Any:
    return environment_for(SPEC, seed, {"name": "linear", "scale": scale})


class Left:
    """The policy of an algorithm that drops actions."""

    def __init__(self, *active: int) -> None:
        self.active = np.array(active)


def test_sums_over_people_who_each_play_an_arm():
    people = environment_for(make_spec(), 0, {"name": "peaks"})
    contexts = people.contexts(0, 50, np.random.default_rng(0))
    means, arms = people.means(contexts), np.arange(50) % 3
    played = people.play(Arms(arms), contexts)
    assert played.times == 50
    assert played.expected == pytest.approx(sum(means[i, arm] for i, arm in enumerate(arms)))
    assert played.best == pytest.approx(means.max(axis=1).sum())
    assert played.by_option == pytest.approx(means.sum(axis=0))
    assert people.facts(Left(0)) == {}


def test_sums_over_rounds_do_not_depend_on_invited_participants():
    people = linear()
    plays = Plays(np.array([1, 4]), np.array([3, 5]))
    for n_invited in (0, 10):
        contexts = people.contexts(0, n_invited, np.random.default_rng(0))
        assert contexts.shape == (n_invited, 0)
        played = people.play(plays, contexts)
        assert played.times == 8
        assert played.expected == pytest.approx(3 * people.values[1] + 5 * people.values[4])
        assert played.best == pytest.approx(8 * people.values.max())
        assert played.by_option == pytest.approx(8 * people.values)
    assert (people.means(contexts) == people.values).all()


def test_facts_say_whether_the_best_action_is_active():
    people = linear()
    best = int(people.values.argmax())
    assert people.facts(Left(best, 29)) == {"best_action_kept": 1.0}
    assert people.facts(Left(*(set(range(30)) - {best}))) == {"best_action_kept": 0.0}
    assert people.facts(object()) == {}


def test_averages_of_linear_rewards():
    """40,000 people: means and variances at 5 standard errors, a false alarm below 1e-5."""
    people, n = linear(), 40_000
    plays = Plays(np.array([1, 4]), np.array([3, 5]))
    rewards = people.rewards(people.contexts(0, n, np.random.default_rng(0)), plays, np.random.default_rng(1))
    half, deviation = SPEC.reward.half_range, SPEC.algorithm.participant_standard_deviation
    lengths = np.linalg.norm(SPEC.actions.matrix[plays.actions], axis=1)
    variance = half**2 / plays.times + (deviation * lengths) ** 2
    assert rewards.shape == (n, 2)
    assert (abs(rewards.mean(axis=0) - people.values[plays.actions]) < 5 * np.sqrt(variance / n)).all()
    assert (abs(rewards.var(axis=0) / variance - 1) < 5 * np.sqrt(2 / n)).all()


def test_theta_is_as_long_as_the_scale_says_and_of_the_seed():
    assert np.linalg.norm(linear(scale=0.5).theta) == pytest.approx(0.5 * SPEC.reward.half_range)
    assert (linear(1).theta != linear(2).theta).all()
    assert (linear(1).theta == linear(1).theta).all()


def test_rewards_of_a_range_away_from_zero():
    spec = SPEC.model_copy(update={"reward": SPEC.reward.model_copy(update={"low": 9.0, "high": 11.0})})
    moved: Any = environment_for(spec, 7, {"name": "linear"})
    assert moved.values == pytest.approx(10 + linear().values)
    plays = Plays(np.array([1]), np.array([3]))
    rewards = moved.rewards(moved.contexts(0, 100, np.random.default_rng(0)), plays, np.random.default_rng(1))
    assert abs(rewards.mean() - moved.values[1]) < 5 * 1.0 / np.sqrt(3 * 100)


ROW = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, {}, {}"
)
COLUMNS = {"age": {"low": 17, "high": 90}, "education-num": {"low": 1, "high": 16}, "hours": {"low": 1, "high": 99}}


def adult(path: str, features: object = COLUMNS, **population: object):
    changes = {"experiment.arms": ["x", "y"], "context.features": features}
    return make_spec({**changes, "population": {"name": "adult", "path": path, **population}})


def write(directory: Path, *rows: str) -> str:
    path = directory / "adult.csv"
    path.write_text("\n".join(["|remark", *rows, ""]))
    return str(path)


def test_people_of_the_file(tmp_path):
    row = ROW.format("United-States", "<=50K")
    rows = (row, ROW.format("Cuba", ">50K.").replace("39", "41"), row.replace("40, U", "20, U").replace("13", "9"))
    path = write(tmp_path, *rows)
    people = environment_for(adult(path), 0)
    contexts = people.contexts(0, 3, np.random.default_rng(0))
    assert sorted(contexts[:, :3].tolist()) == [[39, 9, 20], [39, 13, 40], [41, 13, 40]]
    assert sorted(people.means(contexts).tolist()) == [[0.1, 1.0], [0.35, 0.0], [0.35, 0.0]]


def test_an_offer_adds_what_is_said_by_sex_and_hours(tmp_path):
    """Mean rewards stay within [0, 1]."""
    rng, rows = np.random.default_rng(3), []
    for sex in ("Female", "Male"):
        for hours in rng.integers(20, 60, 400).tolist():
            row = ROW.format("Cuba", rng.choice(["<=50K", ">50K"], p=[0.7, 0.3]))
            rows.append(row.replace("Male", sex).replace(" 40,", f" {hours},"))
    people = environment_for(adult(write(tmp_path, *rows), {"hours": COLUMNS["hours"]}, task="effects"), 0)
    contexts = people.contexts(0, 800, np.random.default_rng(0))
    means = people.means(contexts)
    assert 0 <= means.min() <= means.max() <= 1
    added = np.zeros((2, 3))
    cells = contexts[:, -1].astype(int) // 2
    for place in range(6):
        added[place // 3, place % 3] = (means[cells == place, 1] - means[cells == place, 0]).mean()
    assert added == pytest.approx(ADDED_EFFECTS)


def test_rows_that_cannot_be_used_are_named(tmp_path):
    good = ROW.format("Cuba", "<=50K")
    with pytest.raises(SpecError, match="row 3, column 'income'"):
        environment_for(adult(write(tmp_path, good, ROW.format("Cuba", "secret"))), 0)
    with pytest.raises(SpecError, match="row 2, column 'age'"):
        environment_for(adult(write(tmp_path, good.replace("39", "old"))), 0)
    with pytest.raises(SpecError, match="cannot read"):
        environment_for(adult(str(tmp_path / "none.csv")), 0)
    with pytest.raises(SpecError, match=r"experiment\.arms: .*has 2"):
        environment_for(make_spec({"population": {"name": "adult", "path": "x"}}), 0)


def files() -> str:
    first = Path(os.environ["PRIVATEER_ADULT"])
    return f"{first},{first.with_name('adult.test.gz')}"


@pytest.mark.data
def test_sizes_and_the_best_constant():
    people = environment_for(adult(files()), 0)
    contexts = people.contexts(0, 48_842, np.random.default_rng(0))
    assert (people.contexts(48_842, 1, np.random.default_rng(0)) == contexts[:1]).all()
    assert len(np.unique(contexts, axis=0)) > 4884
    assert people.means(contexts).mean(axis=0).max() == pytest.approx(0.2902, abs=1e-4)
