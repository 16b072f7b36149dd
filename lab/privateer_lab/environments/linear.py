"""Environments with convex losses of points, and with linear rewards of actions, contexts or arm features."""

from typing import Any, ClassVar, Final, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import Field, field_validator
from scipy.optimize import minimize
from scipy.special import expit, ndtr

from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms, Plays, Points, Policy
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.box import Box
from privateer_core.spec.features import Numeric
from privateer_lab.environments.environment import Array, Delay, Environment, EnvironmentSection, PlayedRewards

_N_POINTS: Final = 4096
"""Number of points that represent the set, the best one among them."""


@runtime_checkable
class DomainSpec(Protocol):
    """A spec with a ``domain`` of ``shape``, ``dimension`` and ``radius``, and with ``reward`` bounds."""

    domain: Any
    reward: Any


class LossesSection(EnvironmentSection):
    """Rewards of points: ``reward.high`` minus the participant's loss, plus measurement noise."""

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


class FeaturelessEnvironment(Environment):
    """Environment of participants without features; ``values`` are the expected rewards of options for all of them."""

    values: Array

    def contexts(self, _n_previous: int, n_participants: int, _rng: np.random.Generator) -> Array:
        """Return contexts without features, shape (n, 0)."""
        return np.zeros((n_participants, 0))

    def means(self, contexts: Array) -> Array:
        """Return the expected reward of every option, the same for all participants, shape (n, options)."""
        return np.broadcast_to(self.values, (len(contexts), len(self.values)))


class LossesEnvironment(FeaturelessEnvironment):
    """Environment of convex losses, whose options are representative points."""

    def __init__(self, spec: DomainSpec, section: LossesSection, seed: int) -> None:
        self._section, self._high = section, spec.reward.high
        rng, domain = np.random.default_rng([seed, 5]), spec.domain
        direction: Array = rng.normal(size=domain.dimension)
        length = section.distance * domain.radius / float(domain.gauge(direction))
        self.best: Array = np.asarray(length * direction)  # shape (d,): the point that is best on the whole
        points = rng.uniform(-domain.radius, domain.radius, (_N_POINTS, domain.dimension))
        if domain.shape == "ball":
            lengths = domain.radius * rng.random(_N_POINTS) ** (1 / domain.dimension)
            directions = rng.normal(size=points.shape)
            points = directions * (lengths / np.linalg.norm(directions, axis=1))[:, None]
        points[0] = self.best
        self.values = self.expected_rewards(points)

    def expected_rewards(self, points: Array) -> Array:
        """Return the expected reward of points (..., d), over participants; shape (...)."""
        offsets, scale = points - self.best, self._section.spread
        if self._section.loss == "quadratic":
            loss = np.square(offsets).sum(axis=-1) / 2 + self.best.size * scale**2 / 2
        else:
            scaled = offsets / max(scale, 1e-12)
            density = np.exp(-np.square(np.clip(scaled, -40, 40)) / 2) / np.sqrt(2 * np.pi)
            loss = (2 * scale * density + offsets * (2 * ndtr(scaled) - 1)).mean(axis=-1) * np.sqrt(self.best.size)
        return np.asarray(self._high - loss)

    def rewards(self, contexts: Array, decisions: Points, rng: np.random.Generator) -> Array:
        """Draw rewards: a participant's, (n,), or those at both points of a pair, (n, 2)."""
        best_points = self.best + self._section.spread * rng.normal(size=(len(contexts), 1, self.best.size))
        offsets = decisions.points - best_points
        if self._section.loss == "quadratic":
            loss = np.square(offsets).sum(axis=-1) / 2
        else:
            loss = np.abs(offsets).mean(axis=-1) * np.sqrt(self.best.size)
        rewards = self._high - loss + self._section.deviation * rng.normal(size=loss.shape)
        return np.asarray(rewards[:, 0] if rewards.shape[1] == 1 else rewards)

    def play(self, decisions: Points, contexts: Array) -> PlayedRewards:
        """Return expected rewards; for two points, the mean of both."""
        n = len(contexts)
        expected = float(self.expected_rewards(decisions.points).mean(axis=1).sum())
        return PlayedRewards(n, expected, n * float(self.values[0]), n * self.values)


_CORRELATION: Final = 0.7
_FEATURE_SCALE_RANGE: Final = (0.15, 0.6)
_STEEPNESS: Final = 4.0
"""Slope of log odds near a mean of 1/2, so that both links have the same mean rewards there."""


@runtime_checkable
class ActionsSpec(Protocol):
    """A spec with ``actions.matrix`` (k, d), ``reward.middle``, ``.half_range`` and a standard deviation."""

    actions: Any
    reward: Any
    algorithm: Any


