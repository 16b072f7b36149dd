"""The rule by which bins are split, and the parts by which it tells people of one bin apart."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import DEPTH_MAX, PartitionPolicy, PartitionSpec
from privateer_core.portable import first_largest
from privateer_server.algorithms.partition.bin_tree import BinTree, Space
from privateer_server.algorithms.partition.gaussian_process import BinProcess

Array = NDArray[np.float64]


Ints = NDArray[np.int64]


Bools = NDArray[np.bool_]


_VARIANCE: Final = 0.5


_VARIANCE_IN_KEY: Final = 0.7


"""A bin is split when the variance of an arm's value is below this share of the variance between its halves: that of
the best arm, or, where the arm is in the key, of any active one: the best may not have been played yet."""
_LEVELS: Final = 2
"""How often undecided bins are halved to tell their people apart, where reports are about the bins."""


class Splitting:
    """The rule by which bins are split: an arm is known better than its values in the two halves are alike."""

    def __init__(self, spec: PartitionSpec, space: Space) -> None:
        self._space, self._in_key, self._playable = space, spec.privacy.arm_in_key, np.array(spec.playable)

    def ready(
        self, tree: BinTree, active: Bools, mean: Array, variance: Array, differences: Array, deepest: int
    ) -> Bools:
        """Tell which bins are to be split, (bins,): undecided ones that are known well enough.

        active, mean, variance (bins, arms): arms that are played, and the posterior.
        differences (bins, columns): variance of half the difference between halves along each column.
        deepest: the deepest that a bin may be.
        """
        most = differences.max(axis=1)
        if self._in_key:
            known = np.where(active, variance, np.inf).min(axis=1) < _VARIANCE_IN_KEY * most
        else:
            leader = np.where(self._playable, mean, -np.inf).argmax(axis=1)[:, None]
            known = np.take_along_axis(variance, leader, axis=1)[:, 0] < _VARIANCE * most
        return np.asarray(known & undecided(tree, active, deepest))

    def deeper(self, tree: BinTree, ready: Bools, differences: Array, columns: Ints) -> BinTree:
        """Add a level, if bins at the deepest are ready: it halves the column along which these differ most.

        ``columns`` are the places in the space of those that ``differences`` are about.
        """
        deepest = ready & (tree.depths == len(tree.axes))
        if not deepest.any():
            return tree
        # Columns that part nobody any more are left out.
        differ = np.where(self._space.left(tree.axes)[columns], differences[deepest].mean(axis=0), -1.0)
        return tree.with_level(columns[first_largest(differ)])


def undecided(tree: BinTree, active: Bools, deepest: int) -> Bools:
    """Tell which bins play several arms and may be split, (bins,)."""
    return np.asarray((active.sum(axis=1) > 1) & (tree.depths < deepest))


@dataclass(frozen=True)
class Subdivision:
    """Parts of bins, with the shares and values that are expected in them."""

    rows: Ints  # shape (parts,), int64: the bin that each is a part of, rising
    tree: BinTree  # the parts
    shares: Array  # shape (parts,): share of the bin's people who are expected in the part
    mean: Array  # shape (parts, arms): posterior means of values


def subdivided(process: BinProcess, active: NDArray[np.bool_], space: Space, splitting: Splitting) -> Subdivision:
    """Halve undecided bins a few times; ``active`` is (bins, arms)."""
    tree, rows = process.tree, np.arange(len(process.tree))
    for _ in range(_LEVELS):
        ready = undecided(tree, active[rows], space.depth)
        if not ready.any():
            break
        tree = splitting.deeper(tree, ready, process.differences(tree), process.columns)
        tree, split = tree.split(ready)
        rows = rows[split.copies]
    return _expected(rows, tree, space, process)


def undivided(tree: BinTree, mean: Array) -> Subdivision:
    """Return the bins as they are, whose posterior means these are."""
    rows = np.arange(len(tree))
    return Subdivision(rows, tree, np.ones(len(rows)), mean)


def asked_parts(policy: PartitionPolicy, space: Space, process: BinProcess) -> Subdivision:
    """Return what is expected of the parts that a policy told apart."""
    tree, none = process.tree, np.zeros(0, np.int64)
    starts = tree.paths << (DEPTH_MAX - tree.depths)
    rows = np.asarray(np.searchsorted(starts, policy.starts[policy.bins], side="right") - 1)
    asked = BinTree(policy.axes, policy.depths[policy.bins], policy.paths[policy.bins], none, none)
    return _expected(rows, asked, space, process)


def _expected(rows: Ints, tree: BinTree, space: Space, process: BinProcess) -> Subdivision:
    expected = tree.expected(space)
    shares = expected / np.bincount(rows, expected)[rows]
    return Subdivision(rows, tree, shares, process.means(rows, tree))


def wholes_of(rows: Ints) -> Ints:
    """Number the bins of which there are parts, in order; shape (parts,)."""
    return np.asarray(np.unique(rows, return_inverse=True)[1].reshape(-1), np.int64)


def selection_bias(policy: PartitionPolicy, telling: Array, shares: Array, mean: Array) -> Array:
    """Return by how much the people who tell of an arm differ from all people of the bin, as far as is known.

    policy: its wholes are the bins.
    telling (parts, arms): share of a part's people who tell of each arm.
    shares, mean: as in `Subdivision`.

    Returns
    -------
    Shape (bins, arms): mean value of those who tell, less that of all; 0 where nobody tells.
    """
    weights = shares[:, None] * telling
    all_ = policy.by_whole(weights)
    theirs = policy.by_whole(weights * mean) / np.where(all_ > 0, all_, 1.0)
    everybody = policy.by_whole(shares[:, None] * mean) / policy.by_whole(shares)[:, None]
    return np.asarray(np.where(all_ > 0, theirs - everybody, 0.0))
