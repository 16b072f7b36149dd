"""Environments with stated effects of arms: by level of a feature, along a number, or on numeric rewards.

Normal rewards may correlate with covariates from before the choice.
"""

import math
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.special import ndtr
from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import Boolean, Categorical, Hashed, Ordinal
from privateer_core.spec.features import Numeric, Ranked
from privateer_core.spec.reward import Reward
from privateer_core.spec.sections import Finite, Section
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection

Rate = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Effect = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
Deviation = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class EffectCurve(Section):
    """Effects along a number: ``height`` * sin(2 pi x), with x the number scaled to [0, 1]."""

    along: str  # the feature
    height: Rate = 0.3  # the largest effect


class Guardrail(Section):
    """A binary outcome beside the reward, independent of it."""

    base: Rate  # share of people who say yes under the first arm
    effects: dict[str, Effect] = Field(default_factory=dict)  # what each arm adds to it; 0 for arms that are not named


class Amounts(Section):
    """Amounts of participants with an outcome, in the rewards' unit: log-normal, clipped to the rewards' bounds."""

    # median, spread: its median under the first arm, and the standard deviation of its logarithm
    median: Positive
    spread: Positive = 1.0
    # what each arm multiplies it by; 1 for arms that are not named
    factors: dict[str, Positive] = Field(default_factory=dict)

    def mean(self, arm: str, reward: Reward) -> float:
        """Return the mean amount under an arm, after clipping."""
        middle, high = math.log(self.median * self.factors.get(arm, 1.0)), reward.high
        if high <= 0:
            return high
        # The mean of a log-normal number that is clipped to both bounds.
        below = math.log(max(reward.low, 1e-300)), math.log(high)
        scaled = [(end - middle) / self.spread for end in below]
        between = math.exp(middle + self.spread**2 / 2) * float(np.diff(ndtr(np.array(scaled) - self.spread))[0])
        return between + high * float(ndtr(-scaled[1])) + max(reward.low, 0.0) * float(ndtr(scaled[0]))

    def draw(self, factors: Array, reward: Reward, rng: np.random.Generator) -> Array:
        """Draw the amounts of participants whose arms have these ``factors``, (n,)."""
        amounts = self.median * factors * np.exp(self.spread * rng.standard_normal(len(factors)))
        return np.asarray(np.clip(amounts, reward.low, reward.high))


class EffectsSection(EnvironmentSection):
    """Mean rewards: a base rate, and the effect of each arm but the first."""

    name: Literal["effects"] = "effects"
    # mean reward of the first arm; two numbers say where it begins and ends, moving evenly over the horizon
    base: Rate | tuple[Rate, Rate] = 0.3
    # shares of people by level, of features that have levels; equal for those that are not named
    shares: dict[str, tuple[Rate, ...]] = Field(default_factory=dict)
    by: str | None = None  # the feature by whose levels effects differ
    # what each arm adds: one number, or one for each level of ``by`` in order. 0 for arms that are not named.
    effects: dict[str, Effect | tuple[Effect, ...]] = Field(default_factory=dict)
    curve: EffectCurve | None = None  # added to the effects of all arms but the first
    # what else people are asked; all that the spec names
    guardrails: dict[str, Guardrail] = Field(default_factory=dict)
    # what people get who have an outcome, if that is a number. Base rate and effects are then of the share of them.
    amounts: Amounts | None = None

    @model_validator(mode="after")
    def _check_level_effects(self) -> Self:
        if self.by is None and any(isinstance(effect, tuple) for effect in self.effects.values()):
            raise ValueError("by: must name the feature by whose levels effects differ")
        return self

    def environment(self, spec: ArmsSpec, _seed: int) -> "EffectsEnvironment":
        """Make the environment, which is the same for every seed."""
        amounts = self.amounts.factors if self.amounts else {}
        for arm in {**self.effects, **amounts}:
            if arm not in spec.options[1:]:
                raise SpecError("must be arms but the first", field="population.effects", remedy="see experiment.arms")
        if set(self.guardrails) != (required := set(getattr(spec.algorithm, "guardrails", ()))):
            names = ", ".join(sorted(required)) or "no metrics"
            raise SpecError(f"must be those of the spec: {names}", field="population.guardrails", remedy="name them")
        return EffectsEnvironment(self, spec)


