"""Bins tile the cube, and the bin of a context contains it."""

import numpy as np
import pytest

from privateer_lab.baselines.tree import ContextBins


def grow_bins(dimension: int, seed: int = 0, rounds: int = 6) -> ContextBins:
    rng = np.random.default_rng(seed)
    bins = ContextBins(dimension)
    for _ in range(rounds):
        indices = np.flatnonzero(rng.random(len(bins)) < 0.6)
        if len(indices):
            bins.halve(indices, bins.longest_edges(indices, rng))
    return bins


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_every_context_is_in_one_bin_and_it_is_found(dimension):
    bins = grow_bins(dimension)
    contexts = np.random.default_rng(1).random((2000, dimension))
    inside = (contexts[:, None] >= bins.lower) & (contexts[:, None] < bins.upper)
    assert (inside.all(axis=2).sum(axis=1) == 1).all()
    assert (bins.locate(contexts) == inside.all(axis=2).argmax(axis=1)).all()
    assert np.prod(bins.upper - bins.lower, axis=1) == pytest.approx(0.5**bins.depths)
    assert np.prod(bins.upper - bins.lower, axis=1).sum() == pytest.approx(1.0)


def test_the_ends_of_the_cube_have_bins():
    bins = grow_bins(2)
    corners = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5]])
    indices = bins.locate(corners)
    assert ((corners >= bins.lower[indices]) & (corners <= bins.upper[indices])).all()


def test_halves_have_the_index_of_their_bin():
    bins = ContextBins(2)
    bins.halve(np.array([0]), np.array([0]))
    origin = bins.halve(np.array([1]), np.array([1]))
    assert origin.tolist() == [0, 1, 1]
    assert bins.depths.tolist() == [1, 2, 2]
    assert bins.lower.tolist() == [[0, 0], [0.5, 0], [0.5, 0.5]]


def test_the_longest_edge_is_halved_and_ties_are_broken_either_way():
    bins, rng = ContextBins(2), np.random.default_rng(0)
    ties = np.concatenate([bins.longest_edges(np.array([0]), rng) for _ in range(200)])
    assert 50 < ties.sum() < 150, "a fair coin is outside once in 1e12"
    bins.halve(np.array([0]), np.array([0]))
    assert (bins.longest_edges(np.array([0, 1]), rng) == 1).all()
