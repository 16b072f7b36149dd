"""Phased elimination in one process, small."""

import pytest

from privateer_lab.simulation.simulate import simulate, simulate_once, summarize
from tests.support.phased import TRUST, phased_spec


def test_signals_beyond_the_range_are_warned_of():
    changes = {"population.scale": 6.0, "experiment.participants": 20_000, "algorithm.participants_factor": 10.0}
    spec = phased_spec(changes, "central")
    summary = summarize(spec, list(simulate(spec, 3, 1)), 0.0)
    assert summary["clipped_share"] > 0.1
    assert any("Widen reward.low" in words for words in summary["warnings"])


@pytest.mark.parametrize("trust", TRUST)
def test_a_seed_is_a_run(trust):
    spec = phased_spec(trust=trust)
    assert simulate_once(spec, 4) == simulate_once(spec, 4)
    assert simulate_once(spec, 4).regret != simulate_once(spec, 5).regret


def test_runs_on_processes_are_the_same():
    spec = phased_spec(trust="shuffle")
    serial, parallel = (sorted(simulate(spec, 4, jobs), key=lambda run: run.seed) for jobs in (1, 2))
    assert serial == parallel
