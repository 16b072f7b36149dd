"""One battery for every algorithm under every trust model and calibration that it has: policies, learners, rounds."""

import json
import math
from copy import deepcopy
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from privateer.ages import message_size
from privateer.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer.arms_spec import ARMS_MIN, ArmsSpec
from privateer.codec import decode, encode
from privateer.decisions import Plays, Points
from privateer.errors import InputError, SpecError, TermsRefused, UnfitValueWarning
from privateer.result import Result, decode_result, encode_result
from privateer.trust import TRUST
from privateer.verification import Limits, verify
from privateer.wire.publication import Round
from privateer_client.outcomes import read_outcome
from privateer_lab.noise import SeededNoise
from privateer_server.algorithms import learner_for
from privateer_server.respec import extended, renamed, with_arm, without_arm
from privateer_server.schedule import Schedule
from tests.contract.subjects import MESSAGES_MAX, history, specs
from tests.support.partitions import same
from tests.support.people import bumps, observed

SPECS = specs()
WIDE = Limits(math.inf, 0.3, math.inf, honest_fraction=1.0, min_batch=1, arms="hidden", curator=True)


@pytest.fixture(params=SPECS)
def name(request) -> str:
    return request.param


@pytest.fixture
def spec(name):
    return SPECS[name]


@pytest.fixture
def played(name):
    """All rounds of the experiment."""
    return history(name)


def kind_of(spec):
    return algorithm(spec.algorithm.name).policy


def people_of(spec, policy, count, seed=3, coins=None):
    """Contexts, coins, decisions and rewards of so many people."""
    rng = np.random.default_rng(seed)
    contexts = rng.random((count, spec.dimension))
    coins = rng.integers(0, 2**32, count, dtype=np.uint32) if coins is None else coins
    decisions = policy.decide(contexts, coins)
    return contexts, coins, decisions, observed(spec, contexts, decisions, bumps(len(spec.options)), rng)


def facts_of(spec, step):
    """A round as the server publishes it."""
    terms = step.policy.terms
    return Round(
        experiment=spec.name,
        version=step.policy.version,
        model=spec.privacy.model,
        batch=step.batch,
        sealed_size=64 + message_size(step.policy),
        public_key=bytes(32),
        messages=terms.messages,
        groups=terms.mechanism.groups,
        least=step.least,
        deadline=step.seconds,
    )


@pytest.mark.parametrize("algorithm_name", ALGORITHMS)
def test_there_are_instances_of_every_trust_model_and_calibration(algorithm_name):
    kind = algorithm(algorithm_name).spec
    has = {(spec.privacy.model, spec.privacy.calibration): spec for spec in kind.instances().values()}
    assert all(type(spec) is kind for spec in has.values())
    assert {(model, "tight") for model in TRUST} <= set(has)
    for model in TRUST:
        if (model, "published") not in has:
            data = has[model, "tight"].model_dump(mode="json", exclude_none=True)
            data["privacy"] |= {"calibration": "published"}
            with pytest.raises(SpecError):
                parse_spec(data)


def test_specs_round_trip(spec):
    assert parse_spec(msgspec.json.decode(spec.model_dump_json())) == spec
    assert parse_spec(spec.without_people().model_dump(mode="json", exclude_none=True)) == spec.without_people()
    assert spec.cohorts[-1] == ""
    assert spec.options


def test_state_and_policy_round_trip(spec, played):
    learner = learner_for(spec)
    states = [learner.start(5), *(one.state for one in played)]
    for value, kind in [(state, learner.state_type) for state in states] + [
        (one.policy, kind_of(spec)) for one in played
    ]:
        assert type(value) is kind
        assert same(decode(encode(value), kind), value)


def test_decoded_values_learn_alike_and_nothing_changes_in_place(spec, played):
    learner, last = learner_for(spec), played[-1]
    before = deepcopy((last.step.state, last.policy, last.release))
    expected = learner.learn(last.step.state, last.policy, last.release)
    assert same(expected, last.state)
    assert all(map(same, (last.step.state, last.policy, last.release), before))
    back = [decode(encode(value), type(value)) for value in (last.step.state, last.policy)]
    assert same(learner_for(spec).learn(*back, last.release), expected)


