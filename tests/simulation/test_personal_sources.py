"""Sources whose earlier policy looked at the context: weighed by the devices' own propensities, clipped and private."""

from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from privateer_core.answer.facts import Table
from privateer_core.policies.past_arms import recall_arms, select_reporting_arms
from privateer_core.spec.spec import Spec
from privateer_lab.simulation.scores import SeededNoise
from privateer_lab.simulation.simulate import simulate_once
from privateer_server.algorithms import learner_for
from tests.privacy.planted import left_out_reports_without_noise
from tests.simulation.test_sources import PROMISES, two_bin_policy
from tests.support.specs import make_spec
from tests.support.statistics import centred, realised_epsilon

Array = NDArray[np.float64]
LEAST = 0.1
"""The least propensity of each arm under the earlier policy."""
BY_DAY = 60
"""Rounds that show the planted defect, too."""
ALL_MODELS = ["local", *(pytest.param(model, marks=pytest.mark.nightly) for model in ("shuffle", "central", "none"))]
REWARDS = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])
"""Mean reward of each arm to people whose second feature is below, and above, the middle; (arms, halves)."""


def spec_of(model: str, min_propensity: float = LEAST, **source: Any) -> Any:
    """A spec whose source has propensities of its devices' own."""
    section = {"name": "log", "participants": 2000, "epsilon": None if model == "none" else 3.0} | source
    propensities = {} if "shares" in source else {"min_propensities": [min_propensity] * 3}
    return make_spec({"privacy.model": model, **PROMISES[model], "sources": [section | propensities]})


def earlier_policy(contexts: Array) -> tuple[NDArray[np.int64], Array]:
    """Everybody's half of the second feature, and the propensities of the arms, (n, 3): the better arm has .8."""
    halves = (contexts[:, 1] > 0.5).astype(np.int64)
    propensities = np.full((len(contexts), 3), LEAST)
    propensities[np.arange(len(contexts)), 2 * halves] = 0.8
    return halves, propensities


def draw_log(n_people: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64], Array, Array]:
    """Contexts, arms, rewards and the arms' propensities of a personalised log."""
    contexts = rng.random((n_people, 2))
    halves, propensities = earlier_policy(contexts)
    arms = (rng.random((n_people, 1)) < propensities.cumsum(axis=1)).argmax(axis=1)
    rewards = (rng.random(n_people) < REWARDS[arms, halves]).astype(float)
    return contexts, arms, rewards, propensities[np.arange(n_people), arms]


def draw_release(spec: Spec, policy: Any, seed: int) -> Any:
    """The release of a round of the source, as devices make its reports."""
    rng, n_people = np.random.default_rng(seed), policy.terms.batch_size
    contexts, arms, rewards, propensities = draw_log(n_people, rng)
    coins = rng.integers(0, 2**32, n_people, dtype=np.uint32)
    reporting_arms = select_reporting_arms(spec.sources[0], arms, propensities, rng)
    contributions = recall_arms(policy, contexts, coins, reporting_arms, rewards)
    mechanism, noise = policy.mechanism, SeededNoise(rng)
    return mechanism.release(mechanism.add(mechanism.empty(), mechanism.randomize(contributions, noise)), noise)


def draw_estimates(spec: Spec, times: int) -> Array:
    """Estimates of rounds of the source in two bins, moment over precision; (times, 6)."""
    learner, state, policy = two_bin_policy(spec)
    learner.split_bins = lambda state: state
    states = [learner.learn(state, policy, draw_release(spec, policy, seed)) for seed in range(times)]
    return np.array([(after.evidence.moment / after.evidence.precision).ravel() for after in states])


EXPECTED = np.tile(2 * REWARDS.mean(axis=1) - 1, 2)


@pytest.mark.parametrize(
    ("model", "times"),
    [
        ("local", BY_DAY),
        ("shuffle", BY_DAY),
        *(pytest.param(model, 300, marks=pytest.mark.nightly) for model in PROMISES),
    ],
)
def test_estimates_are_of_all_people_whatever_the_policy_looked_at(model, times):
    """Chance of an alarm 1e-6, over seeds, for each trust model."""
    assert centred(draw_estimates(spec_of(model), times), EXPECTED)


def test_a_policy_that_looked_at_the_context_biases_what_is_not_weighed():
    """Planted: its log is taken for an A/B test with the same shares of arms."""
    assert not centred(draw_estimates(spec_of("local", shares=[0.45, 0.1, 0.45]), BY_DAY), EXPECTED)


def draw_clipping(spec: Spec, times: int) -> Array:
    """The share clipped away and its standard error, by first rounds of the source; (times, 2)."""
    learner = learner_for(spec)
    rows = []
    for seed in range(times):
        state = learner.start(seed)
        policy = learner.open_next_round(state, 1, seed).policy
        weights = learner.learn(state, policy, draw_release(spec, policy, seed)).kept_weights
        rows.append((1 - weights.moment[1] / weights.precision[1], weights.precision[1] ** -0.5))
    return np.array(rows)


@pytest.mark.parametrize("model", ALL_MODELS)
@pytest.mark.parametrize(("min_propensity", "clipped"), [(LEAST, 0.0), (0.2, 1 / 3)])
def test_the_share_clipped_away_is_measured(model, min_propensity, clipped):
    """At most 16 of 100 intervals miss, where 17 of 5 % are once in 35,000 seeds. Twice the least clips a third."""
    shares = draw_clipping(spec_of(model, min_propensity), 100)
    assert centred(shares[:, :1], [clipped])
    assert (np.abs(shares[:, 0] - clipped) > 1.96 * shares[:, 1]).sum() <= 16


