"""Releases for tests of learners: of the right shape, and otherwise arbitrary."""

import numpy as np

from privateer_core.primitives.contributions import KeyedSums


def wild_release(policy, rng, scale):
    """Any release of the right shape, wild ones included."""
    keys, arms = policy.mechanism.layout.keys, policy.mechanism.layout.groups
    reports = policy.terms.batch_size
    counts = rng.multinomial(reports, np.ones(arms) / arms, keys) if keys else np.zeros((0, arms), np.int64)
    sums = np.rint(counts * np.clip(rng.normal(0, scale, (keys, arms)), -1, 1)).astype(np.int64)
    hits = np.minimum(reports, np.abs(sums).sum(axis=1) + rng.integers(0, reports + 1, keys))
    response = policy.mechanism.response
    p = response.truth + response.other
    return KeyedSums(reports, sums, counts, hits.astype(float), response.gain, p, p / 2, 0.0, p / 3)
