"""Parts of bins: where reports are about whole bins, people are told apart more finely than reports tell."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import PartitionPolicy

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Parts:
    """What is thought of the parts of a state's bins.

    Attributes
    ----------
    rows
        Shape (parts,), int64: the bin that each is a part of, rising.
    axes, depths, paths
        The parts, as in `privateer_core.algorithms.partition.bins.Bins`; shapes (levels,) and (parts,).
    shares
        Shape (parts,): share of the bin's people who are expected in the part.
    mean
        Shape (parts, arms): posterior means of values.
    """

    rows: Ints
    axes: Ints
    depths: Ints
    paths: Ints
    shares: Array
    mean: Array


def wholes_of(rows: Ints) -> Ints:
    """Number the bins of which there are parts, in order; shape (parts,)."""
    return np.asarray(np.unique(rows, return_inverse=True)[1].reshape(-1), np.int64)


def apart(policy: PartitionPolicy, telling: Array, shares: Array, mean: Array) -> Array:
    """Return by how much the people who tell of an arm differ from all people of the bin, as far as is known.

    Parameters
    ----------
    policy
        Its wholes are the bins.
    telling
        Shape (parts, arms): share of a part's people who tell of each arm.
    shares, mean
        As in `Parts`.

    Returns
    -------
    Shape (bins, arms): mean value of those who tell, less that of all; 0 where nobody tells.
    """
    told = shares[:, None] * telling
    all_ = policy.by_whole(told)
    theirs = policy.by_whole(told * mean) / np.where(all_ > 0, all_, 1.0)
    everybody = policy.by_whole(shares[:, None] * mean) / policy.by_whole(shares)[:, None]
    return np.asarray(np.where(all_ > 0, theirs - everybody, 0.0))
