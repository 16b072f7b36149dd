"""The policy of the partition bandit: a partition of contexts with active arms in its bins."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privateer_core.ages import age_of
from privateer_core.algorithms.partition.asked import AskedBins
from privateer_core.algorithms.partition.checks import learners_make
from privateer_core.algorithms.partition.earlier import ByChoices, choices_of, choices_of_all
from privateer_core.algorithms.partition.spec import PartitionSpec
from privateer_core.context import columns_of, inhabited, shown_box
from privateer_core.contributions import KeyedValues
from privateer_core.decisions import Arms
from privateer_core.draw import Draw
from privateer_core.errors import Malformed
from privateer_core.policy import Counted


@dataclass(frozen=True)
class PartitionPolicy(AskedBins):
    """Decides by bin, and says what people of it contribute; `AskedBins` has its attributes."""

    draw: ClassVar[Draw | None] = None
    """Whoever comes is asked."""

    @property
    def tells_age(self) -> bool:
        """Whether a report says how many versions ago its decision was made: where its coins chose the arm.

        Those of a batch never do: their ages would tell them apart.
        """
        return not (self.fresh_coins or self.terms.trust.batched or self.cohort)

    @property
    def mixes(self) -> bool:
        """Whether a learner must know which policies decided: where the arm is in the key (`followed`)."""
        return self.fresh_coins

    def takes(self, decided: int) -> bool:
        """Whether the round takes reports on what the policy of version ``decided`` decided."""
        if self.terms.trust.batched and not self.fresh_coins:
            return decided == self.version
        return age_of(self.version, decided) is not None if self.tells_age else decided <= self.version

    def analyzer(self, earlier: "PartitionPolicy") -> Counted | ByChoices:
        """Return what counts reports on decisions of an ``earlier`` policy, or of this one."""
        if earlier.version == self.version or not self.tells_age:
            return Counted()
        return ByChoices(choices_of(earlier, self), self.layout.groups)

    def followed(self, decided: Sequence[tuple["PartitionPolicy", float]]) -> "PartitionPolicy":
        """Return the policy as a learner must see it when reports were on decisions of several policies.

        Where the arm is in the key the share of a bin's people who played each arm counts: that of all policies
        together. Otherwise reports say themselves what their coins meant.
        """
        if not self.fresh_coins or all(policy.version == self.version for policy, _ in decided):
            return self
        return replace(self, choice=choices_of_all(self, decided))

    def check(self, spec: PartitionSpec) -> None:
        """Refuse a policy that no learner makes: a device must not crash on, or be steered by, a malformed one.

        Raises
        ------
        Malformed
            If the bins do not tile the space, an array has the wrong shape or range, or the spec says otherwise.
        """
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

    def contribute(
        self, contexts: NDArray[np.float64], coins: NDArray[np.uint32], decisions: Arms, rewards: NDArray[np.float64]
    ) -> KeyedValues:
        """Return what n people have to contribute about their arms and rewards.

        Parameters
        ----------
        contexts
            Shape (n, d), in [0, 1].
        coins
            Shape (n,): those that chose the arms; with `fresh_coins`, coins drawn for the reports alone.
        decisions
            What `decide` returned.
        rewards
            Shape (n,), in [0, 1].
        """
        keys = self.key_of_bin[self.locate(contexts)]
        if self.fresh_coins:
            return KeyedValues(coins, self._key_of_cell[keys, decisions.arms], np.zeros_like(keys), rewards)
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

    def shown(self, spec: PartitionSpec, decisions: Arms) -> str:
        """Return the name of the first person's arm."""
        return spec.experiment.arms[int(decisions.arms[0])]

    def read(self, spec: PartitionSpec, reward: Any) -> tuple[NDArray[np.float64], bool]:
        """Read one person's reward, scaled to [0, 1], and whether it had to be clipped."""
        value, clipped = spec.reward.scaled(reward)
        return np.array([value]), clipped

    @property
    def undecided(self) -> NDArray[np.int64]:
        """Bins in which coins choose the arm, shape (undecided,)."""
        return self.bins

    def names(self) -> list[Hashable]:
        """Name the bins by their corners: parts may be cut along another feature than a later version's bins are."""
        return [(low.tobytes(), high.tobytes()) for low, high in zip(*self.edges(), strict=True)]

    def count(self, played: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Count what people contribute, as `privateer_core.policy.Boxes.count`."""
        asked = played[self.bins]
        without = int(played.sum()) - int(asked.sum())
        if not self.fresh_coins:
            return asked, without
        return self.by_whole(asked)[self.cells[:, 0], self.cells[:, 1]][:, None], without

    def describe(self, spec: PartitionSpec) -> dict[str, Any]:
        """Describe the policy: bins with corners, the values of features there, active arms and the share of each.

        ``columns`` says what each number of a corner is about. Bins in which nobody can be are left out.
        """
        lower, upper = self.edges()
        arm_names, kept = spec.experiment.arms, inhabited(spec.features, lower, upper)
        rows = []
        parts = (lower[kept], upper[kept], self.active[kept], self.shares[kept])
        for low, high, active, share in zip(*parts, strict=True):
            arms = {arm_names[k]: round(float(share[k]), 4) for k in np.flatnonzero(active)}
            where = shown_box(spec.features, low, high)
            rows.append({"lower": low.tolist(), "upper": high.tolist(), "where": where, "arms": arms})
        columns = columns_of(spec.features)
        return {"algorithm": "partition", "version": self.version, "columns": columns, "bins": rows}
