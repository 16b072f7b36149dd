"""Linear bandits on the device: refused specs, design rows of contexts, and the coins of a choice."""

import math
import time
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest

from privateer_core.accounting.gaussian import gaussian_epsilon
from privateer_core.algorithms.linear.design_matrix import (
    DesignMatrix,
    prior_moments,
    unpack_moments,
)
from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.algorithms.linear.spec import LinearSpec
from privateer_core.errors import InputError, Malformed, SpecError
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.policies.policy import Arms
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import coin_classes
from privateer_core.primitives.row_ball import MOMENT_SCALE, PRODUCT_SCALE, joint_reports, second_moments
from privateer_core.privacy.terms import Terms
from privateer_core.spec.columns import CIRCLE, FLAG, NUMBER, Block, code_block, encode_bits
from privateer_core.spec.sections import parse_section
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.rounds.schedule import Schedule
from tests.support.specs import linear_spec, make_spec


def policy_of(d: int, arms: int, exploration: float = 0.5) -> LinearPolicy:
    """A policy that decides and asks nobody."""
    rng = np.random.default_rng(0)
    terms = Terms("none", math.inf, 0.0, "tight", 0, 0, CentralVectors(Ball("l2", 1.0, d * arms), 0.0))
    factors = np.linalg.cholesky(np.stack([np.cov(rng.normal(size=(d, 4 * d))) for _ in range(arms)]))
    means, square = 0.1 * rng.normal(size=(arms, d)), np.eye(d)
    playable, design = np.ones(arms, bool), DesignMatrix((NUMBER,) * (d - 1))
    return LinearPolicy(1, design, "identity", means, factors, square, square, exploration, playable, -1, 0.0, 3, terms)


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"link": "probit"}, "algorithm.link", "one of 'identity', 'logistic'"),
        ({"exploration_scale": 0.0}, "algorithm.exploration_scale", "greater than 0"),
        (
            {"name": "paper-2-linear", "report_statistic": "residual", "model": "central"},
            "algorithm.report_statistic",
            "joint",
        ),
        ({"name": "paper-2-linear", "model": "shuffle"}, "privacy.model", "has no mechanism"),
        ({"privacy": {"local_epsilon_max": 0.5}, "model": "shuffle"}, "privacy.local_epsilon_max", "at least epsilon"),
        ({"messages_per_report": 17, "model": "shuffle"}, "algorithm.messages_per_report", "less than or equal to 16"),
        ({"messages_per_report": 0, "model": "shuffle"}, "algorithm.messages_per_report", "greater than or equal to 1"),
        (
            {"messages_per_report": 2, "model": "central"},
            "algorithm.messages_per_report",
            "only a crowd makes several cheap",
        ),
        (
            {"messages_per_report": 2, "model": "shuffle", "privacy": {"arm_visibility": "hidden"}},
            "algorithm.messages_per_report",
            "with hidden arms",
        ),
    ],
)
def test_impossible_specs_are_refused(changes, field, words):
    with pytest.raises(SpecError, match=words) as refused:
        linear_spec(**changes)
    assert refused.value.field == field


def test_several_messages_go_with_one_report_a_person():
    data = linear_spec("shuffle", messages_per_report=2).model_dump(exclude_none=True)
    data["experiment"]["reports_per_person"] = 2
    with pytest.raises(SpecError, match="reports_per_person") as refused:
        parse_section(LinearSpec, data)
    assert refused.value.field == "algorithm.messages_per_report"


def test_a_policy_that_asks_for_more_messages_than_the_spec_is_refused():
    spec = linear_spec("shuffle", privacy={"local_epsilon_max": 8.0}, messages_per_report=4)
    policy = Schedule(spec).open(3, 7).policy
    assert policy.terms.messages > 1
    policy.check(spec)
    with pytest.raises(Malformed):
        policy.check(linear_spec("shuffle", privacy={"local_epsilon_max": 8.0}))


def test_reports_that_would_be_too_large_are_refused_with_their_size():
    levels = {f"x{j}": {"levels": [f"l{k}" for k in range(200)]} for j in range(4)}
    with pytest.raises(SpecError, match="bytes") as refused:
        linear_spec("central", levels)
    coordinates = 2 * 805 + 805 * 806 // 2
    assert f"{coordinates} coordinates, {4 * coordinates} bytes" in str(refused.value)
    assert linear_spec("local", levels).ball.coordinates == 2 * 805, "only residuals are sent"


