"""What a plan says of allocations: power, half-width and reward lost, from simulated statistics."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.trial import TrialSpec
from privateer_server.algorithms.trial.power.power_analysis import PlannedOutcome, analyze_power, build_designs
from privateer_server.algorithms.trial.power.power_tables import build_allocations_table, build_power_tables

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
