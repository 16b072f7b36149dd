#!/usr/bin/env bash
# opendp 0.16.0: the sum of numbers in [0, 1] with Laplace noise of scale 1, when one person's record differs (privacy map at d_in = 1).
# Expected: epsilon 1, whether or not the size of the data set is known: one record moves the sum by 1 at most.
# Observed: 1.0 for data of unknown size, and 0.0 for data of known size. Its metric, the symmetric distance, counts the record that
# goes and the record that comes: one person is d_in = 2 there, and d_in = 1, which cannot happen, is rounded down to none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install opendp==0.16.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import opendp.prelude as dp

dp.enable_features("contrib")


def release(**size: int) -> dp.Measurement:
    space = dp.vector_domain(dp.atom_domain(bounds=(0, 1)), **size), dp.symmetric_distance()
    return space >> dp.t.then_sum() >> dp.m.then_laplace(scale=1.0)


unknown, known = release(), release(size=100)
epsilons = [measurement.map(distance) for measurement in (unknown, known) for distance in (1, 2)]
print("size unknown: d_in 1, 2 ->", epsilons[:2], "| size known ->", epsilons[2:])
assert epsilons == [1.0, 2.0, 0.0, 1.0], "the behaviour has changed"
PYTHON
