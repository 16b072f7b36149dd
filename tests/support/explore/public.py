"""Explore, then commit: everybody tries an arm at random until a share of people has reported; then the best is played.

Here are its spec and its policy. It is the example of docs/adding-an-algorithm.md.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from privateer_core.algorithms import Algorithm
from privateer_core.answer.policy_view import EVERYBODY, ArmsOfGroup, GroupShares, PolicyView
from privateer_core.arms_spec import ArmsSpec
from privateer_core.coins import Layout, mix
from privateer_core.contributions import KeyedValues
from privateer_core.decisions import Arms
from privateer_core.draw import Draw
from privateer_core.errors import Malformed
from privateer_core.policy import OfAnyRound
from privateer_core.questions import KeyedMeans
from privateer_core.sections import Section, parse_section
from privateer_core.spec import example_promises
from privateer_core.terms import Terms


class ExploreSection(Section):
    """The ``[algorithm]``: ``share`` of the horizon's people explore."""

    name: Literal["explore"]
    share: float = Field(default=0.5, gt=0, le=1)


class ExploreSpec(ArmsSpec):
    """An experiment that explores, then commits."""

    algorithm: ExploreSection  # type: ignore[assignment] # a section of its own, with the base's key

    @model_validator(mode="after")
    def _tight(self) -> Self:
        return self

    def asked(self, seed: int) -> KeyedMeans:
        """Return what a round asks: the mean of every arm, of which each person contributes to one."""
        return KeyedMeans(Layout(seed, np.zeros((self.arm_count, 0), np.uint32)), 1.0, 1 / self.arm_count)

    def usual_question(self) -> KeyedMeans:
        """Return a question as the first round asks it, without its public coins."""
        return self.asked(0)

    @classmethod
    def instances(cls) -> dict[str, Self]:
        """Return small instances by name, under every trust model."""
        data: dict[str, Any] = {
            "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 6000},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "algorithm": {"name": "explore"},
        }
        return {str(one["model"]): parse_section(cls, data | {"privacy": one}) for one in example_promises()}


@dataclass(frozen=True)
class ExplorePolicy(OfAnyRound):
    """An arm at random for everybody, or the same for all.

    Attributes
    ----------
    arms, best
        How many arms there are, and the one that everybody plays; -1 while people explore.
    seed
        What the coins of a choice mean.
    """

    version: int
    arms: int
    best: int
    seed: int
    terms: Terms

    cohort: ClassVar[str] = ""
    draw: ClassVar[Draw | None] = None
    fresh_coins: ClassVar[bool] = True

    def check(self, spec: ExploreSpec) -> None:
        """Refuse a policy that no learner makes."""
        layout = getattr(self.terms.mechanism, "layout", None)
        asked = layout is not None and layout.shares.shape == (spec.arm_count, 1)
        committed = 0 <= self.best < self.arms if self.terms.batch == 0 else self.best == -1
        if not (asked and committed and self.arms == spec.arm_count and 0 <= self.seed < 1 << 63):
            raise Malformed("not a policy of this algorithm", remedy="fetch the policy again")

    def decide(self, contexts: NDArray[np.float64], coins: NDArray[np.uint32]) -> Arms:
        """Decide by coins, whatever the contexts are."""
        if self.best >= 0:
            return Arms(np.full(len(contexts), self.best))
        words = mix(coins.astype(np.uint64) + np.uint64(self.seed)) >> np.uint64(1)
        return Arms(words.astype(np.int64) % self.arms)

    def contribute(
        self, _contexts: Any, coins: NDArray[np.uint32], decisions: Arms, rewards: NDArray[np.float64]
    ) -> KeyedValues:
        """Return the rewards (n,), in [0, 1], of the arms that people played."""
        return KeyedValues(coins, decisions.arms, np.zeros(len(coins), np.int64), rewards)

    def shown(self, spec: ExploreSpec, decisions: Arms) -> str:
        """Return the name of the first person's arm."""
        return spec.options[int(decisions.arms[0])]

    def read(self, spec: ExploreSpec, reward: Any) -> tuple[NDArray[np.float64], bool]:
        """Read one person's reward, scaled to [0, 1], and whether it had to be clipped."""
        value, clipped = spec.reward.scaled(reward)
        return np.array([value]), clipped

    def view(self, spec: ExploreSpec) -> PolicyView:
        """Return the arms that people get, with the share of each."""
        played = spec.options if self.best < 0 else spec.options[self.best : self.best + 1]
        shares = dict.fromkeys(played, 1 / len(played))
        return PolicyView("explore", self.version, GroupShares((ArmsOfGroup(EVERYBODY, shares),)))


ALGORITHM: Final = Algorithm(ExploreSpec, ExplorePolicy)
