"""Phased elimination on a device: refused specs with their remedies, and refused policies."""

import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.errors import InputError, Malformed, SpecError
from privateer_core.spec.actions import draw_sphere_points
from privateer_server.rounds.schedule import Schedule
from tests.support.phased import phased_spec, tables
from tests.support.specs import make_spec
from tests.support.specs import tables as partition_tables

SHUFFLE = {"privacy.model": "shuffle", "privacy.epsilon": 1.0, "privacy.delta": 1e-6, "privacy.min_batch": 2}
LONG = [[0.6, 0.0], [0.0, 1.3], [0.1, 0.1]]
PAPER = {"algorithm.name": "paper-5-dp-dpe"}
BAD = {
    "alpha too small": ({"algorithm.alpha": 0.0}, "algorithm.alpha", "0.8"),
    "alpha too large": ({"algorithm.alpha": 1.0}, "algorithm.alpha", "0.8"),
    "few people": ({"experiment.participants": 100}, "experiment.participants", "raise it to"),
    "short horizon": ({"experiment.horizon": 5}, "experiment.horizon", "raise it to 22"),
    "one action": ({"actions.count": 1}, "actions", "two"),
    "one given action": ({"actions": {"vectors": [[1.0, 0.0]]}}, "actions", "two"),
    "repeated": ({"actions": {"vectors": [[1, 0], [0, 1], [1, 0]]}}, "actions", "remove"),
    "zero": ({"actions": {"vectors": [[1, 0], [0, 0]]}}, "actions", "remove"),
    "too long": ({"actions": {"vectors": LONG}}, "actions", "divide every action by 1.3"),
    "ragged": ({"actions": {"vectors": [[1, 0], [0.5]]}}, "actions", "fill up"),
    "no actions": ({"actions": {}}, "actions", "vectors"),
    "two forms": ({"actions.vectors": [[1, 0], [0, 1]]}, "actions", "vectors"),
    "half a form": ({"actions.dimension": None}, "actions", "vectors"),
    "half a box": ({"actions": {"low": [0.0]}}, "actions", "low and high"),
    "a box beside vectors": ({"actions": {"low": [0], "high": [1], "vectors": [[1, 0], [0, 1]]}}, "actions", "or low"),
    "corners of other lengths": ({"actions": {"low": [0, 0], "high": [1]}}, "actions", "one of each"),
    "an empty side": ({"actions": {"low": [0, 1], "high": [1, 1]}}, "actions", "widen it"),
    "a side beyond floats": ({"actions": {"low": [0], "high": [1e16]}}, "actions", "change its unit"),
    "too many sides": ({"actions": {"low": [0] * 7, "high": [1] * 7}}, "actions.low", ""),
    "not a number": ({"actions": {"vectors": [[math.nan, 0], [0, 1]]}}, "actions.vectors", ""),
    "infinite": ({"actions": {"vectors": [[math.inf, 0], [0, 1]]}}, "actions.vectors", ""),
    "epsilon under none": ({"privacy.epsilon": 1.0}, "privacy.epsilon", "remove"),
    "delta under none": ({"privacy.delta": 0.1}, "privacy.delta", "remove"),
    "published none": (PAPER, "privacy.model", "choose another"),
    "no epsilon": ({"privacy.model": "central", "privacy.delta": 1e-6}, "privacy.epsilon", "add"),
    "central delta": ({"privacy": {"model": "central", "epsilon": 1.0}}, "privacy.delta", "1e-6"),
    "pure published": ({"privacy": {"model": "local", "epsilon": 1.0}, **PAPER}, "privacy.delta", "1e-6"),
    "above the theorem": ({**SHUFFLE, "privacy.epsilon": 16.0, **PAPER}, "privacy.epsilon", "lower it"),
    "large batches": ({**SHUFFLE, "privacy.min_batch": 100}, "privacy.min_batch", "lower it to 2, or raise"),
    "default batches": ({**SHUFFLE, "privacy.min_batch": None}, "privacy.min_batch", "lower it to 2, or raise"),
    "nobody honest": ({**SHUFFLE, "privacy.honest_fraction": 0.4}, "privacy.honest_fraction", "raise it"),
    "empty range": ({"reward.low": 1.0}, "reward", ""),
    "arms": ({**SHUFFLE, "privacy.arm_visibility": "hidden"}, "privacy.arm_visibility", "remove"),
    "local_epsilon_max": ({**SHUFFLE, "privacy.local_epsilon_max": 2.0}, "privacy.local_epsilon_max", "remove"),
    "unknown key": ({"algorithm.gamma": 1.0}, "algorithm.gamma", "remove"),
    "context": ({"context": {"features": {"x": {"low": 0, "high": 1}}}}, "context", "remove"),
    "more than people": ({"algorithm.participants_factor": 1e308}, "algorithm.participants_factor", ""),
    "more than numbers": ({"recruitment.timeout_seconds": 10**400}, "recruitment.timeout_seconds", ""),
    "infinite range": ({"reward.low": -1e308, "reward.high": 1e308}, "reward", ""),
    "squares overflow": ({"reward.low": 0.0, "reward.high": 1e300}, "reward", ""),
    "squares vanish": ({"reward.low": 0.0, "reward.high": 5e-324}, "reward", ""),
    "standard_deviation": (
        {"algorithm.participant_standard_deviation": 1e300},
        "algorithm.participant_standard_deviation",
        "",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_impossible_phases_are_refused_with_a_remedy(name):
    changes, field, remedy = BAD[name]
    with pytest.raises(SpecError) as refused:
        parse_spec(tables(changes))
    assert (refused.value.field or "").startswith(field)
    assert refused.value.remedy
    assert remedy in str(refused.value.remedy)


def test_a_spec_changed_by_the_remedy_is_accepted():
    for name, changes in {
        "few people": {"experiment.participants": 348},
        "short horizon": {"experiment.horizon": 22},
        "large batches": {
            **SHUFFLE,
            "privacy.min_batch": 100,
            "algorithm.participants_factor": 57.5,
            "experiment.participants": 100_000,
        },
        "too long": {"actions": {"vectors": [[x / 1.3 for x in row] for row in LONG]}},
    }.items():
        with pytest.raises(SpecError):
            phased_spec(BAD[name][0])
        assert phased_spec(changes)


def test_the_population_that_the_message_names_is_the_smallest_accepted():
    with pytest.raises(SpecError) as refused:
        phased_spec({"experiment.participants": 100})
    required = int(str(refused.value.remedy).split("raise it to ")[1].split(",")[0])
    spec = phased_spec({"experiment.participants": required})
    assert sum(spec.phase_size(phase) for phase in range(1, spec.phases + 1)) == required
    with pytest.raises(SpecError):
        phased_spec({"experiment.participants": required - 1})


def test_phases_of_section_7():
    spec = phased_spec(
        {
            "experiment": {"name": "dpe", "horizon": 10**6, "participants": 10**5},
            "actions": {"count": 9, "dimension": 20},
        }
    )
    assert spec.first_phase_length == pytest.approx(4 * 20 * math.log(math.log(20)) + 16)
    assert spec.phases == 13
    assert [spec.phase_size(phase) for phase in (1, 2, 13)] == [2, 4, 1352]
    assert spec.comparison_failure_probability == pytest.approx(1 / (9 * 10**6))


@pytest.mark.parametrize("dimension", [1, 2])
def test_the_first_phase_where_the_papers_logarithm_fails(dimension):
    vectors = [[0.5] * dimension, [-0.25] * dimension]
    assert phased_spec({"actions": {"vectors": vectors}}).first_phase_length == 16


def test_drawn_actions_are_uniform_on_the_sphere():
    points = draw_sphere_points(20_000, 3, 4)
    assert np.linalg.norm(points, axis=1) == pytest.approx(np.ones(20_000))
    assert np.abs(points.mean(axis=0)).max() < 5 / math.sqrt(3 * 20_000)
    assert points.T @ points / 20_000 == pytest.approx(np.eye(3) / 3, abs=0.012)
    assert draw_sphere_points(4, 3, 4) == pytest.approx(points.ravel()[:12].reshape(4, 3))
    assert not np.allclose(draw_sphere_points(4, 3, 5), draw_sphere_points(4, 3, 4))


def test_given_actions_need_not_span():
    vectors = [[1.0, 0.0, 0.0], [0.0, 0.5, 0.0], [0.3, 0.3, 0.0]]
    assert phased_spec({"actions": {"vectors": vectors}}).actions.matrix.tolist() == vectors


def test_specs_travel_as_json():
    for trust in ("none", "central", "shuffle", "local"):
        spec = phased_spec(trust=trust)
        assert PhasedSpec.model_validate_json(spec.model_dump_json(exclude_none=True)) == spec


def test_the_family_follows_from_the_algorithm():
    assert isinstance(parse_spec(tables()), PhasedSpec)
    assert parse_spec(partition_tables()) == make_spec({"experiment.arms": ["a", "b", "c"]})
    for broken in ({}, {"algorithm": 3}, {"algorithm": {"name": "phase"}}):
        with pytest.raises(SpecError):
            parse_spec(broken)


SPEC = PhasedSpec.instances()["none"]
POLICY: Any = Schedule(SPEC).open(9).policy
OVERFLOWING = np.array([0, 1 << 62, (1 << 63) - 1, -(1 << 62), 5][: len(POLICY.support)])
"""Rows whose differences are positive, since one of them overflows."""


@pytest.mark.parametrize(
    "wrong",
    [
        {"active": np.array([0, 30])},
        {"active": np.array([-1, 3])},
        {"active": np.array([3, 3])},
        {"active": OVERFLOWING, "support": OVERFLOWING},
        {"active": np.zeros(0, np.int64)},
        {"active": np.arange(30.0)},
        {"support": np.array([[0, 1]])},
        {"plays": np.zeros(5, np.int64)},
        {"plays": np.array([1])},
        {"draw": msgspec.structs.replace(POLICY.draw, start=-1)},
        {"draw": msgspec.structs.replace(POLICY.draw, people=POLICY.draw.people + 1)},
        {"draw": msgspec.structs.replace(POLICY.draw, places=POLICY.draw.places + 1)},
        {"middle": 0.5},
    ],
    ids=str,
)
def test_policies_that_no_learner_makes_are_refused(wrong):
    POLICY.check(SPEC)
    with pytest.raises(Malformed):
        replace(POLICY, **wrong).check(SPEC)


def test_phases_invite_the_participants_of_the_schedule():
    following = Schedule(SPEC).learner.open_next_round(Schedule(SPEC).open(9).state, 3, 9).policy
    assert following.terms.batch_size == len(following.draw.select_participants()) == SPEC.phase_size(1)


def test_contributions_of_another_size_are_refused_without_an_echo():
    coins = np.zeros(1, np.uint32)
    decisions = POLICY.decide(np.zeros((1, 0)), coins)
    with pytest.raises(InputError) as refused:
        POLICY.contribute(np.zeros((1, 0)), coins, decisions, np.full((1, len(POLICY.support) + 1), 0.123456))
    assert "0.123" not in str(refused.value)
