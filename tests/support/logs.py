"""Logged choices of known truth: contexts are few, so that the value of a policy is a finite sum."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ARMS = ("left", "middle", "right")
LEVELS = 8
"""Values of each of the two features."""


@dataclass(frozen=True)
class World:
    """People of an hour and a plan, all equally likely.

    Attributes
    ----------
    means, logging, target
        Shape (LEVELS, 2, arms): mean rewards, and the shares of arms of the logging and of the judged policy.
    """

    means: NDArray[np.float64]
    logging: NDArray[np.float64]
    target: NDArray[np.float64]

    @property
    def truth(self) -> float:
        """The mean reward of the judged policy."""
        return float((self.means * self.target).sum(axis=2).mean())

    def log(self, people: int, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a log."""
        hour, plan = rng.integers(0, LEVELS, people), rng.integers(0, 2, people)
        shares = self.logging[hour, plan]
        arm = (rng.random((people, 1)) > shares.cumsum(axis=1)).sum(axis=1)
        reward = (rng.random(people) < self.means[hour, plan, arm]).astype(float)
        names = np.array(ARMS)[arm]
        return {
            "hour": hour.astype(float),
            "plan": np.array(["free", "paid"])[plan],
            "arm": names,
            "p": shares[np.arange(people), arm],
            "reward": reward,
        }

    def judged(self, columns: dict[str, Any]) -> dict[str, Any]:
        """The judged policy, as a function of columns."""
        shares = self.target[columns["hour"].astype(int), (columns["plan"] == "paid").astype(int)]
        return dict(zip(ARMS, shares.T, strict=True))


def world() -> World:
    """A world in which the logging policy prefers other arms than the judged one, by context."""
    hour, plan = np.meshgrid(np.arange(LEVELS) / (LEVELS - 1), [0.0, 1.0], indexing="ij")
    means = np.stack(
        [0.2 + 0.5 * hour * plan, 0.5 - 0.3 * np.sin(3 * hour), 0.3 + 0.3 * (1 - plan) * (1 - hour)], axis=2
    )
    logging, target = np.exp(np.stack([hour, 1 - hour, plan], axis=2)), np.exp(4 * means)
    return World(means, *(one / one.sum(axis=2, keepdims=True) for one in (logging, target)))
