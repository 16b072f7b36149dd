"""Parts of bins: the policy on parts, and the meaning of reports about whole bins."""

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
from privateer_server.algorithms.partition.splitting import selection_bias, split_undecided_bins
from tests.support.people import bumps, rounds
from tests.support.specs import SHUFFLE, make_spec

SPEC = make_spec(SHUFFLE)
FALSE_ALARM = 1e-6
VALUES = np.array([[0.8, -0.2, 0.0], [0.4, 0.0, 0.0], [0.0, 0.3, 0.0], [-0.4, 0.9, 0.0]])
"""Four parts have these gains: the first arm is better in the first ones, the second in the last."""
SHARES = np.array([[0.9, 0.05, 0.05], [0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.05, 0.9, 0.05]])


def make_one_bin():
    """A state of one bin, and a policy that tells its four parts apart."""
    learner = PartitionLearner(SPEC)
    state = learner.start(0)
    parts = split_undecided_bins(learner.process(state), state.active, learner.space, learner.splitting)
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
