#!/usr/bin/env bash
# dp-accounting 0.6.0: one Laplace release with scale 1 is (1, 0)-differentially private.
# Expected: PLDAccountant says epsilon 1 at delta 0, as the distribution that it is made of does.
# Observed: PLDAccountant says infinity at delta 0 (its tail is truncated and counted as delta 1e-15), and 1.0 from delta 1e-12 on,
# so whoever asks an accountant for a pure promise is told that there is none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install dp-accounting==0.6.0
"$folder/venv/bin/python" - <<'PYTHON'
import math

import dp_accounting
from dp_accounting import pld

accountant = pld.PLDAccountant()
accountant.compose(dp_accounting.LaplaceDpEvent(1.0))
distribution = pld.privacy_loss_distribution.from_laplace_mechanism(1.0)
epsilons = accountant.get_epsilon(0), accountant.get_epsilon(1e-12), distribution.get_epsilon_for_delta(0.0)
print("accountant at delta 0:", epsilons[0], "| at 1e-12:", round(epsilons[1], 6), "| distribution at delta 0:", round(epsilons[2], 6))
assert math.isinf(epsilons[0]) and abs(epsilons[1] - 1) < 1e-5 and abs(epsilons[2] - 1) < 1e-3, "the behaviour has changed"
PYTHON
