"""Bins of a dyadic partition of contexts."""

from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

DEPTH_MAX: Final = 40
"""Deepest bin: paths are integers of this many bits."""


class Bins:
    """Bins of a dyadic partition (paper 1, Section 2.3.2), of which a policy tells these attributes.

    A bin of depth s is named by its path, s bits: bit i tells the half along dimension ``axes[i]``. Cycling through the
    dimensions always halves a longest edge (the paper's max-edge rule, with ties to the lowest dimension).

    Attributes
    ----------
    dimension
        Number of columns of an encoded context, d.
    axes
        Shape (`DEPTH_MAX`,), int64: column that every level halves.
    depths, paths
        Shape (bins,), int64: the bins in order of their paths.
    """

    dimension: int
    axes: Ints
    depths: Ints
    paths: Ints

    @cached_property
    def starts(self) -> Ints:
        """The least path of `DEPTH_MAX` bits in each bin, (bins,)."""
        return self.paths << (DEPTH_MAX - self.depths)

    def locate(self, contexts: Array) -> Ints:
        """Bin of each context; ``contexts`` (n, d) in [0, 1], result (n,)."""
        deepest = int(np.max(self.depths))
        path = np.zeros(len(contexts), dtype=np.int64)
        left = np.bincount(self.axes[:deepest], minlength=contexts.shape[1])
        cells = np.minimum((contexts * (1 << left)).astype(np.int64), (1 << left) - 1)
        for axis in self.axes[:deepest]:
            left[axis] -= 1
            path = (path << 1) | ((cells[:, axis] >> left[axis]) & 1)
        return np.asarray(np.searchsorted(self.starts, path << (DEPTH_MAX - deepest), side="right") - 1)

    def edges(self) -> tuple[Array, Array]:
        """Lower and upper corners of the bins, each (bins, d)."""
        return corners(self.depths, self.paths, self.axes, self.dimension)

    def within(self, other: "Bins", bins: Ints) -> Ints:
        """Return the bin of another partition that holds each of ``bins``; -1 where none does, as a whole."""
        depths = self.depths[bins]
        found = np.asarray(np.searchsorted(other.starts, self.starts[bins], side="right") - 1)
        differ = np.flatnonzero(other.axes != self.axes)
        levels = int(differ[0]) if len(differ) else DEPTH_MAX
        whole = (other.depths[found] <= depths) & (other.depths[found] <= levels)
        return np.where(whole, found, -1)

    def tile(self) -> bool:
        """Whether every context is in one bin, if arrays have the right types and shapes."""
        if np.min(self.depths) < 0 or np.max(self.depths) > DEPTH_MAX or np.min(self.paths) < 0:
            return False
        if bool((self.paths >> self.depths).any()):
            return False
        ends = self.starts + (1 << (DEPTH_MAX - self.depths))
        return bool(self.starts[0] == 0 and ends[-1] == 1 << DEPTH_MAX and (self.starts[1:] == ends[:-1]).all())


def corners(
    depths: NDArray[np.int64], paths: NDArray[np.int64], axes: NDArray[np.int64], dimension: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper corners of bins, each (bins, d); ``axes`` as in `PartitionPolicy`, or as many as needed."""
    lower = np.zeros((len(depths), dimension))
    width = np.ones_like(lower)
    for level in range(int(np.max(depths, initial=0))):
        split = np.flatnonzero(depths > level)
        j = axes[level]
        width[split, j] /= 2
        half = (paths[split] >> (depths[split] - 1 - level)) & 1
        lower[split, j] += half * width[split, j]
    return lower, lower + width
