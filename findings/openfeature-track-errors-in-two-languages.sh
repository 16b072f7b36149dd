#!/usr/bin/env bash
# openfeature-sdk 0.10.0 (Python) and @openfeature/server-sdk 1.23.0 (JavaScript): a provider whose methods raise.
# Expected: as with evaluations (both return the default), an error of a provider's track never reaches the application.
# Observed: JavaScript swallows it; Python's client.track raises it in the application, so a collector that was closed breaks a request.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install openfeature-sdk==0.10.0
(cd "$folder" && npm init -y >/dev/null && npm install --silent --no-fund --no-audit @openfeature/server-sdk@1.23.0 @openfeature/core@1 >/dev/null)
"$folder/venv/bin/python" - > "$folder/python" 2>/dev/null <<'PYTHON'
from openfeature import api
from openfeature.provider import AbstractProvider, Metadata


class Closed(AbstractProvider):
    def get_metadata(self):
        return Metadata("closed")

    def fail(self, *arguments, **named):
        raise RuntimeError("the collector is closed")

    resolve_boolean_details = resolve_string_details = resolve_integer_details = fail
    resolve_float_details = resolve_object_details = track = fail


api.set_provider(Closed())
client = api.get_client()
print("evaluation:", str(client.get_boolean_value("flag", False)).lower())
try:
    client.track("bought")
    print("track: returned")
except RuntimeError as error:
    print("track: raised", error)
PYTHON
cat > "$folder/run.mjs" <<'JAVASCRIPT'
import { OpenFeature } from "@openfeature/server-sdk";

const fail = () => { throw new Error("the collector is closed"); };
const provider = { metadata: { name: "closed" }, track: fail };
for (const type of ["Boolean", "String", "Number", "Object"]) provider[`resolve${type}Evaluation`] = fail;
await OpenFeature.setProviderAndWait(provider);
const client = OpenFeature.getClient();
console.log("evaluation:", await client.getBooleanValue("flag", false));
try { client.track("bought"); console.log("track: returned"); } catch (error) { console.log("track: raised", error.message); }
JAVASCRIPT
node "$folder/run.mjs" > "$folder/javascript" 2>/dev/null
echo "Python:"; cat "$folder/python"; echo "JavaScript:"; cat "$folder/javascript"
[ "$(cat "$folder/python")" = $'evaluation: false\ntrack: raised the collector is closed' ] || { echo "the behaviour has changed"; exit 1; }
[ "$(cat "$folder/javascript")" = $'evaluation: false\ntrack: returned' ] || { echo "the behaviour has changed"; exit 1; }
