"""People on whom arms have stated effects: by the level of a feature, along a number, or on rewards that are numbers.

Rewards that are normal numbers may follow in part from a number like them that people had before.
"""

import math
from typing import Annotated, Any, Final, Literal, Self

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
_WAVE: Final = 2 * np.pi
Deviation = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class EffectCurve(Section):
    """Effects along a number: ``height`` * sin(2 pi x), with x its place in its range."""

    along: str  # the feature
    height: Rate = 0.3  # the largest effect


class Guardrail(Section):
    """A fact of yes or no beside the reward, independent of it."""

    base: Rate  # share of people who say yes under the first arm
    effects: dict[str, Effect] = Field(default_factory=dict)  # what each arm adds to it; 0 for arms that are not named


class Amounts(Section):
    """What people get who have an outcome, in the rewards' own unit: log-normal, and cut at the rewards' bounds."""

    # median, spread: its median under the first arm, and the standard deviation of its logarithm
    median: Positive
    spread: Positive = 1.0
    # what each arm multiplies it by; 1 for arms that are not named
    factors: dict[str, Positive] = Field(default_factory=dict)

    def mean(self, arm: str, reward: Reward) -> float:
        """Return the mean amount under an arm, after it is cut."""
        middle, high = math.log(self.median * self.factors.get(arm, 1.0)), reward.high
        if high <= 0:
            return high
        # The mean of the smaller of two numbers, a bound and a log-normal one; and of what is below the other bound.
        below = math.log(max(reward.low, 1e-300)), math.log(high)
        scaled = [(end - middle) / self.spread for end in below]
        between = math.exp(middle + self.spread**2 / 2) * float(np.diff(ndtr(np.array(scaled) - self.spread))[0])
        return between + high * float(ndtr(-scaled[1])) + max(reward.low, 0.0) * float(ndtr(scaled[0]))

    def draw(self, factors: Array, reward: Reward, rng: np.random.Generator) -> Array:
        """Draw amounts of n people, whose arms have these ``factors``, (n,)."""
        drawn = self.median * factors * np.exp(self.spread * rng.standard_normal(len(factors)))
        return np.asarray(np.clip(drawn, reward.low, reward.high))


class EffectsSection(EnvironmentSection):
    """Mean rewards: a base rate, and what each arm but the first adds to it."""

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
    def _levels_have_a_feature(self) -> Self:
        if self.by is None and any(isinstance(effect, tuple) for effect in self.effects.values()):
            raise ValueError("by: must name the feature by whose levels effects differ")
        return self

    def environment(self, spec: ArmsSpec, _seed: int) -> "EffectsEnvironment":
        """Make the environment, which is the same for every seed."""
        amounts = self.amounts.factors if self.amounts else {}
        for arm in {**self.effects, **amounts}:
            if arm not in spec.options[1:]:
                raise SpecError("must be arms but the first", field="population.effects", remedy="see experiment.arms")
        if set(self.guardrails) != (asked := set(getattr(spec.algorithm, "guardrails", ()))):
            wanted = ", ".join(sorted(asked)) or "no metrics"
            raise SpecError(f"must be those of the spec: {wanted}", field="population.guardrails", remedy="name them")
        return EffectsEnvironment(self, spec)


