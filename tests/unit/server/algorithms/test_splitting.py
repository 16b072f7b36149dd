"""Bins by depth and path: halving keeps a tiling in order, and ancestors hold what lies in them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privateer_server.algorithms.partition.splitting import ancestry, halved
from tests.support.partitions import random_bins


def names(depths, paths):
    return list(zip(depths.tolist(), paths.tolist(), strict=True))


@given(st.integers(0, 2**32), st.integers(0, 60))
def test_halves_replace_their_bins_in_order(seed, splits):
    rng = np.random.default_rng(seed)
    depths, paths = random_bins(rng, splits, 39)
    ready = rng.random(len(depths)) < 0.5
    copies, fresh, new_depths, new_paths = halved(depths, paths, ready)
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
def test_groups_share_an_ancestor_and_know_what_past_bins_hold(seed, splits, limit):
    depths, paths = random_bins(np.random.default_rng(seed), splits, 40)
    past = np.array(ancestors(depths, paths), np.int64).reshape(-1, 2)
    bins = names(depths, paths)
    covered = []
    for some, which, inside in ancestry(depths, paths, past[:, 0], past[:, 1], limit):
        members = range(len(bins))[some]
        covered += members
        assert len(members) <= limit
        assert inside.shape == (len(which), len(members))
        for row, index in enumerate(which):
            up, path = past[index]
            holds = [bins[b][0] >= up and bins[b][1] >> (bins[b][0] - up) == path for b in range(len(bins))]
            assert [holds[b] for b in members] == inside[row].tolist()
            assert sum(holds) == inside[row].sum(), "a past bin counts only where all that it held is in the group"
    assert covered == list(range(len(bins)))


def test_one_group_knows_all_that_is_past():
    depths, paths = random_bins(np.random.default_rng(3), 30, 40)
    past = np.array(ancestors(depths, paths), np.int64)
    [(some, which, _)] = ancestry(depths, paths, past[:, 0], past[:, 1], 31)
    assert some == slice(0, 31)
    assert len(which) == len(past) == 30
