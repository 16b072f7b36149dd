"""An attack on a whole shuffled batch: what it proves stays below the promise, and twice the local epsilon is caught.

The attacker knows everybody else's data, the policy and the coins; the victim got a reward of 1 or of 0 in a known bin.
Relabelled by the coins' public sign, the multiset of messages tells nothing but how many of them agree with a reward
of 1, so that count is the attacker's best statistic.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout, hash_to_bucket, hash_to_sign
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.privacy import Privacy
from privateer_lab.simulation.scores import SeededNoise
from tests.support.statistics import FALSE_ALARM

BATCH, BATCHES = 200, 20_000
PRIVACY = Privacy(model="shuffle", epsilon=0.5, delta=0.01, min_batch=BATCH, honest_fraction=1.0)
LAYOUT = Layout(3, np.array([[1 << 15]], np.uint32))


def agreements(terms, reward, seed):
    """Agreements less disagreements with a reward of 1 in every batch; the others are alternately for and against."""
    mechanism = terms.mechanism
    rng = np.random.default_rng(seed)
    coins = rng.integers(0, 2**32, (BATCHES, BATCH), dtype=np.uint32)
    values = np.tile(np.arange(BATCH) % 2, (BATCHES, 1)).astype(float)
    values[:, 0] = reward
    count = coins.size
    keyed_values = KeyedValues(coins.ravel(), np.zeros(count, np.int64), np.zeros(count, np.int64), values.ravel())
    reports = mechanism.randomize(keyed_values, SeededNoise(seed)).reshape(BATCHES, BATCH)
    reports = rng.permuted(reports, axis=1)
    hashes = LAYOUT.hashes(reports["slot"], np.zeros(reports.shape, np.int64))
    symbols = reports["symbol"].astype(np.int64)
    hit = hash_to_bucket(hashes, mechanism.buckets) == symbols >> 1
    return np.where(hit, hash_to_sign(hashes) * (2 * (symbols & 1) - 1), 0).sum(axis=1)


def proved_delta(left, right, epsilon):
    """Largest delta at epsilon that the samples prove, by Clopper-Pearson over thresholds (chance `FALSE_ALARM`)."""
    cuts = np.unique(left)
    alarm = FALSE_ALARM / (2 * len(cuts))
    proved = 0.0
    for cut in cuts:
        a, b = int((left >= cut).sum()), int((right >= cut).sum())
        low = stats.beta.ppf(alarm, a, len(left) - a + 1)
        high = stats.beta.isf(alarm, b + 1, len(right) - b)
        proved = max(proved, float(low - math.exp(epsilon) * high))
    return proved


@pytest.fixture(scope="module")
def terms():
    return calibrate(PRIVACY, BATCH, KeyedMeans(LAYOUT))


def test_a_calibrated_batch_keeps_its_promise(terms):
    assert terms.local_epsilon > 1.0, "the amplification is real"
    assert proved_delta(agreements(terms, 1.0, 1), agreements(terms, 0.0, 2), PRIVACY.epsilon) <= PRIVACY.delta


def test_too_large_a_local_epsilon_is_caught(terms):
    """Planted: reports at twice the local epsilon that the batch allows."""
    wrong = replace(terms, mechanism=terms.mechanism.with_less_noise(2.0))
    assert proved_delta(agreements(wrong, 1.0, 1), agreements(wrong, 0.0, 2), PRIVACY.epsilon) > PRIVACY.delta
