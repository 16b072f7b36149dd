"""Bins with their arms, and who is asked about which: what a partition's policy says, before anybody decides by it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition.bins import Bins
from privateer_core.coins import Layout
from privateer_core.mechanisms import KeyedMechanism
from privateer_core.terms import Terms


def by_whole(parts: NDArray[Any], wholes: NDArray[np.int64] | None) -> NDArray[Any]:
    """Add up numbers of parts, shape (parts, ...), whole by whole, shape (wholes, ...); they are wholes without any."""
    if wholes is None:
        return parts
    added = np.zeros((int(np.max(wholes, initial=-1)) + 1, *parts.shape[1:]), parts.dtype)
    np.add.at(added, wholes, parts)
    return added


@dataclass(frozen=True)
class AskedBins(Bins):
    """Bins, their active arms, and who reports about which.

    Attributes
    ----------
    version
        The policy's version, from 1.
    dimension, axes, depths, paths
        The partition, as in `Bins`.
    active
        Shape (bins, arms), bool: at least one in every bin.
    bins
        Shape (undecided,), int64: the bins whose people are asked; people of other bins have nothing to tell.
    terms
        How reports of this version are randomized. The layout of the mechanism says what the coins of a report mean.
    choice
        What the coins of a choice mean, where the arm is in the key of a report; None: they are those of the report.
    cohort
        Whose turn it is to report: a source's name; empty for the experiment's own people.
    wholes
        Shape (undecided,), int64, rising from 0, where the arm is in the key: bins of one number are parts of one
        whole, which reports are about. None: each bin is a whole.
    """

    mechanisms: ClassVar[Any] = KeyedMechanism
    """What may randomize its reports."""

    version: int
    dimension: int
    axes: NDArray[np.int64]
    depths: NDArray[np.int64]
    paths: NDArray[np.int64]
    active: NDArray[np.bool_]
    bins: NDArray[np.int64]
    terms: Terms
    choice: Layout | None = None
    cohort: str = ""
    wholes: NDArray[np.int64] | None = None

    @property
    def mechanism(self) -> KeyedMechanism:
        """What randomizes, adds up and releases the round's reports."""
        return cast(KeyedMechanism, self.terms.mechanism)

    @property
    def layout(self) -> Layout:
        """What the coins of a choice mean: the keys are the entries of ``bins``, the groups are arms."""
        return self.mechanism.layout if self.choice is None else self.choice

    @property
    def fresh_coins(self) -> bool:
        """Whether a report has coins of its own.

        Where the arm is in the key, every active arm of every whole is a key (`cells`), and coins decide nothing but
        its sign and bucket. Otherwise a report carries the coins of the choice.
        """
        return self.choice is not None

    @cached_property
    def whole_of(self) -> NDArray[np.int64]:
        """The whole of which each of ``bins`` is a part, shape (undecided,)."""
        return np.arange(len(self.bins)) if self.wholes is None else self.wholes

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """Whole, and arm that is active in one of its parts, of every pair asked about; shape (cells, 2), in order."""
        return np.argwhere(self.by_whole(self.active[self.bins]))

    def by_whole(self, parts: NDArray[Any]) -> NDArray[Any]:
        """Add up numbers of ``bins``, shape (undecided, ...), whole by whole; shape (wholes, ...)."""
        return by_whole(parts, self.wholes)

    @cached_property
    def key_of_bin(self) -> NDArray[np.int64]:
        """Place of each bin among ``bins``, -1 for others; shape (bins,)."""
        keys = np.full(len(self.depths), -1, dtype=np.int64)
        keys[self.bins] = np.arange(len(self.bins))
        return keys

    @property
    def shares(self) -> NDArray[np.float64]:
        """Probability of each arm in every bin, over coins, shape (bins, arms)."""
        shares = self.active / self.active.sum(axis=1, keepdims=True)
        shares[self.bins] = self.layout.shares
        return np.asarray(shares)
