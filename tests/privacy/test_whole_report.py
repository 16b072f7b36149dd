"""A device's whole path, from context and reward to report: what the report proves stays below epsilon."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.partition import PartitionSpec
from privateer_lab.simulation.scores import SeededNoise
from privateer_papers.paper_1.proved import ProvedSpec
from privateer_server.algorithms import learner_for
from tests.support.people import rounds
from tests.support.statistics import independent, realised_epsilon

SPECS = {name: PartitionSpec.instances()[name] for name in ("local", "shuffle", "shuffle-hidden")}
SPECS["proved"] = ProvedSpec.instances()["local"]
N = 60_000


@cache
def policy_of(name):
    """Return the last policy whose questions are about several bins."""
    learner = learner_for(SPECS[name])
    policies: list[Any] = [learner.open_next_round(opened.step.state, 9, 77).policy for opened in rounds(SPECS[name])]
    return [policy for policy in policies if len(policy.bins) > 1][-1]


def reports_of(policy, context, reward, coins, seed, factor=1.0):
    contexts = np.tile(context, (len(coins), 1))
    contributions = policy.contribute(contexts, coins, policy.decide(contexts, coins), np.full(len(coins), reward))
    mechanism = policy.terms.mechanism if factor == 1.0 else policy.terms.mechanism.with_less_noise(factor)
    return mechanism.randomize(contributions, SeededNoise(seed))


PEOPLE = [((0.1, 0.1), 1.0), ((0.1, 0.1), 0.0), ((0.9, 0.3), 1.0), ((0.5, 0.5), 0.0), ((0.99, 0.99), 0.5)]


@pytest.mark.parametrize("name", SPECS)
def test_reports_distinguish_no_two_people_beyond_epsilon(name):
    policy = policy_of(name)
    for coin in (0, 12_345, 2**32 - 1):
        coins = np.full(N, coin, np.uint32)
        symbols = [reports_of(policy, *participant, coins, seed)["symbol"] for seed, participant in enumerate(PEOPLE)]
        for index in range(len(PEOPLE)):
            for other in range(index):
                assert realised_epsilon(symbols[index], symbols[other]) <= policy.terms.local_epsilon


@pytest.mark.parametrize("name", SPECS)
def test_half_the_noise_is_detected(name):
    """Planted: a device that randomizes for twice the epsilon it says."""
    policy = policy_of(name)
    bin_index = policy.bins[0]
    lower, upper = policy.edges()
    context = (lower[bin_index] + upper[bin_index]) / 2
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
    contributions = policy.contribute(contexts, coins, policy.decide(contexts, coins), rewards.astype(float))
    reports = policy.mechanism.randomize(contributions, SeededNoise(1))
    assert independent(reports["symbol"], rewards)
    assert (reports["slot"] == coins).all()
