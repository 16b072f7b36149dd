#!/usr/bin/env bash
# tea-tasting 1.14.0 (A/B tests), Proportion: 18 of 1,129 people of the control have the event, 0 of 1,131 of the treatment.
# Expected: a relative effect of -100 % with an interval that reaches above -100 % (statsmodels, score method for the ratio: -100 % to -79 %).
# Observed: "-100 % to -100 %", an interval of width 0, beside an absolute interval of -2.4 to -.8 points in the same result;
# Mean, of the same column, gives NaN for both ends.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install tea-tasting==1.14.0 statsmodels==0.15.0 scipy==1.17.1 pandas==3.1.1 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import math

import pandas as pd
import tea_tasting as tt
from statsmodels.stats.proportion import confint_proportions_2indep

people = pd.DataFrame({"variant": [0] * 1129 + [1] * 1131, "event": [1] * 18 + [0] * (1129 - 18 + 1131)})
share = tt.Experiment(event=tt.Proportion("event")).analyze(people)["event"]
mean = tt.Experiment(event=tt.Mean("event")).analyze(people)["event"]
ratio = confint_proportions_2indep(0, 1131, 18, 1129, compare="ratio", method="score")
print(f"Proportion: {share.rel_effect_size:+.0%} ({share.rel_effect_size_ci_lower:+.0%} to {share.rel_effect_size_ci_upper:+.0%}),",
      f"absolute {share.effect_size_ci_lower:+.4f} to {share.effect_size_ci_upper:+.4f}")
print(f"Mean: {mean.rel_effect_size:+.0%} ({mean.rel_effect_size_ci_lower} to {mean.rel_effect_size_ci_upper})")
print(f"score method: {ratio[0] - 1:+.0%} to {ratio[1] - 1:+.0%}")
assert share.rel_effect_size_ci_lower == share.rel_effect_size_ci_upper == -1.0, "the behaviour has changed"
assert math.isnan(mean.rel_effect_size_ci_lower) and math.isnan(mean.rel_effect_size_ci_upper), "the behaviour has changed"
PYTHON
