"""Contributions of a source's participants on arms that they had before, weighed by propensities."""

import msgspec
import numpy as np

from privateer_core.arrays import Array, Coins, Ints
from privateer_core.policies.policy import Recalling
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.sampling.randomness import RandomSource, draw_uniform
from privateer_core.spec.experiment import Source


def select_reporting_arms(source: Source, arms: Ints, propensities: Array, noise: RandomSource) -> Ints:
    """Return the arm that each of n participants reports on, (n,); -1 for a participant without a contribution.

    Where propensities are the devices' own, a participant's importance weight is 1 / propensity, clipped at
    1 / min_propensity of the arm. Relative to that bound it is the probability of contributing (rejection sampling), so
    sums are those of weighted values, while a report has the size, the sensitivity and the promise of any other.

    arms (n,): -1 for an arm that the spec does not list.
    propensities (n,): each participant's own, of that arm; NaN: unknown. Public shares need none.
    """
    if source.min_propensities is None:
        return arms
    min_propensities = np.array(source.min_propensities)[np.maximum(arms, 0)]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        probabilities = np.where(propensities > 0, min_propensities / propensities, 0.0)
    return np.where(draw_uniform(arms.shape, noise) < probabilities, arms, -1)


def recall_arms(policy: Recalling, contexts: Array, coins: Coins, arms: Ints, rewards: Array) -> KeyedValues:
    """Return the contributions of n participants on arms (n,) that they had before; -1 contributes nothing."""
    recalled = policy.contribute_past_arms(contexts, coins, np.maximum(arms, 0), rewards)
    return msgspec.structs.replace(recalled, keys=np.where(arms < 0, -1, recalled.keys))
