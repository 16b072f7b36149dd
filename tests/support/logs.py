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

    def target_policy(self, columns: dict[str, Any]) -> dict[str, Any]:
        """The judged policy, as a function of columns."""
        shares = self.target[columns["hour"].astype(int), (columns["plan"] == "paid").astype(int)]
        return dict(zip(ARMS, shares.T, strict=True))


def world() -> World:
    """Return a world in which the logging policy prefers other arms than the judged policy, by context."""
    hour, plan = np.meshgrid(np.arange(LEVELS) / (LEVELS - 1), [0.0, 1.0], indexing="ij")
    means = np.stack(
        [0.2 + 0.5 * hour * plan, 0.5 - 0.3 * np.sin(3 * hour), 0.3 + 0.3 * (1 - plan) * (1 - hour)], axis=2
    )
    logging, target = np.exp(np.stack([hour, 1 - hour, plan], axis=2)), np.exp(4 * means)
    return World(means, *(weights / weights.sum(axis=2, keepdims=True) for weights in (logging, target)))


@dataclass(frozen=True)
class Impressions:
    """Items shown at positions, of which few are clicked.

    Attributes
    ----------
    rates
        Shape (items,): the probability of a click.
    shares
        Shape (positions, items): the logging policy's, the same for everybody at a position.
    """

    rates: NDArray[np.float64]
    shares: NDArray[np.float64]

    @property
    def items(self) -> tuple[str, ...]:
        """Names of the items."""
        return tuple(map(str, range(len(self.rates))))

    def log(self, rows: int, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a log."""
        position = rng.integers(0, len(self.shares), rows)
        above = rng.random((rows, 1)) > self.shares.cumsum(axis=1)[position]
        item = above.sum(axis=1).clip(max=len(self.rates) - 1)
        return {
            "position": position,
            "arm": np.array(self.items)[item],
            "p": self.shares[position, item],
            "reward": (rng.random(rows) < self.rates[item]).astype(float),
        }


def few_clicks(*, is_skewed: bool) -> Impressions:
    """Show 34 items, with .2 to .8 % of clicks, evenly or up to 55 times as often as others."""
    preference = np.random.default_rng(1).permutation(np.linspace(0, 4 * is_skewed, 34))
    shares = np.exp(preference) / np.exp(preference).sum()
    return Impressions(np.linspace(0.002, 0.008, 34), shares[None])


def thompson(seed: int) -> Impressions:
    """Show 80 items at three positions as a policy that has learned: propensities from 1e-4 to about a third."""
    rng = np.random.default_rng([3, seed])
    preference = rng.normal(0, 1.6, 80) + rng.normal(0, 0.8, (3, 80))
    shares = np.exp(preference) / np.exp(preference).sum(axis=1, keepdims=True)
    shares = np.maximum(shares, 1e-4)
    return Impressions(np.full(80, 0.004), shares / shares.sum(axis=1, keepdims=True))