class EffectsEnvironment(Environment):
    """Independent features; rewards 0 or 1, or amounts."""

    def __init__(self, section: EffectsSection, spec: ArmsSpec) -> None:
        self._features, self._horizon = dict(spec.features), spec.experiment.horizon
        self._reward, self._amounts = spec.reward, section.amounts
        self._factors = np.array(
            [section.amounts.factors.get(arm, 1.0) if section.amounts else 1.0 for arm in spec.options]
        )
        self._of_amounts = np.array(
            [section.amounts.mean(arm, spec.reward) if section.amounts else 1.0 for arm in spec.options]
        )
        self._base = np.broadcast_to(section.base, 2)
        self._shares = {name: self._levels(name, section) for name in self._features}
        self._by, self._along = self._place(section.by), self._place(section.curve.along if section.curve else None)
        self._height = section.curve.height if section.curve else 0.0
        named = [section.guardrails[name] for name in getattr(spec.algorithm, "guardrails", ())]
        self._guardrails = [np.array([one.base + one.effects.get(arm, 0.0) for arm in spec.options]) for one in named]
        self._effects = [self._of_arm(section.effects.get(arm, 0.0)) for arm in spec.options[1:]]

    def _place(self, name: str | None) -> int | None:
        if name is None:
            return None
        if name not in self._features:
            raise SpecError(f"no feature is {name!r}", field="population", remedy="see context.features")
        return list(self._features).index(name)

    def _levels(self, name: str, section: EffectsSection) -> Array | None:
        """Return the shares of a feature's levels; None for numbers."""
        feature, given = self._features[name], section.shares.get(name)
        if isinstance(feature, Numeric | Ranked):
            return None
        assert isinstance(feature, Categorical | Hashed | Ordinal | Boolean)
        count = 2 if isinstance(feature, Boolean) else len(feature.levels)
        shares = np.full(count, 1 / count) if given is None else np.array(given)
        if len(shares) != count or abs(shares.sum() - 1) > 1e-6:
            detail = f"must be {count} numbers with a sum of 1"
            raise SpecError(detail, field=f"population.shares.{name}", remedy="give one for each level")
        return shares

    def _of_arm(self, effect: float | tuple[float, ...]) -> Array:
        """Return an arm's effects by level of ``by``, or one for all."""
        levels = None if self._by is None else self._shares[list(self._features)[self._by]]
        if isinstance(effect, float):
            return np.full(1 if levels is None else len(levels), effect)
        if levels is None or len(effect) != len(levels):
            raise SpecError("must be one for each level", field="population.effects", remedy="give one number, or all")
        return np.array(effect)

    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        """Draw rewards, (n,); with guardrails (n, 1 + guardrails), their answers after the reward."""
        likely = self._likely(contexts)[np.arange(len(contexts)), decisions.arms]
        rewards = np.asarray(rng.random(len(likely)) < likely, np.float64)
        if self._amounts:
            drawn = self._amounts.draw(self._factors[decisions.arms], self._reward, rng)
            rewards = np.where(rewards > 0, drawn, self._reward.without_outcome)
        if not self._guardrails:
            return rewards
        answers = [rng.random(len(rewards)) < yes[decisions.arms] for yes in self._guardrails]
        return np.column_stack([rewards, *answers]).astype(np.float64)

    def contexts(self, seen: int, people: int, rng: np.random.Generator) -> Array:
        """Draw features, and last how far the horizon is; shape (n, d + 1)."""
        columns: list[NDArray[np.floating]] = []
        for name, feature in self._features.items():
            shares, uniform = self._shares[name], rng.random(people)
            if shares is not None:
                columns.append(np.searchsorted(np.cumsum(shares)[:-1], uniform, side="right").astype(np.float64))
            else:
                assert isinstance(feature, Numeric | Ranked)
                columns.append(np.interp(uniform, [0.0, 1.0], [feature.value_at(0.0), feature.value_at(1.0)]))
        return np.column_stack([*columns, (seen + np.arange(people)) / self._horizon])

    def means(self, contexts: Array) -> Array:
        """Return the mean rewards of arms, (n, arms)."""
        likely = self._likely(contexts)
        if not self._amounts:
            return likely
        return np.asarray(likely * self._of_amounts + (1 - likely) * self._reward.without_outcome)

    def _likely(self, contexts: Array) -> Array:
        """Return the base rate and what arms add to it, within [0, 1]; shape (n, arms)."""
        start, end = self._base
        base = start + (end - start) * np.minimum(contexts[:, -1], 1.0)
        level = np.zeros(len(contexts), np.int64) if self._by is None else contexts[:, self._by].astype(np.int64)
        wave: Array = np.zeros(1)
        if self._along is not None:
            feature = list(self._features.values())[self._along]
            wave = self._height * np.sin(_WAVE * feature.encode(contexts[:, self._along])[:, 0])
        means = [base, *(base + effects[level] + wave for effects in self._effects)]
        return np.asarray(np.clip(np.stack(means, axis=1), 0.0, 1.0))


class NumberBefore(Section):
    """A number that people have before anything is chosen for them; normal, and apart from others of its kind."""

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
    def _some_is_left(self) -> Self:
        if sum(one.correlation**2 for one in self.before.values()) > 1:
            raise ValueError("before: correlations must have a sum of squares of 1 at most")
        return self

    def environment(self, spec: ArmsSpec, seed: int) -> "NumbersEnvironment":
        """Make the environment, which is the same for every seed."""
        for arm in self.effects:
            if arm not in spec.options[1:]:
                raise SpecError("must be arms but the first", field="population.effects", remedy="see experiment.arms")
        for name in spec.reward.adjust:
            if name not in self.before:
                detail = "must be one of population.before"
                raise SpecError(detail, field=f"reward.adjust.{name}", remedy=f"add population.before.{name}")
        return NumbersEnvironment(self, EffectsSection().environment(spec, seed), spec.options)


class NumbersEnvironment(Environment):
    """Independent features, and normal rewards that numbers from before explain in part."""

    def __init__(self, section: NumbersSection, people: Environment, options: tuple[str, ...]) -> None:
        self._section, self._people = section, people
        self._effects = np.array([section.effects.get(arm, 0.0) for arm in options])
        self._slopes = np.array(
            [section.deviation * one.correlation / one.deviation for one in section.before.values()]
        )
        self._means = np.array([one.mean for one in section.before.values()])
        explained = sum(one.correlation**2 for one in section.before.values())
        self._left = section.deviation * np.sqrt(max(0.0, 1 - explained))

    @override
    def contexts(self, seen: int, people: int, rng: np.random.Generator) -> Array:
        """Draw features, and last the numbers from before: no device reads them in a context's columns."""
        before = [rng.normal(one.mean, one.deviation, people) for one in self._section.before.values()]
        return np.column_stack([self._people.contexts(seen, people, rng), *before])

    @override
    def means(self, contexts: Array) -> Array:
        above = (self._had(contexts) - self._means) @ self._slopes
        return np.asarray(self._section.mean + above[:, None] + self._effects)

    @override
    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        means = self.means(contexts)[np.arange(len(contexts)), decisions.arms]
        return np.asarray(means + self._left * rng.standard_normal(len(means)))

    @override
    def before(self, contexts: Array, names: Any) -> Array:
        known, had = list(self._section.before), self._had(contexts)
        return np.column_stack([had[:, known.index(name)] for name in names]) if names else had[:, :0]

    def _had(self, contexts: Array) -> Array:
        return contexts[:, contexts.shape[1] - len(self._means) :]
