#!/usr/bin/env bash
# multi-freq-ldpy 0.2.5, longitudinal GRR: the same 30,000 reports of 20 values, one of which half of the people hold.
# Expected: both estimators that the package has for these reports, matrix inversion (MI) and iterative Bayesian update (IBU), are near .5.
# Observed: MI says .5, IBU .40, and more reports do not help: the chance that IBU assumes for a wrong value leaves out the reports that
# both rounds of randomization changed (18 q1 q2 here), so that its columns of probabilities do not add up to 1. It agrees for two values.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install multi-freq-ldpy==0.2.5 llvmlite==0.50.0 numba==0.68.1 numpy==2.4.6 scipy==1.17.1 xxhash==4.1.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from multi_freq_ldpy.long_freq_est.L_GRR import L_GRR_Aggregator_IBU, L_GRR_Aggregator_MI, L_GRR_Client

rng = np.random.default_rng(3)
people, settings = 30_000, (4.0, 2.0)


def estimate(size: int) -> tuple[float, float]:
    values = rng.choice(size, people, p=[0.5] + [0.5 / (size - 1)] * (size - 1))
    reports = [L_GRR_Client(int(value), size, *settings) for value in values]
    return tuple(float(estimator(reports, size, *settings)[0]) for estimator in (L_GRR_Aggregator_MI, L_GRR_Aggregator_IBU))


for size in (2, 20):
    print(size, "values: MI %.3f, IBU %.3f" % (pair := estimate(size)))
    inversion, bayes = pair
    assert abs(inversion - 0.5) < 0.04, "matrix inversion is wrong: the expectation does not hold"
    assert abs(bayes - (0.5 if size == 2 else 0.4)) < 0.04, "the behaviour has changed"
PYTHON