def test_outcomes_may_come_late_unless_a_batch_reveals_the_time_of_a_choice():
    data = linear_spec("shuffle").model_dump(exclude_none=True)
    data["experiment"]["conversion_window_seconds"] = 60.0
    assert parse_section(LinearSpec, data).experiment.conversion_window_seconds == 60.0
    data["privacy"]["arm_visibility"] = "hidden"
    with pytest.raises(SpecError, match="'visible'") as refused:
        parse_section(LinearSpec, data)
    assert refused.value.field == "experiment.conversion_window_seconds"


@pytest.mark.parametrize(
    ("model", "privacy", "tells", "takes"),
    [
        ("local", {}, True, True),
        ("local", {"delta": 0.4}, False, True),
        ("shuffle", {}, False, True),
        ("shuffle", {"arm_visibility": "hidden"}, False, False),
        ("central", {"arm_visibility": "hidden"}, False, True),
        ("none", {}, False, True),
    ],
)
def test_reports_with_the_age_of_a_choice_and_late_reports_by_trust_model(model, privacy, tells, takes):
    """Classes are told by the coins of a choice, so they need its age; those of a batch would be told apart by it."""
    policy = Schedule(linear_spec(model, privacy=privacy)).open(3, 7).policy
    assert policy.tells_age is tells
    assert policy.accepts_decisions_of(7)
    assert policy.accepts_decisions_of(6) is takes
    assert not policy.accepts_decisions_of(8)


def test_a_late_class_is_that_of_the_arm_that_coins_favoured_then():
    earlier = replace(policy_of(3, 3), seed=8)
    terms = replace(earlier.terms, mechanism=VectorSymbol.calibrated(Ball("l2", 1.0, 9), 4.0, 3, 2))
    now = replace(policy_of(3, 3), version=2, seed=3, playable=np.array([True, False, True]), terms=terms)
    coins = np.arange(6000, dtype=np.uint32)
    favoured = earlier.draw_normals(coins).argmax(axis=1)
    classes = now.find_classes(coins, earlier)
    assert (classes[favoured == 0] == 0).all()
    assert (classes[favoured == 2] == 1).all()
    assert set(classes[favoured == 1].tolist()) == {0, 1}, "nobody gets that arm any more"
    assert np.array_equal(now.find_classes(coins, now), coin_classes(coins, 3, 2))


def test_rows_are_one_hot_and_no_longer_than_the_features_allow():
    levels = code_block(5)
    design = DesignMatrix((NUMBER, FLAG, code_block(2), levels))
    contexts = np.array([[0.75, 0.0, 1.0, *encode_bits(np.array([3.0]), levels)[0]], [0.5, 1.0, 0.0, 9.0, -3.0, 0.0]])
    rows = design.rows(contexts)
    assert rows[0].tolist() == [1, 0.5, 0, 1, 0, 0, 0, 1, 0]
    assert rows[1, :4].tolist() == [1, 0, 1, -1]
    assert design.max_norm == 2.0
    assert (np.linalg.norm(rows, axis=1) <= design.max_norm).all()
    assert np.linalg.eigvalsh(prior_moments(design)).min() > -1e-12


def test_cyclic_numbers_are_on_a_circle_and_missing_ones_at_its_centre():
    design = DesignMatrix((CIRCLE, FLAG, NUMBER))
    places = np.linspace(0, 1, 9)
    rows = design.rows(np.stack([places, 0 * places, places], axis=1))
    assert np.allclose(rows[:, 1:3], np.stack([np.sin(2 * np.pi * places), np.cos(2 * np.pi * places)], axis=1))
    assert np.allclose(rows[0, 1:4], rows[-1, 1:4])
    assert design.rows(np.array([[0.5, 1.0, 0.5]])).tolist() == [[1, 0, 0, 1, 0]]
    flags = np.random.default_rng(3).random((200, 3))
    assert np.linalg.norm(design.rows(flags), axis=1).max() <= design.max_norm + 1e-12
    assert design.max_norm == math.sqrt(3)
    features = make_spec({"context.features": {"hour": {"low": 0, "high": 24, "cyclic": True}}}).features
    assert DesignMatrix((CIRCLE,)).names(features) == ["1", "hour, sine", "hour, cosine"]
    exact = np.array([[1.0, 0, 0], [0, 0.5, 0], [0, 0, 0.5]])
    assert np.allclose(prior_moments(DesignMatrix((CIRCLE,))), exact), "as of numbers that are as likely all around"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_contexts_that_are_not_numbers_are_refused_without_an_echo(bad):
    policy = policy_of(3, 2)
    for act in (policy.decide, lambda x, c: policy.contribute(x, c, Arms(np.zeros(1, np.int64)), np.zeros(1))):
        with pytest.raises(InputError, match="finite") as refused:
            act(np.array([[0.123456, bad]]), np.zeros(1, np.uint32))
        assert "0.123" not in str(refused.value)