class LinearSection(EnvironmentSection):
    """Linear rewards: theta is uniform on a sphere, and each participant's own parameter is close to it."""

    needs: ClassVar[type] = ActionsSpec
    late: ClassVar[bool] = False
    name: Literal["linear"]
    # length of theta, in units of half the range of rewards
    scale: float = Field(default=1.0, gt=0, le=100_000_000, allow_inf_nan=False)

    @field_validator("delay")
    @classmethod
    def _check_no_delay(cls, delay: Delay | None) -> Delay | None:
        if delay is not None:
            raise ValueError("these people are drawn, and the round waits for them")
        return delay

    def environment(self, spec: ActionsSpec, seed: int) -> "LinearEnvironment":
        """Make the environment of a seed, which decides theta."""
        return LinearEnvironment(spec, self.scale, seed)


class LinearEnvironment(FeaturelessEnvironment):
    """Environment of participants whose parameters are theta plus normal noise of the spec's standard deviation.

    Rewards of one action x are normal around middle + <theta_u, x>, and half the range of rewards is their standard
    deviation (1 in the paper's range of -1 to 1); the mechanism clips what goes beyond the range.
    """

    def __init__(self, spec: ActionsSpec, scale: float, seed: int) -> None:
        self._actions: Array = spec.actions.matrix
        self._standard_deviation = spec.algorithm.participant_standard_deviation
        self._middle, self._half_range = spec.reward.middle, spec.reward.half_range
        direction: Array = np.random.default_rng([seed, 5]).normal(size=self._actions.shape[1:])
        # the mean parameter, shape (d,)
        self.theta: Array = np.asarray(scale * self._half_range * direction / np.linalg.norm(direction))
        # the mean reward of every action over all people, shape (k,)
        self.values = np.asarray(self._middle + self._actions @ self.theta)
        # the reward of the best action, which in a box may be no point of the cover
        self.best = float(np.max(self.values))
        self._is_box = spec.actions.box is not None
        if spec.actions.box is not None:
            self.best = max(self.best, self._middle + self._find_maximum(spec.actions.box))

    def _find_maximum(self, box: Box) -> float:
        """Return the largest reward of a box, less the middle, from the best point of its finest cover on."""
        row = np.array([int(np.argmax(self.values))])
        bounds = [(-1.0, 1.0)] * len(box.low)
        climb = minimize(
            lambda x: -float((box.compute_terms(x[None]) @ self.theta)[0]), box.locate(row)[0], bounds=bounds
        )
        return -float(climb.fun)

    def rewards(self, contexts: Array, decisions: Plays, rng: np.random.Generator) -> Array:
        """Draw each participant's average reward of each action played; shape (n, plays)."""
        parameters = self.theta + self._standard_deviation * rng.normal(size=(len(contexts), len(self.theta)))
        noise = self._half_range * rng.normal(size=(len(contexts), len(decisions.actions))) / np.sqrt(decisions.times)
        return np.asarray(self._middle + parameters @ self._actions[decisions.actions].T + noise)

    def play(self, decisions: Plays, _contexts: Array) -> PlayedRewards:
        """Return sums over rounds of plays, which affect all participants, whether they are invited or not."""
        times = int(decisions.times.sum())
        expected = float(decisions.times @ self.values[decisions.actions])
        return PlayedRewards(times, expected, times * self.best, times * self.values)

    def facts(self, policy: Policy) -> dict[str, float]:
        """Return whether the best action is still active, if the policy has ``active`` actions, or a box's loss."""
        active = getattr(policy, "active", None)
        if active is None:
            return {}
        if self._is_box:
            return {"reward_lost_at_the_best_point_left": self.best - float(np.max(self.values[active]))}
        return {"best_action_kept": float(np.argmax(self.values) in active)}


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
        bounds = [(number.low, number.high) for number in features.values() if isinstance(number, Numeric)]
        return Disjoint(self, np.array(bounds).reshape(-1, 2), spec.arm_count, seed)