def test_an_answer_says_what_clipping_took_and_what_bias_it_may_leave():
    spec = spec_of("central", 0.2, participants=20_000)
    learner = learner_for(spec)
    state = learner.start(1)
    assert not learner.answer(state).parts
    for version in range(1, 6):
        policy = learner.open_next_round(state, version, version).policy
        state = learner.learn(state, policy, draw_release(spec, policy, version))
    answer = learner.answer(state)
    (table,) = (part for part in answer.parts if isinstance(part, Table))
    ((source, weight, share, low, high, bias),) = table.rows
    assert (source, weight) == ("log", 5.0)
    assert low < 1 / 3 < high < share + 0.05
    assert bias == pytest.approx(min(1.0, 3 * high))
    assert ["of its weights were clipped away" in warning for warning in answer.warnings] == [True]


def test_an_answer_has_figures_at_the_smallest_propensity_that_a_spec_takes():
    spec = spec_of("local", 1e-9)
    learner = learner_for(spec)
    state = learner.start(1)
    policy = learner.open_next_round(state, 1, 1).policy
    answer = learner.answer(learner.learn(state, policy, draw_release(spec, policy, 1)))
    assert [row[1] for part in answer.parts for row in getattr(part, "rows", ())] == [1e9]


def test_an_answer_says_where_nobody_knows_what_was_clipped():
    """One bucket without "elsewhere" hits every key alike."""
    spec = spec_of("local")
    learner = learner_for(spec)
    state = learner.start(1)
    policy = learner.open_next_round(state, 1, 1).policy
    release = msgspec.structs.replace(draw_release(spec, policy, 1), hit_own=1.0, hit_other=1.0, hit_none=1.0)
    answer = learner.answer(learner.learn(state, policy, release))
    assert [row[2:] for part in answer.parts for row in getattr(part, "rows", ())] == [(None, None, None, None)]
    assert ["do not say how much" in warning for warning in answer.warnings] == [True]


PEOPLE = [
    (0.1, 0, 1.0, LEAST),
    (0.1, 0, 1.0, 1.0),
    (0.1, 0, 0.0, 0.8),
    (0.9, 0, 1.0, LEAST),
    (0.1, 1, 1.0, 0.3),
    (0.9, 2, 0.0, float("nan")),
]
"""Context, arm, reward and propensity."""


def prove_epsilons(model: str) -> tuple[list[float], float]:
    """Epsilons that 60,000 reports of each pair of people prove by their symbols, and that of a report."""
    spec = spec_of(model)
    _, _, policy = two_bin_policy(spec)
    symbols, n = [], 60_000
    for seed, (place, arm, reward, propensity) in enumerate(PEOPLE):
        noise = SeededNoise(seed)
        arms = select_reporting_arms(spec.sources[0], np.full(n, arm), np.full(n, propensity), noise)
        coins = np.full(n, 12_345, np.uint32)
        people = recall_arms(policy, np.full((n, 2), place), coins, arms, np.full(n, reward))
        symbols.append(policy.mechanism.randomize(people, noise)["symbol"])
    pairs = [(left, right) for left in range(len(symbols)) for right in range(left)]
    return [realised_epsilon(symbols[left], symbols[right]) for left, right in pairs], policy.terms.local_epsilon


@pytest.mark.parametrize("model", ["local", "shuffle"])
def test_context_arm_reward_and_propensity_together_stay_within_epsilon(model):
    """Chance of an alarm 15e-6 over seeds, for each model."""
    proved, epsilon = prove_epsilons(model)
    assert max(proved) <= epsilon


def test_left_out_reports_without_noise_break_epsilon(monkeypatch):
    """Planted: people whom weighing leaves out send their symbol as it is."""
    left_out_reports_without_noise(monkeypatch)
    proved, epsilon = prove_epsilons("local")
    assert max(proved) > epsilon


LOG = {"name": "log", "participants": 20_000, "epsilon": 8.0}
OWN = {"experiment.horizon": 20_000, "experiment.round_size": 1000, "population.name": "peaks"}


def compare_regrets(changes: dict[str, Any], log: dict[str, Any], seeds: int) -> tuple[Array, Array]:
    """Regrets of own people without and with a log of a policy that gave each person their best arm in 8 of 10."""

    def list_regrets(sources: list[dict[str, Any]]) -> Array:
        spec = make_spec({**OWN, **changes, "sources": sources})
        return np.array([simulate_once(spec, seed).regret for seed in range(seeds)])

    return list_regrets([]), list_regrets([log | {"min_propensities": [LEAST] * 3}])


def test_a_personalised_log_saves_regret():
    """20,000 people at epsilon 8 ahead of 20,000 at epsilon 1; each of two seeds saves at least half."""
    without, with_log = compare_regrets({}, LOG, 2)
    assert (with_log < 0.5 * without).all()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("changes", "epsilon"),
    [
        ({}, 4.0),
        ({"privacy.model": "shuffle", "privacy.delta": 1e-6, "privacy.min_batch": 1000}, 1.0),
        ({"privacy.model": "central", "privacy.delta": 1e-6}, 1.0),
        ({"privacy.model": "none", "privacy.epsilon": None}, None),
    ],
)
def test_a_personalised_log_saves_regret_under_every_trust_model(changes, epsilon):
    """The mean of eight fixed seeds falls by more than three standard errors: a false alarm once in 700."""
    without, with_log = compare_regrets(changes, LOG | {"epsilon": epsilon}, 8)
    saved = without - with_log
    assert saved.mean() > 3 * saved.std(ddof=1) / np.sqrt(len(saved))
