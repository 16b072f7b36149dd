"""The space of a spec's features, and the dyadic tree of bins that partitions it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from privateer_core.algorithms.partition import DEPTH_MAX, bin_corners
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.spec.columns import MISSING_PLACE, Block, find_levels_in_boxes

_MIN_SHARE: Final = 1e-18


@dataclass(frozen=True)
class BlockColumns:
    """A block and its columns."""

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
        """Return a space of ``count`` numeric columns."""
        return cls((Block(),) * count)

    @cached_property
    def parts(self) -> tuple[BlockColumns, ...]:
        """The blocks, each with its columns."""
        ends = np.cumsum([0, *(block.columns for block in self.blocks)]).tolist()
        return tuple(BlockColumns(block, slice(*ends[i : i + 2])) for i, block in enumerate(self.blocks))

    def select_blocks(self, indices: Sequence[int] | Ints) -> tuple["Space", Ints]:
        """Return the space of selected blocks, and the columns that these have in this space."""
        parts = [self.parts[place] for place in indices]
        columns = [np.arange(block_columns.columns.start, block_columns.columns.stop) for block_columns in parts]
        return Space(tuple(block_columns.block for block_columns in parts)), np.concatenate(columns)

    @cached_property
    def has_only_numbers(self) -> bool:
        """Whether there are only numbers."""
        return not any(block.codes for block in self.blocks)

    @cached_property
    def halvings(self) -> Ints:
        """The maximum number of halvings of each column, (columns,)."""
        return np.array([block.halvings for block in self.blocks for _ in range(block.columns)])

    @property
    def depth(self) -> int:
        """The maximum depth of a bin."""
        return min(DEPTH_MAX, int(self.halvings.sum()))

    def can_halve(self, axes: Sequence[int] | Ints) -> Bools:
        """Return which columns can be halved again after levels that halved ``axes``; shape (columns,)."""
        return np.asarray(np.bincount(np.asarray(axes, np.int64), minlength=len(self.halvings)) < self.halvings)

    def select_level_columns(self, max_bins: int) -> list[int]:
        """Select columns of blocks of levels that together make at most ``max_bins`` bins.

        Blocks with a level for each code come first, and one other at the end: bins that hold one of its levels early
        are not halved further.
        """
        columns: list[int] = []
        for part in sorted(self.parts, key=lambda part: not part.full):
            block_columns = range(part.columns.start, part.columns.stop)
            if part.block.codes and not part.block.flags and 2 ** (len(columns) + len(block_columns)) <= max_bins:
                columns += block_columns
                if not part.full:
                    break
        return columns

    def columns_in_turn(self) -> Ints:
        """Return the column that each of `DEPTH_MAX` levels halves if columns take turns."""
        turns: list[int] = []
        while len(turns) < self.depth:
            turns += np.flatnonzero(self.can_halve(turns)).tolist()
        # Levels that no bin reaches name some column.
        rest = np.arange(DEPTH_MAX) % len(self.halvings)
        return np.concatenate([np.array(turns[:DEPTH_MAX], np.int64), rest[len(turns) :]])[:DEPTH_MAX]

    def max_width(self, lower: Array, upper: Array) -> Array:
        """Return the width of each bin along its widest column that can still be halved, (bins,)."""
        widths = upper - lower
        return np.asarray(np.where(widths > 0.5**self.halvings, widths, 0.0).max(axis=1))

    def expected_shares(self, lower: Array, upper: Array) -> Array:
        """Return the share of participants in each bin under a uniform distribution over levels, (bins,).

        Who has no number is at one place, and counts for half of all.
        """
        share = np.ones(len(lower))
        for number_columns, level_columns in self._iterate_numbers_and_levels():
            if number_columns is not None:
                low, high = lower[:, number_columns.columns][:, 0], upper[:, number_columns.columns][:, 0]
                inside = high - low
                if level_columns is not None:
                    with_number, without_number = level_membership(level_columns, lower, upper).T / 2
                    inside = with_number * inside + without_number * ((low <= MISSING_PLACE) & (high > MISSING_PLACE))
                share *= inside
            elif level_columns is not None:
                share *= level_membership(level_columns, lower, upper).mean(axis=1)
        return share

    def _iterate_numbers_and_levels(self) -> Iterator[tuple[BlockColumns | None, BlockColumns | None]]:
        """Yield pairs of blocks: a number with its missing flag or None, or None with a block of levels."""
        parts = self.parts
        for i, block_columns in enumerate(parts):
            if not block_columns.block.codes:
                has_flag = i + 1 < len(parts) and parts[i + 1].block.flags
                yield block_columns, parts[i + 1] if has_flag else None
            elif not block_columns.block.flags:
                yield None, block_columns


def level_membership(block_columns: BlockColumns, lower: Array, upper: Array) -> Bools:
    """Return which of a block's levels are in each bin, shape (bins, levels)."""
    return find_levels_in_boxes(block_columns.block, lower[:, block_columns.columns], upper[:, block_columns.columns])


