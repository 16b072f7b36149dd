"""Bins of the unit cube that are halved one by one, with the tree that finds a context's bin."""

import numpy as np
from numpy.typing import NDArray


class ContextBins:
    """Bins that tile the unit cube; they are numbered from 0 in the order of their making.

    Parameters
    ----------
    dimension
        Number of features.

    Attributes
    ----------
    depths
        Shape (bins,): how often each bin's way from the cube was halved.
    lower, upper
        Shape (bins, dimension): corners.
    """

    def __init__(self, dimension: int) -> None:
        self.depths = np.zeros(1, np.int64)
        self.lower, self.upper = np.zeros((1, dimension)), np.ones((1, dimension))
        self._node = np.zeros(1, np.int64)  # node of each bin
        self._bin = np.zeros(1, np.int64)  # bin of each node that is a leaf
        self._left = np.full(1, -1, np.int64)  # left child of each node, -1 at leaves; the right one comes next
        self._feature, self._middle = np.zeros(1, np.int64), np.zeros(1)

    def __len__(self) -> int:
        return len(self.depths)

    def locate(self, contexts: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the bin of each context, shape (n,); ``contexts`` (n, dimension) are in [0, 1]."""
        nodes = np.zeros(len(contexts), np.int64)
        inner = np.arange(len(contexts) if self._left[0] >= 0 else 0)
        while len(inner):
            at = nodes[inner]
            nodes[inner] = self._left[at] + (contexts[inner, self._feature[at]] >= self._middle[at])
            inner = inner[self._left[nodes[inner]] >= 0]
        return self._bin[nodes]

    def longest(self, which: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return a longest edge of each of these bins, ties broken at random (paper 1, Algorithm 1, max-edge rule)."""
        width = (self.upper - self.lower)[which]
        return np.asarray((width + np.min(width) / 2 * rng.random(width.shape)).argmax(axis=1))

    def halve(self, which: NDArray[np.int64], features: NDArray[np.int64]) -> NDArray[np.int64]:
        """Halve these bins across these features.

        The lower half keeps the bin's number; upper halves get the next ones. Return, for every bin that there is
        now, the number of the bin that it was or was part of.
        """
        count, rows = len(self), np.arange(len(which))
        middle = (self.lower[which, features] + self.upper[which, features]) / 2
        nodes = self._node[which]
        first = len(self._left) + 2 * rows
        self._left[nodes], self._feature[nodes], self._middle[nodes] = first, features, middle
        new = count + rows
        self._grow(np.stack([which, new], axis=1).ravel())
        origin = np.concatenate([np.arange(count), which])
        self._node = self._node[origin]
        self._node[which], self._node[new] = first, first + 1
        self.depths, self.lower, self.upper = self.depths[origin], self.lower[origin], self.upper[origin]
        self.depths[which] += 1
        self.depths[new] += 1
        self.upper[which, features] = self.lower[new, features] = middle
        return origin

    def _grow(self, bins: NDArray[np.int64]) -> None:
        """Add nodes for new leaves of these bins."""
        more = len(bins)
        self._bin = np.concatenate([self._bin, bins])
        self._left = np.concatenate([self._left, np.full(more, -1, np.int64)])
        self._feature = np.concatenate([self._feature, np.zeros(more, np.int64)])
        self._middle = np.concatenate([self._middle, np.zeros(more)])
