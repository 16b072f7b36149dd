#!/usr/bin/env bash
# obp 0.4.1 ships samples of the Open Bandit Dataset, 10,000 rows each, with the propensity of every row, for off-policy evaluation.
# Expected: the sample of Thompson sampling ("bts") evaluates a policy that draws items evenly: in the campaign "women", with 46 items,
# importance weights have mean 1, and thousands of rows count.
# Observed: the mean is 3.1, and the effective sample size is 2 of 10,000: one row has the propensity .000001, and two thirds of all
# weight. "men" is at .94 and 656 rows. So an estimate on that sample is the reward of one row.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install obp==0.4.1 --no-deps
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import csv
from importlib.metadata import files

effective = {}
for campaign in ("women", "men"):
    path = next(file for file in files("obp") if file.as_posix().endswith(f"bts/{campaign}/{campaign}.csv")).locate()
    with open(path, newline="") as text:
        rows = list(csv.DictReader(text))
    items = len({row["item_id"] for row in rows})
    weights = [1 / items / float(row["propensity_score"]) for row in rows]
    effective[campaign] = sum(weights) ** 2 / sum(weight**2 for weight in weights)
    mean, largest = sum(weights) / len(rows), max(weights) / sum(weights)
    print(f"{campaign}: {len(rows):,} rows, {items} items, mean weight {mean:.2f}, effective rows {effective[campaign]:.1f},",
          f"largest weight {largest:.0%}")
assert effective["women"] < 3 and 500 < effective["men"] < 1000, "the data have changed"
PYTHON
