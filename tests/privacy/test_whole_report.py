"""A device's whole path, from context and reward to report: what the report proves stays below epsilon."""

from functools import cache

import numpy as np
import pytest

from privateer_core.algorithms.partition import PartitionSpec
from privateer_lab.simulation.devices import SeededNoise
from privateer_papers.paper_1.proved import ProvedSpec
from privateer_server.algorithms import learner_for
from tests.support.people import rounds
from tests.support.statistics import independent, realised_epsilon

SPECS = {name: PartitionSpec.instances()[name] for name in ("local", "shuffle", "shuffle-hidden")}
SPECS["proved"] = ProvedSpec.instances()["local"]
N = 60_000


@cache
def policy_of(name):
    """The last policy that asks about several bins; in others one arm is left."""
    learner = learner_for(SPECS[name])
    policies = [learner.next(one.step.state, 9, 77).policy for one in rounds(SPECS[name])]
    return [one for one in policies if len(one.bins) > 1][-1]


def reports_of(policy, context, reward, coins, seed, factor=1.0):
    contexts = np.tile(context, (len(coins), 1))
    made = policy.contribute(contexts, coins, policy.decide(contexts, coins), np.full(len(coins), reward))
    mechanism = policy.terms.mechanism if factor == 1.0 else policy.terms.mechanism.weaker(factor)
    return mechanism.randomize(made, SeededNoise(seed))


PEOPLE = [((0.1, 0.1), 1.0), ((0.1, 0.1), 0.0), ((0.9, 0.3), 1.0), ((0.5, 0.5), 0.0), ((0.99, 0.99), 0.5)]


@pytest.mark.parametrize("name", SPECS)
def test_no_two_people_are_told_apart_beyond_epsilon(name):
    policy = policy_of(name)
    for coin in (0, 12_345, 2**32 - 1):
        coins = np.full(N, coin, np.uint32)
        symbols = [reports_of(policy, *who, coins, seed)["symbol"] for seed, who in enumerate(PEOPLE)]
        for one in range(len(PEOPLE)):
            for other in range(one):
                assert realised_epsilon(symbols[one], symbols[other]) <= policy.terms.local_epsilon


@pytest.mark.parametrize("name", SPECS)
def test_half_the_noise_is_caught(name):
    """Planted: a device that randomizes for twice the epsilon it says."""
    policy = policy_of(name)
    asked = policy.bins[0]
    lower, upper = policy.edges()
    context = (lower[asked] + upper[asked]) / 2
    coins = np.full(N, 5, np.uint32)
    for factor, caught in ((1.0, False), (2.0, True)):
        symbols = [reports_of(policy, context, reward, coins, int(reward), factor)["symbol"] for reward in (0.0, 1.0)]
        assert (realised_epsilon(*symbols) > policy.terms.local_epsilon) is caught


@pytest.mark.parametrize("name", SPECS)
def test_over_random_coins_a_report_alone_says_nothing_of_the_reward(name):
    """Without the sign of its coins a symbol is uniform, whoever sends it: symbol and reward are independent."""
    policy = policy_of(name)
    rng = np.random.default_rng(4)
    coins = rng.integers(0, 2**32, N, dtype=np.uint32)
    rewards = rng.integers(0, 2, N)
    contexts = np.tile((0.1, 0.1), (N, 1))
    made = policy.contribute(contexts, coins, policy.decide(contexts, coins), rewards.astype(float))
    reports = policy.mechanism.randomize(made, SeededNoise(1))
    assert independent(reports["symbol"], rewards)
    assert (reports["slot"] == coins).all()
