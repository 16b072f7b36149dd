"""The policy of the partition bandit: a partition of contexts with active arms in its bins."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.partition.bins import DEPTH_MAX, AskedBins, choices_of, choices_of_all
from privateer_core.algorithms.partition.spec import PartitionSpec
from privateer_core.errors import Malformed
from privateer_core.policies.analyzers import ByChoices
from privateer_core.policies.decisions import Arms
from privateer_core.policies.policy import ArmsPolicy
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT
from privateer_core.spec.context import bins_of

if TYPE_CHECKING:
    from privateer_core.answer.policy_view import PolicyView


@dataclass(frozen=True)
class PartitionPolicy(AskedBins, ArmsPolicy):
    """Decides by bin, and says what people of it contribute; `AskedBins` has its attributes."""

    @property
    @override
    def mixes(self) -> bool:
        return self.fresh_coins

    @property
    @override
    def tells_age(self) -> bool:
        """Whether a report tells it: not one of a source."""
        return super().tells_age and not self.cohort

    @property
    @override
    def timeless(self) -> bool:
        return self.fresh_coins or not self.terms.trust.batched

    @override
    def analyzer_of(self, earlier: "PartitionPolicy") -> ByChoices:
        return ByChoices(choices_of(earlier, self), leaves_out=True)

    @override
    def followed(self, decided: Sequence[tuple["PartitionPolicy", float]]) -> "PartitionPolicy":
        """Return the policy as a learner must see it when reports were on decisions of several policies.

        Where the arm is in the key the share of a bin's people who played each arm counts: that of all policies
        together. Otherwise reports say themselves what their coins meant.
        """
        if not self.fresh_coins or all(policy.version == self.version for policy, _ in decided):
            return self
        return replace(self, choice=choices_of_all(self, decided))

    @override
    def check(self, spec: PartitionSpec) -> None:
        if not learners_make(self, spec):
            raise Malformed("not a partition policy", remedy="fetch the policy again")

    def decide(self, contexts: NDArray[np.float64], coins: NDArray[np.uint32]) -> Arms:
        """Decide for n people: the only active arm of the bin, or the one that the coins have there."""
        bins = self.locate(contexts)
        arms = np.asarray(self.active[bins].argmax(axis=1))
        keys = self.key_of_bin[bins]
        asked = np.flatnonzero(keys >= 0)
        hashes = self.layout.hashes(coins[asked], keys[asked])
        arms[asked] = self.layout.group(hashes, keys[asked])
        return Arms(arms)

    @cached_property
    def _key_of_cell(self) -> NDArray[np.int64]:
        """Key of every entry of ``bins`` and arm; the last row is for people of other bins."""
        keys = np.full((len(self.bins) + 1, self.active.shape[1]), -1, dtype=np.int64)
        keys[self.cells[:, 0], self.cells[:, 1]] = np.arange(len(self.cells))
        keys[:-1] = keys[self.whole_of]
        return keys

    @override
    def contribute(
        self, contexts: NDArray[np.float64], coins: NDArray[np.uint32], decisions: Arms, rewards: NDArray[np.float64]
    ) -> KeyedValues:
        keys = self.key_of_bin[self.locate(contexts)]
        if self.fresh_coins:
            return KeyedValues.ungrouped(coins, self._key_of_cell[keys, decisions.arms], rewards)
        return KeyedValues(coins, keys, decisions.arms, rewards)

    @property
    def coins_ask(self) -> bool:
        """Whether the coins of a source's people ask them about arms, so that they say something about the answer."""
        return not self.fresh_coins

    def recall(
        self,
        contexts: NDArray[np.float64],
        coins: NDArray[np.uint32],
        arms: NDArray[np.int64],
        rewards: NDArray[np.float64],
    ) -> KeyedValues:
        """Return what n people of a source have to contribute about arms (n,) that they played before: secret ones.

        Where the arm is not in the key, coins ask about one arm of every bin, and those who played another have
        nothing to contribute.
        """
        values = self.contribute(contexts, coins, Arms(arms), rewards)
        if not self.coins_ask:
            return values
        asked = self.decide(contexts, coins).arms
        return KeyedValues(coins, np.where(asked == arms, values.keys, -1), asked, rewards)

    @property
    def undecided(self) -> NDArray[np.int64]:
        """Bins in which coins choose the arm, shape (undecided,)."""
        return self.bins

    def names(self) -> list[Hashable]:
        """Name the bins by their corners: parts may be cut along another feature than a later version's bins are."""
        return [(low.tobytes(), high.tobytes()) for low, high in zip(*self.edges(), strict=True)]

    def count(self, played: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Count what people contribute, as `privateer_core.policies.policy.Boxes.count`."""
        asked = played[self.bins]
        without = int(played.sum()) - int(asked.sum())
        if not self.fresh_coins:
            return asked, without
        return self.by_whole(asked)[self.cells[:, 0], self.cells[:, 1]][:, None], without

    @override
    def view(self, spec: PartitionSpec) -> "PolicyView":
        """Return the bins in which anybody can be, with the share of each active arm."""
        from privateer_core.answer.policy_view import PolicyView

        names = spec.experiment.arms
        arms = [
            {names[k]: round(float(shares[k]), 4) for k in np.flatnonzero(active)}
            for active, shares in zip(self.active, self.shares, strict=True)
        ]
        return PolicyView(spec.algorithm.name, self.version, bins_of(spec.features, self.edges(), arms))


def learners_make(policy: AskedBins, spec: PartitionSpec) -> bool:
    """Whether bins tile the space, arrays have the right shapes and ranges, and all is as the spec says."""
    typed = isinstance(policy.mechanism, policy.mechanisms) and _well_typed(policy, spec.arm_count)
    return typed and policy.tile() and _has_wholes(policy) and _plays_active_arms(policy) and _agrees(policy, spec)


def _well_typed(policy: AskedBins, arms: int) -> bool:
    bins, keys = policy.depths.shape[:1], policy.bins.shape[:1]
    expected = (
        (policy.axes, np.int64, (DEPTH_MAX,)),
        (policy.depths, np.int64, bins),
        (policy.paths, np.int64, bins),
        (policy.active, np.bool_, (*bins, arms)),
        (policy.bins, np.int64, keys),
        (policy.layout.thresholds, np.uint32, (*keys, arms - 1)),
        (policy.bins if policy.wholes is None else policy.wholes, np.int64, keys),
    )
    typed = all(array.dtype == dtype and array.shape == shape for array, dtype, shape in expected)
    named = typed and policy.dimension >= 1 and np.min(policy.axes) >= 0 and np.max(policy.axes) < policy.dimension
    return bool(named) and bins > (0,)


def _has_wholes(policy: AskedBins) -> bool:
    """Whether wholes, if any, count up from 0, and reports are such that they may be about them."""
    if policy.wholes is None:
        return True
    steps = np.diff(policy.wholes, prepend=policy.wholes[:1])
    return bool(policy.fresh_coins and not policy.wholes[:1].any() and ((steps == 0) | (steps == 1)).all())


def _plays_active_arms(policy: AskedBins) -> bool:
    """Whether there is an arm everywhere, keys are distinct bins, and their coins lead to active arms."""
    if not policy.active.any(axis=1).all() or len(set(policy.bins.ravel().tolist())) != len(policy.bins):
        return False
    if len(policy.bins) and (np.min(policy.bins) < 0 or np.max(policy.bins) >= len(policy.depths)):
        return False
    thresholds = policy.layout.thresholds.astype(np.int64)
    rising = bool((np.diff(thresholds, axis=1) >= 0).all() and (thresholds <= UNIT).all())
    return rising and not bool((policy.layout.shares[~policy.active[policy.bins]] > 0).any())


def _agrees(policy: AskedBins, spec: PartitionSpec) -> bool:
    """Whether the spec has these sizes, and reports are about what it says."""
    same = policy.dimension == spec.dimension and policy.cohort in spec.cohorts
    same = same and not policy.active[:, ~np.array(spec.playable)].any()
    expected = (len(policy.cells), 1) if policy.fresh_coins else (len(policy.bins), spec.arm_count)
    reported = policy.mechanism.layout
    asked = policy.fresh_coins == spec.privacy.arm_in_key and (reported.keys, reported.groups) == expected
    return same and (asked or policy.terms.batch == 0)
