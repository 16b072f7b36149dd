"""The exponential mechanism draws with its probabilities."""

import numpy as np
import pytest

from privateer_core.sampling.laplace import draw_choice, simulate_choice
from privateer_lab.simulation.scores import SeededNoise
from tests.support.statistics import is_compatible

SCORES = np.array([0, 900, 2500, -70_000, 2400], np.int64)
SCALE = 1000
DRAWS = 2000


def expected_counts(scale: float) -> np.ndarray:
    weights = np.exp((SCORES - SCORES.max()) / scale)
    return DRAWS * weights / weights.sum()


def counts(draws: list[int]) -> np.ndarray:
    return np.bincount(draws, minlength=len(SCORES))


@pytest.mark.parametrize("kind", ["exact", "simulated"])
def test_choices_have_their_probabilities(kind: str) -> None:
    """Planted: a scale two fifths larger."""
    noise, rng = SeededNoise(3), np.random.default_rng(3)
    if kind == "exact":
        choice_counts = counts([draw_choice(SCORES, SCALE, noise) for _ in range(DRAWS)])
    else:
        choice_counts = counts([simulate_choice(SCORES, SCALE, rng) for _ in range(DRAWS)])
    assert is_compatible(choice_counts, expected_counts(SCALE))
    assert not is_compatible(choice_counts, expected_counts(1.4 * SCALE))


def test_an_index_with_a_much_higher_score_is_chosen_among_thousands() -> None:
    scores = np.zeros(5000, np.int64)
    scores[1234] = 10**9
    assert draw_choice(scores, SCALE, SeededNoise(1)) == 1234
    assert draw_choice(np.array([5], np.int64), 1, SeededNoise(1)) == 0
