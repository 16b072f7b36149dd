"""What a plan says of allocations: power, half-width and reward lost, from simulated statistics."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.trial import TrialSpec
from privateer_server.algorithms.trial.power.planned_designs import designs
from privateer_server.algorithms.trial.power.power_analysis import PlannedOutcome, power_analysis
from privateer_server.algorithms.trial.power.power_tables import allocations_table, power_tables

EFFECT = 0.1


def spec_of(**algorithm: object) -> TrialSpec:
    spec = parse_spec(
        {
            "experiment": {"name": "t", "arms": ["a", "b", "c"], "horizon": 6_000, "round_size": 500},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "segments": {"by": ["x"], "cuts": {"x": [0.5]}, "shares": "equal"},
            "reward": {"low": 0.0, "high": 10.0},
            "privacy": {"model": "central", "epsilon": 1.0},
            "algorithm": {"name": "trial", "rate": 0.2, **algorithm},
        }
    )
    assert isinstance(spec, TrialSpec)
    return spec


def outcome(waiting: float = 0.0, **algorithm: object) -> PlannedOutcome:
    spec = spec_of(**algorithm)
    return power_analysis(spec, designs(spec), waiting).outcome(EFFECT)


def test_fixed_shares_are_as_formulas_say() -> None:
    """Power of 1,400 segments has a standard error of .013. Two of three people lose the effect."""
    spec = spec_of(allocation="fixed")
    analysis = power_analysis(spec, designs(spec))
    found = analysis.outcome(EFFECT)
    assert found.power == pytest.approx(float(analysis.power(EFFECT)[0][0, 0]), abs=0.055)
    assert found.lost == pytest.approx(6_000 * 2 / 3 * EFFECT, rel=1e-6)
    # The critical value of the last look is 2.07 deviations, and power .8 is at 2.87.
    assert found.half_width == pytest.approx(float(analysis.least()[0, 0]) * 2.068 / 2.871, rel=0.03)


def test_matching_loses_less_and_finds_less_and_a_floor_or_a_window_bring_it_back() -> None:
    """The planted defect, shares that follow at once whatever the window, has one power for all windows."""
    low, high, late = outcome(floor=0.06), outcome(floor=0.25), outcome(waiting=3_000, floor=0.06)
    fixed = outcome(allocation="fixed")
    assert low.power + 0.05 < high.power <= fixed.power + 0.04
    assert low.lost < high.lost < fixed.lost
    assert low.half_width > high.half_width > 0.98 * fixed.half_width
    assert low.power + 0.05 < late.power
    assert low.lost < late.lost < fixed.lost
    assert outcome(waiting=6_000, floor=0.06).lost == pytest.approx(fixed.lost, rel=0.01)


def test_a_plan_compares_the_spec_with_other_allocations_in_the_unit_of_rewards() -> None:
    spec = spec_of(effect=10 * EFFECT, floor=0.12)
    table = allocations_table(spec, EFFECT)
    assert [row[:2] for row in table.rows] == [
        ("matching", 0.12),
        ("fixed", 0.3333),
        ("elimination", 0.12),
        ("matching", 0.15),
        ("matching", 0.2),
    ]
    fixed = table.rows[1]
    assert fixed[4] == pytest.approx(6_000 * 2 / 3 * 10 * EFFECT, rel=1e-3)
    titles = [one.title for one in power_tables(replaced(spec), designs(replaced(spec)))]
    assert not any("costs by allocation" in title for title in titles)


def replaced(spec: TrialSpec) -> TrialSpec:
    """Return the spec without the effect wanted, of which alone outcomes can be said."""
    return spec.model_copy(update={"algorithm": spec.algorithm.model_copy(update={"effect": None})})


def test_people_who_are_asked_about_everybody_lose_as_others_do() -> None:
    """One bit a report: coins have some of the people answer for everybody."""
    spec = parse_spec(
        {
            "experiment": {"name": "t", "arms": ["a", "b"], "horizon": 20_000, "round_size": 2_000},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "segments": {"by": ["x"], "cuts": {"x": [0.15, 0.3, 0.5, 0.7, 0.85]}, "shares": "equal"},
            "privacy": {"model": "local", "epsilon": 0.8},
            "algorithm": {"name": "trial", "rate": 0.2, "allocation": "fixed"},
        }
    )
    assert isinstance(spec, TrialSpec)
    analysis = power_analysis(spec, designs(spec))
    assert analysis.plans.everybody is not None
    assert analysis.outcome(0.3).lost == pytest.approx(20_000 / 2 * 0.3, rel=1e-6)
    assert np.isfinite(replace(analysis, rule="matching").outcome(0.3).lost)


@pytest.mark.parametrize("allocation", ["fixed", "matching"])
def test_what_is_called_yes_changes_no_least_effect(allocation: str) -> None:
    """Rewards of .99 cannot rise as far as those of .01.

    The planted defects find no effect at all of them, or judge their variance by a mean of .95.
    """
    specs = (spec_of(rate=rate, allocation=allocation) for rate in (0.01, 0.99))
    up, down = (power_analysis(spec, designs(spec)).least() for spec in specs)
    assert down.min() > 0.01
    assert down == pytest.approx(up, rel=0.1)
