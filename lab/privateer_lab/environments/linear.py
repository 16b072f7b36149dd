"""People whose mean rewards are linear: in public actions, in correlated features, or in a few of many features."""

from typing import Any, ClassVar, Final, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import Field, field_validator
from scipy.special import expit, ndtr

from privateer_core.errors import SpecError
from privateer_core.policies.decisions import Arms, Plays
from privateer_core.policies.policy import Policy
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.features import Numeric
from privateer_lab.environments.environment import Array, Delay, Environment, EnvironmentSection, PlayedRewards

_CORRELATION: Final = 0.7
_SCALES: Final = (0.15, 0.6)
_STEEPNESS: Final = 4.0
"""Slope of log odds near a mean of 1/2, so that both links have the same mean rewards there."""


@runtime_checkable
class ActionsSpec(Protocol):
    """A spec with ``actions.matrix`` (k, d), ``reward.middle``, ``.half_range`` and ``algorithm.client_deviation``."""

    actions: Any
    reward: Any
    algorithm: Any


class LinearSection(EnvironmentSection):
    """People with linear rewards: theta uniform on a sphere, everybody's own close to it."""

    needs: ClassVar[type] = ActionsSpec
    late: ClassVar[bool] = False
    name: Literal["linear"]
    # length of theta, in units of half the range of rewards
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
    """

    def __init__(self, spec: ActionsSpec, scale: float, seed: int) -> None:
        self._actions: Array = spec.actions.matrix
        self._standard_deviation = spec.algorithm.client_deviation
        self._middle, self._half = spec.reward.middle, spec.reward.half_range
        direction: Array = np.random.default_rng([seed, 5]).normal(size=self._actions.shape[1:])
        # the mean parameter, shape (d,)
        self.theta: Array = np.asarray(scale * self._half * direction / np.linalg.norm(direction))
        # the mean reward of every action over all people, shape (k,)
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
        """Return sums over the rounds of the plays, no matter who is asked about them: they affect everybody."""
        times = int(decisions.times.sum())
        expected = float(decisions.times @ self.values[decisions.actions])
        return PlayedRewards(times, expected, times * float(np.max(self.values)), times * self.values)

    def facts(self, policy: Policy) -> dict[str, float]:
        """Return whether the best action is still among the policy's ``active`` ones, if it has such."""
        active = getattr(policy, "active", None)
        return {} if active is None else {"best_action_kept": float(np.argmax(self.values) in active)}


class DisjointSection(EnvironmentSection):
    """Features z in [-1, 1], scaled to their bounds, correlate along their order; rewards are 0 or 1."""

    name: Literal["disjoint"]
    # ``identity``: arm k has the mean 1/2 + b_k + z s_k, at least 0 and at most 1. ``logistic``: its log odds are 4
    # (b_k + z s_k).
    link: Literal["identity", "logistic"] = "identity"
    # slopes, intercepts: standard deviations of the s_k, coordinate by coordinate, and of the b_k: normal variables of
    # the run's seed
    slopes: float = Field(default=0.15, ge=0, le=10, allow_inf_nan=False)
    intercepts: float = Field(default=0.05, ge=0, le=10, allow_inf_nan=False)

    def environment(self, spec: ArmsSpec, seed: int) -> "Disjoint":
        """Make the environment of a seed, which decides the parameters."""
        features = spec.features
        for name, feature in features.items():
            if not isinstance(feature, Numeric) or feature.missing:
                detail = "population 'disjoint' has numbers between bounds only, and nobody's is missing"
                raise SpecError(detail, field=f"context.features.{name}", remedy="give it low and high")
        bounds = np.array([(one.low, one.high) for one in features.values() if isinstance(one, Numeric)])
        return Disjoint(self, bounds, spec.arm_count, seed)


class Disjoint(Environment):
    """Mean rewards of arms that share no parameter."""

    def __init__(self, section: DisjointSection, bounds: Array, arms: int, seed: int) -> None:
        self._logistic, self._low, self._width = section.link == "logistic", bounds[:, 0], bounds[:, 1] - bounds[:, 0]
        rng = np.random.default_rng([seed, 11, arms, len(bounds)])
        # slopes, intercepts: shapes (d, arms) and (arms,)
        self.slopes: Array = section.slopes * rng.normal(size=(len(bounds), arms))
        self.intercepts: Array = section.intercepts * rng.normal(size=arms)
        self._scales = np.linspace(*_SCALES, len(bounds))

    def contexts(self, _seen: int, people: int, rng: np.random.Generator) -> Array:
        """Draw features of an autoregression, (n, d), in their own units."""
        z = rng.normal(size=(people, len(self._low)))
        for j in range(1, z.shape[1]):
            z[:, j] = _CORRELATION * z[:, j - 1] + np.sqrt(1 - _CORRELATION**2) * z[:, j]
        places = (np.clip(z * self._scales, -1.0, 1.0) + 1) / 2
        return np.asarray(self._low + self._width * places)

    def means(self, contexts: Array) -> Array:
        """Return the expected reward of every arm, (n, arms)."""
        z = 2 * (contexts - self._low) / self._width - 1
        effects = self.intercepts + z @ self.slopes
        return np.asarray(expit(_STEEPNESS * effects) if self._logistic else np.clip(0.5 + effects, 0.0, 1.0))


