"""Rewards linear in public actions, with a parameter of everybody's own (paper 5, Section 2)."""

from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import Field, field_validator

from privateer_core.policies.decisions import Plays
from privateer_core.policies.policy import Policy
from privateer_lab.environments.delays import Delay
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection, PlayedRewards


@runtime_checkable
class ActionsSpec(Protocol):
    """A spec with ``actions.matrix`` (k, d), ``reward.middle``, ``.half_range`` and ``algorithm.client_deviation``."""

    actions: Any
    reward: Any
    algorithm: Any


class LinearSection(EnvironmentSection):
    """People with linear rewards: theta uniform on a sphere, everybody's own close to it.

    Attributes
    ----------
    scale
        Length of theta, in units of half the range of rewards.
    """

    needs: ClassVar[type] = ActionsSpec
    late: ClassVar[bool] = False
    name: Literal["linear"]
    scale: float = Field(default=1.0, gt=0, le=100_000_000, allow_inf_nan=False)

    @field_validator("delay")
    @classmethod
    def _waits(cls, delay: Delay | None) -> Delay | None:
        if delay is not None:
            raise ValueError("these people are drawn, and the round waits for them")
        return delay

    def environment(self, spec: ActionsSpec, seed: int) -> "LinearEnvironment":
        """Make the environment of a seed, which decides theta."""
        return LinearEnvironment(spec, self.scale, seed)


class LinearEnvironment(Environment):
    """People whose parameters are theta, plus normal noise of the spec's standard deviation.

    Rewards of one action x are normal around middle + <theta_u, x>, and half the range of rewards is their standard
    deviation (1 in the paper's range of -1 to 1); the mechanism clips what goes beyond the range.

    Attributes
    ----------
    theta
        The mean parameter, shape (d,).
    values
        The mean reward of every action over all people, shape (k,).
    """

    def __init__(self, spec: ActionsSpec, scale: float, seed: int) -> None:
        self._actions: Array = spec.actions.matrix
        self._standard_deviation = spec.algorithm.client_deviation
        self._middle, self._half = spec.reward.middle, spec.reward.half_range
        direction: Array = np.random.default_rng([seed, 5]).normal(size=self._actions.shape[1:])
        self.theta: Array = np.asarray(scale * self._half * direction / np.linalg.norm(direction))
        self.values: Array = np.asarray(self._middle + self._actions @ self.theta)

    def contexts(self, _seen: int, people: int, _rng: np.random.Generator) -> Array:
        """Return contexts without features, shape (n, 0)."""
        return np.zeros((people, 0))

    def means(self, contexts: Array) -> Array:
        """Return the mean reward of every action, the same for all, shape (n, k)."""
        return np.broadcast_to(self.values, (len(contexts), len(self.values)))

    def rewards(self, contexts: Array, decisions: Plays, rng: np.random.Generator) -> Array:
        """Draw the average reward that each person reports of each action played; shape (n, plays)."""
        own = self.theta + self._standard_deviation * rng.normal(size=(len(contexts), len(self.theta)))
        noise = self._half * rng.normal(size=(len(contexts), len(decisions.actions))) / np.sqrt(decisions.times)
        return np.asarray(self._middle + own @ self._actions[decisions.actions].T + noise)

    def play(self, decisions: Plays, _contexts: Array) -> PlayedRewards:
        """Return sums over the rounds of the plays, whoever is asked about them: they affect everybody."""
        times = int(decisions.times.sum())
        expected = float(decisions.times @ self.values[decisions.actions])
        return PlayedRewards(times, expected, times * float(np.max(self.values)), times * self.values)

    def facts(self, policy: Policy) -> dict[str, float]:
        """Return whether the best action is still among the policy's ``active`` ones, if it has such."""
        active = getattr(policy, "active", None)
        return {} if active is None else {"best_action_kept": float(np.argmax(self.values) in active)}
