"""Convex sets on a device: refused specs and policies, and contributions."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.convex.spec import ConvexSpec, Domain, uniform_layout
from privateer_core.errors import InputError, Malformed, SpecError
from privateer_core.policies.policy import Arms
from privateer_server.rounds.schedule import Schedule

ONE = {"feedback": "one-point", "strong_convexity": 0.0}
WINDOW = {"conversion_window_seconds": 60.0}
PUBLISHED = {"algorithm": {"name": "paper-2-convex"}}
HIDDEN = {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6, "arm_visibility": "hidden"}


def tables(**changes):
    """Return the tables of a spec with the given changes."""
    data = ConvexSpec.instances()["local"].model_dump(mode="json", exclude_none=True)
    for section, keys in changes.items():
        data[section] |= keys
    return data


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"domain": {"shape": "cube"}}, "domain.shape", "'ball' or 'box'"),
        ({"domain": {"dimension": 65}}, "domain.dimension", "64"),
        ({"domain": {"radius": float("nan")}}, "domain.radius", ""),
        ({"algorithm": {"feedback": "three-point"}}, "algorithm.feedback", "'one-point' or 'two-point'"),
        ({"algorithm": {"estimator": "sphere"}}, "algorithm.estimator", "is no longer a key"),
        ({"algorithm": {"lipschitz": None, **ONE}}, "algorithm.lipschitz", "strong_convexity"),
        ({"algorithm": {"smoothness": 1.0}}, "algorithm.smoothness", "does nothing"),
        ({"algorithm": {"lipschitz": None}}, "algorithm.lipschitz", "missing"),
        ({"algorithm": {"lipschitz": float("inf")}}, "algorithm.lipschitz", ""),
        ({"algorithm": {"standard_deviation": 1.1}}, "algorithm.standard_deviation", "at most 1, the range of rewards"),
        ({"algorithm": {"standard_deviation": 0.1, **ONE}}, "algorithm.standard_deviation", "does nothing"),
        (
            {"algorithm": ONE, "experiment": {"min_round_fraction": 0.1}},
            "experiment.min_round_fraction",
            "strong_convexity",
        ),
        ({"experiment": {"round_size": 5000}}, "experiment.round_size", "horizon"),
        (
            {"experiment": WINDOW, "privacy": {"delta": 1e-5}, **PUBLISHED},
            "experiment.conversion_window_seconds",
            "a direction of its own",
        ),
        ({"experiment": WINDOW, "privacy": HIDDEN}, "experiment.conversion_window_seconds", "'visible'"),
        (PUBLISHED, "privacy.delta", "at least 1e-15"),
        (
            {"privacy": {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6, "min_batch": 2000}},
            "privacy.min_batch",
            "round_size",
        ),
    ],
    ids=str,
)
def test_a_refusal_names_the_field(changes, field, says):
    parse_spec(tables())
    with pytest.raises(SpecError) as refused:
        parse_spec(tables(**changes))
    assert refused.value.field == field
    assert says in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize("name", ["local", "shuffle", "central", "none", "local-ellipsoid", "local-smooth"])
def test_outcomes_may_come_late(name):
    data = ConvexSpec.instances()[name].model_dump(mode="json", exclude_none=True)
    data["experiment"] |= WINDOW
    assert parse_spec(data).experiment.conversion_window_seconds == 60.0


def test_long_rounds_of_losses_without_curvature_are_a_concern():
    assert parse_spec(tables()).concerns() == []
    assert len(parse_spec(tables(algorithm=ONE)).concerns()) == 1


@pytest.mark.parametrize("shape", ["ball", "box"])
def test_a_projection_is_the_nearest_point_of_the_set(shape):
    domain, rng = Domain(shape=shape, dimension=3, radius=2.0), np.random.default_rng(1)
    inside = np.array([domain.project(point) for point in rng.normal(size=(200, 3)) * 2])
    assert domain.contains(inside)
    for point in rng.normal(size=(20, 3)) * 4:
        nearest = domain.project(point)
        assert np.linalg.norm(point - nearest) <= np.linalg.norm(point - inside, axis=1).min() + 1e-12
        assert domain.contains(domain.project(point, 0.5) + 0.499 * np.eye(3))
    assert not domain.contains(np.array([[2.1, 0.0, 0.0]]))
    assert not domain.contains(np.array([[np.nan, 0.0, 0.0]]))


SPECS = ConvexSpec.instances()
TWO, ONE_POINT = SPECS["local"], SPECS["local-ellipsoid"]
POLICY: Any = Schedule(TWO).open(9).policy
COINS = np.random.default_rng(1).integers(0, 2**32, 40_000, dtype=np.uint32)
NOBODY = np.zeros((len(COINS), 0))


def with_layout(policy, layout):
    mechanism = type(policy.terms.mechanism)(layout, policy.terms.epsilon, 1, False)
    return replace(policy.terms, mechanism=mechanism)


@pytest.mark.parametrize(
    "wrong",
    [
        {"centre": np.array([1.0, 0.5])},
        {"centre": np.array([np.nan, 0.0])},
        {"centre": np.zeros(3)},
        {"centre": np.zeros(2, np.int64)},
        {"axes": 2 * np.eye(2)},
        {"axes": np.zeros((2, 2))},
        {"axes": np.diag([0.1, 1e-12])},
        {"axes": np.full((2, 2), np.inf)},
        {"axes": np.eye(3) / 2},
        {"points": 1},
        {"span": 2.0},
        {"lipschitz": 1e-3},
        {"seed": 1 << 63},
        {"has_fresh_coins": True},
        {"terms": with_layout(POLICY, uniform_layout(POLICY.seed + 1, 2))},
        {"terms": with_layout(POLICY, uniform_layout(POLICY.seed, 3))},
    ],
    ids=str,
)
def test_policies_that_no_learner_makes_are_refused(wrong):
    POLICY.check(TWO)
    with pytest.raises(Malformed):
        replace(POLICY, **wrong).check(TWO)


@pytest.mark.parametrize("name", SPECS)
def test_directions_are_uniform_and_points_are_in_the_set(name):
    """Over coins, the mean of d times a direction's square is the identity, which the estimated gradient needs.

    Planted: a side that everybody has is not even. Four standard errors of a mean of 40,000 are 0.02.
    """
    spec = SPECS[name]
    policy: Any = Schedule(spec).open(9).policy
    points = policy.decide(NOBODY, COINS).points
    assert spec.domain.contains(points)
    ways = (points[:, 0] - policy.centre) @ np.linalg.inv(policy.axes)
    if name != "published":
        assert len(ways[0]) * ways.T @ ways / len(ways) == pytest.approx(np.eye(len(ways[0])), abs=0.02)
        assert np.abs(ways.mean(axis=0)).max() < 0.02
        assert np.abs(np.abs(ways).mean(axis=0)).max() > 0.02


def test_slopes_are_clipped_on_the_device():
    """Planted: without the clip, the largest difference of rewards would be beyond the range of values."""
    axis, (coins, nobody) = POLICY.decide(NOBODY[:4], COINS[:4]).arms >> 1, (COINS[:4], NOBODY[:4])
    differences = 2 * np.linalg.norm(POLICY.axes, axis=1)[axis] * POLICY.lipschitz
    decisions = POLICY.decide(nobody, coins)
    sign = 2 * (decisions.arms & 1) - 1
    for share, expected in ((0.5, 0.5), (1.0, 1.0), (3.0, 1.0), (-7.0, -1.0)):
        rewards = np.stack([0.5 + share * differences / 2, 0.5 - share * differences / 2], axis=1)
        values = POLICY.contribute(nobody, coins, decisions, rewards).values
        assert 2 * values - 1 == pytest.approx(sign * expected)
    assert 1.0 / differences.max() > 1.0


@pytest.mark.parametrize(
    "bad", [1.0, {"first": 0.1}, {"first": 0.1, "second": np.inf}, {"first": np.nan, "second": 0.1}]
)
def test_two_rewards_that_are_not_finite_numbers_are_refused(bad):
    with pytest.raises(InputError) as refused:
        POLICY.read(TWO, bad)
    assert "0.1" not in str(refused.value)
    values, clipped = POLICY.read(TWO, {"second": 2.0, "first": 0.25})
    assert (values.tolist(), clipped) == ([[0.25, 1.0]], True)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, {"first": 0.1}])
def test_one_reward_that_is_not_a_finite_number_is_refused(bad):
    policy = Schedule(ONE_POINT).open(9).policy
    with pytest.raises(InputError):
        policy.read(ONE_POINT, bad)
    assert policy.read(ONE_POINT, 0.25)[0].tolist() == [0.25]


@pytest.mark.parametrize("name", SPECS)
def test_reports_with_the_age_of_a_choice_and_late_reports_by_trust_model(name):
    """The direction is in the coins of a choice, or in the key; ages would tell parts of a batch apart."""
    policy = Schedule(SPECS[name]).open(3, 7).policy
    assert policy.tells_age is (name.startswith("local") or name == "none")
    assert policy.accepts_decisions_of(7)
    assert policy.accepts_decisions_of(6) is (name not in ("shuffle-grouped", "shuffle-hidden", "published"))
    assert not policy.accepts_decisions_of(8)


def test_all_rounds_have_the_same_directions_but_as_published():
    for name, spec in SPECS.items():
        schedule = Schedule(spec)
        step = schedule.open(3)
        policies: list[Any] = [schedule.open_next_step(step.state, 2, seed).policy for seed in (5, 6)]
        assert np.allclose(policies[0].gradient_axes, policies[1].gradient_axes) is (name != "published")


def test_a_late_slope_is_measured_between_the_points_played():
    """Planted: the open round's points, which are twice as far apart."""
    decisions = POLICY.decide(NOBODY[:50], COINS[:50])
    wider = replace(POLICY, axes=2 * POLICY.axes)
    rewards = 0.5 + decisions.points @ np.array([0.2, 0.1])
    timely, late = (policy.contribute(NOBODY[:50], COINS[:50], decisions, rewards).values for policy in (POLICY, wider))
    assert late == pytest.approx(timely)
    blind = wider.contribute(NOBODY[:50], COINS[:50], Arms(decisions.arms), rewards).values
    assert np.abs(blind - timely).max() > 0.01
