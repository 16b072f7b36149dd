"""The tree without privacy: successive elimination in cubes that burst."""

import numpy as np
import pytest

from privateer_lab.baselines.tree import Abse, CubeTree
from tests.support.baselines import one_round, regrets, visitors_at
from tests.support.specs import make_spec


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
