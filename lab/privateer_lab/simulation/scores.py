"""Encoding of simulated contexts and rewards, seeded noise, regret scores, and checks of intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from privateer_core.answer import Answer
from privateer_core.policies.policy import Comparing
from privateer_core.spec.adjustment import expected_excess, select_learned_numbers
from privateer_core.spec.context import encode_features
from privateer_core.spec.experiment import Source
from privateer_core.spec.reward import append_numbers
from privateer_core.spec.spec import Spec
from privateer_lab.environments import Environment, PlayedRewards

Array: TypeAlias = NDArray[np.float64]


def encode_contexts(raw: Array, spec: Spec) -> Array:
    """Encode the features of raw contexts, (n, features + more), as devices do; shape (n, columns)."""
    return encode_features(spec.features, raw)


def scale_rewards(rewards: Array, spec: Spec, before: Array | None = None) -> Array:
    """Clip rewards to the spec's bounds, and scale them to [0, 1]; guardrail columns are unchanged.

    Covariates with learned slopes are the last columns; those in ``before``, (n, covariates), adjust the rewards.
    """
    reward = spec.reward
    if not reward.covariates or before is None:
        return _scale_within_bounds(rewards, spec, None)
    adjusted = _scale_within_bounds(rewards, spec, expected_excess(reward.covariates, before, reward.span))
    return append_numbers(adjusted, select_learned_numbers(reward.covariates, before))


def _scale_within_bounds(rewards: Array, spec: Spec, offsets: Array | None) -> Array:
    """Scale rewards to the unit interval; columns after those of rewards stay as they are."""
    if rewards.ndim == 1:
        return spec.reward.scaled_all(rewards, offsets)
    shifts = None if offsets is None else offsets[:, None]
    return np.column_stack([spec.reward.scaled_all(rewards[:, : spec.rewards], shifts), rewards[:, spec.rewards :]])


def sum_rewards(rewards: Array, spec: Spec) -> float:
    """Return the sum over participants of their reward, (n,), or of their mean reward, (n, rewards + guardrails)."""
    return float((rewards if rewards.ndim == 1 else rewards[:, : spec.rewards].mean(axis=1)).sum())


def draw_past_arms(source: Source, arms: int, n_participants: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the past arms of a source's participants, independent of contexts; shape (n,)."""
    shares = None if source.shares == "unknown" else np.array(source.shares)
    return np.asarray(rng.choice(arms, n_participants, p=shares))


def draw_past(
    source: Source, environment: Environment, raw: Array, arms: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], Array]:
    """Draw the past arms of a source's participants with raw contexts, and the arms' propensities, (n,) each.

    A policy that looked at the context gave everybody the arm of their highest mean reward, beside the least
    propensities of all arms. Propensities are NaN where the source has public shares.
    """
    if source.min_propensities is None:
        return draw_past_arms(source, arms, len(raw), rng), np.full(len(raw), np.nan)
    people, propensities = np.arange(len(raw)), np.tile(source.min_propensities, (len(raw), 1))
    propensities[people, environment.means(raw).argmax(axis=1)] += max(0.0, 1 - sum(source.min_propensities))
    chosen = (rng.random((len(raw), 1)) < propensities.cumsum(axis=1)).argmax(axis=1)
    return chosen, propensities[people, chosen]


