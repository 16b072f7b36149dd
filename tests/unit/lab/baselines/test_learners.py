"""The baseline that learns without privacy: the tree."""

import numpy as np
import pytest

from privateer_lab.baselines.tree import Abse, ContextBins, CubeTree
from tests.support.baselines import one_round, regrets, visitors_at
from tests.support.specs import make_spec


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


def make_tree(kind: type[CubeTree] = CubeTree, horizon: int = 80_000) -> CubeTree:
    return kind(make_spec({"experiment.horizon": horizon}), 0)


def test_cubes_burst_into_four_that_keep_the_active_arms():
    """Arm 0 pays 0, arms 1 and 2 are equal: arm 0 is dropped, and undecided cubes burst."""
    tree, rng = make_tree(), np.random.default_rng(0)
    for _ in range(3):
        one_round(tree, rng.random((300, 2)), np.tile([0.0, 0.9, 0.9], (300, 1)))
    assert not tree.active[:, 0].any()
    assert tree.active[:, 1:].all()
    assert (tree.bins.depths % 2 == 0).all()
    assert len(tree.bins) >= 4
    assert (tree.bins.upper - tree.bins.lower).min(axis=1) == pytest.approx((tree.bins.upper - tree.bins.lower).max(1))


def test_no_dropped_arm_is_played():
    tree = make_tree()
    tree.active[0, 1] = False
    tree.open(3000)
    counts = np.bincount(tree.choose(visitors_at(np.full((3000, 2), 0.3))), minlength=3)
    assert counts[1] == 0
    assert abs(counts[0] - 1500) < 200, "a fair coin is outside once in 1e12"


def test_the_authors_radii_and_bursts():
    """Perchet and Rigollet: 2 sqrt(2 log(n |B|^d / s) / s) <= 4 L sqrt(d) |B|; the logarithm is at least 1."""
    tree = make_tree(Abse)
    assert tree.radius(np.array([100.0])) == pytest.approx(2 * np.sqrt(2 * np.log(800) / 100))
    assert tree.radius(np.array([60_000.0])) == pytest.approx(2 * np.sqrt(2 / 60_000))
    assert tree.tolerance() == pytest.approx(4 * np.sqrt(2))
    assert tree.most_bursts == np.ceil(np.log2(80_000 / (3 * np.log(3))) / 4)


def test_radii_are_those_of_hoeffding():
    tree = make_tree()
    assert tree.radius(np.array([100.0])) == pytest.approx(np.sqrt(np.log(800) / 200))
    assert tree.tolerance() == pytest.approx(0.5)


def test_a_tree_learns_peaks():
    """10,000 people, 6 seeds: a fifth of uniform's 4,139, measured 835 with deviation 20."""
    assert regrets("tree", 10_000, 1.0, 6).mean() < 4139 / 4


def test_a_tree_that_hears_nothing_is_caught(monkeypatch):
    """Planted: rewards independent of arms."""
    heard = CubeTree.learn
    monkeypatch.setattr(
        CubeTree, "learn", lambda self, visitors, arms, values: heard(self, visitors, arms, np.full(len(arms), 0.5))
    )
    assert regrets("tree", 10_000, 1.0, 2).mean() > 4139 / 2


def test_the_best_arm_is_seldom_dropped():
    """Arms at .6, .5 and .4 everywhere, 20 runs of 20,000: the union over looks fails far less than once in two."""
    n_dropped = 0
    for seed in range(20):
        tree, rng = CubeTree(make_spec({"experiment.horizon": 20_000}), seed), np.random.default_rng([seed, 1])
        for _ in range(40):
            one_round(tree, rng.random((500, 2)), rng.random((500, 3)) < [0.6, 0.5, 0.4])
        n_dropped += not tree.active[:, 0].all()
    assert n_dropped <= 10
