"""People who lose the more, the farther a point is from one that each of them would like best."""

from typing import Any, ClassVar, Final, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import Field
from scipy.special import ndtr

from privateer_core.policies.decisions import Points
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection, PlayedRewards

_POINTS: Final = 4096
"""Points that stand for the set, the best one among them."""


@runtime_checkable
class DomainSpec(Protocol):
    """A spec with a ``domain`` of ``shape``, ``dimension`` and ``radius``, and with ``reward`` bounds."""

    domain: Any
    reward: Any


class LossesSection(EnvironmentSection):
    """People whose reward at a point is ``reward.high`` less their loss there, and less what they measure wrongly."""

    needs: ClassVar[type] = DomainSpec
    name: Literal["losses"]
    # ``quadratic``: half the squared distance from the person's best point; ``absolute``: the mean over coordinates of
    # the distance, times the square root of their number, so that it changes by 1 per unit of distance at most
    loss: Literal["quadratic", "absolute"] = "quadratic"
    # how far the best point of all is from the middle, in radii of the set; the seed turns it
    distance: float = Field(default=0.5, ge=0, le=0.99)
    # standard deviation of people's own best points around it, in each coordinate
    spread: float = Field(default=0.1, ge=0, le=1e6, allow_inf_nan=False)
    deviation: float = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False)  # standard deviation of what they measure

    def environment(self, spec: DomainSpec, seed: int) -> "LossesEnvironment":
        """Make the environment of a seed, which turns the best point."""
        return LossesEnvironment(spec, self, seed)


class LossesEnvironment(Environment):
    """The people of a section."""

    def __init__(self, spec: DomainSpec, section: LossesSection, seed: int) -> None:
        self._section, self._high = section, spec.reward.high
        rng, domain = np.random.default_rng([seed, 5]), spec.domain
        direction: Array = rng.normal(size=domain.dimension)
        length = section.distance * domain.radius / float(domain.sizes(direction))
        self.best: Array = np.asarray(length * direction)  # shape (d,): the point that is best on the whole
        points = rng.uniform(-domain.radius, domain.radius, (_POINTS, domain.dimension))
        if domain.shape == "ball":
            lengths = domain.radius * rng.random(_POINTS) ** (1 / domain.dimension)
            turned = rng.normal(size=points.shape)
            points = turned * (lengths / np.linalg.norm(turned, axis=1))[:, None]
        points[0] = self.best
        self._by_option = self.expected(points)

    def expected(self, points: Array) -> Array:
        """Return the expected reward of points (..., d), over people; shape (...)."""
        away, spread = points - self.best, self._section.spread
        if self._section.loss == "quadratic":
            loss = np.square(away).sum(axis=-1) / 2 + self.best.size * spread**2 / 2
        else:
            scaled = away / max(spread, 1e-12)
            density = np.exp(-np.square(np.clip(scaled, -40, 40)) / 2) / np.sqrt(2 * np.pi)
            loss = (2 * spread * density + away * (2 * ndtr(scaled) - 1)).mean(axis=-1) * np.sqrt(self.best.size)
        return np.asarray(self._high - loss)

    def contexts(self, _seen: int, people: int, _rng: np.random.Generator) -> Array:
        """Return contexts without features, shape (n, 0)."""
        return np.zeros((people, 0))

    def means(self, contexts: Array) -> Array:
        """Return the expected reward of every point that stands for the set, the same for all."""
        return np.broadcast_to(self._by_option, (len(contexts), len(self._by_option)))

    def rewards(self, contexts: Array, decisions: Points, rng: np.random.Generator) -> Array:
        """Draw rewards: one a person, shape (n,), or one at each of two points, (n, 2)."""
        own = self.best + self._section.spread * rng.normal(size=(len(contexts), 1, self.best.size))
        away = decisions.points - own
        if self._section.loss == "quadratic":
            loss = np.square(away).sum(axis=-1) / 2
        else:
            loss = np.abs(away).mean(axis=-1) * np.sqrt(self.best.size)
        rewards = self._high - loss + self._section.deviation * rng.normal(size=loss.shape)
        return np.asarray(rewards[:, 0] if rewards.shape[1] == 1 else rewards)

    def play(self, decisions: Points, contexts: Array) -> PlayedRewards:
        """Return what people may expect: of two points, the mean of both."""
        people = len(contexts)
        expected = float(self.expected(decisions.points).mean(axis=1).sum())
        return PlayedRewards(people, expected, people * float(self._by_option[0]), people * self._by_option)
