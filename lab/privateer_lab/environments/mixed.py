"""Environments of numbers, levels and missing values, with random smooth or linear mean rewards."""

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
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection
from privateer_lab.environments.synthetic import Seed

_N_WAVES: Final = 128
_STEEPNESS: Final = 1.5
_LENGTH: Final = 0.35
"""Length scale of an arm's mean reward with one number; times sqrt(d) with d numbers, for equal slopes."""
_N_CALIBRATION_PARTICIPANTS: Final = 16_384
"""Participants over whom base rates and lifts are averaged."""
_MAX_STEEPNESS: Final = 40.0
_LEVEL_CORRELATION: Final = math.exp(-2.25)


class IndependentFeatures(Environment, ABC):
    """Environment of independent features: numbers uniform in range or rank, levels with shares rank ** -falling."""

    def __init__(self, features: Iterable[Feature], missing: float, falling: float = 0.0) -> None:
        self._features, self._missing, self._falling = list(features), missing, falling

    def contexts(self, _n_previous: int, n_participants: int, rng: np.random.Generator) -> Array:
        """Draw independent features, shape (n, d), as devices read them."""
        contexts = np.empty((n_participants, len(self._features)))
        for j, feature in enumerate(self._features):
            contexts[:, j] = _draw_values(feature, rng.random(n_participants), self._falling)
        for j, feature in enumerate(self._features):
            if feature.missing:
                contexts[rng.random(n_participants) < self._missing, j] = np.nan
        return contexts


def compute_level_shares(feature: Feature, falling: float) -> Array:
    """Return the share of each unordered level, (levels,), by rank to the power of -``falling``."""
    weights = np.arange(1, count_levels(feature) + 1) ** -falling
    return np.asarray(weights / weights.sum())


def count_levels(feature: Feature) -> int:
    """Return the number of a feature's unordered levels; 0 for numbers."""
    if isinstance(feature, Categorical | Hashed):
        return len(feature.levels)
    return 2 if isinstance(feature, Boolean) else 0


def read_level_codes(feature: Feature, values: Array) -> NDArray[np.int64]:
    """Return the index of each participant's level, (n,), int64; missing values follow the last level."""
    return np.asarray(np.where(np.isnan(values), count_levels(feature), values), np.int64)


def _draw_values(feature: Feature, uniform: Array, falling: float) -> Array:
    """Return a feature's values at uniform quantiles, (n,), with level shares by rank to the power of -``falling``."""
    if falling and count_levels(feature):
        ends = np.cumsum(compute_level_shares(feature, falling))
        return np.minimum(np.searchsorted(ends, uniform, side="right"), len(ends) - 1).astype(np.float64)
    if isinstance(feature, Numeric):
        return np.asarray(feature.low + (feature.high - feature.low) * uniform)
    if isinstance(feature, Ranked):
        return np.interp(uniform, np.linspace(0.0, 1.0, len(feature.quantiles)), feature.quantiles)
    n_levels = len(feature.levels) if isinstance(feature, Categorical | Hashed | Ordinal) else 2
    return np.floor(n_levels * uniform)


class MixedSection(EnvironmentSection):
    """Independent features: numbers uniform in range or rank, equally frequent levels; rewards 0 or 1."""

    name: Literal["mixed"] = "mixed"
    # the number of the function: the same number and the same features give the same one in every run
    function: Seed = 0
    # the features that matter, by name; by default all
    relevant: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    # the share of people without a value, of every feature that may be missing
    missing: float = Field(default=0.3, ge=0, lt=1, allow_inf_nan=False)
    # the correlation of the functions of two levels; by default .1
    alike: float = Field(default=_LEVEL_CORRELATION, gt=0, le=1, allow_inf_nan=False)
    # mean reward of an option at random, in the reward's own unit; by default about the middle of its range
    base: Finite | None = None
    # by how much the best option for each person is better than one at random, as a share of that, on the average; by
    # default what the functions make of it, about .5
    lift: float | None = Field(default=None, gt=0, le=100, allow_inf_nan=False)
    # standard deviation of rewards that are numbers around their means, before they are cut to the bounds; by default
    # rewards are one of the bounds
    noise: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    def environment(self, spec: ArmsSpec, _seed: int) -> "MixedEnvironment | TunedEnvironment":
        """Make the environment, which is the same for every seed."""
        for name in self.relevant or ():
            if name not in spec.features:
                remedy = f"choose from {', '.join(spec.features)}" if spec.features else "remove it"
                raise SpecError("the spec has no such feature", field=f"population.relevant.{name}", remedy=remedy)
        matters = [name in (self.relevant or spec.features) for name in spec.features]
        environment = MixedEnvironment(self, spec.features, np.flatnonzero(matters), spec.arm_count)
        if self.base is None and self.lift is None and self.noise is None:
            return environment
        return TunedEnvironment(environment, spec.reward, self.base, self.lift, self.noise)


