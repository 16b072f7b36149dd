"""Bins by depth and path: halving keeps a tiling in order, and ancestors hold the bins within them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_server.algorithms.partition.bin_tree import BinTree, Space, group_by_ancestor, halve_bins
from privateer_server.algorithms.partition.splitting import SplittingRule, is_undecided
from tests.support.partitions import random_bins
from tests.support.specs import SHUFFLE, make_spec


def names(depths, paths):
    return list(zip(depths.tolist(), paths.tolist(), strict=True))


@given(st.integers(0, 2**32), st.integers(0, 60))
def test_halves_replace_their_bins_in_order(seed, splits):
    rng = np.random.default_rng(seed)
    depths, paths = random_bins(rng, splits, 39)
    ready = rng.random(len(depths)) < 0.5
    copies, fresh, new_depths, new_paths = halve_bins(depths, paths, ready)
    expected = []
    for (depth, path), cut in zip(names(depths, paths), ready, strict=True):
        expected += [(depth + 1, 2 * path), (depth + 1, 2 * path + 1)] if cut else [(depth, path)]
    assert names(new_depths, new_paths) == expected
    assert (fresh == ready[copies]).all()
    assert (np.bincount(copies) == 1 + ready).all()


def ancestors(depths, paths):
    """All bins that were halved on the way."""
    return sorted({(up, path >> (depth - up)) for depth, path in names(depths, paths) for up in range(depth)})


@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 20))
def test_groups_share_an_ancestor_and_the_past_bins_within_it(seed, splits, limit):
    depths, paths = random_bins(np.random.default_rng(seed), splits, 40)
    past = np.array(ancestors(depths, paths), np.int64).reshape(-1, 2)
    bins = names(depths, paths)
    covered = []
    for group, past_rows, inside in group_by_ancestor(depths, paths, past[:, 0], past[:, 1], limit):
        members = range(len(bins))[group]
        covered += members
        assert len(members) <= limit
        assert inside.shape == (len(past_rows), len(members))
        for row, index in enumerate(past_rows):
            up, path = past[index]
            holds = [bins[b][0] >= up and bins[b][1] >> (bins[b][0] - up) == path for b in range(len(bins))]
            assert [holds[b] for b in members] == inside[row].tolist()
            assert sum(holds) == inside[row].sum(), "a past bin counts only where all that it held is in the group"
    assert covered == list(range(len(bins)))


def test_a_single_group_has_all_past_bins():
    depths, paths = random_bins(np.random.default_rng(3), 30, 40)
    past = np.array(ancestors(depths, paths), np.int64)
    [(group, past_rows, _)] = group_by_ancestor(depths, paths, past[:, 0], past[:, 1], 31)
    assert group == slice(0, 31)
    assert len(past_rows) == len(past) == 30


def rule(changes=None):
    spec = make_spec(changes or {})
    return SplittingRule(spec, Space(spec.blocks))


def quarters():
    """Four bins, of which the second half was split."""
    tree, _ = BinTree.root().with_level(0).split(np.array([True]))
    tree, _ = tree.with_level(1).split(np.array([False, True]))
    return tree


def test_a_tree_keeps_its_split_bins():
    tree = quarters()
    assert names(tree.depths, tree.paths) == [(1, 0), (2, 2), (2, 3)]
    assert names(tree.past_depths, tree.past_paths) == [(0, 0), (1, 1)]
    lower, upper = tree.corners(2)
    assert lower.tolist() == [[0, 0], [0.5, 0], [0.5, 0.5]]
    assert upper.tolist() == [[0.5, 1], [1, 0.5], [1, 1]]
    assert tree.all_axes(2)[:4].tolist() == [0, 1, 0, 1]
    assert tree.expected_shares(Space.numbers(2)).tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(("changes", "second"), [({}, False), (SHUFFLE, True)], ids=["best arm", "any arm"])
def test_bins_are_split_whose_error_is_below_the_difference_of_halves(changes, second):
    """The first bin by its best arm, the second by another; the third has one arm, the last is as deep as may be."""
    tree = BinTree(
        np.zeros(3, np.int64), np.array([1, 2, 2, 3]), np.arange(4), np.zeros(0, np.int64), np.zeros(0, np.int64)
    )
    active = np.array([[True] * 3, [True] * 3, [True, False, False], [True] * 3])
    variance = np.array([[0.04, 1, 1], [1, 0.04, 1], [0.04, 0.04, 0.04], [0.04, 0.04, 0.04]])
    mean, differences = np.tile([0.3, 0.1, 0.0], (4, 1)), np.full((4, 2), 0.1)
    assert rule(changes).is_ready(tree, active, mean, variance, differences, 3).tolist() == [True, second, False, False]
    assert not rule(changes).is_ready(tree, active, mean, 10 * variance, differences, 3).any()
    assert is_undecided(tree, active, 3).tolist() == [True, True, False, False]


def test_a_level_is_added_where_the_deepest_bins_are_split():
    tree, differences = quarters(), np.array([[0.9, 0.1], [0.1, 0.3], [0.1, 0.3]])
    columns = np.arange(2)
    assert rule().add_level(tree, np.array([True, False, False]), differences, columns).axes.tolist() == [0, 1]
    assert rule().add_level(tree, np.array([True, True, False]), differences, columns).axes.tolist() == [0, 1, 1]
