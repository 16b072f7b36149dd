"""A device's whole path, from context and reward to report: what the report proves stays below epsilon."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from privateer_lab.noise import SeededNoise
from privateer_server.algorithms import learner_for
from tests.support.people import bumps, rounds
from tests.support.specs import SHUFFLE, make_spec
from tests.support.statistics import independent, realised_epsilon

SPECS = {
    "local": make_spec({"privacy.epsilon": 2.0}),
    "proved": make_spec({"privacy.epsilon": 2.0, "algorithm.confidence": "proved"}),
    "shuffle": make_spec(SHUFFLE),
    "shuffle, arms hidden": make_spec({**SHUFFLE, "privacy.arms": "hidden"}),
}
N = 60_000


@cache
def policy_of(name):
    """A policy with several bins, some of them decided."""
    spec = SPECS[name]
    learner = learner_for(spec)
    *_, last = rounds(spec, bumps(3), 1)
    return learner.policy(last.state, 9, 1000, 77)


def reports_of(policy, context, reward, slots, seed, factor=1.0):
    contexts = np.tile(context, (len(slots), 1))
    told = policy.contribute(contexts, slots, policy.choose(contexts, slots), np.full(len(slots), reward))
    terms = replace(policy.terms, local_epsilon=factor * policy.terms.local_epsilon)
    return replace(policy, terms=terms).mechanism.randomize(told, SeededNoise(seed))


PEOPLE = [((0.1, 0.1), 1.0), ((0.1, 0.1), 0.0), ((0.9, 0.3), 1.0), ((0.5, 0.5), 0.0), ((0.99, 0.99), 0.5)]


@pytest.mark.parametrize("name", SPECS)
def test_no_two_people_are_told_apart_beyond_epsilon(name):
    policy = policy_of(name)
    for slot in (0, 12_345, 2**32 - 1):
        slots = np.full(N, slot, np.uint32)
        symbols = [reports_of(policy, *who, slots, seed)["symbol"] for seed, who in enumerate(PEOPLE)]
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
    slots = np.full(N, 5, np.uint32)
    for factor, caught in ((1.0, False), (2.0, True)):
        symbols = [reports_of(policy, context, reward, slots, int(reward), factor)["symbol"] for reward in (0.0, 1.0)]
        assert (realised_epsilon(*symbols) > policy.terms.local_epsilon) is caught


@pytest.mark.parametrize("name", SPECS)
def test_over_random_slots_a_report_alone_says_nothing_of_the_reward(name):
    """Without its slot's sign a symbol is uniform, whoever sends it: symbol and reward are independent."""
    policy = policy_of(name)
    rng = np.random.default_rng(4)
    slots = rng.integers(0, 2**32, N, dtype=np.uint32)
    rewards = rng.integers(0, 2, N)
    contexts = np.tile((0.1, 0.1), (N, 1))
    told = policy.contribute(contexts, slots, policy.choose(contexts, slots), rewards.astype(float))
    reports = policy.mechanism.randomize(told, SeededNoise(1))
    assert independent(reports["symbol"], rewards)
    assert (reports["slot"] == slots).all()
