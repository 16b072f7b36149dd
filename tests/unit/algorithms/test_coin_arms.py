"""Arms by coins: their participants, their reports, and arms that were added later."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.additive.coin_arms import LEVEL_QUESTION, CoinArms
from privateer_core.algorithms.partition import PartitionPolicy
from privateer_core.algorithms.partition.policy import translate_choices
from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_core.primitives.public_coins import UNIT
from privateer_server.algorithms import learner_for
from privateer_server.rounds.schedule import Schedule
from tests.support.specs import SHUFFLE, make_spec
from tests.unit.algorithms.test_additive import people, spec_of

ALONE = {"privacy": {"epsilon": 1.0}}
COINS = np.random.default_rng(3).integers(0, 2**32, 200_000, dtype=np.uint32)


def policy_of(reported=4000, **changes):
    """Return a policy after a number of reports, in which the second arm is best."""
    spec = spec_of("local", **{**ALONE, **changes})
    learner = learner_for(spec)
    state = replace(learner.start(1), reported=reported)
    policy: Any = learner.open_next_round(state, 2, 7).policy
    means = policy.means.copy()
    means[1, 0] += 800
    return spec, replace(policy, means=means, draws=means[None])


def is_coin_arm(policy):
    """Which groups of coins give an arm."""
    return policy.plan.groups.arms >= 0


def test_local_reports_have_a_coin_plan_below_epsilon_4_alone():
    for privacy in (
        {"epsilon": 3.9},
        {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6, "arm_visibility": "as-local"},
    ):
        assert spec_of("local", privacy=privacy).has_coin_plan
    assert not spec_of("local").has_coin_plan
    assert not spec_of("shuffle").has_coin_plan
    first = learner_for(spec_of("local", **ALONE))
    policy: Any = first.open_next_round(first.start(1), 1, 7).policy
    assert policy.plan.given == UNIT
    assert spec_of("local", **ALONE).experiment.round_size == 500


def test_coins_give_every_arm_equally_often_and_all_others_get_the_best_arm():
    spec, policy = policy_of()
    contexts = people(spec, len(COINS))[0]
    arms = policy.decide(contexts, COINS).arms
    reports = policy.contribute(contexts, COINS, Arms(arms), np.ones(len(arms)))
    by_coins = is_coin_arm(policy)[reports.groups]
    assert by_coins.mean() == pytest.approx(0.25 * 0.95, abs=0.005)
    assert np.bincount(arms[by_coins]) / by_coins.sum() == pytest.approx([1 / 3] * 3, abs=0.02)
    assert set(arms[~by_coins].tolist()) == {1}


def test_arms_by_coins_do_not_depend_on_the_context():
    """Or else an arm that coins seem to give would say something of the person."""
    spec, policy = policy_of()
    first, second = (people(spec, 1, seed)[0].repeat(2000, axis=0) for seed in (1, 2))
    coins = COINS[:2000]
    arms = [policy.decide(contexts, coins).arms for contexts in (first, second)]
    reports = [
        policy.contribute(contexts, coins, Arms(arms_by_context), np.ones(2000))
        for contexts, arms_by_context in zip((first, second), arms, strict=True)
    ]
    assert reports[0].groups.tolist() == reports[1].groups.tolist()
    arms_by_context = is_coin_arm(policy)[reports[0].groups]
    assert arms[0][arms_by_context].tolist() == arms[1][arms_by_context].tolist()


def test_late_reports_on_arms_by_coins_are_about_the_same_arm_or_name_it():
    """Planted: a seed of coins of each round's own."""
    _, policy = policy_of()
    plan = policy.plan
    later = replace(plan, given=plan.given // 3)
    layouts = [arm_plan.layout(policy.questions) for arm_plan in (plan, later)]
    old_arms, new_arms = (
        arm_plan.choose_arms(layout, COINS, np.full(len(COINS), -1))
        for arm_plan, layout in zip((plan, later), layouts, strict=True)
    )
    assert (new_arms >= 0).sum() < (old_arms >= 0).sum() / 2
    assert (old_arms[new_arms >= 0] == new_arms[new_arms >= 0]).all()
    other = replace(layouts[1], seed=9)
    planted = later.choose_arms(other, COINS, np.full(len(COINS), -1))
    assert (old_arms[planted >= 0] == planted[planted >= 0]).mean() < 0.5


def test_reports_have_the_reward_of_arms_by_coins_and_the_name_of_best_arms():
    spec, policy = policy_of()
    contexts, coins = people(spec, 20_000)[0], COINS[:20_000]
    arms, rewards = policy.decide(contexts, coins).arms, np.full(20_000, 0.75)
    reports = policy.contribute(contexts, coins, Arms(arms), rewards)
    groups = policy.plan.groups
    by_coins, place = is_coin_arm(policy)[reports.groups], groups.questions[reports.groups]
    counted = groups.is_cell_report[reports.groups]
    assert (reports.values[by_coins & (place == LEVEL_QUESTION)] == 0.75).all()
    assert (reports.keys[by_coins & (place == LEVEL_QUESTION)] == 0).all()
    assert (reports.keys[~by_coins & (place == LEVEL_QUESTION)] == arms[~by_coins & (place == LEVEL_QUESTION)]).all()
    assert (reports.values[counted] == 1).all()
    best = ~by_coins & ~counted
    assert (reports.keys[best] % 3 == arms[best]).all()
    moved = policy.contribute(contexts, coins, Arms((arms + 1) % 3), rewards)
    assert (moved.keys[by_coins] == -1).all()


def test_a_report_by_itself_keeps_epsilon_whatever_coins_ask():
    """Two people who differ in all, for 3,000 coins; planted: a mechanism of twice the epsilon."""
    spec, policy = policy_of()
    mechanism, coins = policy.terms.mechanism, COINS[:3000]
    assert mechanism.local_epsilon == pytest.approx(1.0)
    truths = []
    for seed, reward in ((1, 1.0), (2, 0.0)):
        contexts = people(spec, 1, seed)[0].repeat(len(coins), axis=0)
        contributions = policy.contribute(contexts, coins, policy.decide(contexts, coins), np.full(len(coins), reward))
        truths.append([mechanism.true_symbols(contributions, np.full(len(coins), level)) for level in (0, 1)])
    symbols = {int(symbol) for pair in truths for level in pair for symbol in level}
    assert symbols <= set(range(2 * mechanism.buckets))
    e = np.exp(mechanism.epsilon)
    max_ratio = (e / (e + 2 * mechanism.buckets - 1)) / (1 / (e + 2 * mechanism.buckets - 1))
    assert max_ratio <= np.exp(spec.privacy.epsilon) * (1 + 1e-9)
    assert mechanism.with_less_noise(2.0).local_epsilon > 1.5


def test_plans_that_no_learner_makes_are_refused():
    spec, policy = policy_of()
    assert policy.is_compatible(spec)
    plan = policy.plan
    falling = plan.edges.copy()
    falling[1, 0] = falling[1, -1] + 1
    wrong_changes = [
        {"given": UNIT + 1},
        {"given": -1},
        {"edges": falling},
        {"edges": plan.edges[:1]},
        {"edges": plan.edges.astype(np.int64)},
        {"playable": ~plan.playable},
        {"resolutions": plan.resolutions[::-1].copy()},
        {"resolutions": plan.resolutions * 0},
        {"resolutions": plan.resolutions[:-1]},
    ]
    assert not any(replace(policy, plan=replace(plan, **change)).is_compatible(spec) for change in wrong_changes)
    assert not replace(policy, plan=None).is_compatible(spec)
    halved = replace(policy, plan=replace(plan, given=plan.given // 2))
    assert not halved.is_compatible(spec), "the mechanism's coins are others"


def test_retired_arms_are_given_to_nobody():
    _, policy = policy_of(experiment={"retired_arms": ["b"]})
    assert set(policy.plan.groups.arms.tolist()) == {-1, 0, 2}
    assert isinstance(policy.plan, CoinArms)
    whole = policy_of()[1]
    assert whole.plan.layout(whole.questions).thresholds.size + 27 == CoinArms.count_answers(whole.questions, 3)


def test_too_many_arms_for_coins_are_refused():
    with pytest.raises(SpecError) as refused:
        spec_of("local", privacy={"epsilon": 1.0}, experiment={"arms": [f"arm {place}" for place in range(60)]})
    assert refused.value.field == "experiment.arms"
    assert "partition" in refused.value.remedy


def policy(changes: dict[str, Any], arms: int, version: int) -> PartitionPolicy:
    step = Schedule(make_spec(changes, arms=arms)).open(7, version)
    assert isinstance(step.policy, PartitionPolicy)
    return step.policy


def test_the_share_of_an_added_arm_counts_from_its_first_policy() -> None:
    before, after = policy(SHUFFLE, 3, 1), policy(SHUFFLE, 4, 2)
    shares = after.with_decision_policies([(before, 0.5), (after, 0.5)]).layout.shares
    np.testing.assert_allclose(shares, [[0.5 / 3 + 0.125] * 3 + [0.125]] * len(shares), atol=1e-4)


def test_coins_of_before_chose_among_the_arms_of_before() -> None:
    before, after = policy({}, 3, 1), policy({}, 4, 2)
    layout = translate_choices(before, after)
    coins, keys = np.arange(20_000, dtype=np.uint32), np.zeros(20_000, np.int64)
    chosen = layout.find_groups(layout.hashes(coins, keys), keys)
    np.testing.assert_array_equal(chosen, before.decide(np.full((20_000, 2), 0.5), coins).arms)
