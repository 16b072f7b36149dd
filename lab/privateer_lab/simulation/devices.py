"""The steps of simulated devices before anything is randomized, and their seeded noise."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.adjustment import expected, learned_numbers, with_numbers
from privateer_core.spec.context import encoded
from privateer_core.spec.experiment import Source
from privateer_core.spec.spec import Spec

Array: TypeAlias = NDArray[np.float64]


def scaled(raw: Array, spec: Spec) -> Array:
    """Encode the features of raw contexts, (n, features + more), as devices do; shape (n, columns)."""
    return encoded(spec.features, raw)


def scaled_rewards(rewards: Array, spec: Spec, before: Array | None = None) -> Array:
    """Clip a person's rewards to the spec's bounds, and scale them to [0, 1]; answers in further columns stay.

    Numbers from before whose slopes are learned are the last columns, as policies take them.

    before (n, adjustments): the numbers that adjust rewards (`Environment.before`), where the spec has some.
    """
    told = spec.reward
    if not told.adjust or before is None:
        return _within_bounds(rewards, spec, None)
    adjusted = _within_bounds(rewards, spec, expected(told.adjust, before, told.span))
    return with_numbers(adjusted, learned_numbers(told.adjust, before))


def _within_bounds(rewards: Array, spec: Spec, offsets: Array | None) -> Array:
    if rewards.ndim == 1:
        return spec.reward.scaled_all(rewards, offsets)
    apart = None if offsets is None else offsets[:, None]
    return np.column_stack([spec.reward.scaled_all(rewards[:, : spec.rewards], apart), rewards[:, spec.rewards :]])


def received(rewards: Array, spec: Spec) -> float:
    """Return the sum over people of their reward, (n,), or of the mean of theirs, (n, rewards + answers)."""
    return float((rewards if rewards.ndim == 1 else rewards[:, : spec.rewards].mean(axis=1)).sum())


def arms_before(source: Source, arms: int, people: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the arms that people of a source played before, whatever their contexts; shape (n,)."""
    shares = None if source.shares == "unknown" else np.array(source.shares)
    return np.asarray(rng.choice(arms, people, p=shares))


class SeededNoise:
    """Uniform words from a seeded generator."""

    def __init__(self, seed: int | np.random.Generator) -> None:
        self._rng = np.random.default_rng(seed)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return ``count`` words, shape (count,)."""
        # The words of `integers`, without the time that a call of it takes for few.
        return self._rng.bit_generator.random_raw(count)
