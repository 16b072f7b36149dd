"""The policy of the partition bandit: a partition of the context space with active arms in every bin."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer.coins import UNIT, Layout
from privateer.contributions import KeyedValues
from privateer.errors import Malformed
from privateer.mechanisms import mechanism_for
from privateer.terms import Terms

DEPTH_MAX = 40
"""Deepest bin: paths are integers of this many bits."""


@dataclass(frozen=True)
class PartitionPolicy:
    """Bins of a dyadic partition (paper 1, Section 2.3.2), their active arms, and who reports about which.

    A bin of depth s is named by its path, s bits: bit i tells the half along dimension ``axes[i]``. Cycling through the
    dimensions always halves a longest edge (the paper's max-edge rule, with ties to the lowest dimension).

    Attributes
    ----------
    version
        Of the policy, from 1.
    dimension
        Number of features, d.
    axes
        Shape (`DEPTH_MAX`,), int64: dimension that every level halves.
    depths, paths
        Shape (bins,), int64: the bins in order of their paths.
    active
        Shape (bins, arms), bool: at least one in every bin.
    bins
        Shape (undecided,), int64: the bins whose people are asked; people of other bins have nothing to tell.
    layout
        Coins of a choice: its keys are the entries of ``bins``, its groups are arms.
    terms
        How reports of this version are randomized.
    cohort
        Whose turn it is to report: a source's name; empty for the experiment's own people.
    """

    version: int
    dimension: int
    axes: NDArray[np.int64]
    depths: NDArray[np.int64]
    paths: NDArray[np.int64]
    active: NDArray[np.bool_]
    bins: NDArray[np.int64]
    layout: Layout
    terms: Terms
    cohort: str = ""

    @cached_property
    def mechanism(self) -> Any:
        """What randomizes, adds up and releases the round's reports."""
        return mechanism_for(self.reported, self.terms)

    @cached_property
    def reported(self) -> Layout:
        """Coins of a report.

        Where the arm is in the key, every active arm of every entry of ``bins`` is a key (`cells`), and coins decide
        nothing but its sign and bucket. Otherwise they are the coins of the choice.
        """
        if not self.terms.arm_in_key:
            return self.layout
        return Layout(self.layout.seed, np.zeros((len(self.cells), 0), np.uint32))

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """Entry of ``bins``, and arm, of every pair that is asked about; shape (cells, 2), in order."""
        return np.argwhere(self.active[self.bins])

    def check(self, arms: int) -> None:
        """Refuse a policy that no learner makes: a device must not crash on, or be steered by, a malformed one.

        Raises
        ------
        Malformed
            If the bins do not tile the space, or an array has the wrong shape or range.
        """
        if not (self._well_typed(arms) and self._tiles() and self._plays_active_arms()):
            raise Malformed("not a partition policy", remedy="fetch the policy again")

    def _well_typed(self, arms: int) -> bool:
        bins, keys = self.depths.shape[:1], self.bins.shape[:1]
        expected = (
            (self.axes, np.int64, (DEPTH_MAX,)),
            (self.depths, np.int64, bins),
            (self.paths, np.int64, bins),
            (self.active, np.bool_, (*bins, arms)),
            (self.bins, np.int64, keys),
            (self.layout.thresholds, np.uint32, (*keys, arms - 1)),
        )
        typed = all(array.dtype == dtype and array.shape == shape for array, dtype, shape in expected)
        named = typed and self.dimension >= 1 and np.min(self.axes) >= 0 and np.max(self.axes) < self.dimension
        return bool(named) and bins > (0,) and 0 <= self.layout.seed < 1 << 64

    def _tiles(self) -> bool:
        if np.min(self.depths) < 0 or np.max(self.depths) > DEPTH_MAX or np.min(self.paths) < 0:
            return False
        if bool((self.paths >> self.depths).any()):
            return False
        ends = self._starts + (1 << (DEPTH_MAX - self.depths))
        return bool(self._starts[0] == 0 and ends[-1] == 1 << DEPTH_MAX and (self._starts[1:] == ends[:-1]).all())

    def _plays_active_arms(self) -> bool:
        """At least one arm everywhere; keys are distinct bins, and their slots go to active arms."""
        if not self.active.any(axis=1).all() or len(np.unique(self.bins)) != len(self.bins):
            return False
        if len(self.bins) and (np.min(self.bins) < 0 or np.max(self.bins) >= len(self.depths)):
            return False
        thresholds = self.layout.thresholds.astype(np.int64)
        rising = bool((np.diff(thresholds, axis=1) >= 0).all() and (thresholds <= UNIT).all())
        return rising and not bool((self.layout.shares[~self.active[self.bins]] > 0).any())

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return self.paths << (DEPTH_MAX - self.depths)

    @cached_property
    def _key_of_bin(self) -> NDArray[np.int64]:
        keys = np.full(len(self.depths), -1, dtype=np.int64)
        keys[self.bins] = np.arange(len(self.bins))
        return keys

    def locate(self, contexts: NDArray[np.float64]) -> NDArray[np.int64]:
        """Bin of each context; ``contexts`` (n, d) in [0, 1], result (n,)."""
        deepest = int(np.max(self.depths))
        path = np.zeros(len(contexts), dtype=np.int64)
        left = np.bincount(self.axes[:deepest], minlength=contexts.shape[1])
        cells = np.minimum((contexts * (1 << left)).astype(np.int64), (1 << left) - 1)
        for axis in self.axes[:deepest]:
            left[axis] -= 1
            path = (path << 1) | ((cells[:, axis] >> left[axis]) & 1)
        return np.asarray(np.searchsorted(self._starts, path << (DEPTH_MAX - deepest), side="right") - 1)

    @property
    def shares(self) -> NDArray[np.float64]:
        """Chance of each arm in every bin, over slots, (bins, arms)."""
        shares = self.active / self.active.sum(axis=1, keepdims=True)
        shares[self.bins] = self.layout.shares
        return np.asarray(shares)

    def choose(self, contexts: NDArray[np.float64], slots: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Arms of n people, shape (n,): the only active one, or the one that the slot has in the bin."""
        return self._arms(self.locate(contexts), slots)

    def _arms(self, bins: NDArray[np.int64], slots: NDArray[np.uint32]) -> NDArray[np.int64]:
        arms = np.asarray(self.active[bins].argmax(axis=1))
        keys = self._key_of_bin[bins]
        asked = np.flatnonzero(keys >= 0)
        hashes = self.layout.hashes(slots[asked], keys[asked])
        arms[asked] = self.layout.group(hashes, keys[asked])
        return arms

    @cached_property
    def _key_of_cell(self) -> NDArray[np.int64]:
        """Key of every entry of ``bins`` and arm; the last row is for people of other bins."""
        keys = np.full((len(self.bins) + 1, self.active.shape[1]), -1, dtype=np.int64)
        keys[self.cells[:, 0], self.cells[:, 1]] = np.arange(len(self.cells))
        return keys

    def contribute(
        self,
        contexts: NDArray[np.float64],
        slots: NDArray[np.uint32],
        arms: NDArray[np.int64],
        rewards: NDArray[np.float64],
    ) -> KeyedValues:
        """What n people have to tell of their arms and rewards.

        Parameters
        ----------
        contexts
            Shape (n, d), in [0, 1].
        slots
            Shape (n,). The slots that chose the arms; where the arm is in the key, slots drawn for the report alone.
        arms
            Shape (n,), as `choose` gave them.
        rewards
            Shape (n,), in [0, 1].
        """
        keys = self._key_of_bin[self.locate(contexts)]
        if self.terms.arm_in_key:
            return KeyedValues(slots, self._key_of_cell[keys, arms], np.zeros_like(keys), rewards)
        return KeyedValues(slots, keys, arms, rewards)

    def contribute_recorded(
        self,
        contexts: NDArray[np.float64],
        slots: NDArray[np.uint32],
        arms: NDArray[np.int64],
        rewards: NDArray[np.float64],
    ) -> KeyedValues:
        """What n people of a source have to tell of arms (n,) that they played before, which stay secret.

        Where the arm is not in the key, a slot asks about one arm of every bin, and those who played another have
        nothing to tell. The published mechanism tells of every arm.
        """
        told = self.contribute(contexts, slots, arms, rewards)
        if self.terms.arm_in_key or self.terms.mechanism == "laplace":
            return told
        asked = self.choose(contexts, slots)
        return KeyedValues(slots, np.where(asked == arms, told.keys, -1), asked, rewards)

    def by_key(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Counts by entry of ``bins``, arm and more, as counts by key, group and more of the round's reports."""
        return counts[self.cells[:, 0], self.cells[:, 1]][:, None] if self.terms.arm_in_key else counts

    def edges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper corners of the bins, each (bins, d)."""
        return corners(self.depths, self.paths, self.axes, self.dimension)

    def describe(self, arm_names: tuple[str, ...]) -> dict[str, Any]:
        """The policy for people and other languages: bins with corners, active arms and the share of each."""
        lower, upper = self.edges()
        rows = []
        for low, high, active, share in zip(lower, upper, self.active, self.shares, strict=True):
            arms = {arm_names[k]: round(float(share[k]), 4) for k in np.flatnonzero(active)}
            rows.append({"lower": low.tolist(), "upper": high.tolist(), "arms": arms})
        return {"algorithm": "partition", "version": self.version, "bins": rows}


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
