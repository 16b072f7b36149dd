"""Bins tile the cube, and a context's bin is the one that holds it."""

import numpy as np
import pytest

from privateer_lab.baselines.tree import ContextBins


def grown(dimension: int, seed: int = 0, rounds: int = 6) -> ContextBins:
    rng = np.random.default_rng(seed)
    bins = ContextBins(dimension)
    for _ in range(rounds):
        which = np.flatnonzero(rng.random(len(bins)) < 0.6)
        if len(which):
            bins.halve(which, bins.longest(which, rng))
    return bins


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_every_context_is_in_one_bin_and_it_is_found(dimension):
    bins = grown(dimension)
    contexts = np.random.default_rng(1).random((2000, dimension))
    inside = (contexts[:, None] >= bins.lower) & (contexts[:, None] < bins.upper)
    assert (inside.all(axis=2).sum(axis=1) == 1).all()
    assert (bins.locate(contexts) == inside.all(axis=2).argmax(axis=1)).all()
    assert np.prod(bins.upper - bins.lower, axis=1) == pytest.approx(0.5**bins.depths)
    assert np.prod(bins.upper - bins.lower, axis=1).sum() == pytest.approx(1.0)


def test_the_ends_of_the_cube_have_bins():
    bins = grown(2)
    corners = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5]])
    found = bins.locate(corners)
    assert ((corners >= bins.lower[found]) & (corners <= bins.upper[found])).all()


def test_halves_are_told_which_bin_they_were():
    bins = ContextBins(2)
    bins.halve(np.array([0]), np.array([0]))
    origin = bins.halve(np.array([1]), np.array([1]))
    assert origin.tolist() == [0, 1, 1]
    assert bins.depths.tolist() == [1, 2, 2]
    assert bins.lower.tolist() == [[0, 0], [0.5, 0], [0.5, 0.5]]


def test_the_longest_edge_is_halved_and_ties_are_broken_either_way():
    bins, rng = ContextBins(2), np.random.default_rng(0)
    ties = np.concatenate([bins.longest(np.array([0]), rng) for _ in range(200)])
    assert 50 < ties.sum() < 150, "a fair coin is outside once in 1e12"
    bins.halve(np.array([0]), np.array([0]))
    assert (bins.longest(np.array([0, 1]), rng) == 1).all()
