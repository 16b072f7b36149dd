"""Arms of the same mean rewards for everybody: people without context."""

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from privateer_core.errors import SpecError
from privateer_core.policies.decisions import Arms
from privateer_core.policies.policy import Policy
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments.environment import Array, PlayedRewards
from privateer_lab.environments.synthetic.synthetic import Drift, SwapDrift, Synthetic, SyntheticSection


class RiseDrift(Drift):
    """After the first phase the arm opposite the best one in the list becomes better than that, for good.

    Nothing that is played often changes, so whoever takes rewards for independent draws notices late.

    Attributes
    ----------
    by
        How much better it becomes.
    """

    name: Literal["rise"]
    by: float = Field(default=0.2, ge=0, le=1, allow_inf_nan=False)

    def means(self, first: Callable[[Array], Array], contexts: Array, phases: Array) -> Array:
        """Return means as they were, or with the risen arm's, shape (n, arms)."""
        means = np.array(first(contexts))
        risen = means.shape[1] - 1 - means.argmax(axis=1, keepdims=True)
        higher = np.minimum(means.max(axis=1, keepdims=True) + self.by, 1.0)
        return np.where((phases[:, None] > 0) & (np.arange(means.shape[1]) == risen), higher, means)


class BernoulliSection(SyntheticSection):
    """Rewards 0 or 1; one arm, in the middle of the list, is better than all others, which are alike.

    Attributes
    ----------
    best, gap
        The mean reward of the best arm, and what others lack of it.
    """

    name: Literal["bernoulli"] = "bernoulli"
    best: float = Field(default=0.6, ge=0, le=1, allow_inf_nan=False)
    gap: float = Field(default=0.2, ge=0, le=1, allow_inf_nan=False)
    drift: Annotated[SwapDrift | RiseDrift, Field(discriminator="name")] | None = None  # type: ignore[assignment]

    @model_validator(mode="after")
    def _means_are_probabilities(self) -> "BernoulliSection":
        if self.gap > self.best:
            raise SpecError("must be at most best: means are probabilities", field="gap", remedy="lower it")
        return self

    def means(self, contexts: Array, arms: int) -> Array:
        """Return the mean of every arm, the same for everybody, shape (n, K)."""
        means = np.where(np.arange(arms) == arms // 2, self.best, self.best - self.gap)
        return np.broadcast_to(means, (len(contexts), arms))

    def environment(self, spec: ArmsSpec, seed: int) -> "Bernoulli":
        """Make the environment, which is the same for every seed."""
        if spec.features:
            detail = f"population {self.name!r} has people without context"
            raise SpecError(detail, field="context.features", remedy="choose another population")
        super().environment(spec, seed)
        return Bernoulli(self, spec)


class Bernoulli(Synthetic):
    """People among whom one arm is the best for all."""

    def __init__(self, section: BernoulliSection, spec: ArmsSpec) -> None:
        super().__init__(section, spec.arm_count, 0)
        self._last = spec.experiment.horizon - 1

    def play(self, decisions: Arms, contexts: Array) -> PlayedRewards:
        """Return what people may expect; where means stand still the best arm's sum is that of all who could play it.

        So no last digit makes a constant arm worse than the best one.
        """
        if self.period or not len(contexts):
            return super().play(decisions, contexts)
        means, people = self.means(contexts[:1])[0], len(contexts)
        chosen = np.bincount(decisions.arms, minlength=len(means))
        return PlayedRewards(people, float(chosen @ means), float(people * means.max()), people * means)

    def facts(self, policy: Policy) -> dict[str, float]:
        """Return the share of people who get by a policy what is the best arm for the last person."""
        people, rng = 1000, np.random.default_rng(0)
        coins = rng.integers(0, 2**32, people, dtype=np.uint32)
        arms = policy.decide(np.zeros((people, 0)), coins).arms
        best = self.means(self.contexts(self._last, 1, rng))[0].argmax()
        return {"best_share": float(np.mean(arms == best))}
