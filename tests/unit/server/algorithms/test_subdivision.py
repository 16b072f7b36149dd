"""Parts of bins: what a policy does with them, and what reports about whole bins then say."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_core.errors import Malformed
from privateer_core.policies.decisions import Arms
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.partition.kernel import Kernel
from privateer_server.algorithms.partition.learner import PartitionLearner
from privateer_server.algorithms.partition.posterior.observations import observed
from privateer_server.algorithms.partition.round_estimates import Beliefs, estimated
from privateer_server.algorithms.partition.splitting import selection_bias, subdivided
from tests.support.people import bumps, rounds
from tests.support.specs import SHUFFLE, make_spec

SPEC = make_spec(SHUFFLE)
FALSE_ALARM = 1e-6
VALUES = np.array([[0.8, -0.2, 0.0], [0.4, 0.0, 0.0], [0.0, 0.3, 0.0], [-0.4, 0.9, 0.0]])
"""Four parts have these gains: the first arm is better in the first ones, the second in the last."""
SHARES = np.array([[0.9, 0.05, 0.05], [0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.05, 0.9, 0.05]])


def of_one_bin():
    """A state of one bin, and a policy that tells its four parts apart."""
    learner = PartitionLearner(SPEC)
    state = learner.start(0)
    parts = subdivided(learner.process(state), state.active, learner.space, learner.splitting)
    tree = {"axes": parts.tree.all_axes(2), "depths": parts.tree.depths, "paths": parts.tree.paths}
    tree |= {"active": np.ones((4, 3), np.bool_), "bins": np.arange(4), "wholes": np.zeros(4, np.int64)}
    return state, parts, learner.policy_of_shares(NewRound(1, 9, 1000), SHARES, parts.shares, **tree)


def estimates(known, seeds=200):
    """What so many rounds of 1,000 people say of the bin's values, if that is thought of its parts."""
    state, parts, policy = of_one_bin()
    policy.check(SPEC)
    rng, found = np.random.default_rng(3), []
    for _ in range(seeds):
        contexts, coins = rng.random((1000, 2)), rng.integers(0, 2**32, 1000, dtype=np.uint32)
        arms = policy.decide(contexts, coins).arms
        rewards = (rng.random(1000) < (1 + VALUES[policy.locate(contexts), arms]) / 2).astype(float)
        fresh = rng.integers(0, 2**32, 1000, dtype=np.uint32)
        made = policy.contribute(contexts, fresh, Arms(arms), rewards)
        release = policy.terms.mechanism.simulate(made, rng)
        rows, thought = np.zeros(1, np.int64), replace(parts, mean=known)
        before = Beliefs(state.posterior.mean, state.prior)
        _, after = estimated(state.population, state.evidence, SPEC, policy, release, rows, before, thought)
        found.append(after.moment[0] / after.precision[0])
    return np.array(found)


def misses(found):
    """By how many standard errors the mean is off, arm by arm."""
    return np.abs(found.mean(axis=0) - VALUES.mean(axis=0)) / (found.std(axis=0) / np.sqrt(len(found)))


def test_what_is_known_of_parts_makes_estimates_of_the_whole_unbiased():
    """Planted: an average over those who played an arm is taken for one over the bin."""
    limit = stats.norm.isf(FALSE_ALARM / 6)
    assert (misses(estimates(VALUES)) < limit).all()
    assert (misses(estimates(np.zeros_like(VALUES)))[:2] > 3 * limit).all()


def test_only_differences_between_parts_count_and_only_where_shares_differ():
    _, parts, policy = of_one_bin()
    differ = selection_bias(policy, SHARES, parts.shares, VALUES)
    assert differ == pytest.approx(selection_bias(policy, SHARES, parts.shares, VALUES + 0.3))
    assert selection_bias(policy, np.full((4, 3), 0.2), parts.shares, VALUES) == pytest.approx(np.zeros((1, 3)))
    assert (differ[0, :2] > 0.2).all()


def test_means_elsewhere_are_those_of_the_process():
    """Bins have their own posterior means, and the average over a bin's halves is the bin's."""
    rng, smoothness = np.random.default_rng(5), Kernel(np.array([4, 5]), 1)
    lower = np.array([[0.0, 0.0], [0.5, 0.0], [0.5, 0.5]])
    upper = np.array([[0.5, 1.0], [1.0, 0.5], [1.0, 1.0]])
    evidence = observed(lower, upper, rng.uniform(5, 50, (3, 2)), rng.normal(0, 9, (3, 2)))
    means, _ = evidence.posterior(smoothness)
    # The process has a nugget at bins, which other boxes do not share.
    assert evidence.elsewhere(smoothness, lower, upper) == pytest.approx(means, abs=1e-3)
    halves = evidence.elsewhere(smoothness, np.array([[0.0, 0.0], [0.0, 0.5]]), np.array([[0.5, 0.5], [0.5, 1.0]]))
    assert halves.mean(axis=0) == pytest.approx(means[0], abs=1e-3)


def test_reports_are_about_bins_and_people_are_told_apart_by_parts():
    *_, last = rounds(make_spec({**SHUFFLE, "experiment.horizon": 6000}), bumps(3), 1)
    policy = last.policy
    keys = policy.terms.mechanism.layout.keys
    assert len(policy.cells) == keys < policy.active[policy.bins].sum()
    contexts = np.random.default_rng(0).random((500, 2))
    made = policy.contribute(contexts, np.zeros(500, np.uint32), Arms(np.zeros(500, np.int64)), np.ones(500))
    asked = policy.key_of_bin[policy.locate(contexts)]
    for whole in range(3):
        assert len(set(made.keys[np.isin(asked, np.flatnonzero(policy.wholes == whole))].tolist())) <= 1


@pytest.mark.parametrize(
    "wholes", [[0, 0, 0, 2], [0, 0, 0, 1 << 50], [1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0], [-1, 0, 0, 0]]
)
def test_devices_refuse_wholes_that_do_not_count(wholes):
    policy = replace(of_one_bin()[2], wholes=np.array(wholes, np.int64))
    with pytest.raises(Malformed):
        policy.check(SPEC)
