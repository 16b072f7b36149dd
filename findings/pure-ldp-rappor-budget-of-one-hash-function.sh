#!/usr/bin/env bash
# pure-ldp 1.2.0, RAPPOR: convert_eps_to_f(2) gives the f that a budget of epsilon 2 allows ("Returns: The equivalent privacy parameter f").
# Expected: a server with this f has epsilon 2, whatever its number of hash functions k: convert_f_to_eps takes k.
# Observed: convert_eps_to_f takes no k and answers for k = 1: with the 2 hash functions of the RAPPOR paper the server's own epsilon is
# 3.98, with 4 it is 7.96. It also rounds f to two digits, and a budget of 8 becomes 7.78, of 9 9.19.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install pure-ldp==1.2.0 bitarray==3.12.3 bitstring==5.0.0 numpy==1.26.4 scikit-learn==1.5.2 scipy==1.14.1 pandas==2.2.3 statsmodels==0.14.4 xxhash==3.5.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from pure_ldp.frequency_oracles import RAPPORClient, RAPPORServer

convert = RAPPORClient(0.5, 64, None).convert_eps_to_f
spent = {k: RAPPORServer(f=convert(2.0), m=64, k=k, d=4).epsilon for k in (1, 2, 4)}
rounded = {budget: RAPPORServer(f=convert(budget), m=64, k=1, d=4).epsilon for budget in (8.0, 9.0)}
print("budget 2:", {k: round(epsilon, 2) for k, epsilon in spent.items()}, "by number of hash functions")
print("one hash function:", {budget: round(epsilon, 2) for budget, epsilon in rounded.items()})
assert [round(epsilon, 2) for epsilon in spent.values()] == [1.99, 3.98, 7.96], "the behaviour has changed"
assert rounded[9.0] > 9.1, "the behaviour has changed"
PYTHON