class MixedEnvironment(IndependentFeatures):
    """Environment of logistic Gaussian processes, whose phases each level shifts.

    They are drawn as sums of random waves (Rahimi & Recht 2007).
    """

    def __init__(self, section: MixedSection, features: Mapping[str, Feature], relevant: np.ndarray, arms: int) -> None:
        super().__init__(features.values(), section.missing)
        self._relevant = relevant
        rng = np.random.default_rng([section.function, 7, arms, len(relevant)])
        numbers = max(1, sum(not count_levels(self._features[j]) for j in relevant))
        # A level's phases are normal: functions of two levels have correlation exp(-turn^2).
        turn = math.sqrt(-math.log(section.alike))
        self._waves = [self._draw_turns(self._features[j], numbers, turn, rng) for j in relevant]
        self._phases = rng.uniform(0.0, 2 * np.pi, _N_WAVES)
        self._heights = np.sqrt(2 / _N_WAVES) * rng.standard_normal((_N_WAVES, arms))

    @staticmethod
    def _draw_turns(feature: Feature, numbers: int, turn: float, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a feature's phase shifts of each wave: by number, (waves,), and by level, (levels + missing, waves).

        The covariance of numbers is exp(-(x - y)^2 / (2 length^2 numbers)), so that slopes do not depend on the count.
        """
        levels = count_levels(feature)
        frequencies = rng.standard_normal(_N_WAVES) / (_LENGTH * numbers**0.5) * (not levels)
        return frequencies, turn * rng.standard_normal((max(1, levels) + 1, _N_WAVES)) * (levels > 0 or feature.missing)

    def means(self, contexts: Array) -> Array:
        """Return 1/(1 + exp(-1.5 g_k(x))), where g_k is a process of mean 0 and variance 1; shape (n, K)."""
        return np.asarray(expit(_STEEPNESS * self.process(contexts)), np.float64)

    def process(self, contexts: Array) -> Array:
        """Return g_k(x), shape (n, K)."""
        angles = np.tile(self._phases, (len(contexts), 1))
        for j, (frequencies, turns) in zip(self._relevant, self._waves, strict=True):
            angles += _wave_angles(self._features[j], contexts[:, j], frequencies, turns)
        return np.asarray(np.cos(angles) @ self._heights)


def _wave_angles(feature: Feature, values: Array, frequencies: Array, turns: Array) -> Array:
    """Return the phase shifts of each wave by a feature's values, shape (n, waves)."""
    if count_levels(feature):
        return np.asarray(turns[read_level_codes(feature, values)])
    angles = feature.encode(values)[:, :1] * frequencies + turns[0]
    return np.asarray(np.where(np.isnan(values)[:, None], turns[-1], angles))


class TunedEnvironment(Environment):
    """Environment of a process with a chosen base rate, lift and noise.

    Means are low + span / (1 + exp(-(a + b g_k(x)))) with the a and b that give base and lift.
    """

    def __init__(
        self, environment: MixedEnvironment, reward: Reward, base: float | None, lift: float | None, noise: float | None
    ) -> None:
        self._environment, self._reward, self._noise = environment, reward, noise
        if noise is not None and reward.kind == "binary":
            remedy = "remove it, or set reward.kind = 'numeric'"
            raise SpecError("is for rewards that are numbers", field="population.noise", remedy=remedy)
        if base is not None and not reward.low < base < reward.high:
            detail = f"must be between reward.low = {reward.low:g} and reward.high = {reward.high:g}"
            raise SpecError(detail, field="population.base", remedy="change it")
        process = environment.process(environment.contexts(0, _N_CALIBRATION_PARTICIPANTS, np.random.default_rng(0)))
        base_probability = 0.5 if base is None else float(reward.scaled_all(np.array(base)))
        self._steepness = _STEEPNESS if lift is None else self._solve_steepness(process, base_probability, lift)
        self._offset = _solve_offset(self._steepness * process, base_probability)

    def _solve_steepness(self, process: Array, base_probability: float, lift: float) -> float:
        """Return the steepness at which the best arm is better by ``lift`` times the mean; refuse too large a lift."""

        def compute_lift(steepness: float) -> float:
            means = expit(steepness * process + _solve_offset(steepness * process, base_probability))
            base = self._reward.low + self._reward.span * base_probability
            return float(self._reward.span * (means.max(axis=1) - means.mean(axis=1)).mean() / abs(base or np.nan))

        if not compute_lift(_MAX_STEEPNESS) >= lift:
            detail = f"must be at most {compute_lift(_MAX_STEEPNESS):.2g} at this base and with these functions"
            raise SpecError(detail, field="population.lift", remedy="lower it, or population.base")
        return float(brentq(lambda steepness: compute_lift(steepness) - lift, 0.0, _MAX_STEEPNESS))

    @override
    def contexts(self, n_previous: int, n_participants: int, rng: np.random.Generator) -> Array:
        return self._environment.contexts(n_previous, n_participants, rng)

    @override
    def means(self, contexts: Array) -> Array:
        probabilities = expit(self._offset + self._steepness * self._environment.process(contexts))
        return np.asarray(self._reward.low + self._reward.span * probabilities)

    @override
    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        means, reward = self.means(contexts)[np.arange(len(contexts)), decisions.arms], self._reward
        if self._noise is None:
            is_high = rng.random(len(means)) * reward.span < means - reward.low
            return np.asarray(np.where(is_high, reward.high, reward.low), np.float64)
        rewards = means + self._noise * rng.standard_normal(len(means))
        return np.asarray(np.clip(rewards, reward.low, reward.high), np.float64)


def _solve_offset(effects: Array, probability: float) -> float:
    """Return the offset of log odds that gives the mean probability."""
    return float(brentq(lambda offset: float(expit(effects + offset).mean()) - probability, -1000.0, 1000.0))


class SlopesSection(EnvironmentSection):
    """Independent features: numbers uniform in range or rank, equally frequent levels; rewards 0 or 1."""

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


class SlopesEnvironment(IndependentFeatures):
    """Environment of linear log odds with normal slopes, and intercepts and slope changes of every level."""

    def __init__(self, section: SlopesSection, features: Mapping[str, Feature], arms: int, function: int) -> None:
        super().__init__(features.values(), section.missing)
        self._section = section
        rng = np.random.default_rng([function, 13, arms, len(self._features)])
        self._numeric = [j for j, feature in enumerate(self._features) if not count_levels(feature)]
        self._categorical = [j for j, feature in enumerate(self._features) if count_levels(feature)]
        self._slopes = rng.standard_normal((len(self._numeric), arms))
        # Without levels an arm has an intercept and slope changes all the same, as if all participants had one level.
        n_codes = [count_levels(self._features[j]) + 1 for j in self._categorical] or [1]
        self._intercepts = [rng.standard_normal((count, arms)) for count in n_codes]
        self._changes = [rng.standard_normal((count, len(self._numeric), arms)) for count in n_codes]

    def means(self, contexts: Array) -> Array:
        """Return 1/(1 + exp(-scale g_k(x))), where g_k has mean 0 and variance 1 over functions; shape (n, K).

        With z the numbers as `_standardize` has them, b the slopes, a the intercepts and c the changes, all of them
        normal, g = sqrt(common) z b + sqrt(1 - common) (a_l + z c_l) / sqrt(2), where the level l is that of each
        feature with levels, added up and divided by the root of their number.
        """
        z = self._standardize(contexts)
        codes = [read_level_codes(self._features[j], contexts[:, j]) for j in self._categorical]
        codes = codes or [np.zeros(len(contexts), np.int64)]
        level_effects = np.zeros((len(contexts), self._slopes.shape[1]))
        for level_codes, intercepts, changes in zip(codes, self._intercepts, self._changes, strict=True):
            level_effects += intercepts[level_codes] + np.einsum("nj,njk->nk", z, changes[level_codes])
        level_effects /= np.sqrt((1 + (len(self._numeric) > 0)) * len(codes))
        common = self._section.common if self._numeric else 0.0
        effects = np.sqrt(common) * (z @ self._slopes) + np.sqrt(1 - common) * level_effects
        return np.asarray(expit(self._section.scale * effects), np.float64)

    def _standardize(self, contexts: Array) -> Array:
        """Standardize numbers to mean 0 and variances that add up to 1, (n, numbers); missing numbers are 0."""
        z = np.zeros((len(contexts), len(self._numeric)))
        for column, j in enumerate(self._numeric):
            values = contexts[:, j]
            centred = (self._features[j].encode(values)[:, 0] - 0.5) * np.sqrt(12 / len(self._numeric))
            z[:, column] = np.where(np.isnan(values), 0.0, centred)
        return z
