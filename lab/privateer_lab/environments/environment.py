"""The interface of environments: contexts, rewards, delays, and the true expected rewards."""

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
_LOG_STANDARD_DEVIATION: Final = 2.0
"""Standard deviation of the logarithm of a heavy-tailed delay: half of the delays are below .14 of the mean."""


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

    def draw(self, n_participants: int, rng: np.random.Generator) -> Array:
        """Draw the delays of n participants, shape (n,)."""
        if self.law == "fixed" or not self.mean:
            return np.full(n_participants, self.mean)
        if self.law == "exponential":
            return rng.exponential(self.mean, n_participants)
        return rng.lognormal(self._location, _LOG_STANDARD_DEVIATION, n_participants)

    def cumulative_probability(self, delays: Array) -> Array:
        """Return the cumulative distribution function of a delay at ``delays``; 0 for negative values."""
        if self.law == "fixed" or not self.mean:
            return np.asarray(delays >= self.mean, np.float64)
        positive = np.maximum(delays, 0.0)
        if self.law == "exponential":
            return np.asarray(-np.expm1(-positive / self.mean))
        with np.errstate(divide="ignore"):
            return np.asarray(ndtr((np.log(positive) - self._location) / _LOG_STANDARD_DEVIATION))

    @property
    def _location(self) -> float:
        return math.log(self.mean) - _LOG_STANDARD_DEVIATION**2 / 2


@dataclass(frozen=True)
class PlayedRewards:
    """Expected rewards of decisions, summed over the number of decisions.

    Attributes
    ----------
    times
        The number of decisions: one a participant, or one a round of actions that affect all participants.
    expected, best
        The expected sum of the decisions, and that of the best option each time.
    by_option
        The expected sum of each constant option, shape (options,).
    """

    times: int
    expected: float
    best: float
    by_option: Array


class Environment(ABC):
    """Simulated participants in sequence; features and rewards are in their own units.

    The defaults are for one arm a participant and rewards 0 or 1; others override `rewards`, `play` and `facts`.
    """

    @abstractmethod
    def contexts(self, n_previous: int, n_participants: int, rng: np.random.Generator) -> Array:
        """Return the contexts of the participants after the first ``n_previous``, (n, d + hidden columns)."""

    @abstractmethod
    def means(self, contexts: Array) -> Array:
        """Return the expected reward of every option, shape (n, options), for contexts as `contexts` returns them."""

    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        """Draw rewards: for ``Arms`` one a participant, (n,); for ``Plays`` an average a play, (n, plays)."""
        means: Array = self.means(contexts)[np.arange(len(contexts)), decisions.arms]
        return np.asarray(rng.random(len(means)) < means, np.float64)

    def play(self, decisions: Any, contexts: Array) -> PlayedRewards:
        """Return the expected rewards of decisions, of the best options, and of each constant option."""
        means = self.means(contexts)
        expected = means[np.arange(len(means)), decisions.arms].sum()
        return PlayedRewards(len(means), float(expected), float(np.amax(means, axis=1).sum()), means.sum(axis=0))

    def before(self, contexts: Array, names: Sequence[str]) -> Array:
        """Return covariates from before the choice that adjust rewards, (n, names); NaN where missing."""
        return np.full((len(contexts), len(names)), np.nan)

    def facts(self, _policy: Policy) -> dict[str, float]:
        """Return figures about a policy that depend on the true rewards."""
        return {}


class EnvironmentSection(Section, ABC):
    """The ``[population]`` of an environment, which makes the environment.

    Attributes
    ----------
    needs
        The class of specs that this environment supports.
    delay
        The delay between choice and report; by default the spec's conversion window.
    late
        Whether reports can be late.
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
            If it is incompatible with the spec, or a file cannot be used.
        """
