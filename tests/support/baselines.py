"""Baselines played by hand: one round of participants that a test makes up."""

import numpy as np
from numpy.typing import ArrayLike

from privateer_lab.baselines.run import Baseline, BaselineRun, Visitors, play_once
from tests.support.specs import make_spec

PEAKS = {"population.name": "peaks", "experiment.round_size": 100}


def visitors_at(contexts: ArrayLike, arms: int = 3) -> Visitors:
    """People with these contexts, (n, d) in [0, 1], and unknown truth."""
    places = np.atleast_2d(np.asarray(contexts, dtype=float))
    return Visitors(0, places, places, np.zeros((len(places), arms)))


def one_round(baseline: Baseline, contexts: ArrayLike, rewards: ArrayLike) -> np.ndarray:
    """Arms of a round of these people, who receive ``rewards``: (n,), or (n, arms) for each arm that they may play."""
    visitors, offered = visitors_at(contexts), np.asarray(rewards, dtype=float)
    baseline.open(len(visitors))
    arms = baseline.choose(visitors)
    values = offered if offered.ndim == 1 else offered[np.arange(len(arms)), arms]
    baseline.learn(visitors, arms, values)
    baseline.close()
    return arms


def regrets(name: str, people: int, epsilon: float, seeds: int, **changes: object) -> np.ndarray:
    """Regrets of a baseline on peaks in rounds of 100, one a seed."""
    spec = make_spec({**PEAKS, "experiment.horizon": people, "privacy.epsilon": epsilon, **changes})
    runs: list[BaselineRun] = [play_once(spec, [name], seed)[0] for seed in range(seeds)]
    return np.array([run.regret for run in runs])
