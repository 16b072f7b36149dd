"""Arms that take turns: in which bins, what a round of one arm tells, and what people then play."""

import numpy as np
import pytest

from privateer_server.algorithms import NewRound
from privateer_server.algorithms.partition.learner import PartitionLearner
from privateer_server.algorithms.partition.round_estimates import Beliefs, estimated
from privateer_server.algorithms.partition.splitting import undivided
from tests.support.partitions import with_parts
from tests.support.people import rounds
from tests.support.specs import SHUFFLE, make_spec

KIND = {"kind": {"levels": ["a", "b", "c", "d"]}, "x1": {"low": 0, "high": 1}}
HIDDEN = SHUFFLE | {"privacy.arms": "hidden", "privacy.local_epsilon_max": 6}


def halved(overrides, variance):
    """A learner, and its state with a bin for half the numbers of each level, whose values are known that well."""
    learner = PartitionLearner(make_spec(overrides | {"context.features": KIND}))
    state = learner.start(0)
    state = learner.cut(state, state.tree.with_level(2), np.ones(len(state.tree), np.bool_))
    shape = (len(state.tree), 3)
    return learner, with_parts(state, mean=np.zeros(shape), variance=np.full(shape, variance))


def one_arm(learner, state):
    """Bins of which a round plays one arm."""
    process = learner.process(state)
    return learner.allocation.kinds(process, state.active, state.posterior.variance, selected=False).one_arm


def test_arms_take_turns_where_something_is_known_of_each():
    learner, state = halved(SHUFFLE, 0.2)
    assert one_arm(learner, state).all()
    one_unknown = state.posterior.variance.copy()
    one_unknown[0, 2] = 0.4
    assert one_arm(learner, with_parts(state, variance=one_unknown)).tolist() == [False] + [True] * 7
    dropped = np.ones_like(state.active)
    dropped[0, 2] = False
    assert one_arm(learner, with_parts(state, variance=one_unknown, active=dropped)).all()


def test_arms_share_wide_bins_and_bins_of_which_nothing_is_known():
    learner = PartitionLearner(make_spec(SHUFFLE | {"context.features": KIND}))
    first = learner.start(0)
    assert not one_arm(learner, first).any()
    assert not one_arm(learner, with_parts(first, variance=np.full((4, 3), 0.1))).any()
    assert not one_arm(*halved(SHUFFLE, 0.3)).any()


@pytest.mark.parametrize("overrides", [{}, HIDDEN], ids=["local", "hidden"])
def test_arms_share_bins_where_coins_tell_them_apart(overrides):
    """What coins tell of an arm grows with its share, not with the square of it."""
    learner, state = halved(overrides, 0.1)
    assert not one_arm(learner, state).any()


def test_in_its_turn_an_arm_is_played_by_all_of_a_part_and_the_next_round_may_have_another():
    learner, state = halved(SHUFFLE, 0.2)
    drawn = [learner.policy(state, NewRound(1, seed, 1000)) for seed in range(20)]
    assert all(set(np.unique(policy.shares)) == {0.0, 1.0} for policy in drawn)
    assert (learner.policy(state, NewRound(1, 3, 1000)).shares == drawn[3].shares).all()
    played = np.array([policy.shares.argmax(axis=1)[0] for policy in drawn])
    assert set(played) == {0, 1, 2}
    for policy in drawn:
        policy.check(learner.spec)


def test_parts_of_a_bin_that_are_alike_have_the_same_turn():
    """Planted in `PartitionLearner.policy`: parts that draw apart, which agree in none of 20 rounds or hardly any."""
    learner, state = halved(SHUFFLE, 0.2)
    for seed in range(20):
        policy = learner.policy(state, NewRound(1, seed, 1000))
        played = policy.shares.argmax(axis=1)
        assert all(len(set(played[policy.wholes == whole])) == 1 for whole in range(8))


def test_an_arm_two_deviations_behind_is_dropped_where_arms_share_and_not_where_they_take_turns():
    """Bins with as much doubt of a value as of the average have 2 (.2 + within) as the variance of a difference."""
    learner, state = halved(SHUFFLE, 0.2)
    process = learner.process(state)
    within = process.kernel.within(*process.box)
    behind = np.zeros((8, 3))
    behind[:, 2] = -2 * np.sqrt(2 * (0.2 + within))
    assert learner.sifted(with_parts(state, mean=behind)).active.all()
    unknown = np.full((8, 3), 0.3)
    assert not one_arm(learner, with_parts(state, variance=unknown)).any()
    behind[:, 2] = -2 * np.sqrt(2 * (0.3 + within))
    assert not learner.sifted(with_parts(state, mean=behind, variance=unknown)).active[:, 2].any()


@pytest.mark.parametrize(("overrides", "more"), [(SHUFFLE, 8), ({}, 0)], ids=["shuffle", "local"])
def test_a_bin_is_halved_when_any_arm_is_known_where_the_best_may_wait_for_its_turn(overrides, more):
    learner, state = halved(overrides, 0.2)
    known = np.tile([0.4, 1e-6, 0.4], (8, 1))
    best = np.tile([0.3, 0.0, 0.0], (8, 1))
    assert len(learner.split(with_parts(state, mean=best, variance=known)).tree) == 8 + more
    assert len(learner.split(with_parts(state, mean=best, variance=known[:, [1, 0, 2]])).tree) == 16


def precision(shares):
    """What a round of 1,000 people tells of each arm in the mean of eight bins, for these shares of arms."""
    learner, state = halved(SHUFFLE, 0.2)
    parts = undivided(state.tree, state.posterior.mean)
    tree = {"axes": state.tree.all_axes(3), "depths": state.tree.depths, "paths": state.tree.paths}
    tree |= {"active": state.active, "bins": np.arange(8), "wholes": np.arange(8)}
    policy = learner.policy_of_shares(NewRound(1, 9, 1000), np.tile(shares, (8, 1)), np.full(8, 1 / 8), **tree)
    rng = np.random.default_rng(2)
    contexts = np.column_stack([rng.integers(0, 2, (1000, 2)), rng.random(1000)])
    made = policy.contribute(contexts, drawn(rng), policy.decide(contexts, drawn(rng)), np.full(1000, 0.5))
    release = policy.terms.mechanism.simulate(made, rng)
    known = (state.population, state.evidence)
    before = Beliefs(state.posterior.mean, state.prior)
    return estimated(*known, learner.spec, policy, release, np.arange(8), before, parts)[1].precision.mean(axis=0)


def drawn(rng):
    return rng.integers(0, 2**32, 1000, dtype=np.uint32)


def test_a_round_of_one_arm_tells_more_in_all_than_one_of_three():
    """Noise does not fall with a share as the sum does: half as much again in an eighth of the people."""
    alone, together = precision([1.0, 0.0, 0.0]), precision([1 / 3, 1 / 3, 1 / 3])
    assert alone[1:] == pytest.approx([0, 0])
    assert alone[0] / together.sum() == pytest.approx(1.6, abs=0.2)


def test_every_round_of_an_experiment_with_turns_can_be_decided_and_learned_from():
    """State and policy pass through the codec; first no arms take turns, later those of most bins do."""
    overrides = {"context.features": KIND, "experiment.horizon": 20_000, "experiment.round_size": 1000}
    seen = [one.policy for one in rounds(make_spec(SHUFFLE | overrides))]
    in_turns = [((policy.shares == 0) | (policy.shares == 1)).all(axis=1).mean() for policy in seen if len(policy.bins)]
    assert in_turns[0] == 0
    assert max(in_turns) > 0.5
