"""Phased elimination in one process, small."""

from privateer_lab.simulation.simulate import simulate, summarize
from tests.support.phased import phased_spec


def test_signals_beyond_the_range_are_warned_of():
    changes = {"population.scale": 6.0, "experiment.participants": 20_000, "algorithm.participants_factor": 10.0}
    spec = phased_spec(changes, "central")
    summary = summarize(spec, list(simulate(spec, 3, 1)), 0.0)
    assert summary["clipped_share"] > 0.1
    assert any("Widen reward.low" in words for words in summary["warnings"])


def test_runs_on_processes_are_the_same():
    spec = phased_spec(trust="shuffle")
    serial, parallel = (sorted(simulate(spec, 4, jobs), key=lambda run: run.seed) for jobs in (1, 2))
    assert serial == parallel
