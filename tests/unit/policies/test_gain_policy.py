"""Policies that measure the gain, and reports with the age of a choice."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privateer_core.algorithms import parse_spec
from privateer_core.codec import encode
from privateer_core.errors import Malformed, SpecError
from privateer_core.policies.gain_policy import (
    ANY,
    BY_CONTEXT,
    EITHER,
    N_KEYS,
    NO_OPTION,
    SINGLE,
    GainPolicy,
    check_policy,
    decode_policy,
)
from privateer_core.policies.policy import AGE_MAX, Arms, decision_age, group_by_age, prefix_ages
from privateer_core.privacy.terms import JUMP, calibrate, uninvited_terms
from privateer_core.spec.spec import Spec
from privateer_server.rounds.schedule import Schedule
from tests.support.partitions import same
from tests.support.people import rounds
from tests.support.specs import SHUFFLE, make_spec, tables
from tests.support.statistics import independent, is_compatible

MEASURED = {**SHUFFLE, "experiment.evaluation_fraction": 0.1}
PEOPLE = 60_000


def gain_policy(spec: Spec, single: int = 1) -> GainPolicy[Any]:
    """Return the policy of the round that measures the gain of the last policy before any report."""
    learner = Schedule(spec.learning).learner
    inside = learner.open_idle_round(learner.start(5), 3, 7).policy
    measured_spec: Any = spec
    terms = calibrate(spec.privacy, measured_spec.gain_people, measured_spec.gain_question(N_KEYS, 7))
    return GainPolicy(3, single, 7, np.array(measured_spec.playable), inside, terms)


class Given:
    """A policy that gives each participant the arm named by the context."""

    def decide(self, contexts: NDArray[np.float64], coins: NDArray[np.uint32]) -> Arms:
        assert not coins.any(), "who asks nobody has no use for coins"
        return Arms(contexts[:, 0].astype(np.int64))


def people(arm: int, count: int = PEOPLE) -> tuple[NDArray[np.float64], NDArray[np.uint32], NDArray[np.uint32]]:
    """Return contexts for this arm, with coins of choices and of reports."""
    coins, fresh = np.random.default_rng(arm).integers(0, 2**32, (2, count), dtype=np.uint32)
    return np.full((count, 1), float(arm)), coins, fresh


def law(policy: GainPolicy[Any], arm: int) -> NDArray[np.float64]:
    """Return the probability of each key and arm for participants of this arm by policy, (keys, arms)."""
    by_context, single, random_arm = policy.shares
    arms = policy.playable / policy.playable.sum()
    probabilities = np.zeros((N_KEYS, len(arms)))
    probabilities[ANY] = random_arm * arms
    probabilities[EITHER if arm == policy.single else BY_CONTEXT, arm] += by_context
    if policy.single != NO_OPTION:
        probabilities[EITHER if arm == policy.single else SINGLE, policy.single] += single
    return probabilities


@pytest.mark.parametrize("single", [1, NO_OPTION])
@pytest.mark.parametrize("arm", [0, 1])
def test_keys_drawn_for_reports_have_the_law_of_the_groups_of_choices(arm: int, single: int) -> None:
    """False alarm: 1e-6 each. The key of a report needs no coins of the choice, and says as much."""
    policy = replace(
        gain_policy(make_spec(MEASURED), single), by_context=Given(), playable=np.array([True, True, False])
    )
    contexts, coins, fresh = people(arm)
    arms = policy.decide(contexts, coins).arms
    keys = policy.draw_keys(contexts, fresh, arms)
    counts = np.zeros((N_KEYS, 3))
    np.add.at(counts, (keys, arms), 1)
    assert is_compatible(counts, PEOPLE * law(policy, arm))
    # A tenth more of those who follow the policy would be noticed.
    assert not is_compatible(counts, PEOPLE * (law(policy, arm) * np.array([1.1, 0.9, 1.1, 0.9])[:, None]))


def test_of_people_with_one_arm_the_key_says_nothing_of_the_group_that_gave_it() -> None:
    policy = replace(gain_policy(make_spec(MEASURED)), by_context=Given())
    contexts, coins, fresh = people(0)
    arms = policy.decide(contexts, coins).arms
    has_arm = arms == 0
    # Who followed the policy would have got the third arm if it had said so; who got any arm would have kept it.
    followed = policy.decide(np.full_like(contexts, 2.0), coins).arms[has_arm] == 2
    assert 0.8 < followed.mean() < 0.95
    is_by_context = policy.draw_keys(contexts, fresh, arms)[has_arm] == BY_CONTEXT
    assert independent(is_by_context.astype(np.int64), followed.astype(np.int64))


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
    terms = uninvited_terms(spec.privacy, spec.typical_question())
    return {
        "no such option": replace(policy, single=3),
        "an option below all": replace(policy, single=-2),
        "another version inside": replace(policy, version=4),
        "a retired option": replace(policy, playable=np.array([True, False, True])),
        "nobody asked": replace(policy, terms=replace(policy.terms, batch_size=0)),
        "more people than are to measure it": replace(policy, terms=replace(policy.terms, batch_size=2001)),
        "another question": replace(policy, terms=replace(terms, batch_size=2000)),
        "a policy inside that asks people": replace(policy, by_context=Schedule(spec).open(1, 3).policy),
        "a seed that is none": replace(policy, seed=-1),
    }


@pytest.mark.parametrize("lie", lies(make_spec(MEASURED)))
def test_a_device_refuses_policies_that_no_learner_makes(lie: str) -> None:
    with pytest.raises(Malformed):
        check_policy(lies(make_spec(MEASURED))[lie], make_spec(MEASURED))


def test_a_device_refuses_a_gain_policy_without_evaluation_fraction() -> None:
    policy = gain_policy(make_spec(MEASURED))
    with pytest.raises(Malformed):
        check_policy(policy, make_spec(SHUFFLE))


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"experiment.evaluation_fraction": 0.6}, "experiment.evaluation_fraction", "less than or equal to 0.5"),
        ({"experiment.evaluation_fraction": -0.1}, "experiment.evaluation_fraction", "greater than or equal to 0"),
        ({"experiment.reports_per_person": 2}, "experiment.evaluation_fraction", "reports_per_person = 1"),
        (
            {"experiment.horizon": 2000, "experiment.evaluation_fraction": 0.5, "experiment.round_size": 2000},
            "experiment.evaluation_fraction",
            "leaves 1,000 people",
        ),
        ({"algorithm.name": "bandit", "context": None}, "experiment.evaluation_fraction", "choose by context"),
        ({"algorithm.name": "trial"}, "experiment.evaluation_fraction", "choose by context"),
        ({"algorithm.name": "linear", "privacy.model": "local", "privacy.delta": 1e-6}, "privacy.delta", "must be 0"),
    ],
)
def test_evaluation_fractions_without_a_measurement_are_refused(changes: dict[str, Any], field: str, says: str) -> None:
    data = tables({**MEASURED, **changes})
    with pytest.raises(SpecError) as refused:
        parse_spec({name: table for name, table in data.items() if table is not None})
    assert refused.value.field == field
    assert says in str(refused.value)
    assert refused.value.remedy


def test_too_few_people_measure_nothing_and_the_spec_says_so() -> None:
    partition_spec = make_spec({**MEASURED, "experiment.evaluation_fraction": 0.04})
    assert (partition_spec.gain_people, partition_spec.learning_people, partition_spec.learning) == (
        0,
        20_000,
        partition_spec,
    )
    [message] = [concern for concern in partition_spec.concerns() if "evaluation_fraction" in concern]
    assert "asks 800 people what choosing by context gains, and it takes 1,000: nobody is asked" in message
    assert not any("evaluation_fraction" in concern for concern in make_spec(MEASURED).concerns())
    assert not [round_ for round_ in rounds(partition_spec, seed=1) if isinstance(round_.policy, GainPolicy)]


def test_specs_without_a_share_keep_their_bytes() -> None:
    assert "evaluation_fraction" not in make_spec(SHUFFLE).model_dump_json()
    assert make_spec(SHUFFLE).learning is not None
    measured = make_spec(MEASURED)
    assert '"evaluation_fraction":0.1' in measured.model_dump_json()
    assert (measured.gain_people, measured.learning_people) == (2000, 18_000)
    assert (
        measured.learning.experiment.horizon
        == sum(planned_round.batch_size for planned_round in measured.planned_rounds())
        == 18_000
    )


@pytest.mark.parametrize(
    ("version", "decided", "age"),
    [
        (5, 5, 0),
        (5, 2, 3),
        (5, 6, None),
        (AGE_MAX + 1, 1, AGE_MAX),
        (AGE_MAX + 2, 1, None),
        # A server that lost rounds goes on beyond the next multiple; the version before it belongs to the lost ones.
        (JUMP + 1, JUMP, None),
        (JUMP + 3, JUMP + 1, 2),
        (JUMP, JUMP - 1, 1),
    ],
)
def test_a_decision_has_its_age_in_rounds(version: int, decided: int, age: int | None) -> None:
    assert decision_age(version, decided) == age


def test_ages_travel_before_reports() -> None:
    reports, ages = [b"aaaaaa", b"bbbbbb", b"cccccc"], np.array([0, 300, 0])
    prefixed = prefix_ages(reports, ages)
    assert {len(message) for message in prefixed} == {8}
    assert group_by_age(prefixed) == {0: b"aaaaaacccccc", 300: b"bbbbbb"}


HIDDEN = {**SHUFFLE, "privacy.arm_visibility": "hidden"}
CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6}
NONE = {"privacy.model": "none", "privacy.epsilon": None}


@pytest.mark.parametrize(
    ("changes", "tells", "takes"),
    [
        ({}, True, True),
        (SHUFFLE, False, True),
        (CENTRAL, False, True),
        (NONE, True, True),
        (HIDDEN, False, False),
        ({**CENTRAL, "privacy.arm_visibility": "hidden"}, True, True),
        ({"algorithm.name": "paper-1-ldpmab", "privacy.epsilon": 16.0}, False, True),
    ],
)
def test_policies_report_ages_and_accept_earlier_choices(changes: dict[str, object], tells: bool, takes: bool) -> None:
    """A report of a batch never has its age, because the reports of an age would be a smaller batch."""
    policy = Schedule(make_spec(changes)).open(3, 7).policy
    assert policy.tells_age is tells
    assert policy.accepts_decisions_of(7)
    assert policy.accepts_decisions_of(6) is takes
    assert not policy.accepts_decisions_of(8)


def test_hidden_arms_refuse_a_conversion_window() -> None:
    with pytest.raises(
        SpecError, match=r"experiment.conversion_window_seconds: needs privacy.arm_visibility = 'visible'"
    ):
        make_spec({**HIDDEN, "experiment.conversion_window_seconds": 60})
    assert make_spec({**SHUFFLE, "experiment.conversion_window_seconds": 60}).experiment.conversion_window_seconds == 60


@pytest.mark.parametrize("window", [-1, float("inf"), float("nan"), 366 * 86_400])
def test_windows_out_of_range_are_refused(window: float) -> None:
    with pytest.raises(SpecError) as refused:
        make_spec({"experiment.conversion_window_seconds": window})
    assert refused.value.field == "experiment.conversion_window_seconds"


@pytest.mark.parametrize(
    ("reward", "without"),
    [({}, 0.0), ({"low": 1.0, "high": 5.0}, 1.0), ({"low": -5.0, "high": -1.0}, -1.0), ({"default": 0.5}, 0.5)],
)
def test_reward_without_an_outcome(reward: dict[str, float], without: float) -> None:
    assert make_spec({"reward": reward}).reward.without_outcome == without


def test_default_reward_within_bounds() -> None:
    with pytest.raises(SpecError, match=r"default: must be from low to high"):
        make_spec({"reward": {"default": 2.0}})
