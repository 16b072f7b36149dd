"""Parts of bins: where reports are about whole bins, people are told apart more finely than reports tell."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import DEPTH_MAX, PartitionPolicy
from privateer_server.algorithms.partition.gaussian_process import BinProcess
from privateer_server.algorithms.partition.space import Space
from privateer_server.algorithms.partition.splitting import BinTree, Splitting, undecided

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEVELS: Final = 2
"""How often undecided bins are halved to tell their people apart, where reports are about the bins."""


@dataclass(frozen=True)
class Subdivision:
    """What is expected of the parts of bins.

    Attributes
    ----------
    rows
        Shape (parts,), int64: the bin that each is a part of, rising.
    tree
        The parts.
    shares
        Shape (parts,): share of the bin's people who are expected in the part.
    mean
        Shape (parts, arms): posterior means of values.
    """

    rows: Ints
    tree: BinTree
    shares: Array
    mean: Array


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

    Parameters
    ----------
    policy
        Its wholes are the bins.
    telling
        Shape (parts, arms): share of a part's people who tell of each arm.
    shares, mean
        As in `Subdivision`.

    Returns
    -------
    Shape (bins, arms): mean value of those who tell, less that of all; 0 where nobody tells.
    """
    weights = shares[:, None] * telling
    all_ = policy.by_whole(weights)
    theirs = policy.by_whole(weights * mean) / np.where(all_ > 0, all_, 1.0)
    everybody = policy.by_whole(shares[:, None] * mean) / policy.by_whole(shares)[:, None]
    return np.asarray(np.where(all_ > 0, theirs - everybody, 0.0))
