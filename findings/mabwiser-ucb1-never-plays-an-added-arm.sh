#!/usr/bin/env bash
# mabwiser 2.7.4, UCB1: two arms pay 3 times of 10; after 100 rounds add_arm brings a third one that pays 9 times of 10.
# Expected: it is played at once, since nothing is known of it: UCB1 plays every arm once (Auer et al., 2002), and its bound is infinite
# without a play. LinUCB and ThompsonSampling of the same package do so.
# Observed: it is never played in 2,000 rounds: without a play its bound is 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install mabwiser==2.7.4 numpy==2.4.6 pandas==2.3.3 scikit-learn==1.9.1 scipy==1.17.1
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from collections import Counter

import numpy as np
from mabwiser.mab import MAB, LearningPolicy

PAYS = {"a": 0.3, "b": 0.3, "new": 0.9}


def plays(policy) -> Counter:
    rng, counts = np.random.default_rng(1), Counter()
    bandit = MAB(["a", "b"], policy, seed=1)
    bandit.fit(["a", "b"] * 50, [int(rng.random() < 0.3) for _ in range(100)])
    bandit.add_arm("new")
    for _ in range(2000):
        arm = bandit.predict()
        counts[arm] += 1
        bandit.partial_fit([arm], [int(rng.random() < PAYS[arm])])
    return counts


bounds, posterior = plays(LearningPolicy.UCB1(alpha=1.0)), plays(LearningPolicy.ThompsonSampling())
print("UCB1:", dict(bounds), "| ThompsonSampling:", dict(posterior))
assert bounds["new"] == 0, "the behaviour has changed"
assert posterior["new"] > 1500, "the new arm is not the best one: the expectation does not hold"
PYTHON
