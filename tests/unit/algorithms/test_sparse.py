"""Specs of high-dimensional bandits: refusals with their remedies, and contributions of a device."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_client.inputs import encode_context
from privateer_core.errors import InputError, Malformed, SpecError
from privateer_core.policies.policy import Arms
from privateer_core.privacy.certificate import JOINT, certify, recompute
from privateer_lab.environments import default_environment, environment_for
from privateer_server.algorithms.sparse.learner import EpochLearner
from privateer_server.rounds.schedule import Schedule
from tests.support.specs import sparse_spec


def policy_of(spec, coefficients=(0.5, -0.25), places=(2, 7)):
    policy = Schedule(spec).open(5).policy
    return replace(policy, places=np.array(places), coefficients=np.array(coefficients), explores=False)


@pytest.mark.parametrize(
    ("model", "changes", "field", "words"),
    [
        ("central", {"algorithm__sparsity": 31}, "algorithm.sparsity", "at most 30"),
        ("central", {"context__features": 9000}, "context.features", "MiB"),
        ("central", {"context__features": ["x", "x"]}, "context.features", "distinct"),
        ("central", {"context__low": 1.0}, "context", "low must be below high"),
        (
            "shuffle",
            {"experiment__conversion_window_seconds": 60.0, "privacy__arm_visibility": "hidden"},
            "experiment.conversion_window_seconds",
            "remove",
        ),
        ("central", {"privacy__delta": 0.0}, "privacy.delta", "at least 1e-08"),
        ("central", {"privacy__calibration": "published"}, "privacy.calibration", "remove it"),
        ("local", {"context__features": 65}, "context.features", "at most 64"),
    ],
)
def test_impossible_specs_are_refused_with_a_remedy(model, changes, field, words):
    with pytest.raises(SpecError) as refused:
        sparse_spec(model, **changes)
    assert field in str(refused.value)
    assert words in str(refused.value)


def test_a_round_too_small_for_its_screening_is_refused_with_the_number_that_it_takes() -> None:
    spec = sparse_spec(experiment__round_size=40)
    with pytest.raises(SpecError) as refused:
        Schedule(spec).open(1)
    assert refused.value.field == "experiment.round_size"
    required = int(str(refused.value.remedy).split()[0])
    assert 40 < required <= 1000
    Schedule(sparse_spec(experiment__round_size=required)).open(1)


@pytest.mark.parametrize("changes", [{"coefficients": [1.5, -1.0]}, {"intercept": 0.6}, {"coefficients": [0.01] * 31}])
def test_an_environment_with_coefficients_off_the_ball_is_refused(changes: dict[str, Any]) -> None:
    spec = sparse_spec(population__name="needles")
    section = {"name": "needles", **changes}
    with pytest.raises(SpecError) as refused:
        environment_for(spec, 0, section)
    assert refused.value.field == "population.coefficients"


def test_a_default_environment_has_few_features_that_matter() -> None:
    assert default_environment(sparse_spec()) == {"name": "needles"}


def test_an_application_gives_every_arm_its_features() -> None:
    spec = sparse_spec(context__features=["fit", "age"], algorithm__sparsity=1, population__name="needles")
    context = {f"{name} of {arm}": value for arm in "abc" for name, value in (("fit", 0.5), ("age", 3.0))}
    assert encode_context(context, spec.features).tolist() == [[0.75, 1.0] * 3]
    with pytest.raises(InputError) as refused:
        encode_context({**context, "age": 1.0}, spec.features)
    assert refused.value.field == "age"


def test_a_device_plays_the_arm_with_the_largest_sum_and_contributes_its_row() -> None:
    spec = sparse_spec()
    policy = policy_of(spec)
    rng = np.random.default_rng(1)
    contexts = rng.random((50, spec.dimension))
    coins = np.arange(50, dtype=np.uint32)
    rows = 2 * contexts.reshape(50, 3, 30) - 1
    decided = policy.decide(contexts, coins)
    assert decided.arms.tolist() == (0.5 * rows[:, :, 2] - 0.25 * rows[:, :, 7]).argmax(axis=1).tolist()
    values = policy.contribute(contexts, coins, decided, np.full(50, 0.75)).values
    people = np.arange(50)
    assert np.allclose(values, np.column_stack([np.eye(3)[decided.arms], rows[people, decided.arms], np.full(50, 0.5)]))


def test_an_intercept_counts_once() -> None:
    """Expect a smaller benefit of an arm for all participants than of the features of some."""
    spec = sparse_spec()
    policy = replace(policy_of(spec), intercepts=np.array([0.2, 0.0, -0.05]))
    contexts = np.random.default_rng(2).random((300, spec.dimension))
    rows = 2 * contexts.reshape(300, 3, 30) - 1
    expected = policy.intercepts + 0.5 * rows[:, :, 2] - 0.25 * rows[:, :, 7]
    assert policy.decide(contexts, np.zeros(300, np.uint32)).arms.tolist() == expected.argmax(axis=1).tolist()


def test_under_local_privacy_a_fresh_coin_selects_the_feature_of_a_report() -> None:
    spec = sparse_spec("local", context__features=6, experiment__round_size=4000)
    policy = Schedule(spec).open(5).policy
    contexts, arms = np.full((600, spec.dimension), 0.5), Arms(np.zeros(600, np.int64))
    contexts[:, 4] = 1.0
    reports = policy.contribute(contexts, np.arange(600, dtype=np.uint32), arms, np.ones(600))
    assert reports.values.shape == (600, 1)
    assert 60 < int((reports.values == 1.0).sum()) < 140, "a sixth of the people tell of the feature that is not 0"


@pytest.mark.parametrize(
    "changes",
    [
        {"coefficients": np.array([0.9, -0.2])},
        {"coefficients": np.array([np.nan, 0.1])},
        {"coefficients": np.array([0.1])},
        {"places": np.array([7, 2])},
        {"places": np.array([2, 30])},
        {"asked": np.arange(31)},
        {"asked": np.zeros(0, np.int64)},
        {"intercepts": np.array([0.0, 0.5, 0.0])},
        {"intercepts": np.zeros(2)},
        {"playable": np.array([True, True, False])},
        {"seed": -1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_policies_that_no_learner_makes_are_refused(changes: dict[str, Any]) -> None:
    spec = sparse_spec()
    policy_of(spec).check(spec)
    with pytest.raises(Malformed):
        replace(policy_of(spec), **changes).check(spec)


def test_the_certificate_says_whose_view_the_promise_is_about() -> None:
    spec = sparse_spec()
    certificate = certify("test", spec.privacy, [Schedule(spec).open(5).policy.terms])
    promised, curator = certificate.claims
    assert (promised.epsilon, promised.protects) == (1.0, JOINT)
    assert (curator.adversary, curator.epsilon) == ("the server", None)
    assert all(verdict.holds for verdict in recompute(certificate))


def test_a_horizon_may_grow_and_an_arm_be_retired_but_none_added() -> None:
    spec = sparse_spec()
    schedule = Schedule(spec)
    state = schedule.open(5).state
    assert schedule.learner.apply_spec_change(state, sparse_spec(experiment__horizon=9000)) is state
    wider = sparse_spec(experiment__arms=["a", "b", "c", "d"])
    with pytest.raises(SpecError) as refused:
        Schedule(wider).learner.apply_spec_change(state, spec)
    assert refused.value.field == "experiment.arms"


def test_an_arm_that_retires_changes_no_mean_reward_of_the_others() -> None:
    """Coins give every arm to a third of the explorers, also after an arm of the three is retired."""
    before, after = sparse_spec(), sparse_spec(experiment__retired_arms=["c"])
    step: Any = Schedule(before).open(5)
    arms = np.arange(9000) % 3
    rewards = np.array([0.9, 0.5, 0.5])[arms]
    contexts, coins = np.full((9000, before.dimension), 0.5), np.zeros(9000, np.uint32)
    reports = step.policy.contribute(contexts, coins, Arms(arms), rewards)
    release = step.policy.mechanism.simulate(reports, np.random.default_rng(3))
    state = EpochLearner(before).learn(step.state, step.policy, release)
    state = replace(state, followed=state.explored)
    for spec in (before, after):
        gain = EpochLearner(spec).answer(state).gain
        everybody = gain.means[1]
        assert (gain.arm, everybody.name) == ("a", "everybody gets a")
        assert everybody.low < 1.6 < everybody.high, "0.9 of a range from -2 to 2"
        assert everybody.value == pytest.approx(1.6, abs=0.1)
