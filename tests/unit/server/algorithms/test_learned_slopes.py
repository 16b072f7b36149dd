"""Slopes that a trial learns: estimates from sums, the looks that use them, and the answer."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.trial.learned_slopes import SLOPE_MAX, LearnedSlope, adjust_values
from privateer_core.answer.parts import Figures
from privateer_core.errors import InputError, Malformed
from privateer_core.mechanisms.cell_pairs import CellTriples
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import SlotLayout
from privateer_server.algorithms.trial.state import estimate_slope
from privateer_server.rounds.loop import Schedule
from tests.support.people import rounds
from tests.support.specs import tables

PEOPLE = 20_000
TOLD: dict[str, Any] = {
    "algorithm.name": "trial",
    "privacy.model": "central",
    "privacy.epsilon": 1.0,
    "privacy.delta": 0.0,
    "experiment.horizon": 20_000,
    "experiment.round_size": 1200,
    "reward.low": -60.0,
    "reward.high": 120.0,
    "reward.kind": "numeric",
    "reward.standard_deviation": 20.0,
    "reward.covariates": {"minutes": {"low": 0.0, "high": 90.0}, "visits": {"low": 0.0, "high": 9.0}},
}


def spec_of(**changes: Any) -> Any:
    return parse_spec(tables(TOLD | changes))


def released(scale: float, slope: float, spread: float, seed: int = 1, effect: float = 0.0) -> Any:
    """Sums of 20,000 people of two segments by two arms; segments differ in both numbers, the other way than people."""
    rng = np.random.default_rng(seed)
    segments, arms = rng.integers(0, 2, (2, PEOPLE))
    numbers = np.clip(0.4 + 0.2 * segments + spread * rng.standard_normal(PEOPLE), 0, 1)
    means = 0.6 - 0.2 * segments + effect * arms
    values = np.clip(means + slope * (numbers - 0.4 - 0.2 * segments) + 0.05 * rng.standard_normal(PEOPLE), 0, 1)
    keyed_values = KeyedValues(
        np.zeros(PEOPLE, np.uint32), 2 * segments + arms, np.zeros(PEOPLE, np.int64), values, numbers
    )
    return CellProducts(SlotLayout.ungrouped(4, 5), scale).simulate(keyed_values, rng), segments, numbers, values


@pytest.mark.parametrize("effect", [0.0, 0.1])
def test_the_slope_is_that_of_least_squares_within_segments(effect: float) -> None:
    """Without noise, by an oracle that sees the people; arms make no difference.

    Planted: segments that differ make the slope over all people one of the other sign.
    """
    release, segments, numbers, values = released(0.0, 0.5, 0.1, effect=effect)
    inside = [np.polyfit(numbers[segments == segment], values[segments == segment], 1)[0] for segment in (0, 1)]
    estimate = estimate_slope(release, 2)
    assert estimate.slope == pytest.approx(np.mean(inside), abs=0.002)
    assert estimate.mean == pytest.approx(numbers.mean(), abs=1e-4)
    assert np.polyfit(numbers, values, 1)[0] < 0
    assert estimate_slope(release, 1).slope < 0


def test_noise_makes_slopes_flatter_and_not_steeper_and_more_of_it_stops_adjusting() -> None:
    """Forty releases of each: with e noise's deviation, c / (v + e^2 / v) is below the slope on average."""
    slopes = [estimate_slope(released(30.0, 0.5, 0.1, seed)[0], 2).slope for seed in range(40)]
    assert 0.2 < np.mean(slopes) <= 0.5
    assert all(estimate_slope(released(1e3, 0.5, 0.1, seed)[0], 2).slope == 0 for seed in range(10))
    assert estimate_slope(released(0.0, 0.5, 0.0)[0], 2).slope == 0
    steep = estimate_slope(released(0.0, 2.0, 0.05)[0], 2)
    assert steep.slope == SLOPE_MAX
    assert steep.is_possible


