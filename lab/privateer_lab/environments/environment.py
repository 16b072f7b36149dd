"""The interface of environments: contexts, rewards, delays, and the truth that nobody else sees."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtr

from privateer_core.policies.policy import Policy
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.sections import Section

Array = NDArray[np.float64]
_SPREAD: Final = 2.0
"""Standard deviation of the logarithm of a heavy-tailed delay: half of them are below .14 of the mean."""


class Delay(Section):
    """The ``delay`` of a ``[population]``.

    Attributes
    ----------
    law
        ``fixed``; ``exponential``; or ``heavy-tailed``, log-normal: most are short and some are very long.
    mean
        People who come, on average, between a person's choice and the report on it.
    """

    law: Literal["fixed", "exponential", "heavy-tailed"]
    mean: float = Field(ge=0, le=1e9, allow_inf_nan=False)

    def draw(self, people: int, rng: np.random.Generator) -> Array:
        """Draw the delays of n people, shape (n,)."""
        if self.law == "fixed" or not self.mean:
            return np.full(people, self.mean)
        if self.law == "exponential":
            return rng.exponential(self.mean, people)
        return rng.lognormal(self._location, _SPREAD, people)

    def at_most(self, delays: Array) -> Array:
        """Return the probability that a delay is at most each of these; 0 for negative ones."""
        if self.law == "fixed" or not self.mean:
            return np.asarray(delays >= self.mean, np.float64)
        positive = np.maximum(delays, 0.0)
        if self.law == "exponential":
            return np.asarray(-np.expm1(-positive / self.mean))
        with np.errstate(divide="ignore"):
            return np.asarray(ndtr((np.log(positive) - self._location) / _SPREAD))

    @property
    def _location(self) -> float:
        return math.log(self.mean) - _SPREAD**2 / 2


@dataclass(frozen=True)
class PlayedRewards:
    """Expected rewards of what was played, summed over the times that something was played.

    Attributes
    ----------
    times
        How often something was played: once a person, or once a round of actions that affect everybody.
    expected, best
        The sum that the decisions may expect, and the sum of the best option each time.
    by_option
        The sum if one option had been played each time, shape (options,).
    """

    times: int
    expected: float
    best: float
    by_option: Array


class Environment(ABC):
    """Simulated people, one after the other; features and rewards are in their own units.

    Those who each play one arm have rewards 0 or 1; other environments have `rewards`, `play` and `facts` of their own.
    """

    @abstractmethod
    def contexts(self, seen: int, people: int, rng: np.random.Generator) -> Array:
        """Return contexts of the people after the first ``seen``, shape (n, d + more); no device sees what is last."""

    @abstractmethod
    def means(self, contexts: Array) -> Array:
        """Return the expected reward of every option, shape (n, options), for contexts as `contexts` returns them."""

    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        """Draw rewards: of ``Arms`` one a person, shape (n,); of ``Plays`` an average a play, shape (n, plays)."""
        means: Array = self.means(contexts)[np.arange(len(contexts)), decisions.arms]
        return np.asarray(rng.random(len(means)) < means, np.float64)

    def play(self, decisions: Any, contexts: Array) -> PlayedRewards:
        """Return what the decisions of the people with these contexts may expect, and what else they could expect."""
        means = self.means(contexts)
        expected = means[np.arange(len(means)), decisions.arms].sum()
        return PlayedRewards(len(means), float(expected), float(np.amax(means, axis=1).sum()), means.sum(axis=0))

    def before(self, contexts: Array, names: Sequence[str]) -> Array:
        """Return people's numbers from before the choice, (n, names), that adjust rewards; NaN where there is none."""
        return np.full((len(contexts), len(names)), np.nan)

    def facts(self, _policy: Policy) -> dict[str, float]:
        """Return figures about a policy that only the truth gives."""
        return {}


class EnvironmentSection(Section, ABC):
    """The ``[population]`` of one environment; it makes the environment.

    Attributes
    ----------
    needs
        The kind of spec for which this environment has people.
    delay
        How long after their choices they report; by default after the spec's conversion window.
    late
        Whether reports of these people can come late.
    """

    needs: ClassVar[type] = ArmsSpec
    late: ClassVar[bool] = True
    name: str
    delay: Delay | None = None

    @abstractmethod
    def environment(self, spec: Any, seed: int) -> Environment:
        """Make the environment of a spec of the kind that it ``needs``.

        Raises
        ------
        SpecError
            If it does not fit the spec, or a file cannot be used.
        """
