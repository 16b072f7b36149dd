"""People of numbers, levels and missing values, whose mean rewards follow effects or slopes."""

import math
from abc import ABC
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.optimize import brentq
from scipy.special import expit
from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import Boolean, Categorical, Hashed, Ordinal
from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_core.spec.reward import Reward
from privateer_core.spec.sections import Finite
from privateer_lab.environments.density import Seed
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection

_WAVES: Final = 128
_STEEPNESS: Final = 1.5
_LENGTH: Final = 0.35
"""These are those of the shape ``gentle`` of `SmoothSection`."""
_TRIED: Final = 16_384
"""People of whom base rates and lifts are averages."""
_STEEP: Final = 40.0
_ALIKE: Final = math.exp(-2.25)


class Independent(Environment, ABC):
    """Numbers uniform in their range or by rank; levels as frequent as their rank says.

    features: those of the spec.
    missing: the share of people without a value, of every feature that may be missing.
    falling: how fast levels without an order become rarer: shares go by rank to the power of minus this. 0: all are as
        frequent.
    """

    def __init__(self, features: Iterable[Feature], missing: float, falling: float = 0.0) -> None:
        self._features, self._missing, self._falling = list(features), missing, falling

    def contexts(self, _seen: int, people: int, rng: np.random.Generator) -> Array:
        """Draw independent features, shape (n, d), as devices read them."""
        drawn = np.stack([self._draw(feature, rng.random(people)) for feature in self._features], axis=1)
        for j, feature in enumerate(self._features):
            if feature.missing:
                drawn[rng.random(people) < self._missing, j] = np.nan
        return drawn

    def _draw(self, feature: Feature, uniform: Array) -> Array:
        """Return the values of people at these uniform places, (n,)."""
        if self._falling and levels_of(feature):
            ends = np.cumsum(shares_of(feature, self._falling))
            return np.minimum(np.searchsorted(ends, uniform, side="right"), len(ends) - 1).astype(np.float64)
        return _draw(feature, uniform)


def shares_of(feature: Feature, falling: float) -> Array:
    """Return the share of people of each level without an order, (levels,), by rank to the power of -``falling``."""
    weights = np.arange(1, levels_of(feature) + 1) ** -falling
    return np.asarray(weights / weights.sum())


def levels_of(feature: Feature) -> int:
    """Return how many levels without an order a feature has; 0 for numbers."""
    if isinstance(feature, Categorical | Hashed):
        return len(feature.levels)
    return 2 if isinstance(feature, Boolean) else 0


def slots_of(feature: Feature, values: Array) -> NDArray[np.int64]:
    """Return the place of each person's level, (n,), int64: that after the last one where there is no value."""
    return np.asarray(np.where(np.isnan(values), levels_of(feature), values), np.int64)


def places_of(feature: Feature, values: Array) -> Array:
    """Return each person's number as its place in [0, 1], whatever its range, (n,); any where there is none."""
    return np.asarray(feature.encode(values)[:, 0])


def _draw(feature: Feature, uniform: Array) -> Array:
    """Return the values of people at these uniform places, (n,)."""
    if isinstance(feature, Numeric):
        return np.asarray(feature.low + (feature.high - feature.low) * uniform)
    if isinstance(feature, Ranked):
        return np.interp(uniform, np.linspace(0.0, 1.0, len(feature.quantiles)), feature.quantiles)
    count = len(feature.levels) if isinstance(feature, Categorical | Hashed | Ordinal) else 2
    return np.floor(count * uniform)


class MixedSection(EnvironmentSection):
    """Independent people: numbers uniform in their range or by rank, every level as frequent, rewards 0 or 1."""

    name: Literal["mixed"] = "mixed"
    # the number of the function: the same number and the same features give the same one in every run
    function: Seed = 0
    # the features that matter, by name; by default all
    relevant: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    # the share of people without a value, of every feature that may be missing
    missing: float = Field(default=0.3, ge=0, lt=1, allow_inf_nan=False)
    # the correlation of the functions of two levels; by default .1
    alike: float = Field(default=_ALIKE, gt=0, le=1, allow_inf_nan=False)
    # mean reward of an option at random, in the reward's own unit; by default about the middle of its range
    base: Finite | None = None
    # by how much the best option for each person is better than one at random, as a share of that, on the average; by
    # default what the functions make of it, about .5
    lift: float | None = Field(default=None, gt=0, le=100, allow_inf_nan=False)
    # standard deviation of rewards that are numbers around their means, before they are cut to the bounds; by default
    # rewards are one of the bounds
    noise: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    def environment(self, spec: ArmsSpec, _seed: int) -> "Mixed | Tuned":
        """Make the environment, which is the same for every seed."""
        for name in self.relevant or ():
            if name not in spec.features:
                remedy = f"choose from {', '.join(spec.features)}"
                raise SpecError("the spec has no such feature", field=f"population.relevant.{name}", remedy=remedy)
        matter = [name in (self.relevant or spec.features) for name in spec.features]
        people = Mixed(spec.features, np.flatnonzero(matter), spec.arm_count, self.function, self.missing, self.alike)
        if self.base is None and self.lift is None and self.noise is None:
            return people
        return Tuned(people, spec.reward, self.base, self.lift, self.noise)


