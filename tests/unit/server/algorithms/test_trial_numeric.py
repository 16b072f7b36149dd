"""Trials of numeric rewards: variances, bounds that resolve too little, covariates, and slopes that a trial learns."""

import itertools
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

import privateer_lab as lab
from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.trial import TrialSpec
from privateer_core.algorithms.trial.learned_slopes import SLOPE_MAX, LearnedSlope, adjust_values
from privateer_core.answer.estimates import Effect
from privateer_core.answer.parts import Figures
from privateer_core.errors import InputError, Malformed
from privateer_core.mechanisms.cell_pairs import CellPairs, CellTriples
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.primitives.contributions import BERNSTEIN, KeyedValues
from privateer_core.primitives.public_coins import SlotLayout
from privateer_lab.simulation.simulate import make_simulation
from privateer_server.algorithms.trial.decisions import round_figure, round_interval
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.power.power_analysis import analyze_power, build_designs
from privateer_server.algorithms.trial.state import build_epoch, estimate_slope
from privateer_server.rounds.schedule import Schedule
from tests.support.people import rounds
from tests.support.specs import tables

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


VARY = "rewards vary too little for their bounds"


def analyze_effect(rewards: np.ndarray, bounds: tuple[float, float] | None, **options: Any) -> Effect:
    rows = {"arm": np.repeat(["a", "b"], len(rewards) // 2), "reward": rewards}
    [effect] = lab.analyze(rows, bounds=bounds, **options).answer.effects
    return effect


@pytest.mark.parametrize("bounds", [None, (0.0, 10.0), (0.0, 1e6)])
def test_rewards_that_do_not_vary_decide_nothing(bounds: tuple[float, float] | None) -> None:
    """200 rewards of 5 beside 200 of 6: an interval of width 0 would be taken for knowledge."""
    effect = analyze_effect(np.repeat([5.0, 6.0], 200), bounds)
    assert (effect.value, effect.low, effect.high, effect.reason) == (None, None, None, VARY)
    assert not effect.is_decided
    assert ("bounds of" in effect.remark) == (bounds is not None), "narrower ones than those of the rows are none"


def test_the_named_bounds_resolve_the_variation() -> None:
    rewards = 500 + 0.3 * np.random.default_rng(1).standard_normal(4_000)
    hidden = analyze_effect(rewards, (0.0, 1e6))
    assert hidden.reason == VARY
    assert hidden.remark == "if they vary at all, bounds of 492 to 508 tell by how much"
    effect = analyze_effect(rewards, (492.0, 508.0))
    plain = 2 * 1.96 * 0.3 / 1_000**0.5
    assert effect.low is not None
    assert effect.high is not None
    assert effect.high - effect.low == pytest.approx(plain, rel=0.05)


def test_a_curator_names_bounds_with_less_noise() -> None:
    """Of 12 analyses each with its own noise, 95 % name bounds: fewer than 6 do so once in a million runs."""
    rewards = 500 + 0.3 * np.random.default_rng(1).standard_normal(4_000)
    promise = {"epsilon": 4.0, "shares": {"a": 0.5, "b": 0.5}}
    effects = [analyze_effect(rewards, (0.0, 1000.0), **promise) for _ in range(12)]
    named = [each for each in effects if each.remark.startswith("noise hides how much rewards vary: bounds of ")]
    assert len(named) >= 6
    low, high = (float(word) for word in named[0].remark.split("bounds of ")[1].split(" need")[0].split(" to "))
    assert 0 < low < 499
    assert 501 < high < 1000
    near = analyze_effect(rewards, (499.0, 501.0), **promise)
    assert near.remark == ""
    assert near.low is not None
    assert named[0].low is not None
    assert near.low > named[0].low


@pytest.mark.parametrize(("width", "digits"), [(1.0, 6), (0.01, 6), (3e-5, 8), (2e-9, 12)])
def test_an_interval_keeps_its_width_however_narrow(width: float, digits: int) -> None:
    figures = np.array([width / 3, 0.0, width])
    assert round_interval(figures) == tuple(round(figure, digits) for figure in figures.tolist())
    value, low, high = round_interval(figures)
    assert low is not None
    assert high is not None
    assert value is not None
    assert low < value < high
    assert round_figure(float("nan"), width) is None


TRIAL = {
    "algorithm.name": "trial",
    "algorithm.allocation": "fixed",
    "privacy.model": "none",
    "privacy.epsilon": None,
    "reward.kind": "numeric",
    "reward.standard_deviation": 0.1,
}


def correlated_spec(**number: float) -> Any:
    return parse_spec(tables(TRIAL | {"reward.covariates": {"minutes": {"mean": 31.0, "slope": 0.8} | number}}))


def test_a_plan_has_the_worth_of_adjusting_with_a_declared_correlation() -> None:
    """Normal rewards vary by sqrt(1 - .6^2) = .8 of what they did."""
    table = TrialLearner(correlated_spec(correlation=0.6)).build_forecast()[0]
    names = [column.name for column in table.columns]
    adjusted, plain = (names.index(name) for name in ("least effect", "least effect if nothing were adjusted"))
    for row in table.rows:
        assert float(str(row[adjusted])) / float(str(row[plain])) == pytest.approx(0.8, rel=0.01)
    silent = TrialLearner(correlated_spec()).build_forecast()[0]
    assert "least effect if nothing were adjusted" not in [column.name for column in silent.columns]
    assert silent.rows[0][adjusted] == table.rows[0][plain]


def test_an_answer_names_the_covariates() -> None:
    minutes = {"mean": 31.0, "deviation": 1.0, "correlation": 0.5}
    people = {"name": "numbers", "mean": 0.5, "deviation": 0.1, "before": {"minutes": minutes}}
    for spec, covariate in ((correlated_spec(), "minutes"), (parse_spec(tables(TRIAL)), None)):
        run = make_simulation(spec.model_copy(update={"population": people}), 1)
        run.close_round()
        answer = run.schedule.answer(run.step)
        (figures,) = (part for part in answer.parts if isinstance(part, Figures))
        assert {fact.name: fact.value for fact in figures.facts}.get("rewards are adjusted by") == covariate


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


def sloped_spec(**changes: Any) -> Any:
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
    played = list(rounds(sloped_spec()))
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
    spec = sloped_spec()
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
    spec = sloped_spec()
    policy = Schedule(spec).open(7).policy
    policy.check(spec)
    with pytest.raises(Malformed):
        replace(policy, learned=learned).check(spec)


def test_a_device_refuses_a_number_that_no_slope_is_learned_for() -> None:
    declared = sloped_spec(**{"reward.covariates": {"minutes": {"mean": 31.0, "slope": 0.8}}})
    with pytest.raises(Malformed):
        Schedule(sloped_spec()).open(7).policy.check(declared)


def test_a_round_that_learns_a_slope_needs_the_numbers() -> None:
    policy: Any = Schedule(sloped_spec()).open(7).policy
    contexts, coins = np.full((3, 2), 0.5), np.arange(3, dtype=np.uint32)
    decisions = policy.decide(contexts, coins)
    reports = policy.contribute(contexts, coins, decisions, np.full((3, 3), 0.25))
    assert reports.numbers.tolist() == [0.25] * 3
    with pytest.raises(InputError):
        policy.contribute(contexts, coins, decisions, np.full(3, 0.25))


def test_a_plan_counts_the_looks_without_slopes() -> None:
    def compute_least_effect(**changes: Any) -> float:
        spec = sloped_spec(**{"algorithm.allocation": "fixed"} | changes)
        table = Schedule(spec).learner.build_forecast()[0]  # type: ignore[attr-defined]
        return float(table.rows[0][[column.name for column in table.columns].index("least effect")])

    number = {"correlation": 0.7}
    declared = compute_least_effect(**{"reward.covariates": {"minutes": {"mean": 31.0, "slope": 0.8} | number}})
    learned = compute_least_effect(**{"reward.covariates": {"minutes": {"low": 0.0, "high": 90.0} | number}})
    plain = compute_least_effect(**{"reward.covariates": {}})
    assert declared < learned < plain
