"""The rule by which bins are split, and the subdivision of bins for participants' shares of arms."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.algorithms.partition import DEPTH_MAX, PartitionPolicy, PartitionSpec
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.portable import first_largest
from privateer_server.algorithms.partition.bin_tree import BinTree, Space
from privateer_server.algorithms.partition.gaussian_process import BinProcess

_SPLIT_VARIANCE_RATIO: Final = 0.5
_SPLIT_VARIANCE_RATIO_IN_KEY: Final = 0.7
"""A bin is split when the variance of an arm's value is below this share of the variance between its halves: that of
the best arm, or, where the arm is in the key, of any active one: the best may not have been played yet."""
_N_SUBDIVISION_LEVELS: Final = 2
"""How often undecided bins are halved to tell their people apart, where reports are about the bins."""


class SplittingRule:
    """The rule by which bins are split: an arm's value is known better than its halves differ."""

    def __init__(self, spec: PartitionSpec, space: Space) -> None:
        self._space, self._in_key, self._playable = space, spec.privacy.has_arm_in_key, np.array(spec.playable)

    def is_ready(
        self, tree: BinTree, active: Bools, mean: Array, variance: Array, differences: Array, deepest: int
    ) -> Bools:
        """Return which bins are to be split, (bins,): undecided bins whose values are known precisely enough."""
        max_differences = differences.max(axis=1)
        if self._in_key:
            is_known = np.where(active, variance, np.inf).min(axis=1) < _SPLIT_VARIANCE_RATIO_IN_KEY * max_differences
        else:
            leader = np.where(self._playable, mean, -np.inf).argmax(axis=1)[:, None]
            is_known = np.take_along_axis(variance, leader, axis=1)[:, 0] < _SPLIT_VARIANCE_RATIO * max_differences
        return np.asarray(is_known & is_undecided(tree, active, deepest))

    def add_level(self, tree: BinTree, ready: Bools, differences: Array, columns: Ints) -> BinTree:
        """Return the tree with a level if the deepest bins are ready: a halved column of the largest difference."""
        is_deepest = ready & (tree.depths == len(tree.axes))
        if not is_deepest.any():
            return tree
        # Columns that part nobody any more are left out.
        gaps = np.where(self._space.can_halve(tree.axes)[columns], differences[is_deepest].mean(axis=0), -1.0)
        return tree.with_level(columns[first_largest(gaps)])


def is_undecided(tree: BinTree, active: Bools, deepest: int) -> Bools:
    """Return which bins have several active arms and can be split, (bins,)."""
    return np.asarray((active.sum(axis=1) > 1) & (tree.depths < deepest))


@dataclass(frozen=True)
class Subdivision:
    """Parts of bins, with their expected shares and values."""

    rows: Ints  # shape (parts,), int64: the bin that each is a part of, rising
    tree: BinTree  # the parts
    shares: Array  # shape (parts,): share of the bin's people who are expected in the part
    mean: Array  # shape (parts, arms): posterior means of values


def split_undecided_bins(process: BinProcess, active: Bools, space: Space, splitting: SplittingRule) -> Subdivision:
    """Return the parts of bins after undecided ones are halved a few times; ``active`` is (bins, arms)."""
    tree, rows = process.tree, np.arange(len(process.tree))
    for _ in range(_N_SUBDIVISION_LEVELS):
        ready = is_undecided(tree, active[rows], space.depth)
        if not ready.any():
            break
        tree = splitting.add_level(tree, ready, process.half_difference_variances(tree), process.columns)
        tree, split = tree.split(ready)
        rows = rows[split.copies]
    return _build_subdivision(rows, tree, space, process)


def keep_whole(tree: BinTree, mean: Array) -> Subdivision:
    """Return the bins as a subdivision without parts; ``mean`` are their posterior means."""
    rows = np.arange(len(tree))
    return Subdivision(rows, tree, np.ones(len(rows)), mean)


def locate_asked_parts(policy: PartitionPolicy, space: Space, process: BinProcess) -> Subdivision:
    """Return the subdivision that a policy asked about, with expected shares and values."""
    tree, empty = process.tree, np.zeros(0, np.int64)
    starts = tree.paths << (DEPTH_MAX - tree.depths)
    rows = np.asarray(np.searchsorted(starts, policy.starts[policy.bins], side="right") - 1)
    asked_tree = BinTree(policy.axes, policy.depths[policy.bins], policy.paths[policy.bins], empty, empty)
    return _build_subdivision(rows, asked_tree, space, process)


def _build_subdivision(rows: Ints, tree: BinTree, space: Space, process: BinProcess) -> Subdivision:
    expected_shares = tree.expected_shares(space)
    shares = expected_shares / np.bincount(rows, expected_shares)[rows]
    return Subdivision(rows, tree, shares, process.means(rows, tree))


def number_parents(rows: Ints) -> Ints:
    """Return the number of each part's bin, in order; shape (parts,)."""
    return np.asarray(np.unique(rows, return_inverse=True)[1].reshape(-1), np.int64)


def selection_bias(policy: PartitionPolicy, reporting_shares: Array, shares: Array, mean: Array) -> Array:
    """Return the mean value of participants who report on an arm minus the bin's mean value, (bins, arms); or 0."""
    weights = shares[:, None] * reporting_shares
    reporter_totals = policy.sum_by_parent(weights)
    reporter_means = policy.sum_by_parent(weights * mean) / np.where(reporter_totals > 0, reporter_totals, 1.0)
    bin_means = policy.sum_by_parent(shares[:, None] * mean) / policy.sum_by_parent(shares)[:, None]
    return np.asarray(np.where(reporter_totals > 0, reporter_means - bin_means, 0.0))