def test_rounds_are_a_function_of_state_and_seed(spec, played):
    learner = learner_for(spec)
    state = played[len(played) // 2].state
    assert same(learner.next(state, 7, 5), learner.next(state, 7, 5))
    assert learner.next(state, 7, 5).policy.version == 7
    first, again, other = (encode(Schedule(spec).open(seed).policy) for seed in (5, 5, 6))
    assert first == again != other


def test_every_rounds_policy_checks_and_its_terms_verify(spec, played):
    assert len(played) > 1
    for one in played:
        one.policy.check(spec)
        assert one.policy.terms.batch == one.step.batch > 0
        facts = facts_of(spec, one.step)
        if spec.privacy.calibration == "tight":
            verify(one.policy.terms, spec, one.policy.cohort, facts, WIDE)
            assert one.policy.terms.holds
        else:
            with pytest.raises(TermsRefused):
                verify(one.policy.terms, spec, one.policy.cohort, facts, WIDE)
    for before, after in pairwise(played):
        assert after.policy.version == before.policy.version + 1


def test_nobody_is_asked_more_than_once(spec, played):
    """The promise of a round is the promise of the experiment."""
    everybody = getattr(spec.experiment, spec.people_key)
    draws = [one.policy.draw for one in played]
    if draws[0] is None:
        assert sum(one.step.batch for one in played) <= everybody
        assert [one.step.seen for one in played] == [sum(r.step.batch for r in played[:i]) for i in range(len(played))]
    else:
        asked = np.concatenate([draw.asked() for draw in draws])
        assert len(set(asked.tolist())) == len(asked)
        assert all(
            draw.people == everybody and draw.places >= one.step.batch for draw, one in zip(draws, played, strict=True)
        )


def test_the_final_policy_asks_nobody(spec, played):
    step = learner_for(spec).next(played[-1].state, 99, 9)
    assert step.batch == step.policy.terms.batch == 0
    step.policy.check(spec)
    assert same(decode(encode(step.policy), kind_of(spec)), step.policy)


def test_a_missed_round_is_followed_by_one_that_checks(spec, played):
    schedule, step = Schedule(spec), played[0].step
    for again in (False, True):
        after = schedule.miss(step, 9, again=again)
        after.policy.check(spec)
        assert after.policy.version == step.policy.version + 1
        assert after.batch == 0 if schedule.failed(after) else after.batch > 0
        assert schedule.miss(step, 9, 40, again=again).policy.version == 40


def test_the_best_policy_so_far_asks_nobody(spec, played):
    learner = learner_for(spec)
    for state in (learner.start(5), played[0].state, played[-1].state):
        step = learner.last(state, 7, 9)
        assert (step.batch, step.policy.version, step.policy.terms.batch) == (0, 7, 0)
        assert step.state is state
        step.policy.check(spec)
        assert same(decode(encode(step.policy), kind_of(spec)), step.policy)
        # What was paused goes on.
        after = learner.next(learner.miss(state, step.policy, again=True), 8, 9)
        after.policy.check(spec)
        assert after.batch == learner.next(state, 8, 9).batch


def takes_earlier_decisions(played):
    """Whether the last round takes reports on what the policy before decided; one whose people are drawn waits."""
    earlier, policy = played[-2].policy, played[-1].policy
    return policy.draw is None and earlier.cohort == policy.cohort and policy.takes(earlier.version)


@pytest.mark.parametrize("name", [name for name in SPECS if SPECS[name].privacy.calibration == "tight"])
def test_a_window_is_refused_just_where_a_round_takes_its_own_decisions_alone(spec, played):
    data = spec.model_dump(mode="json", exclude_none=True)
    data["experiment"]["conversion_window"] = 60.0
    if takes_earlier_decisions(played) or played[-1].policy.draw is not None:
        assert parse_spec(data).experiment.conversion_window == 60.0
        return
    with pytest.raises(SpecError) as refused:
        parse_spec(data)
    assert refused.value.field == "experiment.conversion_window"
    assert refused.value.remedy


def late_release(spec, policy, deciders):
    """What is released of people who chose by these policies, as many by each, and how many of them count."""
    mechanism, total = policy.terms.mechanism, policy.terms.mechanism.empty()
    if mechanism.messages > MESSAGES_MAX:
        made = policy.contribute(*people_of(spec, deciders[0], policy.terms.batch))
        return mechanism.simulate(made, np.random.default_rng(5))
    for decider in deciders:
        contexts, coins, decisions, rewards = people_of(spec, decider, policy.terms.batch // len(deciders))
        if policy.fresh_coins:
            coins = coins[::-1].copy()
        made, analyzer = policy.contribute(contexts, coins, decisions, rewards), policy.analyzer(decider)
        if policy.tells_age:  # then each part is simulated by itself
            assert analyzer.simulate(mechanism, made, np.random.default_rng(5)).reports == len(coins)
        total = mechanism.merge(total, analyzer.tally(mechanism, mechanism.randomize(made, SeededNoise(4)).tobytes()))
    return mechanism.release(total, SeededNoise(6))


def test_reports_on_earlier_decisions_count_once_and_lead_to_rounds_that_check(spec, played):
    """Half of a round's people chose by the policy before, where that is taken; the learner knows it."""
    earlier, last = played[-2].policy, played[-1]
    deciders = [earlier, last.policy] if takes_earlier_decisions(played) else [last.policy]
    release = late_release(spec, last.policy, deciders)
    assert release.reports == last.policy.terms.batch // len(deciders) * len(deciders)
    schedule = Schedule(spec)
    state = schedule.learned(last.step, release, [(one, 1 / len(deciders)) for one in deciders])
    assert same(decode(encode(state), schedule.learner.state_type), state)
    for asks in (True, False):
        schedule.follow(state, last.policy.version + 1, 9, asks=asks).policy.check(spec)


def test_rounds_after_the_horizon_take_late_reports(spec, played):
    over = learner_for(spec).next(played[-1].state, 99, 9)
    drained = Schedule(spec).drain(over, 9)
    drained.policy.check(spec)
    if drained.batch and spec.privacy.calibration == "tight":
        verify(drained.policy.terms, spec, drained.policy.cohort, facts_of(spec, drained), WIDE)


def changed_specs(spec):
    """The specs that an operator may make of one, by the field that changes."""
    made = {"horizon": extended(spec, spec.experiment.horizon * 2)}
    if isinstance(spec, ArmsSpec):
        made |= {"new": with_arm(spec, "one more")}
        if len(spec.options) > ARMS_MIN:
            made |= {"retired": without_arm(spec, spec.options[0])}
    return made


def unless_refused(change, state, before):
    """What a learner makes of a state; None if it refuses, which must say what to do."""
    try:
        return change(state, before)
    except SpecError as error:
        refusal = error
    assert refusal.field
    assert refusal.remedy
    return None


def test_a_change_leads_to_rounds_that_check_or_is_refused_with_a_remedy(spec, played):
    for after in changed_specs(spec).values():
        learner = learner_for(after)
        for state in (learner_for(spec).start(5), played[0].state, played[-1].state):
            changed = unless_refused(learner.changed, state, spec)
            if changed is None:
                continue
            for step in (learner.next(changed, 8, 9), learner.last(changed, 8, 9)):
                step.policy.check(after)
                assert step.batch == step.policy.terms.batch


def test_another_experiment_begins_with_what_was_learned_or_refuses(spec, played):
    after = renamed(spec, "another")
    learner = learner_for(after)
    for one in played:
        state = unless_refused(learner.begun, one.state, spec)
        if state is None:
            continue
        step = learner.next(state, 1, 9)
        step.policy.check(after)
        if step.batch and after.privacy.calibration == "tight":
            verify(step.policy.terms, after, step.policy.cohort, facts_of(after, step), WIDE)


def test_what_is_said_about_an_experiment_is_json(spec, played):
    learner = learner_for(spec)
    for one in (played[0], played[-1]):
        json.dumps(learner.describe(one.state), allow_nan=False)
        json.dumps(one.policy.describe(spec), allow_nan=False)
        assert all(isinstance(value, int | float) for value in learner.figures(one.state).values())
    json.dumps(learner.describe(learner.start(5)), allow_nan=False)
    assert all(isinstance(words, str) for words in learner.growth)


def test_results_round_trip(spec, played):
    learner = learner_for(spec)
    for state in (learner.start(5), played[0].state, played[-1].state):
        result = learner.result(state)
        assert result is None or (isinstance(result, Result) and decode_result(encode_result(result)) == result)


def test_no_round_is_larger_than_the_learner_says(spec, played):
    bulk = learner_for(spec).bulk(played[0].step)
    assert max(one.step.batch for one in played) <= max(most.people for most in bulk)
    sent = [one.step.batch * one.policy.terms.messages for one in played]
    assert max(sent) <= max(most.people * most.messages for most in bulk)


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
        one.policy.contribute(contexts, coins, decisions, rewards)


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
            made = policy.contribute(contexts, coins, decisions, np.repeat(read, batch, axis=0))
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
