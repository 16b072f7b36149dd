"""Expected rewards of decisions: sums over people, or over the rounds of plays that all people share."""

from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.policies.policy import Arms, Plays
from privateer_lab.environments import environment_for
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
