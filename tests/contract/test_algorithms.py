"""One battery for every algorithm under every trust model and calibration that it has: policies, learners, rounds."""

import math
from copy import deepcopy
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_core.answer import Answer
from privateer_core.answer.conclusion import decode_answer, encode_answer
from privateer_core.answer.parts import BinMeans
from privateer_core.answer.policy_view import PolicyView
from privateer_core.codec import decode, encode
from privateer_core.errors import SpecError, TermsRefused
from privateer_core.policies.policy import sealed_size
from privateer_core.privacy.terms_verification import Limits, verify
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.arms import ARMS_MIN, ArmsSpec
from privateer_core.wire.publication import Round
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.algorithms import learner_for
from privateer_server.experiments.spec_changes import add_arm, extend_horizon, retire_arm, with_name
from privateer_server.rounds.schedule import Schedule
from tests.contract.instances import SPECS, draw_people, kind_of
from tests.contract.subjects import MESSAGES_MAX
from tests.support.partitions import same

pytestmark = pytest.mark.battery

WIDE = Limits(math.inf, 0.3, math.inf, honest_fraction=1.0, min_batch=1, arm_visibility="hidden", allow_central=True)


def facts_of(spec, step):
    """A round as the server publishes it."""
    terms = step.policy.terms
    return Round(
        experiment=spec.name,
        version=step.policy.version,
        model=spec.privacy.model,
        batch_size=step.batch_size,
        sealed_size=sealed_size(step.policy),
        public_key=bytes(32),
        messages=terms.messages,
        groups=terms.mechanism.groups,
        least=step.min_reports,
        deadline=step.seconds,
    )


@pytest.mark.parametrize("algorithm_name", ALGORITHMS)
def test_there_are_instances_of_every_trust_model(algorithm_name):
    """The algorithms of the product have every trust model; those of papers refuse the models that no paper has."""
    kind = algorithm(algorithm_name).spec
    has = {spec.privacy.model: spec for spec in kind.instances().values()}
    assert all(type(spec) is kind for spec in has.values())
    if {spec.privacy.trust.calibration for spec in has.values()} == {"tight"}:
        assert {row.name for row in TRUST.values() if kind.question in row.serves} <= set(has)
    body = next(iter(has.values())).model_dump(mode="json", exclude_none=True)
    for model in TRUST:
        if model not in has:
            with pytest.raises(SpecError):
                parse_spec(body | {"privacy": {"model": model, **TRUST[model].example}})


def test_specs_round_trip(spec):
    assert parse_spec(msgspec.json.decode(spec.model_dump_json())) == spec
    assert parse_spec(spec.without_people().model_dump(mode="json", exclude_none=True)) == spec.without_people()
    assert spec.cohorts[-1] == ""
    assert spec.options


def test_state_and_policy_round_trip(spec, turns):
    learner = learner_for(spec)
    states = [learner.start(5), *(turn.state for turn in turns)]
    for value, kind in [(state, learner.state_type) for state in states] + [
        (turn.policy, kind_of(spec)) for turn in turns
    ]:
        assert type(value) is kind
        assert same(decode(encode(value), kind), value)


def test_decoded_values_learn_alike_and_nothing_changes_in_place(spec, turns):
    learner, last = learner_for(spec), turns[-1]
    before = deepcopy((last.step.state, last.policy, last.release))
    expected = learner.learn(last.step.state, last.policy, last.release)
    assert same(expected, last.state)
    assert all(map(same, (last.step.state, last.policy, last.release), before))
    state, policy = (decode(encode(value), type(value)) for value in (last.step.state, last.policy))
    assert same(learner_for(spec).learn(state, policy, last.release), expected)


