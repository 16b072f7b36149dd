#!/usr/bin/env bash
# river 0.26.1, bandit.LinUCBDisjoint(alpha): LinUCB (Li et al., 2010) adds alpha times the standard error of the predicted mean.
# Expected: the larger alpha is, the more it explores, and what it adds to the mean of an arm goes to 0 with the arm's plays.
# Observed: alpha is the precision of the prior, so that a larger one explores less (1.41 at alpha 1 and 1.005 at alpha 100 are added
# to an arm without plays), and what is added never falls below 1: it is the spread of a reward, not of its mean. No parameter scales it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install river==0.26.1 numpy==2.4.6 pandas==2.3.3 scipy==1.17.1
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import random

from river import bandit

rng, context = random.Random(7), {"x": 1.0}


def added(alpha: float, plays: int) -> float:
    policy = bandit.LinUCBDisjoint(alpha=alpha, seed=1)
    policy.pull(["arm"], context)
    for _ in range(plays):
        policy.update("arm", context, float(rng.random() < 0.5))
    # The policy's own bound is mu + sigma of this prediction.
    return policy._bayes_lin_regs["arm"].predict_one(context, with_dist=True).sigma


table = {(alpha, plays): round(added(alpha, plays), 4) for alpha in (1, 100) for plays in (0, 10_000)}
print("added to the mean, by alpha and plays:", table, "| LinUCB with alpha 1 after 10,000 plays:", round(10_001**-0.5, 4))
assert table == {(1, 0): 1.4142, (1, 10_000): 1.0, (100, 0): 1.005, (100, 10_000): 1.0}, "the behaviour has changed"
PYTHON
