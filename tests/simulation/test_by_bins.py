"""People drawn by bins have the law of people drawn one by one: releases and regrets, and what is planted is caught.

Fixed seeds; each comparison had a chance of 1e-6 to fail a right implementation when its seed was picked.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_lab.environments import environment_for
from privateer_lab.simulation.aggregation import EnvironmentBoxes
from privateer_lab.simulation.simulate import Simulation, simulate_once
from tests.support.round_releases import advanced, both_ways
from tests.support.specs import SHUFFLE, make_spec
from tests.support.statistics import FALSE_ALARM, same_law

MODELS = {
    "local": {"privacy.epsilon": 4.0},
    "shuffle": SHUFFLE,
    "central": {"privacy.model": "central", "privacy.delta": 1e-6},
    "none": {"privacy.model": "none", "privacy.epsilon": None},
    "published": {"algorithm.name": "paper-1-ldpmab", "privacy.epsilon": 16.0},
}
PEOPLE = {"population.name": "peaks", "experiment.horizon": 12_000, "experiment.round_size": 3000}


def spec_of(model: str, **changes: object):
    return make_spec({**PEOPLE, **MODELS[model], **changes})


def learned(model: str) -> Simulation:
    """A run that has learned three rounds, so that bins are many and some are decided."""
    return advanced(Simulation(spec_of(model), 3))


@pytest.mark.parametrize("model", MODELS)
def test_a_round_has_the_law_of_its_people(model):
    run = learned(model)
    assert run.facts()["bins"] > 1
    assert same_law(*both_ways(run, 300))


@pytest.mark.parametrize("noise", ["all of it", "less"])
def test_a_first_round_of_events_has_the_law_of_its_people(noise, monkeypatch):
    """Planted: people drawn one by one have half as much epsilon again."""
    run = Simulation(spec_of("shuffle", **{"reward.base_rate": 0.01}), 3)
    symbol, made = run.step.policy.terms.mechanism, EventSymbol.simulate
    assert isinstance(symbol, EventSymbol)
    if noise == "less":
        monkeypatch.setattr(EventSymbol, "simulate", lambda self, *rest: made(symbol.weaker(1.5), *rest))
    assert same_law(*both_ways(run, 300)) == (noise == "all of it")


def test_another_arms_reward_is_caught(monkeypatch):
    """Planted: every arm wins as the first one does."""
    made = EnvironmentBoxes.people_of

    def wrong(self, policy, phase):
        here = made(self, policy, phase)
        return replace(here, means=here.means[:, :1].repeat(here.means.shape[1], axis=1))

    monkeypatch.setattr(EnvironmentBoxes, "people_of", wrong)
    assert not same_law(*both_ways(Simulation(spec_of("none"), 3), 100))


@pytest.mark.parametrize("model", ["local", pytest.param("shuffle", marks=pytest.mark.nightly)])
@pytest.mark.nightly
def test_whole_runs_have_the_same_law(model):
    """40 seeds each way, other seeds: regret, reward and the number of bins at the end."""
    spec = spec_of(model)
    runs = [simulate_once(spec, seed) for seed in range(40)]
    others = [simulate_once(spec, seed, one_by_one=True) for seed in range(100, 140)]
    for field in ("regret", "reward", "bins"):
        left, right = ([run.figures()[field] for run in some] for some in (runs, others))
        assert stats.ks_2samp(left, right).pvalue > FALSE_ALARM
        assert abs(np.mean(left) - np.mean(right)) < 5.5 * np.hypot(np.std(left), np.std(right)) / np.sqrt(40)


def test_means_over_bins_by_a_finer_grid():
    run = learned("local")
    here = run.cells.people_of(run.step.policy, 0)
    lower, upper = run.step.policy.edges()
    means = environment_for(run.spec, 0).means
    side = (np.arange(400) + 0.5) / 400
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    for b in range(len(lower)):
        truth = means(lower[b] + (upper[b] - lower[b]) * grid)
        assert here.means[b] == pytest.approx(truth.mean(axis=0), abs=1e-4)
        assert here.best[b] == pytest.approx(truth.max(axis=1).mean(), abs=1e-4)


def test_people_are_drawn_one_by_one_where_bins_do_not_tell():
    for changes in (
        {"context.features": {"x1": {"low": 0.0, "high": 2.0}, "x2": {"low": 0.0, "high": 1.0}}},
        {"reward.high": 2.0},
    ):
        assert Simulation(spec_of("local", **changes), 0).cells is None


def test_a_hundred_million_people_take_no_more_memory_than_their_bins():
    """Growing rounds: a run's arrays are bounded by bins, so that this would not end otherwise."""
    spec = spec_of("central", **{"experiment.horizon": 100_000_000, "experiment.round_growth": 0.5})
    run = simulate_once(spec, 0)
    assert run.people == 100_000_000
    assert run.regret < run.best_constant_regret / 10
