"""Figures over runs: intervals of means, against coverage counted on drawn values, and errors of effects."""

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.simulation.simulate import simulate_once
from privateer_lab.simulation.summary import interval, summary


def test_of_two_values_it_is_students() -> None:
    assert interval(np.array([0.0, 1.0])) == pytest.approx(12.7062 / 2, abs=1e-4)
    assert interval(np.array([3.0])) is None


@pytest.mark.parametrize("runs", [2, 4, 10])
def test_it_holds_the_mean_as_often_as_it_says(runs: int) -> None:
    """Of 4,000 draws 5 % miss, within 5 deviations (false alarms 1e-6); the normal interval misses more."""
    drawn = np.random.default_rng(runs).standard_normal((4_000, runs))
    half = np.array([interval(values) for values in drawn])
    far = np.abs(drawn.mean(axis=1))
    allowed = 5 * (0.05 * 0.95 / len(drawn)) ** 0.5
    assert abs((far > half).mean() - 0.05) < allowed
    assert (far > 1.96 * drawn.std(axis=1, ddof=1) / runs**0.5).mean() > 0.05 + allowed


def test_the_error_of_effects_is_a_root_mean_square_over_runs_too() -> None:
    """Planted: of one effect the mean of runs' figures is one of absolute errors."""
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
    assert summary(spec, runs, 0.0)["effect_error"] == pytest.approx(np.square(errors).mean() ** 0.5)
    assert errors.mean() < np.square(errors).mean() ** 0.5


def test_runs_that_estimated_nothing_do_not_count_in_coverage() -> None:
    """89 people who randomize: hardly any run has an interval, which is no coverage of 1 and no width of 0."""
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
    figures = summary(spec, runs, 0.0)
    silent = [run for run in runs if run.facts["judged"] == 0]
    assert silent
    assert all(np.isnan(run.facts["coverage"]) for run in silent)
    assert [run["coverage"] for run in figures["runs"] if run["judged"] == 0] == [None] * len(silent)
    said = [run.facts["half_width"] for run in runs if run.facts["judged"]]
    assert figures["half_width"] == (pytest.approx(np.mean(said)) if said else None)
