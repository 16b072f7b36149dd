#!/usr/bin/env bash
# growthbook 4.0.0 (Python) and @growthbook/growthbook 1.8.0 (JavaScript): one experiment whose hash attribute is a boolean.
# Expected: both SDKs give a person with attribute true the same variation, as they do for "2", 2, 2.0, "true" and 1e21.
# Observed: JavaScript hashes true as the text "true" and assigns variation d; Python leaves the person out of the experiment.
# A backend and a page that bucket by a flag (is_member) disagree about who takes part.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install growthbook==4.0.0
(cd "$folder" && npm init -y >/dev/null && npm install --silent --no-fund --no-audit @growthbook/growthbook@1.8.0 >/dev/null)
"$folder/venv/bin/python" - > "$folder/python" <<'PYTHON'
import json

from growthbook import Experiment, GrowthBook

for attribute in ("2", 2, 2.0, "true", 1e21, True):
    result = GrowthBook(attributes={"id": attribute}).run(Experiment(key="exp", variations=list("abcdefghij")))
    print(json.dumps([result.inExperiment, result.value]))
PYTHON
cat > "$folder/run.mjs" <<'JAVASCRIPT'
import { GrowthBook } from "@growthbook/growthbook";

for (const attribute of ["2", 2, 2.0, "true", 1e21, true]) {
  const result = new GrowthBook({ attributes: { id: attribute } }).run({ key: "exp", variations: [..."abcdefghij"] });
  console.log(JSON.stringify([result.inExperiment, result.value]).replace(",", ", "));
}
JAVASCRIPT
node "$folder/run.mjs" > "$folder/javascript"
paste <(printf '%s\n' '"2"' 2 2.0 '"true"' 1e21 true) "$folder/python" "$folder/javascript"
cmp <(head -n 5 "$folder/python") <(head -n 5 "$folder/javascript") || { echo "the behaviour has changed"; exit 1; }
[ "$(tail -n 1 "$folder/python")" = '[false, "a"]' ] && [ "$(tail -n 1 "$folder/javascript")" = '[true, "d"]' ] || { echo "the behaviour has changed"; exit 1; }
