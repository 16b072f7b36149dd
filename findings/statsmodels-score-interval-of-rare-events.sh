#!/usr/bin/env bash
# statsmodels 0.15.0, confint_proportions_2indep(..., compare="diff", method="score"): the interval of Miettinen and Nurminen.
# Expected: an interval for every pair of counts, as the method has (Newcombe's, in the same function, gives one each time).
# Observed: ValueError from the solver for ordinary counts of rare events: 0 of 122 beside 100 of 40,000, 0 of 1,000 beside 1 of 1,000,
# 1 of 122 beside 100 of 40,000, 0 of 200 beside 9 of 600; 18 of 1,129 beside 0 of 1,131 works.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install statsmodels==0.15.0 scipy==1.17.1 pandas==3.1.1 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from statsmodels.stats.proportion import confint_proportions_2indep

CASES = {(18, 1129, 0, 1131): True, (0, 122, 100, 40_000): False, (0, 1000, 1, 1000): False, (1, 122, 100, 40_000): False, (0, 200, 9, 600): False}
for counts, has_interval in CASES.items():
    newcombe = confint_proportions_2indep(*counts, compare="diff", method="newcomb")
    try:
        score = confint_proportions_2indep(*counts, compare="diff", method="score")
        outcome = f"{score[0]:+.4f} to {score[1]:+.4f}"
    except ValueError as error:
        score, outcome = None, f"ValueError: {error}"
    print(counts, "score:", outcome, f"| Newcombe: {newcombe[0]:+.4f} to {newcombe[1]:+.4f}")
    assert (score is not None) == has_interval, "the behaviour has changed"
PYTHON
