"""The exponential mechanism draws with its probabilities."""

import numpy as np
import pytest

from privateer_core.sampling.laplace import choose, simulate_choice
from privateer_lab.simulation.devices import SeededNoise
from tests.support.statistics import fits

SCORES = np.array([0, 900, 2500, -70_000, 2400], np.int64)
SCALE = 1000
DRAWS = 2000


def expected(scale: float) -> np.ndarray:
    weights = np.exp((SCORES - SCORES.max()) / scale)
    return DRAWS * weights / weights.sum()


def counts(draws: list[int]) -> np.ndarray:
    return np.bincount(draws, minlength=len(SCORES))


@pytest.mark.parametrize("kind", ["exact", "simulated"])
def test_things_are_chosen_with_their_probabilities(kind: str) -> None:
    """Planted: a scale two fifths larger."""
    noise, rng = SeededNoise(3), np.random.default_rng(3)
    if kind == "exact":
        drawn = counts([choose(SCORES, SCALE, noise) for _ in range(DRAWS)])
    else:
        drawn = counts([simulate_choice(SCORES, SCALE, rng) for _ in range(DRAWS)])
    assert fits(drawn, expected(SCALE))
    assert not fits(drawn, expected(1.4 * SCALE))


def test_a_thing_far_ahead_is_chosen_among_thousands() -> None:
    scores = np.zeros(5000, np.int64)
    scores[1234] = 10**9
    assert choose(scores, SCALE, SeededNoise(1)) == 1234
    assert choose(np.array([5], np.int64), 1, SeededNoise(1)) == 0
