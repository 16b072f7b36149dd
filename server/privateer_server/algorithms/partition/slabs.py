"""The cells of one feature: slabs of the space, as the bins of a tree that halves columns of this feature alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import DEPTH_MAX, PartitionSpec, corners
from privateer_core.columns import Block
from privateer_server.algorithms.partition.space import Space

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_QUARTERS: Final = 2
"""Halvings of a number."""
_BITS: Final = 4
"""Bits of levels' codes that tell cells apart, at most: 16 cells."""


@dataclass(frozen=True)
class Slabs:
    """The slabs of one feature: its levels, or quarters of its number, and those without a number.

    Attributes
    ----------
    name
        The feature's.
    blocks
        Shape (blocks of the feature,): their places in the spec's.
    axes, depths, paths
        The tree, as a policy has it; shapes (`DEPTH_MAX`,) and (slabs,).
    lower, upper
        Shape (slabs, columns): corners.
    expected
        Shape (slabs,): share of people in each if nothing is known of people.
    """

    name: str
    blocks: Ints
    axes: Ints
    depths: Ints
    paths: Ints
    lower: Array
    upper: Array
    expected: Array

    def __len__(self) -> int:
        return len(self.depths)


def slabs_of(spec: PartitionSpec) -> tuple[Slabs, ...]:
    """Return the slabs of every feature, in order."""
    space, found, place, column = Space(spec.blocks), [], 0, 0
    for name, feature in spec.features.items():
        levels, leaves = _tree(feature.blocks)
        axes = np.append(column + np.array(levels, np.int64), np.zeros(DEPTH_MAX - len(levels), np.int64))
        depths, paths = (np.array(part, np.int64) for part in zip(*leaves, strict=True))
        box = corners(depths, paths, axes, spec.dimension)
        blocks = place + np.arange(len(feature.blocks))
        found.append(Slabs(name, blocks, axes, depths, paths, *box, space.expected(*box)))
        place, column = place + len(feature.blocks), column + feature.columns
    return tuple(found)


def _tree(blocks: tuple[Block, ...]) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the feature's column that each level halves, and depth and path of each leaf, in order."""
    first = blocks[0]
    if first.codes:
        deepest = min(_BITS, first.columns)
        return list(range(deepest)), list(_leaves(first, deepest))
    halvings = min(_QUARTERS, first.halvings)
    parts = range(1 << halvings)
    if len(blocks) == 1:
        return [0] * halvings, [(halvings, part) for part in parts]
    # Those with a number first, in the lower half of the flag's column.
    return [1] + [0] * halvings, [*((halvings + 1, part) for part in parts), (1, 1)]


def _leaves(block: Block, deepest: int) -> Iterator[tuple[int, int]]:
    """Yield depth and path of the largest halves that hold one level, or are as deep as may be."""
    codes, waiting = np.array(block.codes), [(0, 0)]
    while waiting:
        depth, path = waiting.pop()
        if depth < deepest and (codes >> (block.columns - depth) == path).sum() > 1:
            waiting += [(depth + 1, 2 * path + 1), (depth + 1, 2 * path)]
        else:
            yield depth, path
