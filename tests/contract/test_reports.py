"""What people are shown, answer and report: a battery for every instance of every algorithm."""

import json

import numpy as np
import pytest

from privateer_client.inputs import read_outcome
from privateer_core.errors import InputError, UnfitValueWarning
from privateer_core.policies.decisions import Plays, Points
from privateer_core.spec.adjustment import learned_names, with_numbers
from privateer_lab.simulation.devices import SeededNoise
from tests.contract.instances import SPECS, kind_of, people_of
from tests.contract.subjects import MESSAGES_MAX
from tests.support.partitions import same

pytestmark = pytest.mark.battery


def test_contributions_answer_the_question(spec, played):
    for one in played:
        made = one.policy.contribute(*people_of(spec, one.policy, 20))
        assert len(made) == 20
        assert hasattr(one.policy.terms.mechanism, "layout") is hasattr(made, "keys")
        assert "0." not in repr(made), "it carries what people observed"


def test_reports_have_one_size_whatever_people_do(spec, played):
    one = played[-1]
    mechanism = one.policy.terms.mechanism
    people = 20 if mechanism.messages <= MESSAGES_MAX else 1
    made = one.policy.contribute(*people_of(spec, one.policy, people))
    rows = mechanism.randomize(made, SeededNoise(1))
    assert {len(row.tobytes()) for row in rows} == {mechanism.report_size * mechanism.messages}


def test_what_people_are_shown_is_json_and_what_they_answer_is_read(spec, played):
    for one in played:
        contexts, coins, decisions, _ = people_of(spec, one.policy, 1)
        shown = one.policy.shown(spec, decisions)
        json.dumps(shown, allow_nan=False)
        assert are_possible(spec, decisions, shown)
        rewards, clipped = one.policy.read(spec, answer(decisions, spec.reward.middle))
        assert not clipped
        one.policy.contribute(contexts, coins, decisions, with_before(spec, rewards))


def with_before(spec, rewards):
    """Rewards, and numbers from before in the middle of their bounds, where slopes are learned."""
    return with_numbers(rewards, np.full((len(rewards), len(learned_names(spec.reward.adjust))), 0.5))


def are_possible(spec, decisions, shown):
    """Whether an application can do what it is shown: an arm, some actions, or one point or two of a set."""
    if isinstance(decisions, Points):
        points = list(shown.values()) if isinstance(shown, dict) else [shown]
        return spec.domain.holds(np.array(points)) and len(points[0]) == len(spec.options)
    return {str(row) for row in shown} <= set(spec.options) if isinstance(decisions, Plays) else shown in spec.options


def answer(decisions, reward):
    """What an application reports: a number, or one for each action, or for each of two points."""
    if isinstance(decisions, Plays):
        return dict.fromkeys(decisions.actions.tolist(), reward)
    names = decisions.shown if isinstance(decisions, Points) else None
    return dict.fromkeys(names, reward) if isinstance(names, dict) else reward


def test_rewards_far_beyond_their_bounds_say_the_same(spec, played):
    policy = played[-1].policy
    batch = policy.terms.batch
    contexts, coins, decisions, _ = people_of(spec, policy, batch)
    for side in (1, -1):
        assert not policy.read(spec, answer(decisions, spec.reward.middle + side * spec.reward.half_range))[1]
        releases = []
        for times in (50, 5000):
            read, clipped = policy.read(
                spec, answer(decisions, spec.reward.middle + side * times * spec.reward.half_range)
            )
            assert clipped
            made = policy.contribute(contexts, coins, decisions, with_before(spec, np.repeat(read, batch, axis=0)))
            releases.append(policy.terms.mechanism.simulate(made, np.random.default_rng(3)))
        assert same(*releases)


@pytest.mark.parametrize("bad", ["0.123456", None, [0.123456], {}, {"a": 0.123456}, float("nan"), True, 10**400])
def test_what_is_not_a_reward_is_refused_without_an_echo(spec, played, bad):
    for reward in (bad, answer(played[0].policy.decide(np.zeros((1, spec.dimension)), np.zeros(1, np.uint32)), bad)):
        with pytest.raises(InputError) as refused:
            played[0].policy.read(spec, reward)
        assert "0.123" not in str(refused.value)


def test_whatever_an_application_reports_is_read_as_if_there_were_no_outcome(spec, played):
    """Whether a device reports, and how much, does not tell what came of a choice; a message carries no value."""
    policy = played[0].policy
    decisions = policy.decide(np.zeros((1, spec.dimension)), np.zeros(1, np.uint32))
    shown = policy.shown(spec, decisions)
    nothing, _ = policy.read(spec, spec.without_outcome(shown))
    for bad in ("0.123456", None, [0.123456], {}, {"a": 0.123456}, float("nan")):
        for reward in (bad, answer(decisions, bad)):
            with pytest.warns(UnfitValueWarning, match="no outcome") as told:
                rewards, clipped = read_outcome(policy, spec, shown, reward)
            assert (rewards.tolist(), clipped) == (nothing.tolist(), False)
            assert "0.123" not in str(told[0].message)


def test_what_is_too_large_for_a_number_is_clipped(spec, played):
    policy = played[0].policy
    decisions = policy.decide(np.zeros((1, spec.dimension)), np.zeros(1, np.uint32))
    shown = policy.shown(spec, decisions)
    for large, bound in ((10**400, spec.reward.high), (-np.inf, spec.reward.low)):
        rewards, clipped = read_outcome(policy, spec, shown, answer(decisions, large))
        assert rewards.tolist() == policy.read(spec, answer(decisions, bound))[0].tolist()
        assert clipped


@pytest.mark.parametrize("name", [name for name in SPECS if hasattr(kind_of(SPECS[name]), "edges")])
def test_boxes_count_everybody_once(spec, played):
    """Where a policy treats everybody in a box of contexts alike, the simulator counts people by boxes."""
    for policy in (played[0].policy, played[-1].policy):
        lower, upper = policy.edges()
        assert lower.shape == upper.shape == (len(policy.names()), spec.dimension)
        assert len(set(policy.names())) == len(policy.names())
        assert np.prod(upper - lower, axis=1).sum() == pytest.approx(1)
        assert policy.shares.shape == (len(lower), len(spec.options))
        assert policy.shares.sum(axis=1) == pytest.approx(1)
        people = np.random.default_rng(2).integers(0, 5, (*policy.shares.shape, 2)) * (policy.shares > 0)[..., None]
        counts, without = policy.count(people)
        layout = policy.terms.mechanism.layout
        assert counts.shape == (layout.keys, layout.groups, 2)
        assert counts.sum() + without == people.sum()
