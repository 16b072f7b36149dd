"""Environments whose mean rewards are formulas of the context, or constant."""

import math
from typing import ClassVar, Final, Literal

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms, Policy
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.features import Feature
from privateer_lab.environments.environment import Array, EnvironmentSection, PlayedRewards
from privateer_lab.environments.mixed import IndependentFeatures, compute_level_shares, count_levels, read_level_codes
from privateer_lab.environments.synthetic import Seed, SwapDrift, Synthetic, SyntheticSection

_HALF_WAVES: Final = np.arange(1, 5)
"""Numbers of half waves of a shape function's terms along a feature's range."""


class BernoulliSection(SyntheticSection):
    """Rewards 0 or 1; the arm in the middle of the list is best, or several from there on, all others are equal."""

    name: Literal["bernoulli"] = "bernoulli"
    best_count: int = Field(default=1, ge=1)  # the number of arms that have the mean of the best one
    # best, gap: the mean reward of the best arm, and what others lack of it
    best: float = Field(default=0.6, ge=0, le=1, allow_inf_nan=False)
    gap: float = Field(default=0.2, ge=0, le=1, allow_inf_nan=False)
    drift: SwapDrift | None = None

    @model_validator(mode="after")
    def _means_are_probabilities(self) -> "BernoulliSection":
        if self.gap > self.best:
            raise SpecError("must be at most best: means are probabilities", field="gap", remedy="lower it")
        return self

    def means(self, contexts: Array, arms: int) -> Array:
        """Return the mean of every arm, the same in all contexts, shape (n, K)."""
        is_best = (np.arange(arms) - arms // 2) % arms < self.best_count
        means = np.where(is_best, self.best, self.best - self.gap)
        return np.broadcast_to(means, (len(contexts), arms))

    def environment(self, spec: ArmsSpec, seed: int) -> "Bernoulli":
        """Make the environment, which is the same for every seed."""
        if spec.features:
            detail = f"population {self.name!r} has people without context"
            raise SpecError(detail, field="context.features", remedy="choose another population")
        super().environment(spec, seed)
        return Bernoulli(self, spec)


class Bernoulli(Synthetic):
    """Environment in which one arm is best for all participants."""

    def __init__(self, section: BernoulliSection, spec: ArmsSpec) -> None:
        super().__init__(section, spec.arm_count, 0)
        self._last_participant = spec.experiment.horizon - 1

    def play(self, decisions: Arms, contexts: Array) -> PlayedRewards:
        """Return expected rewards; with constant means, sums are products, so that rounding causes no regret."""
        if self.period or not len(contexts):
            return super().play(decisions, contexts)
        means, n = self.means(contexts[:1])[0], len(contexts)
        arm_counts = np.bincount(decisions.arms, minlength=len(means))
        return PlayedRewards(n, float(arm_counts @ means), float(n * means.max()), n * means)

    def facts(self, policy: Policy) -> dict[str, float]:
        """Return the share of participants to whom a policy gives the best arm of the last participant."""
        n_participants, rng = 1000, np.random.default_rng(0)
        coins = rng.integers(0, 2**32, n_participants, dtype=np.uint32)
        arms = policy.decide(np.zeros((n_participants, 0)), coins).arms
        means = self.means(self.contexts(self._last_participant, 1, rng))[0]
        return {"best_share": float(np.mean(means[arms] == means.max()))}


class PeaksSection(SyntheticSection):
    """On the unit square, arm k of K peaks at x1 = k/(K+1), k = 1..K (Ma et al. 2025, Section 4.1).

    The paper's text has k/K, and its authors' code k/(K+1), with which the published figures were made.
    """

    n_features: ClassVar = 2
    name: Literal["peaks"] = "peaks"

    def means(self, contexts: Array, arms: int) -> Array:
        """Return 2e/(1+e) with e = exp(-2 K^2 (x1 - k/(K+1))^2), shape (n, K)."""
        centres = np.arange(1, arms + 1) / (arms + 1)
        bump = np.exp(-2.0 * arms**2 * (contexts[:, :1] - centres) ** 2)
        return np.asarray(2 * bump / (1 + bump))


class ShapesSection(EnvironmentSection):
    """Mean rewards that are sums of shape functions, one for each of the independent features."""

    name: Literal["shapes"]
    # the number of the functions: the same number and the same features give the same ones in every run
    function: Seed = 0
    # standard deviation of an arm's mean reward over people, by the range of rewards, before it is cut to the bounds
    height: float = Field(default=0.15, gt=0, le=1, allow_inf_nan=False)
    # the share of people without a value, of every feature that may be missing
    missing: float = Field(default=0.3, ge=0, lt=1, allow_inf_nan=False)
    # mean reward of an arm at random, by the range of rewards
    base: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    # standard deviation of arms' mean rewards, by the range of rewards
    apart: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)
    # the share of the functions' variance that all arms have in common, which helps nobody to choose
    shared: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    # how fast levels without an order become rarer: their shares go by rank to the power of minus this
    falling: float = Field(default=0.0, ge=0, le=3, allow_inf_nan=False)
    # how many levels of a feature matter, drawn with their shares; the others are all alike. By default each does.
    matter: int | None = Field(default=None, ge=1)
    # how mean rewards move: arms change places after every so many people. By default they never move.
    drift: SwapDrift | None = None

    def environment(self, spec: ArmsSpec, _seed: int) -> "ShapesEnvironment":
        """Make the environment, which is the same for every seed."""
        return ShapesEnvironment(self, spec)


