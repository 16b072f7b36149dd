"""A plan says with which probability a trial finds an effect, and simulated trials find it as often.

`pytest -q -s -m nightly tests/simulation/test_trial_power.py` prints a row for each setting.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.trial import TrialSpec
from privateer_lab.simulation.simulate import make_simulation, run_to_end
from privateer_server.algorithms.trial.group_sequential import critical_values, information_fractions
from privateer_server.algorithms.trial.power.power_analysis import PowerAnalysis, analyze_power, build_designs

_SHUFFLE: Final = {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6}
_CENTRAL: Final = {"model": "central", "epsilon": 0.3}
_LOCAL: Final = {"model": "local", "epsilon": 2.0}
_ONE_BIT: Final = {"model": "local", "epsilon": 0.8}
_ALLOCATIONS: Final = ("fixed", "thompson")
SETTINGS: Final = [
    (allocation, privacy, segments, people)
    for privacy, segments, people in (
        (_SHUFFLE, 3, 20_000),
        (_CENTRAL, 4, 10_000),
        (_LOCAL, 2, 15_000),
        (_ONE_BIT, 4, 30_000),
    )
    for allocation in _ALLOCATIONS
]
TRIALS: Final = 2_000
"""Segments of all runs: a power of .8 has a standard error of .009, and the plan's own is .006."""


def spec_of(
    allocation: str, privacy: Mapping[str, Any], segments: int, people: int, effect: float, target: float | None = None
) -> TrialSpec:
    """Return a trial of three arms, of which one has an effect in every segment."""
    cuts = [k / segments for k in range(1, segments)]
    algorithm = {"name": "trial", "allocation": allocation} | ({"minimum_detectable_effect": target} if target else {})
    spec = parse_spec(
        {
            "experiment": {"name": "t", "arms": ["a", "b", "c"], "horizon": people, "round_size": 1000},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "segments": {"features": ["x"], "cuts": {"x": cuts}, "proportions": "equal"},
            "reward": {"base_rate": 0.2},
            "privacy": dict(privacy),
            "algorithm": algorithm,
            "population": {"name": "effects", "base": 0.2, "effects": {"b": effect}},
        }
    )
    assert isinstance(spec, TrialSpec)
    return spec


def simulate_power(spec: TrialSpec, trials: int) -> tuple[float, float]:
    """Return the share of simulated segments in which the effect is found at some look, and its standard error."""
    shares = []
    for seed in range(-(-trials // spec.segment_count)):
        evidence = run_to_end(make_simulation(spec, seed)).step.state.evidence
        critical = critical_values(
            information_fractions(evidence.people, evidence.design.people), spec.algorithm.significance_level
        )
        crossed = np.abs(np.nan_to_num(evidence.scores[:, :, 0])) > critical[:, None]
        shares.append(crossed.any(axis=0).mean())
    # Segments of one run share its people: runs are what is independent.
    return float(np.mean(shares)), float(np.std(shares) / np.sqrt(len(shares)))


def plan_effect(allocation: str, privacy: Mapping[str, Any], segments: int, people: int) -> tuple[PowerAnalysis, float]:
    spec = spec_of(allocation, privacy, segments, people, 0.0)
    prospect = analyze_power(spec, build_designs(spec))
    return prospect, float(prospect.minimum_detectable_effects()[0, 0])


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("allocation", "privacy", "segments", "people"), SETTINGS)
def test_simulated_trials_find_effects_as_often_as_the_plan_says(
    allocation: str, privacy: Mapping[str, Any], segments: int, people: int
) -> None:
    """A difference has a standard error of .011: a right plan fails one of twelve rows with probability .07.

    The effect is the least that the plan says is found with power .8.
    """
    prospect, effect = plan_effect(allocation, privacy, segments, people)
    power = float(prospect.power(effect)[0][0, 0])
    share, error = simulate_power(spec_of(allocation, privacy, segments, people, effect), TRIALS)
    row = f"{allocation:11} {privacy['model']:7} {privacy['epsilon']:<3} {segments} segments, {people:,} people, "
    print(f"\n{row}effect {effect:.4f}: plan {power:.3f}, simulated {share:.3f} +- {error:.3f}, {power - share:+.3f}")
    assert error <= 0.01
    assert power == pytest.approx(0.8, abs=0.03)
    assert share == pytest.approx(power, abs=0.03)


_STARVED: Final = ("thompson", _CENTRAL, 4, 20_000)


def test_the_least_effect_of_a_plan_has_the_power_that_is_asked_for() -> None:
    """The same plan by formulas of fixed shares, which is planted below, promises more power and a smaller effect."""
    prospect, effect = plan_effect(*_STARVED)
    fixed = replace(prospect, rule="fixed")
    assert float(prospect.power(effect)[0][0, 0]) == pytest.approx(0.8, abs=0.03)
    assert float(fixed.power(effect)[0][0, 0]) > 0.95
    assert float(fixed.minimum_detectable_effects()[0, 0]) < 0.9 * effect


@pytest.mark.nightly
def test_a_plan_knows_that_matching_starves_arms() -> None:
    """Four standard errors of 240 segments are .1. The planted defect uses the formulas of fixed shares."""
    prospect, effect = plan_effect(*_STARVED)
    wrong = float(replace(prospect, rule="fixed").power(effect)[0][0, 0])
    share, _ = simulate_power(spec_of(*_STARVED, effect), 240)
    assert share == pytest.approx(0.8, abs=0.1)
    assert wrong > share + 0.15
    fixed = float(replace(prospect, rule="fixed").minimum_detectable_effects()[0, 0])
    claimed = simulate_power(spec_of(*_STARVED, fixed), 240)[0]
    assert float(prospect.power(fixed)[0][0, 0]) == pytest.approx(claimed, abs=0.1)
    assert claimed < 0.6
