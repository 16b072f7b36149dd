#!/usr/bin/env bash
# smartnoise-sql 1.0.10: SELECT COUNT(*) without GROUP BY, with Privacy(epsilon=1.0): "the epsilon value for each statistic returned".
# Expected: one statistic is returned, and the query costs epsilon 1.
# Observed: get_privacy_cost says 2, and the odometer spends 2: a hidden COUNT(DISTINCT id), which guards against rare groups, is released
# beside it even where there is one group, and no result shows it. SUM costs 2 as well, AVG 3, and COUNT(DISTINCT id) alone 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install smartnoise-sql==1.0.10 numpy==2.4.6 pandas==2.3.3 opendp==0.14.2 sqlalchemy==2.1.9
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pandas as pd
import snsql

columns = {"id": {"private_id": True, "type": "int"}, "age": {"type": "int", "lower": 18, "upper": 80}}
table = {"row_privacy": False, "max_ids": 1, **columns}
people = pd.DataFrame({"id": range(1000), "age": [18 + number % 60 for number in range(1000)]})
reader = snsql.from_df(people, privacy=snsql.Privacy(epsilon=1.0, delta=1e-6), metadata={"": {"db": {"people": table}}})
asked = ("COUNT(*)", "SUM(age)", "AVG(age)", "COUNT(DISTINCT id)")
costs = {what: round(float(reader.get_privacy_cost(f"SELECT {what} AS answer FROM db.people")[0]), 6) for what in asked}
result = reader.execute("SELECT COUNT(*) AS answer FROM db.people")
spent = round(float(reader.odometer.spent[0]), 6)
print("epsilon by statistic:", costs, "| spent by", result, "is", spent)
assert list(costs.values()) == [2.0, 2.0, 3.0, 1.0] and spent == 2.0, "the behaviour has changed"
assert len(result[0]) == 1, "a second statistic is returned"
PYTHON