def test_contexts_beyond_their_bounds_count_as_at_them():
    policy = policy_of(3, 2)
    coins, arms, rewards = np.arange(2, dtype=np.uint32), Arms(np.array([0, 1])), np.ones(2)
    far, near = (np.array([[low, 0.5], [high, 0.5]]) for low, high in ((-70.0, 9e9), (0.0, 1.0)))
    reports = [policy.contribute(contexts, coins, arms, rewards).values for contexts in (far, near)]
    assert np.array_equal(*reports)
    assert np.linalg.norm(reports[0], axis=1).max() <= 1 + 1e-12


def test_coins_are_independent_normal_and_largest_at_the_own_class():
    policy = replace(policy_of(3, 3), playable=np.array([True, False, True]))
    coins = np.arange(60_000, dtype=np.uint32)
    normals = policy.draw_normals(coins)
    own_class = np.array([0, 2])[coin_classes(coins, policy.seed, 2)]
    assert np.array_equal(np.array([0, 2])[normals[:, [0, 2]].argmax(axis=1)], own_class)
    for arm in range(3):
        assert kstest(normals[:, arm], "norm").pvalue > 1e-4
    assert abs(np.corrcoef(normals.T) - np.eye(3)).max() < 0.02
    favoured = replace(policy, favours=2).draw_normals(coins)
    assert (favoured[:, 2] >= favoured[:, 0]).all()


def test_moments_and_joint_reports_are_at_most_1_long():
    rows = np.random.default_rng(1).normal(size=(50, 4)) / 2
    moments = second_moments(rows)
    assert np.linalg.norm(moments, axis=1).max() <= 1 + 1e-12
    inside = np.flatnonzero(np.linalg.norm(rows, axis=1) < 1)
    assert unpack_moments(moments[inside].sum(axis=0), 4) == pytest.approx(rows[inside].T @ rows[inside])
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.linalg.norm(joint_reports(unit, np.ones(50)), axis=1) == pytest.approx(np.ones(50))


JOINT = LinearSpec.instances()["joint"]


def joint_vectors(n_features: int, scale: float) -> tuple[LinearSpec, NDArray[np.float64]]:
    """Return vectors on the grid of 1,500 people by a round's policy, whose rows a server scales."""
    features = {f"x{index}": {"low": 0.0, "high": 1.0} for index in range(n_features)}
    data = JOINT.model_dump(mode="json", exclude_none=True) | {"context": {"features": features}}
    spec: LinearSpec = parse_section(LinearSpec, data)
    policy: Any = Schedule(spec).open(0).policy
    rng = np.random.default_rng(n_features)
    contexts = rng.random((1500, n_features))
    contexts[::4] = np.rint(contexts[::4])
    contexts[:2], rewards = 1.0, rng.random(1500)
    rewards[::2] = np.rint(rewards[::2])
    rewards[:2] = 0.0, 1.0
    arms = rng.integers(0, 3, 1500)
    arms[:2] = 0
    scaled = replace(policy, telling=scale * policy.telling)
    vectors = scaled.contribute(contexts, np.zeros(1500, np.uint32), Arms(arms), rewards).values
    return spec, spec.ball.round_to_grid(vectors, SeededNoise(1)).astype(np.float64)


def max_distance(points: NDArray[np.float64]) -> float:
    squares = (points**2).sum(axis=1)
    return float(np.sqrt((squares[:, None] + squares - 2 * points @ points.T).max()))


