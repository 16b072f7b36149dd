"""Figures over runs: intervals of means, against coverage counted on drawn values, and errors of effects."""

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.simulation.simulate import half_width_95, simulate_once, summarize


def test_the_interval_of_two_values_is_students() -> None:
    assert half_width_95(np.array([0.0, 1.0])) == pytest.approx(12.7062 / 2, abs=1e-4)
    assert half_width_95(np.array([3.0])) is None


@pytest.mark.parametrize("runs", [2, 4, 10])
def test_the_confidence_interval_contains_the_mean_at_its_level(runs: int) -> None:
    """Of 4,000 draws 5 % miss, within 5 deviations (false alarms 1e-6); the normal interval misses more."""
    samples = np.random.default_rng(runs).standard_normal((4_000, runs))
    half_widths = np.array([half_width_95(values) for values in samples])
    errors = np.abs(samples.mean(axis=1))
    allowed = 5 * (0.05 * 0.95 / len(samples)) ** 0.5
    assert abs((errors > half_widths).mean() - 0.05) < allowed
    assert (errors > 1.96 * samples.std(axis=1, ddof=1) / runs**0.5).mean() > 0.05 + allowed


def test_the_error_of_effects_is_a_root_mean_square_over_runs_too() -> None:
    """Planted: with a single effect, the mean of the runs' figures is a mean of absolute errors."""
    spec = parse_spec(
        {
            "experiment": {"name": "one", "arms": ["old", "new"], "horizon": 400, "round_size": 400},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "privacy": {"model": "none"},
            "algorithm": {"name": "trial"},
            "population": {"name": "effects", "base": 0.5, "effects": {"new": 0.1}},
        }
    )
    runs = [simulate_once(spec, seed) for seed in range(3)]
    errors = np.array([run.facts["effect_error"] for run in runs])
    assert summarize(spec, runs, 0.0)["effect_error"] == pytest.approx(np.square(errors).mean() ** 0.5)
    assert errors.mean() < np.square(errors).mean() ** 0.5


def test_runs_without_estimates_do_not_count_in_coverage() -> None:
    """With 89 randomized reports hardly any run has an interval: no coverage of 1 and no width of 0."""
    spec = parse_spec(
        {
            "experiment": {"name": "few", "arms": ["a", "b"], "horizon": 89, "round_size": 89},
            "context": {"features": {"everybody": {"levels": ["everybody"]}}},
            "privacy": {"model": "local", "epsilon": 1.0},
            "algorithm": {"name": "trial"},
            "population": {"name": "effects", "base": 0.1, "effects": {"b": 0.1}},
        }
    )
    runs = [simulate_once(spec, seed) for seed in range(4)]
    figures = summarize(spec, runs, 0.0)
    silent = [run for run in runs if run.facts["judged"] == 0]
    assert silent
    assert all(np.isnan(run.facts["coverage"]) for run in silent)
    assert [run["coverage"] for run in figures["runs"] if run["judged"] == 0] == [None] * len(silent)
    half_widths = [run.facts["half_width"] for run in runs if run.facts["judged"]]
    assert figures["half_width"] == (pytest.approx(np.mean(half_widths)) if half_widths else None)
