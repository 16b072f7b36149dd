"""Arms that coins give where no crowd hides a report: who gets them, what people say, and what a report may cost."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_core.algorithms.additive.coin_arms import LEVEL, CoinArms
from privateer_core.errors import SpecError
from privateer_core.policies.decisions import Arms
from privateer_core.primitives.public_coins import UNIT
from privateer_server.algorithms import learner_for
from tests.unit.algorithms.test_additive import people, spec_of

ALONE = {"privacy": {"epsilon": 1.0}}
COINS = np.random.default_rng(3).integers(0, 2**32, 200_000, dtype=np.uint32)


def policy_of(reported=4000, **more):
    """A policy after so many people, whose best arm is the second."""
    spec = spec_of("local", **{**ALONE, **more})
    learner = learner_for(spec)
    state = replace(learner.start(1), reported=reported)
    policy = learner.next(state, 2, 7).policy
    means = policy.means.copy()
    means[1, 0] += 800
    return spec, replace(policy, means=means, draws=means[None])


def given(policy):
    """Which groups of coins give an arm."""
    return policy.plan.groups.arms >= 0


def test_below_four_reports_alone_have_a_plan_and_from_four_on_they_have_none():
    for privacy in ({"epsilon": 3.9}, {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6, "arms": "as-local"}):
        assert spec_of("local", privacy=privacy).starts_from_levels
    assert not spec_of("local").starts_from_levels
    assert not spec_of("shuffle").starts_from_levels
    first = learner_for(spec_of("local", **ALONE))
    assert first.next(first.start(1), 1, 7).policy.plan.given == UNIT
    assert spec_of("local", **ALONE).experiment.round_size == 500


def test_coins_give_every_arm_alike_and_all_others_get_the_best_one():
    spec, policy = policy_of()
    contexts = people(spec, len(COINS))[0]
    arms = policy.decide(contexts, COINS).arms
    group = policy.plan.layout(policy.questions).group
    told = policy.contribute(contexts, COINS, Arms(arms), np.ones(len(arms)))
    by_coins = given(policy)[told.groups]
    assert group is not None
    assert by_coins.mean() == pytest.approx(0.25 * 0.95, abs=0.005)
    assert np.bincount(arms[by_coins]) / by_coins.sum() == pytest.approx([1 / 3] * 3, abs=0.02)
    assert set(arms[~by_coins].tolist()) == {1}


def test_coins_decide_whatever_the_context_is():
    """Or else an arm that coins seem to give would say something of the person."""
    spec, policy = policy_of()
    one, other = (people(spec, 1, seed)[0].repeat(2000, axis=0) for seed in (1, 2))
    some = COINS[:2000]
    arms = [policy.decide(contexts, some).arms for contexts in (one, other)]
    told = [
        policy.contribute(contexts, some, Arms(own), np.ones(2000))
        for contexts, own in zip((one, other), arms, strict=True)
    ]
    assert told[0].groups.tolist() == told[1].groups.tolist()
    own = given(policy)[told[0].groups]
    assert arms[0][own].tolist() == arms[1][own].tolist()


def test_who_got_an_arm_by_coins_and_reports_later_had_that_arm_or_names_the_arm():
    """Planted: a seed of coins of each round's own."""
    _, policy = policy_of()
    plan = policy.plan
    later = replace(plan, given=plan.given // 3)
    layouts = [one.layout(policy.questions) for one in (plan, later)]
    had, now = (
        one.arms(layout, COINS, np.full(len(COINS), -1)) for one, layout in zip((plan, later), layouts, strict=True)
    )
    assert (now >= 0).sum() < (had >= 0).sum() / 2
    assert (had[now >= 0] == now[now >= 0]).all()
    other = replace(layouts[1], seed=9)
    planted = later.arms(other, COINS, np.full(len(COINS), -1))
    assert (had[planted >= 0] == planted[planted >= 0]).mean() < 0.5


def test_people_say_rewards_where_coins_gave_the_arm_and_their_arm_where_it_is_the_best():
    spec, policy = policy_of()
    contexts, coins = people(spec, 20_000)[0], COINS[:20_000]
    arms, rewards = policy.decide(contexts, coins).arms, np.full(20_000, 0.75)
    told = policy.contribute(contexts, coins, Arms(arms), rewards)
    groups = policy.plan.groups
    own, place, counted = given(policy)[told.groups], groups.asked[told.groups], groups.counted[told.groups]
    assert (told.values[own & (place == LEVEL)] == 0.75).all()
    assert (told.keys[own & (place == LEVEL)] == 0).all()
    assert (told.keys[~own & (place == LEVEL)] == arms[~own & (place == LEVEL)]).all()
    assert (told.values[counted] == 1).all()
    best = ~own & ~counted
    assert (told.keys[best] % 3 == arms[best]).all()
    moved = policy.contribute(contexts, coins, Arms((arms + 1) % 3), rewards)
    assert (moved.keys[own] == -1).all()


def test_a_report_by_itself_keeps_epsilon_whatever_coins_ask():
    """Two people who differ in all, for 3,000 coins; planted: a mechanism of twice the epsilon."""
    spec, policy = policy_of()
    mechanism, some = policy.terms.mechanism, COINS[:3000]
    assert mechanism.local_epsilon == pytest.approx(1.0)
    truths = []
    for seed, reward in ((1, 1.0), (2, 0.0)):
        contexts = people(spec, 1, seed)[0].repeat(len(some), axis=0)
        told = policy.contribute(contexts, some, policy.decide(contexts, some), np.full(len(some), reward))
        truths.append([mechanism.truth(told, np.full(len(some), level)) for level in (0, 1)])
    seen = {int(one) for pair in truths for level in pair for one in level}
    assert seen <= set(range(2 * mechanism.buckets))
    e = np.exp(mechanism.epsilon)
    most = (e / (e + 2 * mechanism.buckets - 1)) / (1 / (e + 2 * mechanism.buckets - 1))
    assert most <= np.exp(spec.privacy.epsilon) * (1 + 1e-9)
    assert mechanism.weaker(2.0).local_epsilon > 1.5


def test_plans_that_no_learner_makes_are_refused():
    spec, policy = policy_of()
    assert policy.fits(spec)
    plan = policy.plan
    falling = plan.edges.copy()
    falling[1, 0] = falling[1, -1] + 1
    wrong = [
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
    assert not any(replace(policy, plan=replace(plan, **one)).fits(spec) for one in wrong)
    assert not replace(policy, plan=None).fits(spec)
    assert not replace(policy, plan=replace(plan, given=plan.given // 2)).fits(spec), "the mechanism's coins are others"


def test_retired_arms_are_given_to_nobody():
    _, policy = policy_of(experiment={"retired": ["b"]})
    assert set(policy.plan.groups.arms.tolist()) == {-1, 0, 2}
    assert isinstance(policy.plan, CoinArms)
    whole = policy_of()[1]
    assert whole.plan.layout(whole.questions).thresholds.size + 27 == CoinArms.answers(whole.questions, 3)


def test_too_many_arms_for_coins_are_refused():
    with pytest.raises(SpecError) as refused:
        spec_of("local", privacy={"epsilon": 1.0}, experiment={"arms": [f"arm {place}" for place in range(60)]})
    assert refused.value.field == "experiment.arms"
    assert "partition" in refused.value.remedy
