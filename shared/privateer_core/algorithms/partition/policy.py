"""The policy of the partition bandit: a partition of contexts with active arms in its bins."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from privateer_core.algorithms.partition.bins import DEPTH_MAX, AskedBins, mix_choices, translate_choices
from privateer_core.algorithms.partition.spec import PartitionSpec
from privateer_core.arrays import Array, Coins, Ints
from privateer_core.errors import Malformed
from privateer_core.policies.analyzers import ChoiceAnalyzer
from privateer_core.policies.decisions import Arms
from privateer_core.policies.policy import ArmsPolicy
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT
from privateer_core.spec.context import describe_bins

if TYPE_CHECKING:
    from privateer_core.answer.policy_view import PolicyView


@dataclass(frozen=True)
class PartitionPolicy(AskedBins, ArmsPolicy):
    """A policy that chooses arms by bin; `AskedBins` has its attributes."""

    is_mixture = AskedBins.fresh_coins

    @property
    @override
    def timeless(self) -> bool:
        return self.fresh_coins or not self.terms.trust.batched

    @override
    def make_earlier_analyzer(self, earlier: "PartitionPolicy") -> ChoiceAnalyzer:
        return ChoiceAnalyzer(translate_choices(earlier, self), leaves_out=True)

    @override
    def with_deciders(self, decided: Sequence[tuple["PartitionPolicy", float]]) -> "PartitionPolicy":
        """Return the policy for a learner whose reports are on decisions of several policies.

        If the arm is in the key, its ``choice`` has each arm's share over all policies. Otherwise reports contain the
        age of their choice.
        """
        if not self.fresh_coins or all(policy.version == self.version for policy, _ in decided):
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
        arms[is_asked] = self.layout.group(hashes, keys[is_asked])
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
        if self.fresh_coins:
            return KeyedValues.ungrouped(coins, self._key_of_cell[keys, decisions.arms], rewards)
        return KeyedValues(coins, keys, decisions.arms, rewards)

    @property
    def coins_ask(self) -> bool:
        """Whether the coins of a source's participants choose the arm to report about."""
        return not self.fresh_coins

    def recall(self, contexts: Array, coins: Coins, arms: Ints, rewards: Array) -> KeyedValues:
        """Return the contributions of n participants of a source about their earlier arms (n,), which are secret.

        If the arm is not in the key, coins choose one arm of every bin, and participants who had another arm
        contribute nothing.
        """
        values = self.contribute(contexts, coins, Arms(arms), rewards)
        if not self.coins_ask:
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
    return is_valid and _matches_spec(policy, spec)


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
    return bool(policy.fresh_coins and not policy.wholes[:1].any() and ((steps == 0) | (steps == 1)).all())


def _has_active_arms_only(policy: AskedBins) -> bool:
    """Whether every bin has an active arm, keys are distinct bins, and coins give active arms alone."""
    if not policy.active.any(axis=1).all() or len(set(policy.bins.ravel().tolist())) != len(policy.bins):
        return False
    if len(policy.bins) and (np.min(policy.bins) < 0 or np.max(policy.bins) >= len(policy.depths)):
        return False
    thresholds = policy.layout.thresholds.astype(np.int64)
    is_rising = bool((np.diff(thresholds, axis=1) >= 0).all() and (thresholds <= UNIT).all())
    return is_rising and not bool((policy.layout.shares[~policy.active[policy.bins]] > 0).any())


def _matches_spec(policy: AskedBins, spec: PartitionSpec) -> bool:
    """Whether dimensions, arms and the layout of reports are those of the spec."""
    is_same = policy.dimension == spec.dimension and policy.cohort in spec.cohorts
    is_same = is_same and not policy.active[:, ~np.array(spec.playable)].any()
    expected = (len(policy.cells), 1) if policy.fresh_coins else (len(policy.bins), spec.arm_count)
    layout = policy.mechanism.layout
    has_keys = policy.fresh_coins == spec.privacy.arm_in_key and (layout.keys, layout.groups) == expected
    return is_same and (has_keys or policy.terms.batch_size == 0)