class ShapesEnvironment(IndependentFeatures):
    """Environment of equally important shapes: four waves for a number, longer ones higher; normal terms for levels."""

    def __init__(self, section: ShapesSection, spec: ArmsSpec) -> None:
        super().__init__(spec.features.values(), section.missing, section.falling)
        rng = np.random.default_rng([section.function, 17, spec.arm_count, len(self._features)])
        self._heights = _draw_wave_heights(len(self._features), spec.arm_count, rng)
        self._height, self._reward = section.height / math.sqrt(len(self._features) or 1), spec.reward
        self._levels = [rng.standard_normal((count_levels(feature) + 1, spec.arm_count)) for feature in self._features]
        # Optional draws come last: environments without them do not change.
        for feature, terms in zip(self._features, self._levels, strict=True):
            if section.matter is not None and section.matter < count_levels(feature):
                shares = compute_level_shares(feature, section.falling)
                terms[np.setdiff1d(np.arange(len(shares)), rng.choice(len(shares), section.matter, False, shares))] = 0
        own_weight, joint = math.sqrt(1 - section.shared), math.sqrt(section.shared)
        if section.shared:
            self._heights = own_weight * self._heights + joint * _draw_wave_heights(len(self._features), 1, rng)
            self._levels = [own_weight * terms + joint * rng.standard_normal((len(terms), 1)) for terms in self._levels]
        self._base = section.base + section.apart * rng.standard_normal(spec.arm_count)
        self._drift, self._n_arms = section.drift, spec.arm_count

    @override
    def contexts(self, n_before: int, n_participants: int, rng: np.random.Generator) -> Array:
        contexts = super().contexts(n_before, n_participants, rng)
        if self._drift is None:
            return contexts
        return np.column_stack([contexts, (n_before + np.arange(n_participants)) // self._drift.period % self._n_arms])

    def means(self, contexts: Array) -> Array:
        """Return the arms' base means plus the sum of all features' effects, within the bounds; shape (n, K)."""
        if self._drift is None:
            return self._initial_means(contexts)
        return self._drift.means(self._initial_means, contexts[:, :-1], contexts[:, -1])

    def _initial_means(self, contexts: Array) -> Array:
        terms = zip(self._features, contexts.T, self._heights, self._levels, strict=False)
        effect = sum((_feature_effects_by_arm(*term) for term in terms), np.zeros((len(contexts), self._n_arms)))
        return np.asarray(self._reward.low + self._reward.span * np.clip(self._base + self._height * effect, 0.0, 1.0))


def _draw_wave_heights(features: int, arms: int, rng: np.random.Generator) -> Array:
    """Draw heights of waves, (features, arms, waves), of functions with variance 1."""
    heights = _HALF_WAVES**-1.0 * rng.standard_normal((features, arms, len(_HALF_WAVES)))
    return np.asarray(heights / np.sqrt(np.square(heights).sum(axis=2, keepdims=True) / 2))


def _feature_effects_by_arm(feature: Feature, values: Array, wave_coefficients: Array, level_effects: Array) -> Array:
    """Return a feature's effect on each arm, (n, arms), with a standard deviation of about 1."""
    if count_levels(feature):
        return np.asarray(level_effects[read_level_codes(feature, values)])
    waves = np.cos(np.pi * feature.encode(values)[:, :1] * _HALF_WAVES) @ wave_coefficients.T
    return np.asarray(np.where(np.isnan(values)[:, None], level_effects[-1], waves))