@runtime_checkable
class OfArmsSpec(Protocol):
    """A spec whose arms have ``arm_features`` numbers each, within the bounds of ``context``, arm by arm."""

    arm_features: int
    arm_count: int
    context: Any
    reward: Any


class NeedlesSection(EnvironmentSection):
    """Mean rewards are linear in a few of the arm's numbers: the middle of the range plus their sum of products."""

    needs: ClassVar[type] = OfArmsSpec
    name: Literal["needles"]
    # what moving a number by half its range adds to the reward; the seed says which features have them
    coefficients: tuple[float, ...] = Field(default=(0.5, -0.5, 0.5), min_length=1, max_length=1000)
    # standard deviation of normal noise in rewards
    deviation: float = Field(default=0.5, ge=0, le=1e6, allow_inf_nan=False)
    # of the normal variables, one after the other, whose ranks the numbers of an arm are; they stay uniform
    correlation: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    # what is added to every reward, and ``shift``: what is added to every number, in half ranges
    intercept: float = Field(default=0.0, ge=-1e6, le=1e6, allow_inf_nan=False)
    shift: float = Field(default=0.0, ge=-1, le=1, allow_inf_nan=False)

    def environment(self, spec: OfArmsSpec, seed: int) -> "Needles":
        """Make the environment of a seed, which decides which features matter."""
        size, half = sum(map(abs, self.coefficients)), spec.reward.half_range
        if len(self.coefficients) > spec.arm_features:
            detail = f"must be at most {spec.arm_features}, the features of an arm"
            raise SpecError(detail, field="population.coefficients", remedy="leave some out")
        if not size + abs(self.intercept) <= half:
            detail = f"add up to {size + abs(self.intercept):g}, and rewards are within {half:g} of their middle"
            remedy = "make them smaller, or widen reward.low and reward.high"
            raise SpecError(detail, field="population.coefficients", remedy=remedy)
        return Needles(self, spec, seed)


class Needles(Environment):
    """Contexts, and rewards of a few of their features.

    places: which features of an arm matter, (s,), in order.
    coefficients: those of their coefficients, (s,).
    """

    def __init__(self, section: NeedlesSection, spec: OfArmsSpec, seed: int) -> None:
        self._section, self._shape = section, (spec.arm_count, spec.arm_features)
        self._low, self._half = spec.context.low, (spec.context.high - spec.context.low) / 2
        self._middle = spec.reward.middle + section.intercept
        rng = np.random.default_rng([seed, 13, spec.arm_features])
        places = rng.choice(spec.arm_features, len(section.coefficients), replace=False)
        order = np.argsort(places)
        self.places, self.coefficients = places[order], np.array(section.coefficients)[order]

    def contexts(self, _seen: int, people: int, rng: np.random.Generator) -> Array:
        """Draw the numbers of all arms, (n, arms * features), in their own units."""
        arms, features = self._shape
        drawn: Array = (
            self._correlated(people, rng) if self._section.correlation else rng.random((people, arms * features))
        )
        drawn *= 2 * self._half
        drawn += self._low + self._half * self._section.shift
        return np.asarray(np.clip(drawn, self._low, self._low + 2 * self._half) if self._section.shift else drawn)

    def _correlated(self, people: int, rng: np.random.Generator) -> Array:
        """Draw uniform numbers of normal variables, each of which correlates with the one before it."""
        share = self._section.correlation
        normal = rng.normal(size=(people, *self._shape))
        for place in range(1, self._shape[1]):
            normal[:, :, place] = share * normal[:, :, place - 1] + np.sqrt(1 - share**2) * normal[:, :, place]
        return np.asarray(ndtr(normal).reshape(people, self._shape[0] * self._shape[1]))

    def means(self, contexts: Array) -> Array:
        """Return the expected reward of every arm, (n, arms)."""
        numbers = contexts.reshape(len(contexts), *self._shape)[:, :, self.places]
        return np.asarray(self._middle + ((numbers - self._low) / self._half - 1) @ self.coefficients)

    def rewards(self, contexts: Array, decisions: Arms, rng: np.random.Generator) -> Array:
        """Draw rewards of the arms, (n,)."""
        means = self.means(contexts)[np.arange(len(contexts)), decisions.arms]
        return np.asarray(means + self._section.deviation * rng.normal(size=len(means)))
