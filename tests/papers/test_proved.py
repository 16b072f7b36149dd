"""The proved promise: no arm is dropped where it is best, but as often as stated, and arms are dropped."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_papers.paper_1 import proved
from privateer_papers.paper_1.proved import ProvedLearner
from tests.support.people import rounds
from tests.support.specs import SHUFFLE, make_spec

CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6}
PROVED = {"algorithm.name": "paper-1-proved", "experiment.horizon": 80_000, "experiment.round_size": 4000}


def proved_spec(**changes):
    return make_spec({**PROVED, **changes}, dimension=1, arms=2)


def outcome(spec, means, seed, sample=None):
    """Whether an arm was dropped in a bin where it is the best somewhere, on a grid, and how many were dropped."""
    contexts = (np.arange(1024)[:, None] + 0.5) / 1024
    best = means(contexts).argmax(axis=1)
    *_, last = rounds(spec, means, seed, sample)
    bins = replace(last.policy, depths=last.state.depths, paths=last.state.paths).locate(contexts)
    return not last.state.active[bins, best].all(), int((~last.state.active).sum())


def steep_means(contexts):
    """Two arms that cross at .4 with slopes 1 and -1 and differ by up to .9; Lipschitz with constant 1."""
    gap = np.clip(contexts[:, 0] - 0.4, -0.45, 0.45)
    return np.stack([0.5 + gap, 0.5 - gap], axis=1)


def crowded_contexts(rng, n):
    """Contexts whose density is up to 7.125."""
    return np.where(rng.random((n, 1)) < 0.875, rng.random((n, 1)) / 8, rng.random((n, 1)))


@pytest.mark.parametrize(
    "changes", [{}, {"privacy.epsilon": 4.0}, SHUFFLE, CENTRAL], ids=["local-1", "local-4", "shuffle", "central"]
)
def test_no_arm_is_dropped_where_it_is_best(changes):
    """80,000 people, failure .05; 10 runs. Were the chance .05, more than 5 would fail with chance 3e-6.

    Arms are dropped in every run, so that the promise is not kept by doing nothing.
    """
    outcomes = [outcome(proved_spec(**changes), steep_means, seed) for seed in range(10)]
    assert sum(wrong for wrong, _ in outcomes) <= 5
    assert min(dropped for _, dropped in outcomes) > 0


def test_dropping_too_boldly_is_caught(monkeypatch):
    """Planted: bounds of next to no width, and a bias of bins that is next to none."""
    honest, bias = proved.martingale_upper_bound, ProvedLearner._bias_bounds
    monkeypatch.setattr(proved, "martingale_upper_bound", lambda *arguments: 0.05 * honest(*arguments))
    monkeypatch.setattr(ProvedLearner, "_bias_bounds", lambda *arguments: 0.05 * bias(*arguments))
    failures = sum(outcome(proved_spec(), steep_means, seed)[0] for seed in range(10))
    assert failures > 5


@pytest.mark.nightly
@pytest.mark.parametrize("changes", [{}, {"privacy.epsilon": 8.0}, CENTRAL], ids=["local-1", "local-8", "central"])
def test_the_promise_holds_at_length_on_uneven_people(changes):
    """Density up to 8 (declared), 400,000 people, 60 runs at failure .05: at most 13 may fail (chance 2e-6 at .05)."""
    spec = proved_spec(**{"algorithm.density_bound": 8.0, "experiment.horizon": 400_000, **changes})
    assert sum(outcome(spec, steep_means, seed, crowded_contexts)[0] for seed in range(60)) <= 13


@pytest.mark.nightly
def test_the_promise_where_arms_are_alike():
    """Two arms with the same mean everywhere: either dropped is a failure; 60 runs, at most 13 may fail."""

    def equal_means(contexts):
        return np.full((len(contexts), 2), 0.7)

    spec = proved_spec(**{"algorithm.lipschitz": 1e-9, "experiment.horizon": 200_000})
    assert sum(outcome(spec, equal_means, seed)[1] > 0 for seed in range(60)) <= 13
