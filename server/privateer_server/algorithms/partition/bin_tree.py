"""The space that a spec's features span, and the dyadic tree of bins that it is cut into."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import DEPTH_MAX, corners
from privateer_core.spec.columns import MISSING_PLACE, Block, codes_within

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_NOBODY: Final = 1e-18


@dataclass(frozen=True)
class BlockColumns:
    """A block and the columns that it has."""

    block: Block
    columns: slice

    @property
    def full(self) -> bool:
        """Whether every code has a level."""
        return len(self.block.codes) == 1 << self.block.columns


@dataclass(frozen=True)
class Space:
    """The columns of an experiment, block by block."""

    blocks: tuple[Block, ...]  # as `privateer_core.spec.spec.Spec.blocks`

    @classmethod
    def numbers(cls, count: int) -> "Space":
        """Return a space of so many numbers."""
        return cls((Block(),) * count)

    @cached_property
    def parts(self) -> tuple[BlockColumns, ...]:
        """The blocks, each with its columns."""
        ends = np.cumsum([0, *(block.columns for block in self.blocks)]).tolist()
        return tuple(BlockColumns(block, slice(*ends[i : i + 2])) for i, block in enumerate(self.blocks))

    def only(self, places: Sequence[int] | NDArray[np.int64]) -> tuple["Space", NDArray[np.int64]]:
        """Return the space of some of its blocks, by their places, and the columns that these have here."""
        parts = [self.parts[place] for place in places]
        columns = [np.arange(part.columns.start, part.columns.stop) for part in parts]
        return Space(tuple(part.block for part in parts)), np.concatenate(columns)

    @cached_property
    def plain(self) -> bool:
        """Whether there are only numbers."""
        return not any(block.codes for block in self.blocks)

    @cached_property
    def halvings(self) -> NDArray[np.int64]:
        """How often each column may be halved, (columns,)."""
        return np.array([block.halvings for block in self.blocks for _ in range(block.columns)])

    @property
    def depth(self) -> int:
        """The deepest that a bin may be."""
        return min(DEPTH_MAX, int(self.halvings.sum()))

    def left(self, axes: Sequence[int] | NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which columns may be halved again after levels that halved ``axes``; shape (columns,)."""
        return np.asarray(np.bincount(np.asarray(axes, np.int64), minlength=len(self.halvings)) < self.halvings)

    def columns_of_levels(self, most: int) -> list[int]:
        """Return columns of levels that make ``most`` bins or fewer.

        Blocks with a level for each code come first, and one other at the end: bins that hold one of its levels early
        are not halved further.
        """
        columns: list[int] = []
        for part in sorted(self.parts, key=lambda part: not part.full):
            more = range(part.columns.start, part.columns.stop)
            if part.block.codes and not part.block.flags and 2 ** (len(columns) + len(more)) <= most:
                columns += more
                if not part.full:
                    break
        return columns

    def in_turn(self) -> NDArray[np.int64]:
        """Return the column that each of `DEPTH_MAX` levels halves if columns take turns while they may."""
        turns: list[int] = []
        while len(turns) < self.depth:
            turns += np.flatnonzero(self.left(turns)).tolist()
        # Levels that no bin reaches name some column.
        rest = np.arange(DEPTH_MAX) % len(self.halvings)
        return np.concatenate([np.array(turns[:DEPTH_MAX], np.int64), rest[len(turns) :]])[:DEPTH_MAX]

    def widest(self, lower: Array, upper: Array) -> Array:
        """Return the width of each bin along its widest column, (bins,); 0 along those that part nobody any more."""
        widths = upper - lower
        return np.asarray(np.where(widths > 0.5**self.halvings, widths, 0.0).max(axis=1))

    def expected(self, lower: Array, upper: Array) -> Array:
        """Return the share of people in each bin if nothing else is known: as many at each level, (bins,).

        Who has no number is at one place, and counts for half of all.
        """
        share = np.ones(len(lower))
        for number, part in self._features():
            if number is not None:
                low, high = lower[:, number.columns][:, 0], upper[:, number.columns][:, 0]
                here = high - low
                if part is not None:
                    known, gone = levels_in(part, lower, upper).T / 2
                    here = known * here + gone * ((low <= MISSING_PLACE) & (high > MISSING_PLACE))
                share *= here
            elif part is not None:
                share *= levels_in(part, lower, upper).mean(axis=1)
        return share

    def _features(self) -> Iterator[tuple[BlockColumns | None, BlockColumns | None]]:
        """Yield a number with its flag, if it has one, or levels alone."""
        parts = self.parts
        for i, part in enumerate(parts):
            if not part.block.codes:
                flagged = i + 1 < len(parts) and parts[i + 1].block.flags
                yield part, parts[i + 1] if flagged else None
            elif not part.block.flags:
                yield None, part


def levels_in(part: BlockColumns, lower: Array, upper: Array) -> NDArray[np.bool_]:
    """Tell which of a block's levels are in each bin, shape (bins, levels)."""
    return codes_within(part.block, lower[:, part.columns], upper[:, part.columns])


@dataclass(frozen=True)
class Split:
    """A step from bins to bins of which some are halves."""

    # copies, fresh: shape (new bins,): the old bin of every new one, and whether it is a half
    copies: Ints
    fresh: Bools
    ready: Bools  # shape (old bins,): those that were split


@dataclass(frozen=True)
class BinTree:
    """The bins of a dyadic partition, and those that were split before."""

    axes: Ints  # shape (levels,): column that each level halves, as far as bins have been split
    # depths, paths: shape (bins,): the bins, as in `PartitionPolicy`, in order
    depths: Ints
    paths: Ints
    # past_depths, past_paths: shape (past,): bins that were split since
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
        """Return the share of people in each bin by the spec; above 0, since people may be where nobody should."""
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
