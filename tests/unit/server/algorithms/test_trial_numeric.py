"""Numeric rewards, from a release to an interval: their variance, its use, and its storage."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.trial import TrialSpec
from privateer_core.codec import decode, encode
from privateer_core.errors import Malformed
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.primitives.contributions import BERNSTEIN
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.power.power_analysis import analyze_power, build_designs
from privateer_server.algorithms.trial.state import TrialState, build_epoch

ONE = TrialDesign(0.05, 20_000, np.array([0.5, 0.5]), np.ones(1), numeric=True)


def spec_of(model: dict[str, Any], reward: dict[str, Any], **algorithm: Any) -> TrialSpec:
    spec = parse_spec(
        {
            "experiment": {"name": "x", "arms": ["a", "b"], "horizon": 20_000, "round_size": 1_000},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "reward": reward,
            "privacy": model,
            "algorithm": {"name": "trial", "allocation": "fixed", **algorithm},
        }
    )
    assert isinstance(spec, TrialSpec)
    return spec


def epoch(values: np.ndarray, noise: float = 0.0) -> Epoch:
    """Two arms, people of each with these values."""
    sums = [
        np.array([[values.sum()] * 2]),
        np.array([[float(len(values))] * 2]),
        np.array([[np.square(values).sum()] * 2]),
    ]
    return Epoch(2.0 * len(values), sums[0], sums[1], 1.0, 0.0, noise, np.full((1, 2), 0.5), sums[2], BERNSTEIN)


def test_the_variance_is_that_of_the_values() -> None:
    values = np.random.default_rng(1).beta(6, 14, 5_000)
    sums = TrialEvidence.begin(ONE).add(epoch(values)).stable
    assert sums.spread_of_hits[0, 0] == pytest.approx(values.var())
    assert sums.variance[0, 0] == pytest.approx(2 * values.var() / 5_000)
    assert sums.is_ready.all()


def test_noise_raises_the_variance_by_its_standard_deviation_and_never_above_that_of_bits() -> None:
    values = np.random.default_rng(1).beta(6, 14, 5_000)
    quiet = TrialEvidence.begin(ONE).add(epoch(values)).stable
    stable = TrialEvidence.begin(ONE).add(epoch(values, 100.0)).stable
    f, v, hits = values.mean(), values.var(), 5_000
    off = np.array([f**2 - v, f**2 - v - f, 1 + f**2 - v - 2 * f])
    expected = np.sqrt(100.0 * np.square(off).sum() / 2) / hits
    assert stable.spread_of_hits[0, 0] - quiet.spread_of_hits[0, 0] == pytest.approx(expected)
    mean = 100.0 * (f**2 + (0.5 - f) ** 2 + (1 - f) ** 2)
    assert stable.variances[0, 0, 0] == pytest.approx((stable.spread_of_hits[0, 0] * hits + mean) / hits**2, rel=0.01)
    loud = TrialEvidence.begin(ONE).add(epoch(values, 1e9)).stable
    assert loud.spread_of_hits[0, 0] == pytest.approx(f * (1 - f))


@pytest.mark.parametrize(
    ("buyers", "people", "ready"), [(0.01, 900, False), (0.01, 1_200, True), (1.0, 9, False), (1.0, 11, True)]
)
def test_nine_events_or_participants_have_no_interval(buyers: float, people: int, ready: bool) -> None:
    values = np.where(np.arange(people) < round(buyers * people), 0.5, 0.0)
    values += 0.001 * (buyers == 1) * (np.arange(people) % 2)
    assert TrialEvidence.begin(ONE).add(epoch(values)).stable.is_ready.all() == ready


def test_states_of_earlier_versions_have_no_squares() -> None:
    """A state of bits is stored as before but for empty fields, and a state without the fields is read."""
    spec = spec_of({"model": "none"}, {})
    state = TrialLearner(spec).start(3)
    stored = msgspec.msgpack.decode(encode(state))
    assert stored["evidence"]["design"].pop("numeric") is False
    for sums in ("stable", "precise", "common"):
        assert stored["evidence"][sums].pop("values") is None
    assert decode(msgspec.msgpack.encode(stored), TrialState).evidence.stable.values is None


def test_numbers_are_stored_and_read() -> None:
    spec = TrialSpec.instances()["shuffle-numeric"]
    learner = TrialLearner(spec)
    state = learner.start(3)
    policy: Any = learner.open_next_round(state, 1, 5).policy
    rng = np.random.default_rng(1)
    contexts, coins = rng.random((4_000, 2)), rng.integers(0, 2**32, 4_000, dtype=np.uint32)
    reports = policy.contribute(contexts, coins, policy.decide(contexts, coins), rng.random(4_000))
    after = learner.learn(state, policy, policy.mechanism.simulate(reports, rng))
    decoded = decode(encode(after), TrialState)
    assert decoded.evidence.stable.values is not None
    assert np.array_equal(decoded.evidence.stable.spread_of_hits, after.evidence.stable.spread_of_hits)


def test_guardrails_beside_numbers_are_bits_with_the_noise_of_all_parts() -> None:
    spec = spec_of(
        {"model": "central", "epsilon": 1.0}, {"kind": "numeric", "standard_deviation": 0.2}, guardrails=["refund"]
    )
    learner = TrialLearner(spec)
    policy: Any = learner.open_next_round(learner.start(3), 1, 5).policy
    rng = np.random.default_rng(1)
    contexts, coins = rng.random((4_000, 1)), rng.integers(0, 2**32, 4_000, dtype=np.uint32)
    rewards = np.stack([rng.random(4_000), np.ones(4_000)], axis=1)
    reports = policy.contribute(contexts, coins, policy.decide(contexts, coins), rewards)
    release = policy.mechanism.simulate(reports, rng)
    reward, refund = build_epoch(policy, release), build_epoch(policy, release, 1)
    assert reward.squares is not None
    assert reward.noise == pytest.approx(2 * release.noise)
    assert refund.squares is None
    assert refund.noise == pytest.approx(3 * release.noise)
    assert refund.positive.sum() == pytest.approx(4_000, abs=100)


def test_a_policy_of_bits_is_refused_where_numbers_are_asked_and_of_other_levels() -> None:
    for name in ("central-numeric", "local-numeric", "shuffle-numeric"):
        spec = TrialSpec.instances()[name]
        learner = TrialLearner(spec)
        policy: Any = learner.open_next_round(learner.start(3), 1, 5).policy
        policy.check(spec)
        mechanism = policy.mechanism
        other = (
            CellPairs(mechanism.layout, mechanism.scale)
            if isinstance(mechanism, CellPairs)
            else msgspec.structs.replace(mechanism, levels=2)
        )
        with pytest.raises(Malformed):
            replace(policy, terms=replace(policy.terms, mechanism=other)).check(spec)


@pytest.mark.parametrize(
    "model", [{"model": "none"}, {"model": "central", "epsilon": 1.0}, {"model": "local", "epsilon": 4.0}]
)
def test_a_plan_of_numeric_rewards_agrees_with_simulations(model: dict[str, Any]) -> None:
    """Of 4,000 simulated trials, whose power has a standard error of .006."""
    numbers = spec_of(model, {"kind": "numeric", "standard_deviation": 0.1})
    bits = spec_of(model, {})
    with_numbers, with_bits = (analyze_power(spec, build_designs(spec)) for spec in (numbers, bits))
    effect = float(with_numbers.minimum_detectable_effects()[0, 0])
    assert effect < 0.5 * float(with_bits.minimum_detectable_effects()[0, 0])
    trials = replace(with_numbers, rule="thompson", floor=0.5)  # simulated, and no arm may have less than the other
    assert trials.power(effect)[0][0, 0] == pytest.approx(0.8, abs=0.035)


def test_a_plan_has_the_cost_of_wider_bounds() -> None:
    spec = spec_of({"model": "central", "epsilon": 1.0}, {"kind": "numeric", "high": 2.0})
    table = next(part for part in TrialLearner(spec).build_forecast() if part.title.startswith("what other bounds"))
    bounds, effects = zip(*table.rows, strict=True)
    assert bounds == ("0 to 2", "0 to 20", "0 to 200")
    assert effects[0] < effects[1] < effects[2]
    assert effects[2] > 20 * effects[0]
    wide = spec_of({"model": "central", "epsilon": 1.0}, {"kind": "numeric", "high": 100.0, "standard_deviation": 1.0})
    table = next(part for part in TrialLearner(wide).build_forecast() if part.title.startswith("what other bounds"))
    assert table.rows[0][0] == "45 to 55", "ten deviations around the expected mean"
    assert table.rows[1][1] > 3 * table.rows[0][1]
    assert "a quarter of the range, 0.5" in spec.concerns()[0]
    assert spec_of({"model": "none"}, {"kind": "numeric", "high": 2.0, "standard_deviation": 0.3}).concerns() == []
    assert "numeric" in spec_of({"model": "none"}, {"high": 2.0}).concerns()[0]
    assert spec_of({"model": "none"}, {}).concerns() == []
