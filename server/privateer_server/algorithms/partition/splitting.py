"""The dyadic tree of bins: its records, which of its bins are split, and along which column."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import DEPTH_MAX, PartitionSpec, corners
from privateer_server.algorithms.partition.space import Space

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_VARIANCE: Final = 0.5
_VARIANCE_IN_KEY: Final = 0.7
"""A bin is split when the variance of an arm's value is below this share of the variance between its halves: that of
the best arm, or, where the arm is in the key, of any active one: the best may not have been played yet."""
_NOBODY: Final = 1e-18


@dataclass(frozen=True)
class Split:
    """A step from bins to bins of which some are halves.

    Attributes
    ----------
    copies, fresh
        Shape (new bins,): the old bin of every new one, and whether it is a half.
    ready
        Shape (old bins,): those that were split.
    """

    copies: Ints
    fresh: Bools
    ready: Bools


@dataclass(frozen=True)
class BinTree:
    """The bins of a dyadic partition, and those that were split before.

    Attributes
    ----------
    axes
        Shape (levels,): column that each level halves, as far as bins have been split.
    depths, paths
        Shape (bins,): the bins, as in `PartitionPolicy`, in order.
    past_depths, past_paths
        Shape (past,): bins that were split since.
    """

    axes: Ints
    depths: Ints
    paths: Ints
    past_depths: Ints
    past_paths: Ints

    @classmethod
    def root(cls) -> "BinTree":
        """Return one bin that is the whole space."""
        none, root = np.zeros(0, np.int64), np.zeros(1, np.int64)
        return cls(none, root, root, none, none)

    def __len__(self) -> int:
        return len(self.depths)

    def corners(self, dimension: int) -> tuple[Array, Array]:
        """Return lower and upper corners of the bins, (bins, dimension) each."""
        return corners(self.depths, self.paths, self.axes, dimension)

    def all_axes(self, dimension: int) -> Ints:
        """Return a column for each of `DEPTH_MAX` levels, as policies have them."""
        return np.concatenate([self.axes, np.arange(len(self.axes), DEPTH_MAX) % dimension])

    def expected(self, space: Space) -> Array:
        """Share of people in each bin as the spec alone has it; not 0, since people may be where nobody should be."""
        return np.maximum(space.expected(*self.corners(len(space.halvings))), _NOBODY)

    def split(self, ready: Bools) -> tuple["BinTree", Split]:
        """Cut the bins that are ``ready`` in two."""
        copies, fresh, depths, paths = halved(self.depths, self.paths, ready)
        past_depths = np.append(self.past_depths, self.depths[ready])
        past_paths = np.append(self.past_paths, self.paths[ready])
        return BinTree(self.axes, depths, paths, past_depths, past_paths), Split(copies, fresh, ready)

    def with_level(self, column: int) -> "BinTree":
        """Return the tree with one more level, which halves a column."""
        return replace(self, axes=np.append(self.axes, column))

    def neighbourhoods(self, limit: int) -> Iterator[tuple[slice, Ints, Bools]]:
        """Yield groups of bins, as `ancestry`."""
        return ancestry(self.depths, self.paths, self.past_depths, self.past_paths, limit)


class Splitting:
    """The rule by which bins are split: an arm is known better than its values in the two halves are alike."""

    def __init__(self, spec: PartitionSpec, space: Space) -> None:
        self._space, self._in_key, self._playable = space, spec.privacy.arm_in_key, np.array(spec.playable)

    def ready(
        self, tree: BinTree, active: Bools, mean: Array, variance: Array, differences: Array, deepest: int
    ) -> Bools:
        """Tell which bins are to be split, (bins,): undecided ones that are known well enough.

        Parameters
        ----------
        active, mean, variance
            Shape (bins, arms): arms that are played, and the posterior.
        differences
            Shape (bins, columns): variance of half the difference between halves along each column.
        deepest
            The deepest that a bin may be.
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
        return tree.with_level(columns[differ.argmax()])


def undecided(tree: BinTree, active: Bools, deepest: int) -> Bools:
    """Tell which bins play several arms and may be split, (bins,)."""
    return np.asarray((active.sum(axis=1) > 1) & (tree.depths < deepest))


def halved(depths: Ints, paths: Ints, ready: Bools) -> tuple[Ints, Bools, Ints, Ints]:
    """Cut the bins that are ``ready`` in two; all stay in order.

    Returns
    -------
    Old bin of every new one, whether it is a half, and depths and paths; shape (new bins,) each.
    """
    copies = np.repeat(np.arange(len(ready)), 1 + ready)
    fresh = ready[copies]
    second = np.concatenate([[False], copies[1:] == copies[:-1]])
    return copies, fresh, depths[copies] + fresh, np.where(fresh, 2 * paths[copies] + second, paths[copies])


def ancestry(
    depths: Ints, paths: Ints, past_depths: Ints, past_paths: Ints, limit: int
) -> Iterator[tuple[slice, Ints, Bools]]:
    """Groups of at most ``limit`` bins that share an ancestor, and the past bins that lie in each.

    Yields
    ------
    The group's bins, the past bins that hold bins of this group alone, and which of its bins each of them holds,
    (past, bins).
    """
    starts = paths << (DEPTH_MAX - depths)
    past_low = past_paths << (DEPTH_MAX - past_depths)
    past_high = past_low + (1 << (DEPTH_MAX - past_depths))
    waiting = [(0, 1 << DEPTH_MAX)]
    while waiting:
        low, high = waiting.pop()
        first, end = np.searchsorted(starts, [low, high])
        if end - first > limit:
            middle = (low + high) // 2
            waiting += [(middle, high), (low, middle)]
            continue
        past = np.flatnonzero((past_low >= low) & (past_high <= high))
        held = starts[None, first:end]
        yield slice(int(first), int(end)), past, (held >= past_low[past, None]) & (held < past_high[past, None])
