#!/usr/bin/env bash
# pure-ldp 1.2.0 (local differential privacy), RAPPOR with one hash function: 20,000 people, half of whom hold one of three values.
# Expected: its estimate is near 10,000, and all estimates add up to about 20,000 (a set bit of the Bloom filter is reported with
# probability 1 - f/2, says the RAPPOR paper, and the server's estimator assumes so).
# Observed: 15,870 on average, and the sum is 1.59 times the number of people, (1 - f/2) / (1 - f): a report sets bits, and clears none,
# while the server subtracts what clearing would cost. Epsilon 1 makes it 2.58 times.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install pure-ldp==1.2.0 bitarray==3.12.3 bitstring==5.0.0 numpy==1.26.4 scikit-learn==1.5.2 scipy==1.14.1 pandas==2.2.3 statsmodels==0.14.4 xxhash==3.5.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import random

from pure_ldp.frequency_oracles import RAPPORClient, RAPPORServer

random.seed(1)
people, values = 20_000, (1, 2, 3, 4)
f = RAPPORClient(0.5, 64, None).convert_eps_to_f(2.0)
server = RAPPORServer(f=f, m=64, k=1, d=len(values), reg_const=0)
client = RAPPORClient(f, 64, server.get_hash_funcs())
for person in range(people):
    server.aggregate(client.privatise(1 if person % 2 else 2 + person // 2 % 2))
estimates = [server.estimate(value, suppress_warnings=True) for value in values]
print("f", f, "epsilon", round(server.epsilon, 2), "estimates", [round(estimate) for estimate in estimates], "of", people)
ratio = sum(estimates) / people
print("sum of estimates / people:", round(ratio, 3), "| (1 - f/2) / (1 - f):", round((1 - f / 2) / (1 - f), 3))
assert abs(ratio - (1 - f / 2) / (1 - f)) < 0.03, "the behaviour has changed"
assert estimates[0] > 15_000, "the behaviour has changed"
PYTHON
