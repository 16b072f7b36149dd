"""What participants are shown, answer and report: a battery for every instance of every algorithm."""

import json

import numpy as np
import pytest

from privateer_client.inputs import read_outcome
from privateer_core.errors import InputError, InvalidValueWarning
from privateer_core.policies.policy import Plays, Points
from privateer_core.spec.adjustment import learned_names
from privateer_core.spec.reward import append_numbers
from privateer_lab.simulation.scores import SeededNoise
from tests.contract.instances import SPECS, draw_people, kind_of
from tests.contract.subjects import MESSAGES_MAX
from tests.support.partitions import same

pytestmark = pytest.mark.battery


def test_contributions_answer_the_question(spec, turns):
    for turn in turns:
        contributions = turn.policy.contribute(*draw_people(spec, turn.policy, 20))
        assert len(contributions) == 20
        assert hasattr(turn.policy.terms.mechanism, "layout") is hasattr(contributions, "keys")
        assert "0." not in repr(contributions), "it carries what people observed"


def test_reports_have_one_size_for_every_decision_and_reward(spec, turns):
    turn = turns[-1]
    mechanism = turn.policy.terms.mechanism
    people = 20 if mechanism.messages <= MESSAGES_MAX else 1
    contributions = turn.policy.contribute(*draw_people(spec, turn.policy, people))
    rows = mechanism.randomize(contributions, SeededNoise(1))
    assert {len(row.tobytes()) for row in rows} == {mechanism.report_size * mechanism.messages}


def test_choices_shown_are_json_and_rewards_are_read(spec, turns):
    for turn in turns:
        contexts, coins, decisions, _ = draw_people(spec, turn.policy, 1)
        arm = turn.policy.present_decision(spec, decisions)
        json.dumps(arm, allow_nan=False)
        assert are_possible(spec, decisions, arm)
        rewards, clipped = turn.policy.read(spec, answer(decisions, spec.reward.middle))
        assert not clipped
        turn.policy.contribute(contexts, coins, decisions, with_before(spec, rewards))


def with_before(spec, rewards):
    """Rewards, and numbers from before in the middle of their bounds, where slopes are learned."""
    return append_numbers(rewards, np.full((len(rewards), len(learned_names(spec.reward.covariates))), 0.5))


def are_possible(spec, decisions, choice):
    """Whether an application can carry out its choice: an arm, actions, or a point or two of a set."""
    if isinstance(decisions, Points):
        points = list(choice.values()) if isinstance(choice, dict) else [choice]
        return spec.domain.contains(np.array(points)) and len(points[0]) == len(spec.options)
    if isinstance(decisions, Plays):
        return all(0 <= row < len(spec.options) for row in choice)
    return choice in spec.options


def answer(decisions, reward):
    """Return an application's report: a number, a number for each action, or for each of two points."""
    if isinstance(decisions, Plays):
        return dict.fromkeys(decisions.actions.tolist(), reward)
    names = decisions.first_points if isinstance(decisions, Points) else None
    return dict.fromkeys(names, reward) if isinstance(names, dict) else reward


def test_rewards_far_beyond_their_bounds_are_reported_like_the_bounds(spec, turns):
    policy = turns[-1].policy
    batch = policy.terms.batch_size
    contexts, coins, decisions, _ = draw_people(spec, policy, batch)
    for side in (1, -1):
        assert not policy.read(spec, answer(decisions, spec.reward.middle + side * spec.reward.half_range))[1]
        releases = []
        for times in (50, 5000):
            read, clipped = policy.read(
                spec, answer(decisions, spec.reward.middle + side * times * spec.reward.half_range)
            )
            assert clipped
            inputs = policy.contribute(contexts, coins, decisions, with_before(spec, np.repeat(read, batch, axis=0)))
            releases.append(policy.terms.mechanism.simulate(inputs, np.random.default_rng(3)))
        assert same(*releases)


@pytest.mark.parametrize("bad", ["0.123456", None, [0.123456], {}, {"a": 0.123456}, float("nan"), True, 10**400])
def test_what_is_not_a_reward_is_refused_without_an_echo(spec, turns, bad):
    for reward in (bad, answer(turns[0].policy.decide(np.zeros((1, spec.dimension)), np.zeros(1, np.uint32)), bad)):
        with pytest.raises(InputError) as refused:
            turns[0].policy.read(spec, reward)
        assert "0.123" not in str(refused.value)


def test_an_invalid_reward_is_read_as_no_outcome(spec, turns):
    """Whether a device reports, and how much, does not tell what came of a choice; a message carries no value."""
    policy = turns[0].policy
    decisions = policy.decide(np.zeros((1, spec.dimension)), np.zeros(1, np.uint32))
    choice = policy.present_decision(spec, decisions)
    no_outcome, _ = policy.read(spec, spec.without_outcome(choice))
    for bad in ("0.123456", None, [0.123456], {}, {"a": 0.123456}, float("nan")):
        for reward in (bad, answer(decisions, bad)):
            with pytest.warns(InvalidValueWarning, match="no outcome") as warning:
                rewards, clipped = read_outcome(policy, spec, choice, reward)
            assert (rewards.tolist(), clipped) == (no_outcome.tolist(), False)
            assert "0.123" not in str(warning[0].message)


def test_what_is_too_large_for_a_number_is_clipped(spec, turns):
    policy = turns[0].policy
    decisions = policy.decide(np.zeros((1, spec.dimension)), np.zeros(1, np.uint32))
    choice = policy.present_decision(spec, decisions)
    for large, bound in ((10**400, spec.reward.high), (-np.inf, spec.reward.low)):
        rewards, clipped = read_outcome(policy, spec, choice, answer(decisions, large))
        assert rewards.tolist() == policy.read(spec, answer(decisions, bound))[0].tolist()
        assert clipped


@pytest.mark.parametrize("name", [name for name in SPECS if hasattr(kind_of(SPECS[name]), "edges")])
def test_boxes_of_an_answer_hold_each_participant_once(spec, turns):
    """Where a policy treats everybody in a box of contexts alike, answers speak of boxes."""
    for policy in (turns[0].policy, turns[-1].policy):
        lower, upper = policy.edges()
        assert lower.shape == upper.shape == (len(lower), spec.dimension)
        assert np.prod(upper - lower, axis=1).sum() == pytest.approx(1)
        assert policy.shares.shape == (len(lower), len(spec.options))
        assert policy.shares.sum(axis=1) == pytest.approx(1)