def test_values_are_adjusted_within_their_bounds() -> None:
    learned = [LearnedSlope(0.5, 0.4), LearnedSlope(-1.0, 0.5)]
    numbers = np.array([[0.6, 0.5, 0.9], [0.4, 0.0, 0.9], [1.0, 0.5, 0.9]])
    assert adjust_values(np.array([0.7, 0.7, 0.1]), numbers, learned) == pytest.approx(np.array([0.6, 0.2, 0.0]))


def test_each_of_the_first_looks_learns_one_slope_and_later_ones_have_triples() -> None:
    """A look adjusts with the slopes in its policy, which earlier looks have estimated."""
    played = list(rounds(spec_of()))
    assert [len(result.policy.learned) for result in played[:4]] == [0, 1, 2, 2]
    assert [type(result.policy.terms.mechanism) for result in played[:3]] == [CellProducts, CellProducts, CellTriples]
    costs = {result.policy.terms.mechanism.release_event for result in played}
    assert len(costs) == 1
    for before, after in itertools.pairwise(played):
        assert after.policy.learned == before.state.learned
        assert after.policy.learned[: len(before.policy.learned)] == before.policy.learned


def read_facts(spec: Any, state: Any) -> dict[str, Any]:
    answer: Any = Schedule(spec).learner.answer(state)
    return {fact.name: fact.value for part in answer.parts if isinstance(part, Figures) for fact in part.facts}


def test_the_answer_has_slopes_in_the_units_of_reward_and_number() -> None:
    spec = spec_of()
    first, second, *_ = rounds(spec)
    facts = read_facts(spec, replace(first.state, learned=(LearnedSlope(0.5, 0.4),)))
    assert facts["slope of minutes, learned"] == pytest.approx(1.0)  # .5 of 180 for 90
    assert "slope of visits, learned" not in facts
    none = replace(second.state, learned=(LearnedSlope(0.5, 0.4), LearnedSlope(0.0, 0.4)))
    assert "noise" in read_facts(spec, none)["slope of visits, learned"]


@pytest.mark.parametrize(
    "learned",
    [
        (LearnedSlope(1.6, 0.5),),
        (LearnedSlope(float("nan"), 0.5),),
        (LearnedSlope(0.5, 1.1),),
        (LearnedSlope(0.5, 0.5),) * 3,
        (LearnedSlope(0.5, 0.5),) * 2,  # and a mechanism that asks for a number still
    ],
)
def test_a_device_refuses_slopes_that_no_learner_makes(learned: tuple[LearnedSlope, ...]) -> None:
    spec = spec_of()
    policy = Schedule(spec).open(7).policy
    policy.check(spec)
    with pytest.raises(Malformed):
        replace(policy, learned=learned).check(spec)


def test_a_device_refuses_a_number_that_no_slope_is_learned_for() -> None:
    declared = spec_of(**{"reward.covariates": {"minutes": {"mean": 31.0, "slope": 0.8}}})
    with pytest.raises(Malformed):
        Schedule(spec_of()).open(7).policy.check(declared)


def test_a_round_that_learns_a_slope_needs_the_numbers() -> None:
    policy: Any = Schedule(spec_of()).open(7).policy
    contexts, coins = np.full((3, 2), 0.5), np.arange(3, dtype=np.uint32)
    decisions = policy.decide(contexts, coins)
    reports = policy.contribute(contexts, coins, decisions, np.full((3, 3), 0.25))
    assert reports.numbers.tolist() == [0.25] * 3
    with pytest.raises(InputError):
        policy.contribute(contexts, coins, decisions, np.full(3, 0.25))


def test_a_plan_counts_the_looks_without_slopes() -> None:
    def compute_least_effect(**changes: Any) -> float:
        spec = spec_of(**{"algorithm.allocation": "fixed"} | changes)
        table = Schedule(spec).learner.build_forecast()[0]  # type: ignore[attr-defined]
        return float(table.rows[0][[column.name for column in table.columns].index("least effect")])

    number = {"correlation": 0.7}
    declared = compute_least_effect(**{"reward.covariates": {"minutes": {"mean": 31.0, "slope": 0.8} | number}})
    learned = compute_least_effect(**{"reward.covariates": {"minutes": {"low": 0.0, "high": 90.0} | number}})
    plain = compute_least_effect(**{"reward.covariates": {}})
    assert declared < learned < plain