class Mixed(Independent):
    """Logistic functions of Gaussian processes, drawn as sums of random waves that every level turns its own way.

    features: those of the spec.
    relevant: places of those that matter.
    arms: how many.
    function, missing, alike: as in `MixedSection`.
    """

    def __init__(
        self,
        features: Mapping[str, Feature],
        relevant: np.ndarray,
        arms: int,
        function: int,
        missing: float,
        alike: float = _ALIKE,
    ) -> None:
        super().__init__(features.values(), missing)
        self._relevant = relevant
        rng = np.random.default_rng([function, 7, arms, len(relevant)])
        numbers = max(1, sum(not levels_of(self._features[j]) for j in relevant))
        # A level's phases are normal: functions of two levels have correlation exp(-turn^2).
        turn = math.sqrt(-math.log(alike))
        self._waves = [self._drawn(self._features[j], numbers, turn, rng) for j in relevant]
        self._phases = rng.uniform(0.0, 2 * np.pi, _WAVES)
        self._heights = np.sqrt(2 / _WAVES) * rng.standard_normal((_WAVES, arms))

    @staticmethod
    def _drawn(feature: Feature, numbers: int, turn: float, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw how a feature turns each wave: by its number, (waves,), and by its level, (levels and missing, waves).

        The covariance of numbers is exp(-(x - y)^2 / (2 length^2 numbers)), so that slopes are alike however many.
        """
        levels = levels_of(feature)
        frequencies = rng.standard_normal(_WAVES) / (_LENGTH * numbers**0.5) * (not levels)
        return frequencies, turn * rng.standard_normal((max(1, levels) + 1, _WAVES)) * (levels > 0 or feature.missing)

    def means(self, contexts: Array) -> Array:
        """Return 1/(1 + exp(-1.5 g_k(x))), where g_k is a process of mean 0 and variance 1; shape (n, K)."""
        return np.asarray(expit(_STEEPNESS * self.process(contexts)), np.float64)

    def process(self, contexts: Array) -> Array:
        """Return g_k(x), shape (n, K)."""
        angles = np.tile(self._phases, (len(contexts), 1))
        for j, (frequencies, turns) in zip(self._relevant, self._waves, strict=True):
            angles += _turned(self._features[j], contexts[:, j], frequencies, turns)
        return np.asarray(np.cos(angles) @ self._heights)


def _turned(feature: Feature, values: Array, frequencies: Array, turns: Array) -> Array:
    """Return by how much people's values turn each wave, shape (n, waves)."""
    if levels_of(feature):
        return np.asarray(turns[slots_of(feature, values)])
    known = places_of(feature, values)[:, None] * frequencies + turns[0]
    return np.asarray(np.where(np.isnan(values)[:, None], turns[-1], known))


class Tuned(Environment):
    """People of a process with a base rate, a lift and a noise that somebody chose.

    Means are low + span / (1 + exp(-(a + b g_k(x)))) with the a and b that give base and lift.

    people: those whose contexts and process they have.
    reward: the spec's.
    base, lift, noise: as `MixedSection` has them.
    """

    def __init__(
        self, people: Mixed, reward: Reward, base: float | None, lift: float | None, noise: float | None
    ) -> None:
        self._people, self._reward, self._noise = people, reward, noise
        if noise is not None and reward.kind == "binary":
            detail = "is for rewards that are numbers"
            remedy = "remove it, or set reward.kind = 'numeric'"
            raise SpecError(detail, field="population.noise", remedy=remedy)
        if base is not None and not reward.low < base < reward.high:
            detail = f"must be between reward.low = {reward.low:g} and reward.high = {reward.high:g}"
            raise SpecError(detail, field="population.base", remedy="change it")
        g = people.process(people.contexts(0, _TRIED, np.random.default_rng(0)))
        place = 0.5 if base is None else float(reward.scaled_all(np.array(base)))
        self._steepness = _STEEPNESS if lift is None else self._steepness_of(g, place, lift)
        self._offset = _offset(self._steepness * g, place)

    def _steepness_of(self, g: Array, place: float, lift: float) -> float:
        """Return the steepness at which the best option is better by ``lift`` times the mean reward."""

        def lifted(steepness: float) -> float:
            means = expit(steepness * g + _offset(steepness * g, place))
            base = self._reward.low + self._reward.span * place
            return float(self._reward.span * (means.max(axis=1) - means.mean(axis=1)).mean() / abs(base or np.nan))

        if not lifted(_STEEP) >= lift:
            detail = f"must be at most {lifted(_STEEP):.2g} at this base and with these functions"
            raise SpecError(detail, field="population.lift", remedy="lower it, or population.base")
        return float(brentq(lambda steepness: lifted(steepness) - lift, 0.0, _STEEP))

    @override
    def contexts(self, seen: int, people: int, rng: np.random.Generator) -> Array:
        return self._people.contexts(seen, people, rng)

    @override
    def means(self, contexts: Array) -> Array:
        places = expit(self._offset + self._steepness * self._people.process(contexts))
        return np.asarray(self._reward.low + self._reward.span * places)

    @override
    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        means, reward = self.means(contexts)[np.arange(len(contexts)), decisions.arms], self._reward
        if self._noise is None:
            won = rng.random(len(means)) * reward.span < means - reward.low
            return np.asarray(np.where(won, reward.high, reward.low), np.float64)
        drawn = means + self._noise * rng.standard_normal(len(means))
        return np.asarray(np.clip(drawn, reward.low, reward.high), np.float64)


def _offset(effects: Array, place: float) -> float:
    """Return what added to log odds makes their mean probability this."""
    return float(brentq(lambda offset: float(expit(effects + offset).mean()) - place, -1000.0, 1000.0))


class SlopesSection(EnvironmentSection):
    """Independent people: numbers uniform in their range or by rank, every level as frequent, rewards 0 or 1."""

    name: Literal["slopes"]
    function: Seed | None = None  # the number of the function. By default every seed has one of its own.
    # standard deviation of an arm's log odds over people and functions, where all are uniform numbers and levels
    scale: float = Field(default=0.75, gt=0, le=10, allow_inf_nan=False)
    # the share of their variance that is linear in numbers in the same way at every level, if there are numbers
    common: float = Field(default=0.7, ge=0, le=1, allow_inf_nan=False)
    # the share of people without a value, of every feature that may be missing
    missing: float = Field(default=0.3, ge=0, lt=1, allow_inf_nan=False)

    def environment(self, spec: ArmsSpec, seed: int) -> "SlopesEnvironment":
        """Make the environment of the function, or of the seed's."""
        return SlopesEnvironment(self, spec.features, spec.arm_count, seed if self.function is None else self.function)


class SlopesEnvironment(Independent):
    """Linear log odds with normal slopes, and intercepts and further slopes of every level.

    section: its scale and shares.
    features: those of the spec.
    arms: how many.
    function: seeds the slopes.
    """

    def __init__(self, section: SlopesSection, features: Mapping[str, Feature], arms: int, function: int) -> None:
        super().__init__(features.values(), section.missing)
        self._section = section
        rng = np.random.default_rng([function, 13, arms, len(self._features)])
        self._numbers = [j for j, feature in enumerate(self._features) if not levels_of(feature)]
        self._kinds = [j for j, feature in enumerate(self._features) if levels_of(feature)]
        self._slopes = rng.standard_normal((len(self._numbers), arms))
        # Without levels an arm has an intercept and further slopes all the same, as if all people were at one level.
        slots = [levels_of(self._features[j]) + 1 for j in self._kinds] or [1]
        self._intercepts = [rng.standard_normal((count, arms)) for count in slots]
        self._changes = [rng.standard_normal((count, len(self._numbers), arms)) for count in slots]

    def means(self, contexts: Array) -> Array:
        """Return 1/(1 + exp(-scale g_k(x))), where g_k has mean 0 and variance 1 over functions; shape (n, K).

        With z the numbers as `_standardised` has them, b the slopes, a the intercepts and c the changes, all of them
        normal, g = sqrt(common) z b + sqrt(1 - common) (a_l + z c_l) / sqrt(2), where the level l is that of each
        feature with levels, added up and divided by the root of their number.
        """
        z = self._standardised(contexts)
        at = [slots_of(self._features[j], contexts[:, j]) for j in self._kinds] or [np.zeros(len(contexts), np.int64)]
        own = np.zeros((len(contexts), self._slopes.shape[1]))
        for slots, intercepts, changes in zip(at, self._intercepts, self._changes, strict=True):
            own += intercepts[slots] + np.einsum("nj,njk->nk", z, changes[slots])
        own /= np.sqrt((1 + (len(self._numbers) > 0)) * len(at))
        common = self._section.common if self._numbers else 0.0
        effects = np.sqrt(common) * (z @ self._slopes) + np.sqrt(1 - common) * own
        return np.asarray(expit(self._section.scale * effects), np.float64)

    def _standardised(self, contexts: Array) -> Array:
        """Return numbers with mean 0 and variances that add up to 1, (n, numbers); 0 for those without one."""
        z = np.zeros((len(contexts), len(self._numbers)))
        for place, j in enumerate(self._numbers):
            values = contexts[:, j]
            centred = (places_of(self._features[j], values) - 0.5) * np.sqrt(12 / len(self._numbers))
            z[:, place] = np.where(np.isnan(values), 0.0, centred)
        return z
