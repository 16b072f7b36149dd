"""One battery for every algorithm under every trust model and calibration that it has: policies, learners, rounds."""

import math
from copy import deepcopy
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_core.answer import Answer
from privateer_core.answer.parts import BinMeans
from privateer_core.answer.policy_view import PolicyView
from privateer_core.answer.stored import decode_answer, encode_answer
from privateer_core.codec import decode, encode
from privateer_core.errors import SpecError, TermsRefused
from privateer_core.policies.decisions import message_size
from privateer_core.privacy.terms_verification import Limits, verify
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.arms import ARMS_MIN, ArmsSpec
from privateer_core.wire.publication import Round
from privateer_lab.simulation.devices import SeededNoise
from privateer_server.algorithms import learner_for
from privateer_server.experiments.spec_changes import extended, renamed, with_arm, without_arm
from privateer_server.rounds.loop import Schedule
from tests.contract.instances import SPECS, kind_of, people_of
from tests.contract.subjects import MESSAGES_MAX
from tests.support.partitions import same

pytestmark = pytest.mark.battery

WIDE = Limits(math.inf, 0.3, math.inf, honest_fraction=1.0, min_batch=1, arms="hidden", curator=True)


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
def test_there_are_instances_of_every_trust_model(algorithm_name):
    """Of the product's; those of papers have what the paper has, and refuse the others."""
    kind = algorithm(algorithm_name).spec
    has = {spec.privacy.model: spec for spec in kind.instances().values()}
    assert all(type(spec) is kind for spec in has.values())
    if {spec.privacy.trust.calibration for spec in has.values()} == {"tight"}:
        assert set(TRUST) <= set(has)
    some = next(iter(has.values())).model_dump(mode="json", exclude_none=True)
    for model in TRUST:
        if model not in has:
            with pytest.raises(SpecError):
                parse_spec(some | {"privacy": {"model": model, **TRUST[model].example}})


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
        if spec.privacy.trust.calibration == "tight":
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


@pytest.mark.parametrize("name", [name for name in SPECS if SPECS[name].privacy.trust.calibration == "tight"])
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
    if drained.batch and spec.privacy.trust.calibration == "tight":
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
        if step.batch and after.privacy.trust.calibration == "tight":
            verify(step.policy.terms, after, step.policy.cohort, facts_of(after, step), WIDE)


def test_what_is_said_about_an_experiment_is_json(spec, played):
    learner = learner_for(spec)
    for one in (played[0], played[-1]):
        view = one.policy.view(spec)
        assert (view.algorithm, view.version) == (spec.algorithm.name, one.policy.version)
        assert msgspec.json.decode(msgspec.json.encode(view), type=PolicyView) == view
        assert all(isinstance(value, int | float) for value in learner.figures(one.state).values())
    assert all(isinstance(words, str) for words in learner.growth)


def test_answers_round_trip(spec, played):
    learner = learner_for(spec)
    for state in (learner.start(5), played[0].state, played[-1].state):
        answer = learner.answer(state)
        assert decode_answer(encode_answer(answer)) == answer
        assert msgspec.json.decode(msgspec.json.encode(answer), type=Answer) == answer


def test_nothing_is_said_that_is_not_known(spec):
    answer = learner_for(spec).answer(learner_for(spec).start(5))
    assert (answer.status, answer.people, answer.recommended, answer.estimates, answer.effects, answer.gain) == (
        *("learning", 0, None, (), ()),
        None,
    )
    assert answer.first_of(BinMeans) is None


def test_no_round_is_larger_than_the_learner_says(spec, played):
    bulk = learner_for(spec).bulk(played[0].step)
    assert max(one.step.batch for one in played) <= max(most.people for most in bulk)
    sent = [one.step.batch * one.policy.terms.messages for one in played]
    assert max(sent) <= max(most.people * most.messages for most in bulk)
