#!/usr/bin/env bash
# diffprivlib 0.6.6, tools.mean of 100 zeros and ones, one of them 1, within bounds (0, 1) at epsilon 1: "noise is added using Laplace".
# Expected: an unbiased estimate: the mean of many releases is .0100.
# Observed: .0118, 18 % too much, since releases are cut off at the bounds (LaplaceTruncated): half of the noise below 0 is gone. For
# conversion rates, which are near a bound, that does not average out over days or segments. tools.sum of the same data: 1.18.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install diffprivlib==0.6.6 joblib==1.6.0 numpy==2.4.6 scikit-learn==1.5.2 scipy==1.17.1
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from diffprivlib import tools

people, releases = np.zeros(100), 40_000
people[0] = 1
means = np.array([tools.mean(people, epsilon=1, bounds=(0, 1)) for _ in range(releases)])
sums = np.array([tools.sum(people, epsilon=1, bounds=(0, 1)) for _ in range(releases)])
print("mean of means", round(means.mean(), 5), "smallest", means.min(), "| mean of sums", round(sums.mean(), 3))
# Laplace noise of scale .01 cut off at 0 adds .005 exp(-1) = .00184; one standard error is .00006.
assert abs(means.mean() - 0.01184) < 0.0004, "the behaviour has changed"
assert abs(sums.mean() - 1.184) < 0.04, "the behaviour has changed"
PYTHON