def test_rounds_are_a_function_of_state_and_seed(spec, turns):
    learner = learner_for(spec)
    state = turns[len(turns) // 2].state
    assert same(learner.open_next_round(state, 7, 5), learner.open_next_round(state, 7, 5))
    assert learner.open_next_round(state, 7, 5).policy.version == 7
    first_policy, repeated_policy, other_seed_policy = (encode(Schedule(spec).open(seed).policy) for seed in (5, 5, 6))
    assert first_policy == repeated_policy != other_seed_policy


def test_every_rounds_policy_checks_and_its_terms_verify(spec, turns):
    assert len(turns) > 1
    for turn in turns:
        turn.policy.check(spec)
        assert turn.policy.terms.batch_size == turn.step.batch_size > 0
        facts = facts_of(spec, turn.step)
        if not spec.privacy.trust.is_simulated:
            verify(turn.policy.terms, spec, turn.policy.cohort, facts, WIDE)
            assert turn.policy.terms.keeps_promise
        else:
            with pytest.raises(TermsRefused):
                verify(turn.policy.terms, spec, turn.policy.cohort, facts, WIDE)
    for before, after in pairwise(turns):
        assert after.policy.version == before.policy.version + 1


def test_each_participant_is_invited_to_one_round_at_most(spec, turns):
    """The promise of a round is the promise of the experiment."""
    everybody = getattr(spec.experiment, spec.people_key)
    draws = [turn.policy.draw for turn in turns]
    if draws[0] is None:
        assert sum(turn.step.batch_size for turn in turns) <= everybody
        assert [turn.step.n_reported for turn in turns] == [
            sum(r.step.batch_size for r in turns[:i]) for i in range(len(turns))
        ]
    else:
        invited = np.concatenate([draw.select_participants() for draw in draws])
        assert len(set(invited.tolist())) == len(invited)
        assert all(
            draw.people == everybody and draw.places >= turn.step.batch_size
            for draw, turn in zip(draws, turns, strict=True)
        )


def test_the_final_policy_invites_no_participants(spec, turns):
    step = learner_for(spec).open_next_round(turns[-1].state, 99, 9)
    assert step.batch_size == step.policy.terms.batch_size == 0
    step.policy.check(spec)
    assert same(decode(encode(step.policy), kind_of(spec)), step.policy)


def test_a_missed_round_is_followed_by_a_round_whose_policy_checks(spec, turns):
    schedule, step = Schedule(spec), turns[0].step
    for is_repeated in (False, True):
        following = schedule.advance_after_miss(step, 9, is_repeated=is_repeated)
        following.policy.check(spec)
        assert following.policy.version == step.policy.version + 1
        assert following.batch_size == 0 if schedule.has_failed(following) else following.batch_size > 0
        assert schedule.advance_after_miss(step, 9, 40, is_repeated=is_repeated).policy.version == 40


def test_the_best_policy_so_far_invites_no_participants(spec, turns):
    learner = learner_for(spec)
    for state in (learner.start(5), turns[0].state, turns[-1].state):
        step = learner.open_idle_round(state, 7, 9)
        assert (step.batch_size, step.policy.version, step.policy.terms.batch_size) == (0, 7, 0)
        assert step.state is state
        step.policy.check(spec)
        assert same(decode(encode(step.policy), kind_of(spec)), step.policy)
        # What was paused goes on.
        after = learner.open_next_round(learner.learn_without_release(state, step.policy, is_repeated=True), 8, 9)
        after.policy.check(spec)
        assert after.batch_size == learner.open_next_round(state, 8, 9).batch_size


def takes_earlier_decisions(turns):
    """Whether the last round takes reports on decisions of the policy before; a round of drawn participants waits."""
    earlier, policy = turns[-2].policy, turns[-1].policy
    return policy.draw is None and earlier.cohort == policy.cohort and policy.accepts_decisions_of(earlier.version)


@pytest.mark.parametrize("name", [name for name in SPECS if SPECS[name].privacy.trust.calibration == "tight"])
def test_a_conversion_window_is_refused_just_where_a_round_takes_its_own_decisions_alone(spec, turns):
    data = spec.model_dump(mode="json", exclude_none=True)
    data["experiment"]["conversion_window_seconds"] = 60.0
    if takes_earlier_decisions(turns) or turns[-1].policy.draw is not None:
        assert parse_spec(data).experiment.conversion_window_seconds == 60.0
        return
    with pytest.raises(SpecError) as refused:
        parse_spec(data)
    assert refused.value.field == "experiment.conversion_window_seconds"
    assert refused.value.remedy


def late_release(spec, policy, deciders):
    """Return a release of participants who chose by these policies, as many by each, and how many of them count."""
    mechanism, total = policy.terms.mechanism, policy.terms.mechanism.empty()
    if mechanism.messages > MESSAGES_MAX:
        batch = policy.contribute(*draw_people(spec, deciders[0], policy.terms.batch_size))
        return mechanism.simulate(batch, np.random.default_rng(5))
    for decider in deciders:
        contexts, coins, decisions, rewards = draw_people(spec, decider, policy.terms.batch_size // len(deciders))
        if policy.has_fresh_coins:
            coins = coins[::-1].copy()
        batch, analyzer = policy.contribute(contexts, coins, decisions, rewards), policy.make_analyzer(decider)
        if policy.tells_age:  # then each part is simulated by itself
            assert analyzer.simulate(mechanism, batch, np.random.default_rng(5)).reports == len(coins)
        total = mechanism.merge(total, analyzer.tally(mechanism, mechanism.randomize(batch, SeededNoise(4)).tobytes()))
    return mechanism.release(total, SeededNoise(6))


def test_reports_on_earlier_decisions_count_once_and_lead_to_rounds_that_check(spec, turns):
    """Half of a round's people chose by the policy before, where that is taken; the learner knows it."""
    earlier, last = turns[-2].policy, turns[-1]
    deciders = [earlier, last.policy] if takes_earlier_decisions(turns) else [last.policy]
    release = late_release(spec, last.policy, deciders)
    assert release.reports == last.policy.terms.batch_size // len(deciders) * len(deciders)
    schedule = Schedule(spec)
    state = schedule.learn(last.step, release, [(decider, 1 / len(deciders)) for decider in deciders])
    assert same(decode(encode(state), schedule.learner.state_type), state)
    for asks in (True, False):
        schedule.open_next_step(state, last.policy.version + 1, 9, is_inviting=asks).policy.check(spec)


def test_rounds_after_the_horizon_take_late_reports(spec, turns):
    over = learner_for(spec).open_next_round(turns[-1].state, 99, 9)
    drained = Schedule(spec).open_drain_round(over, 9)
    drained.policy.check(spec)
    if drained.batch_size and not spec.privacy.trust.is_simulated:
        verify(drained.policy.terms, spec, drained.policy.cohort, facts_of(spec, drained), WIDE)


def changed_specs(spec):
    """The specs that an operator may make of one, by the field that changes."""
    specs = {"horizon": extend_horizon(spec, spec.experiment.horizon * 2)}
    if isinstance(spec, ArmsSpec):
        specs |= {"new": add_arm(spec, "one more")}
        if len(spec.options) > ARMS_MIN:
            specs |= {"retired_arms": retire_arm(spec, spec.options[0])}
    return specs


def unless_refused(change, state, before):
    """Return what a learner makes of a state; None if it refuses, with a remedy in its message."""
    try:
        return change(state, before)
    except SpecError as error:
        refusal = error
    assert refusal.field
    assert refusal.remedy
    return None


def test_a_change_leads_to_rounds_that_check_or_is_refused_with_a_remedy(spec, turns):
    for after in changed_specs(spec).values():
        learner = learner_for(after)
        for state in (learner_for(spec).start(5), turns[0].state, turns[-1].state):
            changed = unless_refused(learner.apply_spec_change, state, spec)
            if changed is None:
                continue
            for step in (learner.open_next_round(changed, 8, 9), learner.open_idle_round(changed, 8, 9)):
                step.policy.check(after)
                assert step.batch_size == step.policy.terms.batch_size


def test_another_experiment_begins_with_what_was_learned_or_refuses(spec, turns):
    after = with_name(spec, "another")
    learner = learner_for(after)
    for turn in turns:
        state = unless_refused(learner.start_from_state, turn.state, spec)
        if state is None:
            continue
        step = learner.open_next_round(state, 1, 9)
        step.policy.check(after)
        if step.batch_size and not after.privacy.trust.is_simulated:
            verify(step.policy.terms, after, step.policy.cohort, facts_of(after, step), WIDE)


def test_views_and_figures_of_an_experiment_are_json(spec, turns):
    learner = learner_for(spec)
    for turn in (turns[0], turns[-1]):
        view = turn.policy.view(spec)
        assert (view.algorithm, view.version) == (spec.algorithm.name, turn.policy.version)
        assert msgspec.json.decode(msgspec.json.encode(view), type=PolicyView) == view
        assert all(isinstance(value, int | float) for value in learner.figures(turn.state).values())
    assert all(isinstance(words, str) for words in learner.growth)


def test_answers_round_trip(spec, turns):
    learner = learner_for(spec)
    for state in (learner.start(5), turns[0].state, turns[-1].state):
        answer = learner.answer(state)
        assert decode_answer(encode_answer(answer)) == answer
        assert msgspec.json.decode(msgspec.json.encode(answer), type=Answer) == answer


def test_answers_hold_no_estimate_before_the_first_report(spec):
    answer = learner_for(spec).answer(learner_for(spec).start(5))
    assert (answer.stage, answer.people, answer.recommended, answer.estimates, answer.effects, answer.gain) == (
        *("learning", 0, None, (), ()),
        None,
    )
    assert answer.first_of(BinMeans) is None


def test_no_round_is_larger_than_the_learner_says(spec, turns):
    bulk = learner_for(spec).list_round_volumes(turns[0].step)
    assert max(turn.step.batch_size for turn in turns) <= max(entry.people for entry in bulk)
    messages = [turn.step.batch_size * turn.policy.terms.messages for turn in turns]
    assert max(messages) <= max(entry.people * entry.messages for entry in bulk)
