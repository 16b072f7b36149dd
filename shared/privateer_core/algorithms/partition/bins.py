"""Bins of a dyadic partition of contexts, their arms, and who is asked about which."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, cast

import numpy as np
from numpy.typing import NDArray

from privateer_core.mechanisms import KeyedMechanism
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.primitives.public_coins import UNIT, EarlierChoices, Layout
from privateer_core.privacy.terms import Terms

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

DEPTH_MAX: Final = 40
"""Deepest bin: paths are integers of this many bits."""
_PRIMES: Final = np.array([p for p in range(2, 174) if all(p % q for q in range(2, p))])
_INSIDE: Final = np.modf(np.arange(1, 65)[:, None] * np.sqrt(_PRIMES))[0]
"""64 places spread over a unit cube of up to 40 columns."""


class Bins:
    """Bins of a dyadic partition (Ma et al. 2025, Section 2.3.2), of which a policy tells these attributes.

    A bin of depth s is named by its path, s bits: bit i tells the half along dimension ``axes[i]``. Cycling through the
    dimensions always halves a longest edge (the paper's max-edge rule, with ties to the lowest dimension).
    """

    dimension: int  # number of columns of an encoded context, d
    axes: Ints  # shape (`DEPTH_MAX`,), int64: column that every level halves
    # depths, paths: shape (bins,), int64: the bins in order of their paths
    depths: Ints
    paths: Ints

    @cached_property
    def starts(self) -> Ints:
        """The least path of `DEPTH_MAX` bits in each bin, (bins,)."""
        return self.paths << (DEPTH_MAX - self.depths)

    def locate(self, contexts: Array) -> Ints:
        """Return the bin of each context; ``contexts`` (n, d) in [0, 1], result (n,)."""
        deepest = int(np.max(self.depths))
        path = np.zeros(len(contexts), dtype=np.int64)
        left = np.bincount(self.axes[:deepest], minlength=contexts.shape[1])
        cells = np.minimum((contexts * (1 << left)).astype(np.int64), (1 << left) - 1)
        for axis in self.axes[:deepest]:
            left[axis] -= 1
            path = (path << 1) | ((cells[:, axis] >> left[axis]) & 1)
        return np.asarray(np.searchsorted(self.starts, path << (DEPTH_MAX - deepest), side="right") - 1)

    def edges(self) -> tuple[Array, Array]:
        """Return lower and upper corners of the bins, each (bins, d)."""
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


def corners(depths: Ints, paths: Ints, axes: Ints, dimension: int) -> tuple[Array, Array]:
    """Return lower and upper corners of bins, (bins, d); ``axes`` as in `PartitionPolicy`, or as many as needed."""
    lower = np.zeros((len(depths), dimension))
    width = np.ones_like(lower)
    for level in range(int(np.max(depths, initial=0))):
        split = np.flatnonzero(depths > level)
        j = axes[level]
        width[split, j] /= 2
        half = (paths[split] >> (depths[split] - 1 - level)) & 1
        lower[split, j] += half * width[split, j]
    return lower, lower + width


@dataclass(frozen=True)
class AskedBins(Bins):
    """Bins, their active arms, and who reports about which."""

    mechanisms: ClassVar[Any] = KeyedMechanism | CellPairs
    """What may randomize its reports."""

    version: int  # the policy's version, from 1
    # dimension, axes, depths, paths: the partition, as in `Bins`
    dimension: int
    axes: Ints
    depths: Ints
    paths: Ints
    active: NDArray[np.bool_]  # shape (bins, arms), bool: at least one in every bin
    bins: Ints  # shape (undecided,), int64: the bins whose people are asked; people of other bins have nothing to tell
    # how reports of this version are randomized. The layout of the mechanism says what the coins of a report mean.
    terms: Terms
    # what the coins of a choice mean, where the arm is in the key of a report; None: they are those of the report
    choice: Layout | None = None
    cohort: str = ""  # the cohort that reports: a source's name; empty for the experiment's own people
    # shape (undecided,), int64, rising from 0, where the arm is in the key: bins of one number are parts of one whole,
    # which reports are about. None: each bin is a whole.
    wholes: Ints | None = None

    @property
    def mechanism(self) -> KeyedMechanism | CellPairs:
        """What randomizes, adds up and releases the round's reports."""
        return cast(KeyedMechanism | CellPairs, self.terms.mechanism)

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
    def whole_of(self) -> Ints:
        """The whole of which each of ``bins`` is a part, shape (undecided,)."""
        return np.arange(len(self.bins)) if self.wholes is None else self.wholes

    @cached_property
    def cells(self) -> Ints:
        """Whole, and arm that is active in one of its parts, of every pair asked about; shape (cells, 2), in order."""
        return np.argwhere(self.by_whole(self.active[self.bins]))

    def by_whole(self, parts: NDArray[Any]) -> NDArray[Any]:
        """Add up numbers of ``bins``, shape (undecided, ...), whole by whole; shape (wholes, ...)."""
        return by_whole(parts, self.wholes)

    @cached_property
    def key_of_bin(self) -> Ints:
        """Place of each bin among ``bins``, -1 for others; shape (bins,)."""
        keys = np.full(len(self.depths), -1, dtype=np.int64)
        keys[self.bins] = np.arange(len(self.bins))
        return keys

    @property
    def shares(self) -> Array:
        """Probability of each arm in every bin, over coins, shape (bins, arms)."""
        shares = self.active / self.active.sum(axis=1, keepdims=True)
        shares[self.bins] = self.layout.shares
        return np.asarray(shares)


def by_whole(parts: NDArray[Any], wholes: Ints | None) -> NDArray[Any]:
    """Add up numbers of parts, shape (parts, ...), whole by whole, shape (wholes, ...); they are wholes without any."""
    if wholes is None:
        return parts
    added = np.zeros((int(np.max(wholes, initial=-1)) + 1, *parts.shape[1:]), parts.dtype)
    np.add.at(added, wholes, parts)
    return added


def choices_of(earlier: AskedBins, policy: AskedBins) -> EarlierChoices:
    """Return what the coins of an earlier choice mean at the keys of a policy.

    There is one more group, the last: of all coins at a key whose bin was not whole then, so that what they chose
    there depends on more than the key.
    """
    bins = policy.within(earlier, policy.bins)
    keys = np.where(bins >= 0, earlier.key_of_bin[bins], -1)
    thresholds = np.zeros((len(bins), policy.active.shape[1]), np.uint32)
    # Where nothing was asked the only active arm was played.
    only = earlier.active[bins].argmax(axis=1)
    thresholds[:, :-1] = np.where(np.arange(thresholds.shape[1] - 1)[None, :] < only[:, None], 0, UNIT)
    asked = keys >= 0
    # Arms that were added since were played by nobody, as in the rows of those who were not asked.
    thresholds[asked, : earlier.active.shape[1] - 1] = earlier.layout.thresholds[keys[asked]]
    thresholds[:, -1] = UNIT
    thresholds[bins < 0] = 0
    return EarlierChoices(policy.layout.seed, thresholds, earlier.layout, np.maximum(keys, 0))


def choices_of_all(policy: AskedBins, decided: Sequence[tuple[AskedBins, float]]) -> Layout:
    """Return choices with the share of a bin's people to whom these policies, weighed, gave each arm."""
    shares = sum(weight * _shares(one, policy) for one, weight in decided)
    edges = np.cumsum(shares, axis=1)[:, :-1] / np.sum(shares, axis=1, keepdims=True)
    return Layout(policy.layout.seed, np.minimum(np.rint(edges * UNIT), UNIT).astype(np.uint32))


def _shares(earlier: AskedBins, policy: AskedBins) -> Array:
    """Return the share of people in each of the policy's ``bins`` to whom an earlier one gave each arm."""
    bins, (lower, upper) = policy.within(earlier, policy.bins), [corner[policy.bins] for corner in policy.edges()]
    shares = earlier.shares[bins]
    for place in np.flatnonzero(bins < 0).tolist():
        inside = earlier.locate(lower[place] + (upper - lower)[place] * _INSIDE[:, : policy.dimension])
        shares[place] = earlier.shares[inside].mean(axis=0)
    added = policy.active.shape[1] - earlier.active.shape[1]
    return np.pad(shares, ((0, 0), (0, added)))