@dataclass(frozen=True)
class Split:
    """A step from bins to bins, some of which are halves."""

    # copies, fresh: shape (new bins,): the old bin of every new one, and whether it is a half
    copies: Ints
    fresh: Bools
    ready: Bools  # shape (old bins,): those that were split


@dataclass(frozen=True)
class BinTree:
    """The bins of a dyadic partition, and the bins that were split before."""

    axes: Ints  # shape (levels,): column that each level halves, as far as bins have been split
    # depths, paths: shape (bins,): the bins, as in `PartitionPolicy`, in order
    depths: Ints
    paths: Ints
    # past_depths, past_paths: shape (past,): bins that were split since
    past_depths: Ints
    past_paths: Ints

    @classmethod
    def root(cls) -> "BinTree":
        """Return the tree with one bin, the whole space."""
        empty, root = np.zeros(0, np.int64), np.zeros(1, np.int64)
        return cls(empty, root, root, empty, empty)

    def __len__(self) -> int:
        return len(self.depths)

    def corners(self, dimension: int) -> tuple[Array, Array]:
        """Return lower and upper corners of the bins, (bins, dimension) each."""
        return bin_corners(self.depths, self.paths, self.axes, dimension)

    def all_axes(self, dimension: int) -> Ints:
        """Return a column for each of `DEPTH_MAX` levels, as policies have them."""
        return np.concatenate([self.axes, np.arange(len(self.axes), DEPTH_MAX) % dimension])

    def expected_shares(self, space: Space) -> Array:
        """Return the share of participants in each bin by the spec, above 0."""
        return np.maximum(space.expected_shares(*self.corners(len(space.halvings))), _MIN_SHARE)

    def split(self, ready: Bools) -> tuple["BinTree", Split]:
        """Return the tree with the bins that are ``ready`` cut in two, and how its bins follow from these."""
        copies, fresh, depths, paths = halve_bins(self.depths, self.paths, ready)
        past_depths = np.append(self.past_depths, self.depths[ready])
        past_paths = np.append(self.past_paths, self.paths[ready])
        return BinTree(self.axes, depths, paths, past_depths, past_paths), Split(copies, fresh, ready)

    def with_level(self, column: int) -> "BinTree":
        """Return the tree with one more level, which halves a column."""
        return replace(self, axes=np.append(self.axes, column))

    def neighbourhoods(self, limit: int) -> Iterator[tuple[slice, Ints, Bools]]:
        """Yield groups of bins, as `group_by_ancestor`."""
        return group_by_ancestor(self.depths, self.paths, self.past_depths, self.past_paths, limit)


def halve_bins(depths: Ints, paths: Ints, ready: Bools) -> tuple[Ints, Bools, Ints, Ints]:
    """Cut the bins that are ``ready`` in two; all stay in order.

    Return the old bin of every new one, whether it is a half, and depths and paths; shape (new bins,) each.
    """
    copies = np.repeat(np.arange(len(ready)), 1 + ready)
    is_half = ready[copies]
    is_second = np.concatenate([[False], copies[1:] == copies[:-1]])
    return copies, is_half, depths[copies] + is_half, np.where(is_half, 2 * paths[copies] + is_second, paths[copies])


def group_by_ancestor(
    depths: Ints, paths: Ints, past_depths: Ints, past_paths: Ints, limit: int
) -> Iterator[tuple[slice, Ints, Bools]]:
    """Yield groups of at most ``limit`` bins that share an ancestor, and the past bins that lie in each.

    A group is its bins, the past bins that hold bins of this group alone, and which of its bins each of them holds,
    (past, bins).
    """
    starts = paths << (DEPTH_MAX - depths)
    past_low = past_paths << (DEPTH_MAX - past_depths)
    past_high = past_low + (1 << (DEPTH_MAX - past_depths))
    pending = [(0, 1 << DEPTH_MAX)]
    while pending:
        low, high = pending.pop()
        first, end = np.searchsorted(starts, [low, high])
        if end - first > limit:
            middle = (low + high) // 2
            pending += [(middle, high), (low, middle)]
            continue
        past = np.flatnonzero((past_low >= low) & (past_high <= high))
        inner = starts[None, first:end]
        yield slice(int(first), int(end)), past, (inner >= past_low[past, None]) & (inner < past_high[past, None])