class EffectsEnvironment(Environment):
    """Environment of independent features, and rewards 0 or 1, or amounts."""

    def __init__(self, section: EffectsSection, spec: ArmsSpec) -> None:
        self._features, self._horizon = dict(spec.features), spec.experiment.horizon
        self._reward, self._amounts = spec.reward, section.amounts
        amounts = section.amounts
        self._factors = np.array([amounts.factors.get(arm, 1.0) if amounts else 1.0 for arm in spec.options])
        self._mean_amounts = np.array([amounts.mean(arm, spec.reward) if amounts else 1.0 for arm in spec.options])
        self._base = np.broadcast_to(section.base, 2)
        for name in section.shares:
            self._feature_index(name)
        self._shares = {name: self._build_level_shares(name, section) for name in self._features}
        self._by = self._feature_index(section.by)
        self._along = self._feature_index(section.curve.along if section.curve else None)
        self._height = section.curve.height if section.curve else 0.0
        named = [section.guardrails[name] for name in getattr(spec.algorithm, "guardrails", ())]
        self._guardrails = [np.array([row.base + row.effects.get(arm, 0.0) for arm in spec.options]) for row in named]
        self._effects = [self._build_level_effects(section.effects.get(arm, 0.0)) for arm in spec.options[1:]]

    def _feature_index(self, name: str | None) -> int | None:
        """Find a feature's index, None without a name; refuse a name that the spec does not have."""
        if name is None:
            return None
        if name not in self._features:
            raise SpecError(f"no feature is {name!r}", field="population", remedy="see context.features")
        return list(self._features).index(name)

    def _build_level_shares(self, name: str, section: EffectsSection) -> Array | None:
        """Return the shares of a feature's levels; None for a number; refuse shares that do not add up to 1."""
        feature, stated = self._features[name], section.shares.get(name)
        if isinstance(feature, Numeric | Ranked):
            return None
        assert isinstance(feature, Categorical | Hashed | Ordinal | Boolean)
        n_levels = 2 if isinstance(feature, Boolean) else len(feature.levels)
        shares = np.full(n_levels, 1 / n_levels) if stated is None else np.array(stated)
        if len(shares) != n_levels or abs(shares.sum() - 1) > 1e-6:
            detail = f"must be {n_levels} numbers with a sum of 1"
            raise SpecError(detail, field=f"population.shares.{name}", remedy="give one for each level")
        return shares

    def _build_level_effects(self, effect: float | tuple[float, ...]) -> Array:
        """Return an arm's effects by level of ``by``, or a single effect."""
        levels = None if self._by is None else self._shares[list(self._features)[self._by]]
        if isinstance(effect, float):
            return np.full(1 if levels is None else len(levels), effect)
        if levels is None or len(effect) != len(levels):
            raise SpecError("must be one for each level", field="population.effects", remedy="give one number, or all")
        return np.array(effect)

    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        """Draw rewards, (n,); with guardrails (n, 1 + guardrails), the reward first."""
        probabilities = self._outcome_probabilities(contexts)[np.arange(len(contexts)), decisions.arms]
        rewards = np.asarray(rng.random(len(probabilities)) < probabilities, np.float64)
        if self._amounts:
            amounts = self._amounts.draw(self._factors[decisions.arms], self._reward, rng)
            rewards = np.where(rewards > 0, amounts, self._reward.without_outcome)
        if not self._guardrails:
            return rewards
        answers = [rng.random(len(rewards)) < yes[decisions.arms] for yes in self._guardrails]
        return np.column_stack([rewards, *answers]).astype(np.float64)

    def contexts(self, n_previous: int, n_participants: int, rng: np.random.Generator) -> Array:
        """Draw features, and last the elapsed share of the horizon; shape (n, d + 1)."""
        columns: list[NDArray[np.floating]] = []
        for name, feature in self._features.items():
            shares, uniform = self._shares[name], rng.random(n_participants)
            if shares is not None:
                columns.append(np.searchsorted(np.cumsum(shares)[:-1], uniform, side="right").astype(np.float64))
            else:
                assert isinstance(feature, Numeric | Ranked)
                columns.append(np.interp(uniform, [0.0, 1.0], [feature.value_at(0.0), feature.value_at(1.0)]))
        return np.column_stack([*columns, (n_previous + np.arange(n_participants)) / self._horizon])

    def means(self, contexts: Array) -> Array:
        """Return each arm's mean reward, (n, arms)."""
        probabilities = self._outcome_probabilities(contexts)
        if not self._amounts:
            return probabilities
        return np.asarray(probabilities * self._mean_amounts + (1 - probabilities) * self._reward.without_outcome)

    def _outcome_probabilities(self, contexts: Array) -> Array:
        """Return the base rate plus the arms' effects, clipped to [0, 1]; shape (n, arms)."""
        start, end = self._base
        base = start + (end - start) * np.minimum(contexts[:, -1], 1.0)
        level = np.zeros(len(contexts), np.int64) if self._by is None else contexts[:, self._by].astype(np.int64)
        wave: Array = np.zeros(1)
        if self._along is not None:
            feature = list(self._features.values())[self._along]
            wave = self._height * np.sin(2 * np.pi * feature.encode(contexts[:, self._along])[:, 0])
        means = [base, *(base + effects[level] + wave for effects in self._effects)]
        return np.asarray(np.clip(np.stack(means, axis=1), 0.0, 1.0))


