"""Rounds with one arm for a bin, and parts of bins that have different arms."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_core.errors import Malformed
from privateer_core.policies.policy import Arms
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.partition.kernel import Kernel
from privateer_server.algorithms.partition.learner import PartitionLearner
from privateer_server.algorithms.partition.observations import observe_bins
from privateer_server.algorithms.partition.round_estimates import Beliefs, add_round_estimates
from privateer_server.algorithms.partition.splitting import keep_whole, selection_bias, split_undecided_bins
from tests.support.partitions import with_parts
from tests.support.people import bumps, rounds
from tests.support.specs import SHUFFLE, make_spec

KIND = {"kind": {"levels": ["a", "b", "c", "d"]}, "x1": {"low": 0, "high": 1}}
HIDDEN = SHUFFLE | {"privacy.arm_visibility": "hidden", "privacy.local_epsilon_max": 6}


def halve_bins(overrides, variance):
    """A learner, and its state with a bin for half the numbers of each level, whose values are known that well."""
    learner = PartitionLearner(make_spec(overrides | {"context.features": KIND}))
    state = learner.start(0)
    state = learner.cut_bins(state, state.tree.with_level(2), np.ones(len(state.tree), np.bool_))
    shape = (len(state.tree), 3)
    return learner, with_parts(state, mean=np.zeros(shape), variance=np.full(shape, variance))


def list_one_arm_bins(learner, state):
    """Bins of which a round plays one arm."""
    process = learner.build_process(state)
    return learner.allocation.classify_bins(process, state.active, state.posterior.variance, selected=False).one_arm


def test_bins_with_evidence_on_each_arm_have_one_arm_rounds():
    learner, state = halve_bins(SHUFFLE, 0.2)
    assert list_one_arm_bins(learner, state).all()
    one_unknown = state.posterior.variance.copy()
    one_unknown[0, 2] = 0.4
    assert list_one_arm_bins(learner, with_parts(state, variance=one_unknown)).tolist() == [False] + [True] * 7
    dropped = np.ones_like(state.active)
    dropped[0, 2] = False
    assert list_one_arm_bins(learner, with_parts(state, variance=one_unknown, active=dropped)).all()


def test_arms_share_rounds_in_wide_bins_and_bins_without_evidence():
    learner = PartitionLearner(make_spec(SHUFFLE | {"context.features": KIND}))
    first = learner.start(0)
    assert not list_one_arm_bins(learner, first).any()
    assert not list_one_arm_bins(learner, with_parts(first, variance=np.full((4, 3), 0.1))).any()
    assert not list_one_arm_bins(*halve_bins(SHUFFLE, 0.3)).any()


@pytest.mark.parametrize("overrides", [{}, HIDDEN], ids=["local", "hidden"])
def test_arms_share_rounds_where_coins_identify_them(overrides):
    """What coins tell of an arm grows with its share, not with the square of it."""
    learner, state = halve_bins(overrides, 0.1)
    assert not list_one_arm_bins(learner, state).any()


def test_a_one_arm_round_has_one_arm_per_part_and_the_next_may_have_another():
    learner, state = halve_bins(SHUFFLE, 0.2)
    policies = [learner.policy(state, NewRound(1, seed, 1000)) for seed in range(20)]
    assert all(set(np.unique(policy.shares)) == {0.0, 1.0} for policy in policies)
    assert (learner.policy(state, NewRound(1, 3, 1000)).shares == policies[3].shares).all()
    played = np.array([policy.shares.argmax(axis=1)[0] for policy in policies])
    assert set(played) == {0, 1, 2}
    for policy in policies:
        policy.check(learner.spec)


def test_equal_parts_of_a_bin_have_the_same_arm():
    """Planted in `PartitionLearner.policy`: parts that draw apart, which agree in none of 20 rounds or hardly any."""
    learner, state = halve_bins(SHUFFLE, 0.2)
    for seed in range(20):
        policy = learner.policy(state, NewRound(1, seed, 1000))
        played = policy.shares.argmax(axis=1)
        assert all(len(set(played[policy.wholes == whole])) == 1 for whole in range(8))


def test_dropping_needs_a_larger_gap_where_rounds_have_one_arm():
    """Bins with as much doubt of a value as of the average have 2 (.2 + within) as the variance of a difference."""
    learner, state = halve_bins(SHUFFLE, 0.2)
    process = learner.build_process(state)
    within = process.kernel.within_bin_variances(*process.box)
    behind = np.zeros((8, 3))
    behind[:, 2] = -2 * np.sqrt(2 * (0.2 + within))
    assert learner.update_arms(with_parts(state, mean=behind)).active.all()
    unknown = np.full((8, 3), 0.3)
    assert not list_one_arm_bins(learner, with_parts(state, variance=unknown)).any()
    behind[:, 2] = -2 * np.sqrt(2 * (0.3 + within))
    assert not learner.update_arms(with_parts(state, mean=behind, variance=unknown)).active[:, 2].any()


@pytest.mark.parametrize(("overrides", "n_halved"), [(SHUFFLE, 8), ({}, 0)], ids=["shuffle", "local"])
def test_one_arm_rounds_halve_a_bin_when_any_arm_is_known(overrides, n_halved):
    learner, state = halve_bins(overrides, 0.2)
    variance = np.tile([0.4, 1e-6, 0.4], (8, 1))
    best = np.tile([0.3, 0.0, 0.0], (8, 1))
    assert len(learner.split_bins(with_parts(state, mean=best, variance=variance)).tree) == 8 + n_halved
    assert len(learner.split_bins(with_parts(state, mean=best, variance=variance[:, [1, 0, 2]])).tree) == 16


def precision(shares):
    """What a round of 1,000 people tells of each arm in the mean of eight bins, for these shares of arms."""
    learner, state = halve_bins(SHUFFLE, 0.2)
    parts = keep_whole(state.tree, state.posterior.mean)
    tree = {"axes": state.tree.all_axes(3), "depths": state.tree.depths, "paths": state.tree.paths}
    tree |= {"active": state.active, "bins": np.arange(8), "wholes": np.arange(8)}
    policy = learner.build_policy_from_shares(NewRound(1, 9, 1000), np.tile(shares, (8, 1)), np.full(8, 1 / 8), **tree)
    rng = np.random.default_rng(2)
    contexts = np.column_stack([rng.integers(0, 2, (1000, 2)), rng.random(1000)])
    reports = policy.contribute(contexts, draw_coins(rng), policy.decide(contexts, draw_coins(rng)), np.full(1000, 0.5))
    release = policy.terms.mechanism.simulate(reports, rng)
    beliefs = (state.population, state.evidence)
    before = Beliefs(state.posterior.mean, state.prior)
    return add_round_estimates(*beliefs, learner.spec, policy, release, np.arange(8), before, parts)[1].precision.mean(
        axis=0
    )


def draw_coins(rng):
    return rng.integers(0, 2**32, 1000, dtype=np.uint32)


def test_a_one_arm_round_has_more_information_than_one_of_three_arms():
    """Noise does not fall with a share as the sum does: half as much again in an eighth of the people."""
    one_arm, three_arms = precision([1.0, 0.0, 0.0]), precision([1 / 3, 1 / 3, 1 / 3])
    assert one_arm[1:] == pytest.approx([0, 0])
    assert one_arm[0] / three_arms.sum() == pytest.approx(1.6, abs=0.2)


SPEC = make_spec(SHUFFLE)
FALSE_ALARM = 1e-6
VALUES = np.array([[0.8, -0.2, 0.0], [0.4, 0.0, 0.0], [0.0, 0.3, 0.0], [-0.4, 0.9, 0.0]])
"""Four parts have these gains: the first arm is better in the first ones, the second in the last."""
SHARES = np.array([[0.9, 0.05, 0.05], [0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.05, 0.9, 0.05]])


def make_one_bin():
    """A state of one bin, and a policy that tells its four parts apart."""
    learner = PartitionLearner(SPEC)
    state = learner.start(0)
    parts = split_undecided_bins(learner.build_process(state), state.active, learner.space, learner.splitting)
    tree = {"axes": parts.tree.all_axes(2), "depths": parts.tree.depths, "paths": parts.tree.paths}
    tree |= {"active": np.ones((4, 3), np.bool_), "bins": np.arange(4), "wholes": np.zeros(4, np.int64)}
    return state, parts, learner.build_policy_from_shares(NewRound(1, 9, 1000), SHARES, parts.shares, **tree)


def estimates(means, seeds=200):
    """Return the average of a bin by rounds of 1,000 participants, under assumed means of its parts."""
    state, parts, policy = make_one_bin()
    policy.check(SPEC)
    rng, averages = np.random.default_rng(3), []
    for _ in range(seeds):
        contexts, coins = rng.random((1000, 2)), rng.integers(0, 2**32, 1000, dtype=np.uint32)
        arms = policy.decide(contexts, coins).arms
        rewards = (rng.random(1000) < (1 + VALUES[policy.locate(contexts), arms]) / 2).astype(float)
        fresh = rng.integers(0, 2**32, 1000, dtype=np.uint32)
        reports = policy.contribute(contexts, fresh, Arms(arms), rewards)
        release = policy.terms.mechanism.simulate(reports, rng)
        rows, thought = np.zeros(1, np.int64), replace(parts, mean=means)
        before = Beliefs(state.posterior.mean, state.prior)
        _, after = add_round_estimates(state.population, state.evidence, SPEC, policy, release, rows, before, thought)
        averages.append(after.moment[0] / after.precision[0])
    return np.array(averages)


def count_standard_errors(averages):
    """By how many standard errors the mean is off, arm by arm."""
    return np.abs(averages.mean(axis=0) - VALUES.mean(axis=0)) / (averages.std(axis=0) / np.sqrt(len(averages)))


def test_estimates_of_a_bin_are_unbiased_given_the_means_of_its_parts():
    """Planted: the average over participants with an arm is taken for the average over the bin."""
    limit = stats.norm.isf(FALSE_ALARM / 6)
    assert (count_standard_errors(estimates(VALUES)) < limit).all()
    assert (count_standard_errors(estimates(np.zeros_like(VALUES)))[:2] > 3 * limit).all()


def test_selection_bias_needs_parts_that_differ_in_value_and_in_share():
    _, parts, policy = make_one_bin()
    differ = selection_bias(policy, SHARES, parts.shares, VALUES)
    assert differ == pytest.approx(selection_bias(policy, SHARES, parts.shares, VALUES + 0.3))
    assert selection_bias(policy, np.full((4, 3), 0.2), parts.shares, VALUES) == pytest.approx(np.zeros((1, 3)))
    assert (differ[0, :2] > 0.2).all()


def test_means_of_other_bins_are_those_of_the_process():
    """Bins have their own posterior means, and the average over a bin's halves is the bin's."""
    rng, smoothness = np.random.default_rng(5), Kernel(np.array([4, 5]), 1)
    lower = np.array([[0.0, 0.0], [0.5, 0.0], [0.5, 0.5]])
    upper = np.array([[0.5, 1.0], [1.0, 0.5], [1.0, 1.0]])
    evidence = observe_bins(lower, upper, rng.uniform(5, 50, (3, 2)), rng.normal(0, 9, (3, 2)))
    means, _ = evidence.posterior(smoothness)
    # The process has a nugget at bins, which other boxes do not share.
    assert evidence.predict_boxes(smoothness, lower, upper) == pytest.approx(means, abs=1e-3)
    halves = evidence.predict_boxes(smoothness, np.array([[0.0, 0.0], [0.0, 0.5]]), np.array([[0.5, 0.5], [0.5, 1.0]]))
    assert halves.mean(axis=0) == pytest.approx(means[0], abs=1e-3)


def test_reports_are_about_bins_and_arms_depend_on_parts():
    *_, last = rounds(make_spec({**SHUFFLE, "experiment.horizon": 6000}), bumps(3), 1)
    policy = last.policy
    keys = policy.terms.mechanism.layout.keys
    assert len(policy.cells) == keys < policy.active[policy.bins].sum()
    contexts = np.random.default_rng(0).random((500, 2))
    reports = policy.contribute(contexts, np.zeros(500, np.uint32), Arms(np.zeros(500, np.int64)), np.ones(500))
    person_keys = policy.key_of_bin[policy.locate(contexts)]
    for whole in range(3):
        assert len(set(reports.keys[np.isin(person_keys, np.flatnonzero(policy.wholes == whole))].tolist())) <= 1


@pytest.mark.parametrize(
    "wholes", [[0, 0, 0, 2], [0, 0, 0, 1 << 50], [1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0], [-1, 0, 0, 0]]
)
def test_devices_refuse_malformed_parent_bins(wholes):
    policy = replace(make_one_bin()[2], wholes=np.array(wholes, np.int64))
    with pytest.raises(Malformed):
        policy.check(SPEC)
