"""The allocation of arms: shares, the gain of choosing by segment, and what a plan says of either."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.trial import TrialSpec
from privateer_server.algorithms.trial.allocation import (
    Holdout,
    best_probabilities,
    compute_matching_shares,
    raise_to_floor,
)
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.group_sequential import critical_values
from privateer_server.algorithms.trial.power.power_analysis import PlannedOutcome, analyze_power, build_designs
from privateer_server.algorithms.trial.power.power_tables import build_allocations_table, build_power_tables
from tests.support.trials import SETTINGS, Trials, named_symbol

SEGMENTS = np.array([0.5, 0.5])
DESIGN = TrialDesign(0.05, 5e3, np.array([0.5, 0.5]), np.array([0.5, 0.25, 0.25]))
EVEN = np.full((3, 2), 0.5)


def draw_evidence(means: list[list[float]], people: float, seed: int = 0) -> TrialEvidence:
    arms = len(means[0])
    trials = Trials(SETTINGS["none"], SEGMENTS, np.array(means), people, 1, arms=(1 / arms,) * arms)
    shares = np.full((2, arms), 1 / arms)
    return trials.begin().add(trials.draw_epoch(np.random.default_rng(seed), people, shares))


def test_the_probability_of_being_best_is_that_of_draws() -> None:
    values, variances = np.array([[0.0, 0.02, 0.03, -0.05]]), np.array([[1e-4, 4e-4, 2e-4, 9e-4]])
    draws = np.random.default_rng(1).normal(values, np.sqrt(variances), (100_000, 4)).argmax(axis=1)
    assert best_probabilities(values, variances)[0] == pytest.approx(np.bincount(draws) / 1e5, abs=0.007)
    pair = best_probabilities(values[:, :2], variances[:, :2])
    assert pair[0, 1] == pytest.approx(0.8145, abs=1e-4)  # Phi(.02 / sqrt(.0005))


def test_every_arm_keeps_its_minimum_share() -> None:
    assert raise_to_floor(np.array([[0.999, 0.001], [0.7, 0.3]]), 0.05) == pytest.approx(
        np.array([[0.95, 0.05], [0.7, 0.3]])
    )
    shares = raise_to_floor(np.random.default_rng(2).dirichlet(np.full(5, 0.2), 50), 0.04)
    assert shares.min() >= 0.04 - 1e-12
    assert shares.sum(axis=1) == pytest.approx(np.ones(50))


def test_matching_favours_the_better_arm_and_starts_as_planned() -> None:
    shares = compute_matching_shares(draw_evidence([[0.3, 0.4], [0.4, 0.3]], 5_000), 0.02)
    assert shares[0, 1] > 0.9 > 0.1 > shares[1, 1] >= 0.02
    blank = Trials(SETTINGS["none"], SEGMENTS, np.full((2, 2), 0.5), 1e4, 1, arms=(0.3, 0.7)).begin()
    assert compute_matching_shares(blank, 0.02) == pytest.approx(np.tile([0.3, 0.7], (2, 1)))


def test_matching_waits_until_both_arms_have_events() -> None:
    """Seven events of 500 people against one are 2.1 standard deviations apart, and move no shares."""
    rates, planned = np.array([[0.002, 0.014]]), np.array([[0.5, 0.5]])
    design = TrialDesign(0.05, 1e5, np.array([0.5, 0.5]), np.ones(1))
    shares = [
        compute_matching_shares(
            TrialEvidence.begin(design).add(Epoch(2 * n, n * rates, n * planned * 2, 1, 0, 0, planned)), 0.02
        )
        for n in (500.0, 5_000.0)
    ]
    assert shares[0] == pytest.approx(planned)
    assert shares[1] == pytest.approx(np.array([[0.02, 0.98]]))


@pytest.mark.parametrize("setting", [named_symbol(2.0, 4), SETTINGS["central 1"]])
def test_the_gain_of_choosing_by_segment_is_unbiased(setting: object) -> None:
    """200 trials: the mean of z within four standard errors, .28, of 0, and its deviation within .2 of 1.

    Planted: a policy that is worse by .02 in half of the people.
    """
    rng, segments = np.random.default_rng(5), np.array([0.4, 0.3, 0.2, 0.1])
    means = np.array([[0.3, 0.36], [0.3, 0.3], [0.5, 0.58], [0.2, 0.2]])
    scores: dict[float, list[float]] = {0.0: [], 0.02: []}
    for _ in range(200):
        trials = Trials(setting, segments, means, 1e5, 1, arms=(0.5, 0.5))
        holdout = Holdout.begin(trials.begin().design, 4e4, np.array([1, 0, 1, 0]), 0)
        gain = holdout.add(trials.draw_epoch(rng, 6e4, np.full((4, 2), 0.5))).gain()
        assert gain is not None
        value, low, _ = gain
        deviation = (value - low) / critical_values((1.0,), 0.05)[-1]
        for off, errors in scores.items():
            errors.append((value + off - (0.4 * 0.06 + 0.2 * 0.08)) / deviation)
    assert np.mean(scores[0.0]) == pytest.approx(0, abs=0.28)
    assert np.std(scores[0.0]) == pytest.approx(1, abs=0.2)
    assert np.mean(scores[0.02]) > 0.28


def released(people: float, hits: np.ndarray, rates: np.ndarray) -> Epoch:
    return Epoch(people, hits * rates, hits, 1.0, 0.0, 0.0, EVEN)


def test_a_gain_is_the_sum_over_segments_where_the_arms_differ() -> None:
    """By hand: the treatment for all loses .2 where a fifth of people are, whom the control would suit."""
    holdout = Holdout.begin(DESIGN, 3e3, np.array([1, 0, 1]), constant=1)
    assert holdout.gain() is None
    hits = np.array([[600.0, 600.0], [200.0, 200.0], [200.0, 200.0]])
    rates = np.array([[0.3, 0.5], [0.5, 0.3], [0.4, 0.4]])
    gain = holdout.add(released(2_000, hits, rates)).gain()
    assert gain is not None
    deviation = 0.2 * np.sqrt((0.5 * 0.5 + 0.3 * 0.7) / 200)
    between = critical_values((1.0,), 0.05)[-1] * deviation
    assert gain == pytest.approx((0.2 * 0.2, 0.04 - between, 0.04 + between), rel=0.002)


def test_there_is_no_gain_with_the_same_arm_in_all_segments() -> None:
    holdout = Holdout.begin(DESIGN, 3e3, np.ones(3, np.int64), constant=1)
    assert holdout.add(released(2_000, np.full((3, 2), 300.0), np.full((3, 2), 0.4))).gain() is None


def test_an_empty_segment_does_not_change_the_gain() -> None:
    hits = np.array([[600.0, 600.0], [400.0, 400.0], [0.0, 0.0]])
    rates = np.array([[0.3, 0.5], [0.5, 0.3], [0.0, 0.0]])
    gain = Holdout.begin(DESIGN, 3e3, np.array([1, 0, 0]), constant=1).add(released(2_000, hits, rates)).gain()
    assert gain[0] == pytest.approx(0.4 * 0.2)


def test_a_segment_with_few_events_adds_to_a_gain_the_variance_of_rare_events() -> None:
    """The third segment has twenty participants of each arm without rewards; the overall rate is .02."""
    hits = np.array([[600.0, 600.0], [380.0, 380.0], [20.0, 20.0]]) * 10
    rates = np.array([[0.02, 0.02], [0.02, 0.02], [0.02, 0.02]])
    holdout = Holdout.begin(replace(DESIGN, people=1e5), 3e3, np.array([0, 0, 1]), constant=0)
    gain = holdout.add(released(20_000, hits, rates)).gain()
    deviation = np.sqrt(2 * 200 * 4 * 0.02 * 0.98) / 20_000
    assert gain[0] == pytest.approx(0.0)
    assert (gain[2] - gain[1]) / 2 == pytest.approx(critical_values((20_000 / 97_000,), 0.05)[-1] * deviation)


EFFECT = 0.1


def spec_of(rate: float = 0.2, **algorithm: object) -> TrialSpec:
    spec = parse_spec(
        {
            "experiment": {"name": "t", "arms": ["a", "b", "c"], "horizon": 6_000, "round_size": 500},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "segments": {"features": ["x"], "cuts": {"x": [0.5]}, "proportions": "equal"},
            "reward": {"low": 0.0, "high": 10.0, "base_rate": 10 * rate},
            "privacy": {"model": "central", "epsilon": 1.0},
            "algorithm": {"name": "trial", **algorithm},
        }
    )
    assert isinstance(spec, TrialSpec)
    return spec


def simulate(waiting: float = 0.0, **algorithm: object) -> PlannedOutcome:
    spec = spec_of(**algorithm)
    return analyze_power(spec, build_designs(spec), waiting).simulate_outcome(EFFECT)


def test_fixed_allocations_have_the_power_of_the_formulas() -> None:
    """Power of 1,400 segments has a standard error of .013. Two of three people lose the effect."""
    spec = spec_of(allocation="fixed")
    analysis = analyze_power(spec, build_designs(spec))
    planned = analysis.simulate_outcome(EFFECT)
    assert planned.power == pytest.approx(float(analysis.power(EFFECT)[0][0, 0]), abs=0.055)
    assert planned.reward_lost == pytest.approx(6_000 * 2 / 3 * EFFECT, rel=1e-6)
    # The critical value of the last look is 2.07 deviations, and power .8 is at 2.87.
    effect = float(analysis.minimum_detectable_effects()[0, 0])
    assert planned.half_width == pytest.approx(effect * 2.068 / 2.871, rel=0.03)


def test_matching_trades_power_for_reward_and_a_floor_or_window_restores_it() -> None:
    """The planted defect, shares that follow at once whatever the window, has one power for all windows."""
    low, high, late = (
        simulate(min_allocation=0.06),
        simulate(min_allocation=0.25),
        simulate(waiting=3_000, min_allocation=0.06),
    )
    fixed = simulate(allocation="fixed")
    assert low.power + 0.05 < high.power <= fixed.power + 0.04
    assert low.reward_lost < high.reward_lost < fixed.reward_lost
    assert low.half_width > high.half_width > 0.98 * fixed.half_width
    assert low.power + 0.05 < late.power
    assert low.reward_lost < late.reward_lost < fixed.reward_lost
    assert simulate(waiting=6_000, min_allocation=0.06).reward_lost == pytest.approx(fixed.reward_lost, rel=0.01)


def test_a_plan_compares_the_spec_with_other_allocations_in_the_unit_of_rewards() -> None:
    spec = spec_of(minimum_detectable_effect=10 * EFFECT, min_allocation=0.12)
    table = build_allocations_table(spec, EFFECT)
    assert [row[:2] for row in table.rows] == [
        ("thompson", 0.12),
        ("fixed", 0.3333),
        ("thompson", 0.15),
        ("thompson", 0.2),
    ]
    fixed = table.rows[1]
    assert fixed[4] == pytest.approx(6_000 * 2 / 3 * 10 * EFFECT, rel=1e-3)
    titles = [table.title for table in build_power_tables(without_effect(spec), build_designs(without_effect(spec)))]
    assert not any("costs by allocation" in title for title in titles)


def without_effect(spec: TrialSpec) -> TrialSpec:
    """Return the spec without the effect wanted, of which alone outcomes can be said."""
    return spec.model_copy(update={"algorithm": spec.algorithm.model_copy(update={"minimum_detectable_effect": None})})


def test_participants_asked_about_the_average_effect_lose_as_much_as_others() -> None:
    """With one bit a report, coins ask a share of the participants about the average effect."""
    spec = parse_spec(
        {
            "experiment": {"name": "t", "arms": ["a", "b"], "horizon": 20_000, "round_size": 2_000},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "segments": {"features": ["x"], "cuts": {"x": [0.15, 0.3, 0.5, 0.7, 0.85]}, "proportions": "equal"},
            "privacy": {"model": "local", "epsilon": 0.8},
            "reward": {"base_rate": 0.2},
            "algorithm": {"name": "trial", "allocation": "fixed"},
        }
    )
    assert isinstance(spec, TrialSpec)
    analysis = analyze_power(spec, build_designs(spec))
    assert analysis.plans.everybody is not None
    assert analysis.simulate_outcome(0.3).reward_lost == pytest.approx(20_000 / 2 * 0.3, rel=1e-6)
    assert np.isfinite(replace(analysis, rule="thompson").simulate_outcome(0.3).reward_lost)


@pytest.mark.parametrize("allocation", ["fixed", "thompson"])
def test_swapping_yes_and_no_keeps_the_least_effect(allocation: str) -> None:
    """Rewards of .99 cannot rise as far as those of .01.

    The planted defects find no effect at all of them, or judge their variance by a mean of .95.
    """
    specs = (spec_of(rate=rate, allocation=allocation) for rate in (0.01, 0.99))
    up, down = (analyze_power(spec, build_designs(spec)).minimum_detectable_effects() for spec in specs)
    assert down.min() > 0.01
    assert down == pytest.approx(up, rel=0.1)