class Disjoint(Environment):
    """Environment of arms that share no parameter."""

    def __init__(self, section: DisjointSection, bounds: Array, arms: int, seed: int) -> None:
        self._logistic, self._low, self._width = section.link == "logistic", bounds[:, 0], bounds[:, 1] - bounds[:, 0]
        rng = np.random.default_rng([seed, 11, arms, len(bounds)])
        # slopes, intercepts: shapes (d, arms) and (arms,)
        self.slopes: Array = section.slopes * rng.normal(size=(len(bounds), arms))
        self.intercepts: Array = section.intercepts * rng.normal(size=arms)
        self._scales = np.linspace(*_FEATURE_SCALE_RANGE, len(bounds))

    def contexts(self, _n_previous: int, n_participants: int, rng: np.random.Generator) -> Array:
        """Draw features of an autoregression, (n, d), in their own units."""
        z = rng.normal(size=(n_participants, len(self._low)))
        for j in range(1, z.shape[1]):
            z[:, j] = _CORRELATION * z[:, j - 1] + np.sqrt(1 - _CORRELATION**2) * z[:, j]
        positions = (np.clip(z * self._scales, -1.0, 1.0) + 1) / 2
        return np.asarray(self._low + self._width * positions)

    def means(self, contexts: Array) -> Array:
        """Return the expected reward of every arm, (n, arms)."""
        z = 2 * (contexts - self._low) / self._width - 1
        effects = self.intercepts + z @ self.slopes
        return np.asarray(expit(_STEEPNESS * effects) if self._logistic else np.clip(0.5 + effects, 0.0, 1.0))


@runtime_checkable
class ArmFeaturesSpec(Protocol):
    """A spec whose arms have ``arm_features`` numbers each, within the bounds of ``context``, arm by arm."""

    arm_features: int
    arm_count: int
    context: Any
    reward: Any


class NeedlesSection(EnvironmentSection):
    """Mean rewards that are linear in a few of the arm's features, around the middle of the range."""

    needs: ClassVar[type] = ArmFeaturesSpec
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

    def environment(self, spec: ArmFeaturesSpec, seed: int) -> "Needles":
        """Make the environment of a seed, which decides which features matter."""
        total, half_range = sum(map(abs, self.coefficients)), spec.reward.half_range
        if len(self.coefficients) > spec.arm_features:
            detail = f"must be at most {spec.arm_features}, the features of an arm"
            raise SpecError(detail, field="population.coefficients", remedy="leave some out")
        if not total + abs(self.intercept) <= half_range:
            detail = f"add up to {total + abs(self.intercept):g}, and rewards are within {half_range:g} of their middle"
            remedy = "make them smaller, or widen reward.low and reward.high"
            raise SpecError(detail, field="population.coefficients", remedy=remedy)
        return Needles(self, spec, seed)


class Needles(Environment):
    """Environment of rewards that depend on a few features of the arm, (s,), whose indices rise."""

    def __init__(self, section: NeedlesSection, spec: ArmFeaturesSpec, seed: int) -> None:
        self._section, self._shape = section, (spec.arm_count, spec.arm_features)
        self._low, self._radius = spec.context.low, (spec.context.high - spec.context.low) / 2
        self._middle = spec.reward.middle + section.intercept
        rng = np.random.default_rng([seed, 13, spec.arm_features])
        relevant_features = rng.choice(spec.arm_features, len(section.coefficients), replace=False)
        order = np.argsort(relevant_features)
        self.relevant_features, self.coefficients = relevant_features[order], np.array(section.coefficients)[order]

    def contexts(self, _n_previous: int, n_participants: int, rng: np.random.Generator) -> Array:
        """Draw the features of all arms, (n, arms * features), in their own units."""
        arms, features = self._shape
        is_correlated = self._section.correlation > 0
        shape = n_participants, arms * features
        values: Array = self._draw_correlated_uniforms(n_participants, rng) if is_correlated else rng.random(shape)
        values *= 2 * self._radius
        values += self._low + self._radius * self._section.shift
        return np.asarray(np.clip(values, self._low, self._low + 2 * self._radius) if self._section.shift else values)

    def _draw_correlated_uniforms(self, n_participants: int, rng: np.random.Generator) -> Array:
        """Draw uniform numbers from autoregressive normal variables."""
        rho = self._section.correlation
        normal = rng.normal(size=(n_participants, *self._shape))
        for index in range(1, self._shape[1]):
            normal[:, :, index] = rho * normal[:, :, index - 1] + np.sqrt(1 - rho**2) * normal[:, :, index]
        return np.asarray(ndtr(normal).reshape(n_participants, self._shape[0] * self._shape[1]))

    def means(self, contexts: Array) -> Array:
        """Return the expected reward of every arm, (n, arms)."""
        numbers = contexts.reshape(len(contexts), *self._shape)[:, :, self.relevant_features]
        return np.asarray(self._middle + ((numbers - self._low) / self._radius - 1) @ self.coefficients)

    def rewards(self, contexts: Array, decisions: Arms, rng: np.random.Generator) -> Array:
        """Draw rewards of the arms, (n,)."""
        means = self.means(contexts)[np.arange(len(contexts)), decisions.arms]
        return np.asarray(means + self._section.deviation * rng.normal(size=len(means)))
