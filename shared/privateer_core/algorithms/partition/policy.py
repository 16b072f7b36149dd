"""The policy of the partition bandit: a dyadic partition of contexts, with active arms in its bins."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import numpy as np
from typing_extensions import override

from privateer_core.algorithms.partition.spec import PartitionSpec
from privateer_core.arrays import Array, Bools, Coins, Ints, NDArray
from privateer_core.errors import Malformed
from privateer_core.mechanisms import KeyedMechanism
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.shared_votes import SharedPairs
from privateer_core.policies.policy import Arms, ArmsPolicy, ChoiceAnalyzer
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, EarlierChoices, Layout
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.trust import Crowd
from privateer_core.spec.context import describe_bins

if TYPE_CHECKING:
    from privateer_core.answer.policy_view import PolicyView


DEPTH_MAX: Final = 40  # maximum depth of a bin: paths are integers of this many bits


class Bins:
    """Bins of a dyadic partition (Ma et al. 2025, Section 2.3.2).

    A bin of depth s has a path of s bits: bit i is the half along dimension ``axes[i]``. Cycling through the
    dimensions always halves a longest edge (the paper's max-edge rule, with ties to the lowest dimension).
    """

    dimension: int  # number of columns of an encoded context, d
    axes: Ints  # shape (`DEPTH_MAX`,), int64: the column that every level halves
    # depths, paths: shape (bins,), int64: the bins in order of their paths
    depths: Ints
    paths: Ints

    @cached_property
    def starts(self) -> Ints:
        """The smallest path of `DEPTH_MAX` bits in each bin, (bins,)."""
        return self.paths << (DEPTH_MAX - self.depths)

    def locate(self, contexts: Array) -> Ints:
        """Return the bin of each context; ``contexts`` (n, d) in [0, 1], result (n,)."""
        deepest = int(np.max(self.depths))
        path = np.zeros(len(contexts), dtype=np.int64)
        n_halvings = np.bincount(self.axes[:deepest], minlength=contexts.shape[1])
        cells = np.minimum((contexts * (1 << n_halvings)).astype(np.int64), (1 << n_halvings) - 1)
        for axis in self.axes[:deepest]:
            n_halvings[axis] -= 1
            path = (path << 1) | ((cells[:, axis] >> n_halvings[axis]) & 1)
        return np.asarray(np.searchsorted(self.starts, path << (DEPTH_MAX - deepest), side="right") - 1)

    def edges(self) -> tuple[Array, Array]:
        """Return lower and upper corners of the bins, each (bins, d)."""
        return bin_corners(self.depths, self.paths, self.axes, self.dimension)

    def enclosing_bins(self, other: "Bins", bins: Ints) -> Ints:
        """Return the bin of another partition that contains each of ``bins``, or -1."""
        depths = self.depths[bins]
        enclosing = np.asarray(np.searchsorted(other.starts, self.starts[bins], side="right") - 1)
        differing_axes = np.flatnonzero(other.axes != self.axes)
        shared_depth = int(differing_axes[0]) if len(differing_axes) else DEPTH_MAX
        is_enclosed = (other.depths[enclosing] <= depths) & (other.depths[enclosing] <= shared_depth)
        return np.where(is_enclosed, enclosing, -1)

    def is_partition(self) -> bool:
        """Whether the bins are in the order of their paths, disjoint, and cover every context."""
        if np.min(self.depths) < 0 or np.max(self.depths) > DEPTH_MAX or np.min(self.paths) < 0:
            return False
        if bool((self.paths >> self.depths).any()):
            return False
        ends = self.starts + (1 << (DEPTH_MAX - self.depths))
        return bool(self.starts[0] == 0 and ends[-1] == 1 << DEPTH_MAX and (self.starts[1:] == ends[:-1]).all())


def bin_corners(depths: Ints, paths: Ints, axes: Ints, dimension: int) -> tuple[Array, Array]:
    """Return lower and upper corners of bins, (bins, d); ``axes`` as in `PartitionPolicy`, or as many as needed."""
    lower = np.zeros((len(depths), dimension))
    width = np.ones_like(lower)
    for level in range(int(np.max(depths, initial=0))):
        is_split = np.flatnonzero(depths > level)
        j = axes[level]
        width[is_split, j] /= 2
        halves = (paths[is_split] >> (depths[is_split] - 1 - level)) & 1
        lower[is_split, j] += halves * width[is_split, j]
    return lower, lower + width


@dataclass(frozen=True)
class AskedBins(Bins):
    """Bins, their active arms, and the bins that reports are about."""

    mechanisms: ClassVar[Any] = KeyedMechanism | CellPairs | SharedPairs  # types of mechanisms for its reports

    version: int  # the policy's version, from 1
    # dimension, axes, depths, paths: the partition, as in `Bins`
    dimension: int
    axes: Ints
    depths: Ints
    paths: Ints
    active: Bools  # shape (bins, arms), bool: at least one in every bin
    bins: Ints  # shape (undecided,), int64: bins that reports are about; participants in other bins contribute nothing
    terms: Terms  # how reports of this version are randomized. The mechanism has the layout of a report's coins.
    # the layout of the choice's coins, if the arm is in the key of a report; None: a report has the choice's coins
    choice: Layout | None = None
    cohort: str = ""  # the cohort that reports: a source's name; empty for the experiment's own participants
    # shape (undecided,), int64, ascending from 0, if the arm is in the key: the parent of each of ``bins``, which
    # reports are about. None: each bin is its own parent.
    wholes: Ints | None = None

    @property
    def mechanism(self) -> KeyedMechanism | CellPairs | SharedPairs:
        """The mechanism that randomizes, sums and releases the round's reports."""
        return cast(KeyedMechanism | CellPairs | SharedPairs, self.terms.mechanism)

    @property
    def layout(self) -> Layout:
        """The layout of the choice's coins: the keys are the entries of ``bins``, the groups are arms."""
        return self.mechanism.layout if self.choice is None else self.choice

    @property
    def has_fresh_coins(self) -> bool:
        """Whether a report has coins of its own.

        If the arm is in the key, every active arm of every parent is a key (`cells`), and coins decide only its sign
        and bucket. Otherwise a report has the coins of the choice.
        """
        return self.choice is not None

    @cached_property
    def parent_of_bin(self) -> Ints:
        """The parent of each of ``bins``, shape (undecided,)."""
        return np.arange(len(self.bins)) if self.wholes is None else self.wholes

    @cached_property
    def cells(self) -> Ints:
        """The cells of reports: pairs of a parent and an arm active in any of its bins; shape (cells, 2), in order."""
        return np.argwhere(self.sum_by_parent(self.active[self.bins]))

    def sum_by_parent(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Sum numbers of ``bins``, shape (undecided, ...), by parent; shape (parents, ...)."""
        return sum_by_parent(numbers, self.wholes)

    @cached_property
    def key_of_bin(self) -> Ints:
        """Index of each bin among ``bins``, or -1; shape (bins,)."""
        keys = np.full(len(self.depths), -1, dtype=np.int64)
        keys[self.bins] = np.arange(len(self.bins))
        return keys

    @property
    def shares(self) -> Array:
        """Probability of each arm in every bin, over coins, shape (bins, arms)."""
        shares = self.active / self.active.sum(axis=1, keepdims=True)
        shares[self.bins] = self.layout.shares
        return np.asarray(shares)


def sum_by_parent(numbers: NDArray[Any], parents: Ints | None) -> NDArray[Any]:
    """Sum numbers of bins, shape (bins, ...), by parent, shape (parents, ...); return them without parents."""
    if parents is None:
        return numbers
    sums = np.zeros((int(np.max(parents, initial=-1)) + 1, *numbers.shape[1:]), numbers.dtype)
    np.add.at(sums, parents, numbers)
    return sums


def translate_choices(earlier: AskedBins, policy: AskedBins) -> EarlierChoices:
    """Return the groups of an earlier choice's coins at the keys of a policy.

    The last group is an additional one: of all coins at a key whose bin was split in the earlier partition, so that
    the arm depends on more than the key.
    """
    bins = policy.enclosing_bins(earlier, policy.bins)
    keys = np.where(bins >= 0, earlier.key_of_bin[bins], -1)
    thresholds = np.zeros((len(bins), policy.active.shape[1]), np.uint32)
    # In bins without reports the only active arm was given.
    only_arms = earlier.active[bins].argmax(axis=1)
    thresholds[:, :-1] = np.where(np.arange(thresholds.shape[1] - 1)[None, :] < only_arms[:, None], 0, UNIT)
    is_asked = keys >= 0
    # No earlier participant had an arm that was added since, as in the rows of bins without reports.
    thresholds[is_asked, : earlier.active.shape[1] - 1] = earlier.layout.thresholds[keys[is_asked]]
    thresholds[:, -1] = UNIT
    thresholds[bins < 0] = 0
    return EarlierChoices(policy.layout.seed, thresholds, earlier.layout, np.maximum(keys, 0))


def mix_choices(policy: AskedBins, decisions: Sequence[tuple[AskedBins, float]]) -> Layout:
    """Return the layout of coins with each arm's mean share over weighted policies, for the policy's ``bins``."""
    shares = sum(weight * _earlier_shares(earlier, policy) for earlier, weight in decisions)
    edges = np.cumsum(shares, axis=1)[:, :-1] / np.sum(shares, axis=1, keepdims=True)
    return Layout(policy.layout.seed, np.minimum(np.rint(edges * UNIT), UNIT).astype(np.uint32))


def _earlier_shares(earlier: AskedBins, policy: AskedBins) -> Array:
    """Return the share of each arm under an earlier policy, in each of the policy's ``bins``."""
    bins = policy.enclosing_bins(earlier, policy.bins)
    lower, upper = (corner[policy.bins] for corner in policy.edges())
    shares = earlier.shares[bins]
    for index in np.flatnonzero(bins < 0).tolist():
        points_bins = earlier.locate(lower[index] + (upper - lower)[index] * _cube_points()[:, : policy.dimension])
        shares[index] = earlier.shares[points_bins].mean(axis=0)
    n_added_arms = policy.active.shape[1] - earlier.active.shape[1]
    return np.pad(shares, ((0, 0), (0, n_added_arms)))


@cache
def _cube_points() -> Array:
    """Return 64 points of a low-discrepancy sequence in the unit cube of up to 40 columns."""
    primes = np.array([p for p in range(2, 174) if all(p % q for q in range(2, p))])
    return np.asarray(np.modf(np.arange(1, 65)[:, None] * np.sqrt(primes))[0])


@dataclass(frozen=True)
class PartitionPolicy(AskedBins, ArmsPolicy):
    """A policy that chooses arms by bin; `AskedBins` has its attributes."""

    is_mixture = AskedBins.has_fresh_coins

    @property
    @override
    def is_policy_independent(self) -> bool:
        return self.has_fresh_coins or self.terms.trust.crowd is not Crowd.BATCH

    @override
    def make_earlier_analyzer(self, earlier: "PartitionPolicy") -> ChoiceAnalyzer:
        return ChoiceAnalyzer(translate_choices(earlier, self), leaves_out=True)

    @override
    def with_decision_policies(self, decided: Sequence[tuple["PartitionPolicy", float]]) -> "PartitionPolicy":
        """Return the policy for a learner whose reports are on decisions of several policies.

        If the arm is in the key, its ``choice`` has each arm's share over all policies. Otherwise reports contain the
        age of their choice.
        """
        if not self.has_fresh_coins or all(policy.version == self.version for policy, _ in decided):
            return self
        return replace(self, choice=mix_choices(self, decided))

    @override
    def check(self, spec: PartitionSpec) -> None:
        if not is_possible_policy(self, spec):
            raise Malformed("not a partition policy", remedy="fetch the policy again")

    def decide(self, contexts: Array, coins: Coins) -> Arms:
        """Choose arms of n participants: the only active arm of the bin, or the arm of their coins in it."""
        bins = self.locate(contexts)
        arms = np.asarray(self.active[bins].argmax(axis=1))
        keys = self.key_of_bin[bins]
        is_asked = np.flatnonzero(keys >= 0)
        hashes = self.layout.hashes(coins[is_asked], keys[is_asked])
        arms[is_asked] = self.layout.find_groups(hashes, keys[is_asked])
        return Arms(arms)

    @cached_property
    def _key_of_cell(self) -> Ints:
        """Key of every entry of ``bins`` and arm; the last row is for participants in other bins."""
        keys = np.full((len(self.bins) + 1, self.active.shape[1]), -1, dtype=np.int64)
        keys[self.cells[:, 0], self.cells[:, 1]] = np.arange(len(self.cells))
        keys[:-1] = keys[self.parent_of_bin]
        return keys

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array) -> KeyedValues:
        """Return rewards with the key of bin and arm, or of the bin alone; -1 in bins without reports."""
        keys = self.key_of_bin[self.locate(contexts)]
        if self.has_fresh_coins:
            return KeyedValues.ungrouped(coins, self._key_of_cell[keys, decisions.arms], rewards)
        return KeyedValues(coins, keys, decisions.arms, rewards)

    @property
    def has_coin_asked_arms(self) -> bool:
        """Whether the coins of a source's participants choose the arm to report about."""
        return not self.has_fresh_coins

    def contribute_past_arms(self, contexts: Array, coins: Coins, arms: Ints, rewards: Array) -> KeyedValues:
        """Return the contributions of n participants of a source about their earlier arms (n,), which are secret.

        If the arm is not in the key, coins choose one arm of every bin, and participants who had another arm
        contribute nothing.
        """
        values = self.contribute(contexts, coins, Arms(arms), rewards)
        if not self.has_coin_asked_arms:
            return values
        asked_arms = self.decide(contexts, coins).arms
        return KeyedValues(coins, np.where(asked_arms == arms, values.keys, -1), asked_arms, rewards)

    @property
    @override
    def n_undecided_bins(self) -> int:
        return len(self.bins)

    @override
    def view(self, spec: PartitionSpec) -> "PolicyView":
        """Return the bins that can have participants, with the share of each active arm."""
        from privateer_core.answer.policy_view import PolicyView

        names, rows = spec.experiment.arms, zip(self.active, self.shares, strict=True)
        arms = [{names[k]: round(float(shares[k]), 4) for k in np.flatnonzero(active)} for active, shares in rows]
        return PolicyView(spec.algorithm.name, self.version, describe_bins(spec.features, self.edges(), arms))


def is_possible_policy(policy: AskedBins, spec: PartitionSpec) -> bool:
    """Whether bins are a partition, arrays have valid types, shapes and ranges, and all is the spec's."""
    is_shaped = isinstance(policy.mechanism, policy.mechanisms) and _is_shaped(policy, spec.arm_count)
    is_valid = is_shaped and policy.is_partition() and _has_valid_parents(policy) and _has_active_arms_only(policy)
    return is_valid and _is_of_spec(policy, spec)


def _is_shaped(policy: AskedBins, n_arms: int) -> bool:
    """Whether arrays have the right types and shapes, and axes are columns of the context."""
    bins_shape, keys_shape = policy.depths.shape[:1], policy.bins.shape[:1]
    expected = (
        (policy.axes, np.int64, (DEPTH_MAX,)),
        (policy.depths, np.int64, bins_shape),
        (policy.paths, np.int64, bins_shape),
        (policy.active, np.bool_, (*bins_shape, n_arms)),
        (policy.bins, np.int64, keys_shape),
        (policy.layout.thresholds, np.uint32, (*keys_shape, n_arms - 1)),
        (policy.bins if policy.wholes is None else policy.wholes, np.int64, keys_shape),
    )
    shaped = all(array.dtype == dtype and array.shape == shape for array, dtype, shape in expected)
    has_axes = shaped and policy.dimension >= 1 and np.min(policy.axes) >= 0 and np.max(policy.axes) < policy.dimension
    return bool(has_axes) and bins_shape > (0,)


def _has_valid_parents(policy: AskedBins) -> bool:
    """Whether parents, if given, count up from 0, and the arm is in the key of reports."""
    if policy.wholes is None:
        return True
    steps = np.diff(policy.wholes, prepend=policy.wholes[:1])
    return bool(policy.has_fresh_coins and not policy.wholes[:1].any() and ((steps == 0) | (steps == 1)).all())


def _has_active_arms_only(policy: AskedBins) -> bool:
    """Whether every bin has an active arm, keys are distinct bins, and coins give active arms alone."""
    if not policy.active.any(axis=1).all() or len(set(policy.bins.ravel().tolist())) != len(policy.bins):
        return False
    if len(policy.bins) and (np.min(policy.bins) < 0 or np.max(policy.bins) >= len(policy.depths)):
        return False
    thresholds = policy.layout.thresholds.astype(np.int64)
    is_rising = bool((np.diff(thresholds, axis=1) >= 0).all() and (thresholds <= UNIT).all())
    return is_rising and not bool((policy.layout.shares[~policy.active[policy.bins]] > 0).any())


def _is_of_spec(policy: AskedBins, spec: PartitionSpec) -> bool:
    """Whether dimensions, arms and the layout of reports are those of the spec."""
    is_same = policy.dimension == spec.dimension and policy.cohort in spec.cohorts
    is_same = is_same and not policy.active[:, ~np.array(spec.playable)].any()
    expected = (len(policy.cells), 1) if policy.has_fresh_coins else (len(policy.bins), spec.arm_count)
    layout = policy.mechanism.layout
    has_keys = policy.has_fresh_coins == spec.privacy.has_arm_in_key and (layout.keys, layout.groups) == expected
    return is_same and (has_keys or policy.terms.batch_size == 0)
