#!/usr/bin/env bash
# pure-ldp 1.2.0, private count sketch at epsilon 1: 20,000 people, half of whom hold one of two values.
# Expected: the estimate of each is near 10,000: its server estimates frequencies, as those of the package's other mechanisms do.
# Observed: 4,600, which is (e^epsilon - 1) / (e^epsilon + 1) of the truth: the randomizer keeps a sign with probability
# e^epsilon / (e^epsilon + 1), and the server does not divide by what that leaves. At epsilon .1 a twentieth of the people is left.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install pure-ldp==1.2.0 bitarray==3.12.3 bitstring==5.0.0 numpy==1.26.4 scikit-learn==1.5.2 scipy==1.14.1 pandas==2.2.3 statsmodels==0.14.4 xxhash==3.5.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import math
import random

import numpy as np
from pure_ldp.frequency_oracles import PCSClient, PCSServer

random.seed(1)
np.random.seed(1)
epsilon, people, rows, width = 1.0, 20_000, 8, 256
server = PCSServer(epsilon, l=rows, w=width, use_median=False)
client = PCSClient(epsilon, rows, width, server.get_hash_funcs())
for person in range(people):
    server.aggregate(client.privatise(person % 2))
share = (math.exp(epsilon) - 1) / (math.exp(epsilon) + 1)
estimates = [server.estimate(value, suppress_warnings=True) for value in (0, 1)]
print("estimates", estimates, "of", people / 2, "each; times", round(share, 3), "it would be", round(share * people / 2))
# One standard error is 400: sqrt(8 * 20,000). The two values differ in sign or row by chance, so 5 of them are allowed.
assert all(abs(estimate - share * people / 2) < 2000 for estimate in estimates), "the behaviour has changed"
PYTHON
