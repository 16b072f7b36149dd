"""The policy that measures the gain: groups by coins, keys of reports, and what a device refuses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privateer_core.algorithms import parse_spec
from privateer_core.codec import encode
from privateer_core.errors import Malformed, SpecError
from privateer_core.policies.decisions import Arms
from privateer_core.policies.gain_policy import (
    ANY,
    BY_CONTEXT,
    EITHER,
    KEYS,
    NO_OPTION,
    SINGLE,
    GainPolicy,
    check_policy,
    decode_policy,
)
from privateer_core.privacy.terms import calibrate, nobody_asked
from privateer_core.spec.spec import Spec
from privateer_server.rounds.loop import Schedule
from tests.support.partitions import same
from tests.support.people import rounds
from tests.support.specs import SHUFFLE, make_spec, tables
from tests.support.statistics import fits, independent

MEASURED = {**SHUFFLE, "experiment.gain_share": 0.1}
PEOPLE = 60_000


def gain_policy(spec: Spec, single: int = 1) -> GainPolicy[Any]:
    """The policy of the round that measures what the last policy before any report gains."""
    learner = Schedule(spec.learning).learner
    inside = learner.last(learner.start(5), 3, 7).policy
    made: Any = spec
    terms = calibrate(spec.privacy, made.gain_people, made.gain_question(KEYS, 7))
    return GainPolicy(3, single, 7, np.array(made.playable), inside, terms)


class Given:
    """A policy that gives everybody the arm of their own that their context names."""

    def decide(self, contexts: NDArray[np.float64], coins: NDArray[np.uint32]) -> Arms:
        assert not coins.any(), "who asks nobody has no use for coins"
        return Arms(contexts[:, 0].astype(np.int64))


def people(arm: int, count: int = PEOPLE) -> tuple[NDArray[np.float64], NDArray[np.uint32], NDArray[np.uint32]]:
    """People to whom a policy gives an arm, with coins of their choices and of their reports."""
    coins, fresh = np.random.default_rng(arm).integers(0, 2**32, (2, count), dtype=np.uint32)
    return np.full((count, 1), float(arm)), coins, fresh


def law(policy: GainPolicy[Any], given: int) -> NDArray[np.float64]:
    """The probability of each key and arm for people to whom the policy gives an arm, (keys, arms)."""
    by_context, single, some = policy.shares
    arms = policy.playable / policy.playable.sum()
    found = np.zeros((KEYS, len(arms)))
    found[ANY] = some * arms
    found[EITHER if given == policy.single else BY_CONTEXT, given] += by_context
    if policy.single != NO_OPTION:
        found[EITHER if given == policy.single else SINGLE, policy.single] += single
    return found


@pytest.mark.parametrize("single", [1, NO_OPTION])
@pytest.mark.parametrize("given", [0, 1])
def test_keys_drawn_for_reports_have_the_law_of_the_groups_of_choices(given: int, single: int) -> None:
    """False alarm: 1e-6 each. The key of a report needs no coins of the choice, and says as much."""
    policy = replace(
        gain_policy(make_spec(MEASURED), single), by_context=Given(), playable=np.array([True, True, False])
    )
    contexts, coins, fresh = people(given)
    arms = policy.decide(contexts, coins).arms
    keys = policy.keys(contexts, fresh, arms)
    counts = np.zeros((KEYS, 3))
    np.add.at(counts, (keys, arms), 1)
    assert fits(counts, PEOPLE * law(policy, given))
    # A tenth more of those who follow the policy would be noticed.
    assert not fits(counts, PEOPLE * (law(policy, given) * np.array([1.1, 0.9, 1.1, 0.9])[:, None]))


def test_of_people_with_one_arm_the_key_says_nothing_of_the_group_that_gave_it() -> None:
    policy = replace(gain_policy(make_spec(MEASURED)), by_context=Given())
    contexts, coins, fresh = people(0)
    arms = policy.decide(contexts, coins).arms
    some = arms == 0
    # Who followed the policy would have got the third arm if it had said so; who got any arm would have kept it.
    followed = policy.decide(np.full_like(contexts, 2.0), coins).arms[some] == 2
    assert 0.8 < followed.mean() < 0.95
    told = policy.keys(contexts, fresh, arms)[some] == BY_CONTEXT
    assert independent(told.astype(np.int64), followed.astype(np.int64))


def test_the_policy_round_trips_beside_those_of_the_algorithm() -> None:
    spec = make_spec(MEASURED)
    policy, kind = gain_policy(spec), type(gain_policy(spec).by_context)
    assert same(decode_policy(encode(policy), kind), policy)
    assert same(decode_policy(encode(policy.by_context), kind), policy.by_context)
    check_policy(policy, spec)
    check_policy(Schedule(spec).open(1).policy, spec)
    for body in (b"", b"\x80", b"\x90", encode(policy)[:-9], b"\x81\xaaby_context\xc0"):
        with pytest.raises(Malformed):
            decode_policy(body, kind)


def lies(spec: Spec) -> dict[str, Any]:
    policy = gain_policy(spec)
    asked = nobody_asked(spec.privacy, spec.usual_question())
    return {
        "no such option": replace(policy, single=3),
        "an option below all": replace(policy, single=-2),
        "another version inside": replace(policy, version=4),
        "a retired option": replace(policy, playable=np.array([True, False, True])),
        "nobody asked": replace(policy, terms=replace(policy.terms, batch=0)),
        "more people than are to measure it": replace(policy, terms=replace(policy.terms, batch=2001)),
        "another question": replace(policy, terms=replace(asked, batch=2000)),
        "a policy inside that asks people": replace(policy, by_context=Schedule(spec).open(1, 3).policy),
        "a seed that is none": replace(policy, seed=-1),
    }


@pytest.mark.parametrize("lie", lies(make_spec(MEASURED)))
def test_a_device_refuses_what_no_learner_makes(lie: str) -> None:
    with pytest.raises(Malformed):
        check_policy(lies(make_spec(MEASURED))[lie], make_spec(MEASURED))


def test_a_device_refuses_it_where_nobody_is_to_measure_anything() -> None:
    policy = gain_policy(make_spec(MEASURED))
    with pytest.raises(Malformed):
        check_policy(policy, make_spec(SHUFFLE))


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"experiment.gain_share": 0.6}, "experiment.gain_share", "less than or equal to 0.5"),
        ({"experiment.gain_share": -0.1}, "experiment.gain_share", "greater than or equal to 0"),
        ({"experiment.reports_per_person": 2}, "experiment.gain_share", "people who report once"),
        (
            {"experiment.horizon": 2000, "experiment.gain_share": 0.5, "experiment.round_size": 2000},
            "experiment.gain_share",
            "leaves 1,000 people",
        ),
        ({"algorithm.name": "bandit", "context": None}, "experiment.gain_share", "choose by context"),
        ({"algorithm.name": "trial"}, "experiment.gain_share", "choose by context"),
        ({"algorithm.name": "linear", "privacy.model": "local", "privacy.delta": 1e-6}, "privacy.delta", "must be 0"),
    ],
)
def test_shares_that_measure_nothing_are_refused(changes: dict[str, Any], field: str, says: str) -> None:
    data = tables({**MEASURED, **changes})
    with pytest.raises(SpecError) as refused:
        parse_spec({name: table for name, table in data.items() if table is not None})
    assert refused.value.field == field
    assert says in str(refused.value)
    assert refused.value.remedy


def test_too_few_people_measure_nothing_and_the_spec_says_so() -> None:
    few = make_spec({**MEASURED, "experiment.gain_share": 0.04})
    assert (few.gain_people, few.learning_people, few.learning) == (0, 20_000, few)
    [said] = [one for one in few.concerns() if "gain_share" in one]
    assert "asks 800 people what choosing by context gains, and it takes 1,000: nobody is asked" in said
    assert not any("gain_share" in one for one in make_spec(MEASURED).concerns())
    assert not [one for one in rounds(few, seed=1) if isinstance(one.policy, GainPolicy)]


def test_specs_without_a_share_keep_their_bytes() -> None:
    assert "gain_share" not in make_spec(SHUFFLE).model_dump_json()
    assert make_spec(SHUFFLE).learning is not None
    measured = make_spec(MEASURED)
    assert '"gain_share":0.1' in measured.model_dump_json()
    assert (measured.gain_people, measured.learning_people) == (2000, 18_000)
    assert measured.learning.experiment.horizon == sum(one.batch for one in measured.planned_rounds()) == 18_000