@pytest.mark.parametrize("scale", [1.0, 1000.0])
@pytest.mark.parametrize("n_features", [1, 2, 5])
def test_no_two_joint_reports_are_farther_apart_than_claimed_and_two_are_almost(n_features: int, scale: float) -> None:
    """Two-sided, also where a server scales rows beyond length 1; the noise is for this distance, and not for 2."""
    spec, points = joint_vectors(n_features, scale)
    assert 0.99 * spec.ball.sensitivity < max_distance(points) <= spec.ball.sensitivity
    assert spec.ball.sensitivity < 0.83 * Ball("l2", 1.0, spec.ball.coordinates).sensitivity
    mechanism: Any = spec.first_terms("").mechanism  # type: ignore[union-attr] # its first round has people
    deviation, epsilon = mechanism.standard_deviation, spec.privacy.bound
    delta = spec.privacy.delta - mechanism.sampling
    assert 0.99 * epsilon < gaussian_epsilon(delta, deviation, max_distance(points)) <= epsilon * (1 + 1e-9)


def test_planted_products_of_rows_longer_than_1_are_farther_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: only second moments are of clipped rows, as the ball shortened the rest."""

    def plant(rows: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        products = values[:, None] * rows
        return np.concatenate([MOMENT_SCALE * second_moments(rows), PRODUCT_SCALE * products], axis=1)

    monkeypatch.setattr("privateer_core.algorithms.linear.policy.joint_reports", plant)
    spec, points = joint_vectors(2, 1000.0)
    assert max_distance(points) > 1.2 * spec.ball.sensitivity


def test_only_joint_reports_with_noise_of_their_own_have_the_smaller_distance() -> None:
    """A residual and its opposite are 2 apart; a curator makes joint vectors itself, from records."""
    instances = LinearSpec.instances()
    assert {name for name, spec in instances.items() if spec.ball.norm == "joint"} == {"joint"}
    assert {name for name, spec in instances.items() if spec.row_ball and spec.row_ball.is_joint} == {"joint-central"}
    policy: Any = Schedule(instances["local"]).open(0).policy
    mechanism = policy.mechanism
    lie = msgspec.structs.replace(mechanism, ball=Ball("joint", 1.0, mechanism.ball.coordinates))
    assert policy.is_compatible(instances["local"])
    assert not replace(policy, terms=replace(policy.terms, mechanism=lie)).is_compatible(instances["local"])


@pytest.mark.parametrize(
    "changes",
    [
        {"means": np.full((2, 5), np.nan)},
        {"factors": np.zeros((2, 4, 4))},
        {"whitening": np.full((5, 5), 1e300)},
        {"exploration": 40.0},
        {"favours": 1},
        {"share": 0.5},
        {"link": "logistic"},
        {"design": DesignMatrix((Block(),) * 3)},
        {"playable": np.array([True, False])},
    ],
)
def test_a_policy_that_no_learner_makes_is_refused(changes):
    spec = linear_spec("local")
    policy = Schedule(spec).open(1).policy
    policy.check(spec)
    with pytest.raises(Malformed):
        replace(policy, **changes).check(spec)


def test_a_decision_of_50_coordinates_and_20_arms_takes_less_than_50_microseconds():
    policy, people = policy_of(50, 20), 4000
    contexts = np.random.default_rng(1).random((people, 49))
    coins = np.arange(people, dtype=np.uint32)

    def seconds() -> float:
        started = time.process_time()
        policy.decide(contexts, coins)
        return time.process_time() - started

    assert min(seconds() for _ in range(3)) / people < 50e-6


def test_second_moments_of_contexts_are_reported_where_noise_is_small():
    """Under local from an epsilon of 3, and the round's ball has coordinates for them; elsewhere they always are."""
    shares = {e: linear_spec("local", privacy={"epsilon": e}).moment_share for e in (1.0, 2.9, 3.0, 4.0)}
    assert shares == {1.0: 0.0, 2.9: 0.0, 3.0: 0.1, 4.0: 0.1}
    assert [linear_spec("local", privacy={"epsilon": e}).ball.coordinates for e in (1.0, 4.0)] == [10, 25]
    assert {model: linear_spec(model).moment_share for model in ("shuffle", "central", "none")} == {
        "shuffle": 0.1,
        "central": 0.3,
        "none": 0.3,
    }