class NumberBefore(Section):
    """A normal covariate from before the choice, independent of other covariates."""

    # mean, deviation: its law
    mean: Finite
    deviation: Deviation
    correlation: float = Field(ge=-1, le=1, allow_inf_nan=False)  # with the reward under every arm


class NumbersSection(EnvironmentSection):
    """Normal rewards in their own units."""

    name: Literal["numbers"] = "numbers"
    # mean, deviation: of the rewards of the first arm; the others have its deviation
    mean: Finite
    deviation: Deviation
    # what each arm adds to the mean; 0 for arms that are not named
    effects: dict[str, Finite] = Field(default_factory=dict)
    # numbers from before by name, of which the spec may adjust rewards by some
    before: dict[str, NumberBefore] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_correlations(self) -> Self:
        if sum(covariate.correlation**2 for covariate in self.before.values()) > 1:
            raise ValueError("before: correlations must have a sum of squares of 1 at most")
        return self

    def environment(self, spec: ArmsSpec, seed: int) -> "NumbersEnvironment":
        """Make the environment, which is the same for every seed."""
        for arm in self.effects:
            if arm not in spec.options[1:]:
                raise SpecError("must be arms but the first", field="population.effects", remedy="see experiment.arms")
        for name in spec.reward.covariates:
            if name not in self.before:
                detail = "must be one of population.before"
                raise SpecError(detail, field=f"reward.covariates.{name}", remedy=f"add population.before.{name}")
        return NumbersEnvironment(self, EffectsSection().environment(spec, seed), spec.options)


class NumbersEnvironment(Environment):
    """Environment of independent features, and normal rewards that covariates explain in part."""

    def __init__(self, section: NumbersSection, environment: Environment, options: tuple[str, ...]) -> None:
        self._section, self._environment = section, environment
        self._effects = np.array([section.effects.get(arm, 0.0) for arm in options])
        numbers = section.before.values()
        self._slopes = np.array([section.deviation * number.correlation / number.deviation for number in numbers])
        self._means = np.array([number.mean for number in numbers])
        explained = sum(number.correlation**2 for number in numbers)
        self._residual_deviation = section.deviation * np.sqrt(max(0.0, 1 - explained))

    @override
    def contexts(self, n_previous: int, n_participants: int, rng: np.random.Generator) -> Array:
        """Draw features, and last the covariates, which are no columns of a device's context."""
        before = [rng.normal(number.mean, number.deviation, n_participants) for number in self._section.before.values()]
        return np.column_stack([self._environment.contexts(n_previous, n_participants, rng), *before])

    @override
    def means(self, contexts: Array) -> Array:
        excess = (self._select_covariates(contexts) - self._means) @ self._slopes
        return np.asarray(self._section.mean + excess[:, None] + self._effects)

    @override
    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        means = self.means(contexts)[np.arange(len(contexts)), decisions.arms]
        return np.asarray(means + self._residual_deviation * rng.standard_normal(len(means)))

    @override
    def before(self, contexts: Array, names: Any) -> Array:
        known_names, values = list(self._section.before), self._select_covariates(contexts)
        return np.column_stack([values[:, known_names.index(name)] for name in names]) if names else values[:, :0]

    def _select_covariates(self, contexts: Array) -> Array:
        return contexts[:, contexts.shape[1] - len(self._means) :]
