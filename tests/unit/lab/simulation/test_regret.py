"""Regrets of played arms."""

import numpy as np

from privateer_lab.environments import PlayedRewards
from privateer_lab.simulation.scores import Score


def test_an_option_that_is_always_best_loses_nothing() -> None:
    """Its sum and that of the best option are added in different orders, which must not give a regret."""
    score = Score()
    score.add(PlayedRewards(30_000, 6_000.0, 7_500.0 + 4.5e-12, np.array([6_000.0, 7_500.0])), reward=0.0)
    assert (score.best_constant_regret, score.regret > 1_000) == (0.0, True)
    score.add(PlayedRewards(1, 0.0, 1e-6, np.zeros(2)), reward=0.0)
    assert score.best_constant_regret > 0
