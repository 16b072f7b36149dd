"""Balls: clipping bounds every pair's distance on the grid; forgetting it is caught."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.errors import InputError, SpecError
from privateer_core.primitives.clipping import Ball
from privateer_lab.simulation.scores import SeededNoise


def hostile(ball: Ball) -> np.ndarray:
    """Vectors that reach as far as they can, on all sides, and beyond."""
    rng = np.random.default_rng(3)
    d = ball.coordinates
    signs = rng.choice([-1.0, 1.0], (200, d)) * 1e6
    axes = np.concatenate([np.eye(d), -np.eye(d)]) * ball.bound
    edges = np.sign(signs) * ball.bound / math.sqrt(d)
    inner = np.concatenate([np.zeros((1, d)), rng.normal(size=(200, d))])
    return np.concatenate([signs, -signs, axes, edges, np.full((1, d), 1e308), inner])


def max_distance(ball: Ball) -> float:
    points = ball.round_to_grid(hostile(ball), SeededNoise(1)).astype(float)
    squares = (points**2).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * points @ points.T
    return float(np.sqrt(distances.max()))


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("coordinates", [1, 2, 20])
@pytest.mark.parametrize("bound", [1e-3, 1.0, 50.0])
def test_no_two_people_are_farther_apart_than_the_diameter(norm, coordinates, bound):
    ball = Ball(norm, bound, coordinates)
    assert 0.99 * ball.sensitivity < max_distance(ball) <= ball.sensitivity


@pytest.mark.parametrize("norm", ["l2", "max"])
def test_forgotten_clipping_is_caught(norm, monkeypatch):
    """Planted: only the grid remains."""
    monkeypatch.setattr(Ball, "clip", lambda _, vectors: np.clip(vectors, -1e6, 1e6))
    assert max_distance(Ball(norm, 1.0, 5)) > 2 * Ball(norm, 1.0, 5).sensitivity


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=4), st.integers(-300, 300), st.sampled_from(["l2", "max"]))
def test_vectors_inside_stay_and_others_end_on_the_border(values, power, norm):
    ball, vector = Ball(norm, 1.0, 4), np.array([values]) * 10.0**power
    clipped = ball.clip(vector)[0]
    before, after = (
        math.hypot(*v) if norm == "l2" else max(map(abs, v)) for v in (vector[0].tolist(), clipped.tolist())
    )
    assert after <= 1 + 1e-15
    if before <= 1 - 1e-15:
        assert (clipped == vector[0]).all()
    else:
        assert after == pytest.approx(1)


@pytest.mark.parametrize("size", [1.0, 3.0, 1e5, 1e300])
def test_l2_clipping_keeps_the_direction(size):
    """A long coordinate must not be cut before the vector is: (100, 1) becomes (1, .01), and not (.7, .7)."""
    vector = size * np.array([[100.0, 1.0, -5.0, 0.0]])
    expected = vector / size / np.linalg.norm(vector / size)
    assert np.allclose(Ball("l2", 1.0, 4).clip(vector), expected, rtol=1e-14, atol=0)
    cut = np.clip(vector, -1, 1)
    assert not np.allclose(cut / np.linalg.norm(cut), expected, atol=0.1), "planted: cut first"


def test_rounding_moves_nothing_on_average():
    ball = Ball("max", 1.0, 3)
    vectors = np.full((40_000, 3), 0.3 * ball.step + 0.1)
    mean = ball.round_to_grid(vectors, SeededNoise(2)).mean(axis=0) * ball.step
    assert np.abs(mean - vectors[0]).max() < 6 * ball.step / 2 / math.sqrt(40_000)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("l1", 1.0, 2), "norm"),
        (("l2", 0.0, 2), "bound"),
        (("l2", math.nan, 2), "bound"),
        (("l2", math.inf, 2), "bound"),
        (("l2", 1.0, 0), "coordinates"),
        (("l2", 1.0, 1 << 21), "coordinates"),
    ],
)
def test_invalid_balls_are_refused(arguments, field):
    with pytest.raises(SpecError) as refused:
        Ball(*arguments)
    assert refused.value.field == field


def test_vectors_that_are_not_finite_are_refused():
    with pytest.raises(InputError):
        Ball("l2", 1.0, 2).clip(np.array([[0.0, np.nan]]))
    with pytest.raises(InputError):
        Ball("l2", 1.0, 2).clip(np.array([[0.0, np.inf]]))