class SeededNoise:
    """Uniform words from a seeded generator."""

    def __init__(self, seed: int | np.random.Generator) -> None:
        self._rng = np.random.default_rng(seed)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return ``count`` words, shape (count,)."""
        # The same words as `integers`, with less overhead for few words.
        return self._rng.bit_generator.random_raw(count)


Point: TypeAlias = tuple[int, float, float, float]
"""The number of choices, and the regrets of the choices, of the best constant option, and of random options."""
_ROUNDING_SHARE: Final = 1e-12
"""Relative rounding error of a sum."""
_MAX_TRUTH_PARTICIPANTS: Final = 1 << 17
"""Most participants over whom true effects are averaged."""
_MAX_NULL_EFFECT: Final = 1e-9
"""Largest absolute effect that counts as none."""


@dataclass
class Score:
    """Sums over all choices so far: received rewards, and expected rewards."""

    reward: float = 0.0
    played: PlayedRewards = field(default_factory=lambda: PlayedRewards(0, 0.0, 0.0, np.zeros(1)))

    def add(self, played: PlayedRewards, reward: float) -> None:
        """Add choices, and the sum of their received rewards."""
        self.reward += reward
        so_far = self.played
        self.played = PlayedRewards(
            so_far.times + played.times,
            so_far.expected + played.expected,
            so_far.best + played.best,
            np.asarray(so_far.by_option + played.by_option),
        )

    @property
    def regret(self) -> float:
        """The regret of the choices: expected reward lost against the best option each time."""
        return self._below_best(self.played.expected)

    @property
    def best_constant_regret(self) -> float:
        """The regret of the single option that is best overall."""
        return self._below_best(float(self.played.by_option.max()))

    @property
    def uniform_regret(self) -> float:
        """The regret of random options."""
        return self._below_best(float(self.played.by_option.mean()))

    def _below_best(self, expected: float) -> float:
        """Return the regret of an expected reward, without rounding errors."""
        regret = self.played.best - expected
        return regret if regret > _ROUNDING_SHARE * abs(self.played.best) else 0.0

    @property
    def point(self) -> Point:
        """The number of choices and the regrets."""
        return self.played.times, self.regret, self.best_constant_regret, self.uniform_regret


class Judgement:
    """The comparison of every answer's intervals with the true effects in the spec's environment."""

    def __init__(self, spec: Spec, environment: Environment) -> None:
        self._spec, self._environment = spec, environment
        self._truth: dict[str, float] = {}
        self._covered: dict[str, list[bool]] = {}
        self._significant: set[str] = set()
        self._errors: dict[str, float] = {}
        self._widths: dict[str, float] = {}
        self._values: dict[str, float] = {}
        self._sample: tuple[Array, NDArray[np.int64]] | None = None
        self._comparisons: list[tuple[str, int | None, int, int]] = []

    def add_answer(self, policy: Comparing, answer: Answer) -> None:
        """Compare the estimates of an answer with the true effects."""
        if not answer.estimates:
            return
        self._truth = self._truth or self._true_effects(policy)
        for estimate in answer.estimates:
            self._values[estimate.name] = estimate.value
            if estimate.name in self._truth:
                truth = self._truth[estimate.name]
                self._covered.setdefault(estimate.name, []).append(estimate.low <= truth <= estimate.high)
                if estimate.low > 0 or estimate.high < 0:
                    self._significant.add(estimate.name)
                self._errors[estimate.name] = estimate.value - truth
                self._widths[estimate.name] = (estimate.high - estimate.low) / 2

    def _true_effects(self, policy: Comparing) -> dict[str, float]:
        """Compute each comparison's true effect in a sample of contexts, which is kept; empty groups have none."""
        rng = np.random.default_rng(0)
        contexts = self._environment.contexts(0, min(_MAX_TRUTH_PARTICIPANTS, self._spec.experiment.horizon), rng)
        means, groups = self._environment.means(contexts), policy.groups(encode_contexts(contexts, self._spec))
        self._sample, self._comparisons = (means, groups), list(policy.comparisons(self._spec))
        effects = {}
        for name, group, arm, other in self._comparisons:
            chosen = means if group is None else means[groups == group]
            if len(chosen):
                effects[name] = float((chosen[:, arm] - chosen[:, other]).mean())
        return effects

    def facts(self) -> dict[str, float]:
        """Return the coverage of intervals, at the end and at all looks, the rate of false positives, and errors.

        Errors and half-widths are of the last estimates. Without any estimate they are nan, and the expected loss is 0.
        """
        null_effects = [name for name in self._covered if abs(self._truth[name]) <= _MAX_NULL_EFFECT]
        real_effects = [name for name in self._covered if name not in null_effects]
        return {
            "judged": float(len(self._covered)),
            "coverage": _mean_or_nan([is_covered[-1] for is_covered in self._covered.values()]),
            "coverage_at_all_looks": _mean_or_nan([all(is_covered) for is_covered in self._covered.values()]),
            "false_positives": _mean_or_nan([name in self._significant for name in null_effects]),
            "effects_called": _mean_or_nan([name in self._significant for name in real_effects]),
            "effect_error": float(np.sqrt(_mean_or_nan([error**2 for error in self._errors.values()]))),
            "half_width": _mean_or_nan([*self._widths.values()]),
            "welfare_lost": self._expected_loss(),
        }

    def _expected_loss(self) -> float:
        """Return the mean loss if each participant gets the arm with the largest estimate in their group.

        A group without estimates gets the best arm of all participants; an arm without an estimate is never chosen.
        """
        if self._sample is None:
            return 0.0
        means, groups = self._sample
        estimates: dict[int | None, dict[int, float]] = {None: {}}
        for name, group, arm, other in self._comparisons:
            if name in self._values:
                estimates.setdefault(group, {})[arm] = self._values[name]
                estimates[group].setdefault(other, 0.0)
        chosen = np.full(len(means), _find_best_arm(estimates[None]))
        for group, values in estimates.items():
            if group is not None:
                chosen[groups == group] = _find_best_arm(values)
        return float((means.max(axis=1) - means[np.arange(len(means)), chosen]).mean())


def _find_best_arm(values: dict[int, float]) -> int:
    """Return the arm of the largest value; the first arm without values."""
    return max(values, key=lambda arm: values[arm]) if values else 0


def _mean_or_nan(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def replace_nan(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures with None in place of NaN, since documents have no NaN."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in figures.items()}


def is_comparing(policy: Any) -> TypeGuard[Comparing]:
    """Whether a policy's experiment estimates differences between arms."""
    return hasattr(type(policy), "comparisons")
