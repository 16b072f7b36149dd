#!/usr/bin/env bash
# Builds and runs the composed services for real: health, isolation, an experiment, people, a restart by kill -9, a restore
# into the volume by the commands of docs/operations/backup.md, and then people with upload tokens of an issuer.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PRIVATEER_ADMIN_TOKEN=token-of-the-compose-test PRIVATEER_SERVER_PORT=${PRIVATEER_SERVER_PORT:-18000}
export PRIVATEER_SHUFFLER_PORT=${PRIVATEER_SHUFFLER_PORT:-18001}
export PRIVATEER_ADMIN_PORT=${PRIVATEER_ADMIN_PORT:-18002} PRIVATEER_SHUFFLER_ADMIN_PORT=${PRIVATEER_SHUFFLER_ADMIN_PORT:-18003}
export PRIVATEER_ISSUER_PORT=${PRIVATEER_ISSUER_PORT:-18004} PRIVATEER_ISSUER_ADMIN_PORT=${PRIVATEER_ISSUER_ADMIN_PORT:-18005}
export PRIVATEER_REVISION=$(git rev-parse HEAD) PRIVATEER_MIN_BATCH=250
compose() { docker-compose -p privateer-test "$@"; }
fail() { echo "compose: $*" >&2; compose logs --tail 20 >&2 || true; exit 1; }
folder=$(mktemp -d)
trap 'compose down --volumes --timeout 5 >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
server=http://127.0.0.1:$PRIVATEER_SERVER_PORT
admin=http://127.0.0.1:$PRIVATEER_ADMIN_PORT
shuffler=http://127.0.0.1:$PRIVATEER_SHUFFLER_PORT
issuer=http://127.0.0.1:$PRIVATEER_ISSUER_PORT

compose --profile load --profile tokens build --quiet >/dev/null
compose up -d --force-recreate server shuffler >/dev/null 2>&1
ready() { for _ in $(seq 60); do curl -fs "$1/readyz" >/dev/null && return 0; sleep 1; done; return 1; }
ready "$server" || fail "the server is not ready"
ready "$shuffler" || fail "the shuffler is not ready"
curl -fs "$admin/version" | grep -q "\"commit\":\"$PRIVATEER_REVISION\"" || fail "the image does not know its commit"
curl -fs "$shuffler/limits" | grep -q '"min_batch":250' || fail "the shuffler does not have its floor"
echo "compose: both services are ready, and know their commit and settings"

lacks() {  # lacks SERVICE MODULE...: the image cannot import the modules
  local service=$1; shift
  compose exec -T "$service" python - "$@" <<'PY' || fail "$service holds what it must not"
import importlib.util, sys
sys.exit(any(importlib.util.find_spec(name) for name in sys.argv[1:]))
PY
}
lacks shuffler numpy scipy privateer_server privateer_client privateer_lab pip
lacks server privateer_shuffler privateer_client privateer_lab pip_tools
compose --profile load run --rm -T --entrypoint python load -c \
  'import importlib.util, sys; sys.exit(any(map(importlib.util.find_spec, sys.argv[1:])))' \
  privateer_server privateer_shuffler joblib matplotlib typer || fail "load holds what it must not"
for service in server shuffler; do
  [[ $(compose exec -T $service id -u | tr -d '\r') == 10001 ]] || fail "$service runs as root"
  if compose exec -T $service sh -c 'echo x >/opt/privateer/x' 2>/dev/null; then fail "$service can write its image"; fi
done
echo "compose: images hold their role alone, unprivileged, read-only"

docker run -d --rm --name privateer-test-elsewhere --network privateer-test_front --read-only python:3.12-slim \
  python3 -m http.server 9000 >/dev/null
trap 'docker rm -f privateer-test-elsewhere >/dev/null 2>&1; compose down --volumes --timeout 5 >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
elsewhere=$(docker inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' privateer-test-elsewhere)
reach() { compose exec -T "$1" python -c "import socket; socket.create_connection(('$2', $3), 3)" >/dev/null 2>&1; }
sleep 1
reach server "$elsewhere" 9000 || fail "the check of isolation checks nothing"
reach shuffler server 8002 || fail "the shuffler cannot reach the server"
if reach shuffler "$elsewhere" 9000; then fail "the shuffler reaches more than the server"; fi
echo "compose: the shuffler reaches the server and nothing else"

curl -fs -o /dev/null "$admin/metrics" || fail "no metrics at the private listener"
if curl -fs -o /dev/null "$server/metrics"; then fail "the public listener shows metrics"; fi
curl -fs -H 'Accept: text/html' "$server/" | grep -q '<title>Privateer' || fail "no dashboard at the public listener"
curl -fs -o /dev/null "$server/dashboard/app.mjs" || fail "the image lacks the dashboard's files"
curl -fs -X POST "$admin/experiments" -H "Authorization: Bearer $PRIVATEER_ADMIN_TOKEN" \
  -H 'Content-Type: application/toml' --data-binary @examples/peaks-shuffle.toml >/dev/null || fail "not created"
compose --profile load run --rm -T load peaks-shuffle --users 6000 --json >"$folder/load.json" || fail "the load failed"
grep -A 1 '"population"' "$folder/load.json" | grep -q '"name": "peaks"' || fail "the people are not those of the spec"
tokens=peaks-tokens people=300
version() { curl -fs "$server/experiments/peaks-shuffle" | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])'; }
before=$(version)
[[ $before -ge 4 ]] || fail "the policy stayed at version $before"

# The page's own commands, with this project's name and folder. People who come after the backup are given up with it.
compose --profile load run --rm load peaks-shuffle --users 1000 --json >/dev/null || fail "the load before the backup failed"
.venv/bin/privateer backup "$folder/BK" --admin-url "$admin" >/dev/null || fail "no backup"
identity() { .venv/bin/privateer log key --url "$server" --json; }
known=$(identity)
compose --profile load run --rm load peaks-shuffle --users 2000 --json >/dev/null || fail "the load after the backup failed"
(
  docker-compose() { command docker-compose -p privateer-test "$@"; }
  privateer() { .venv/bin/privateer "$@"; }
  eval "$(sed -n '/^## Restore into a Docker volume/,/^## Restore on another/p' docs/operations/backup.md |
    awk '/```sh/ {inside = 1; next} /```/ {inside = 0} inside' | sed "s#\<BK\>#$folder/BK#; s#restored\(/\|$\)#$folder/restored\1#")"
) >"$folder/restore.log" 2>&1 || fail "the page's commands failed: $(tail -5 "$folder/restore.log")"
ready "$server" || fail "the server is not ready after the restore"
[[ $(identity) == "$known" ]] || fail "the restored server is another one"
restored=$(version)
[[ $restored -gt 1000000 ]] || fail "versions did not jump with the restore: $restored"
compose --profile load run --rm load peaks-shuffle --users 3000 --json >/dev/null || fail "the load failed after the restore"
[[ $(version) -gt $restored ]] || fail "nothing learned after the restore"
if compose exec -T server ls /data/before-restore >/dev/null 2>&1; then fail "the old database is still there"; fi
echo "compose: restored into the volume as the page says, version $restored, $(version) after more people"
before=$(version)

# From now on reports need tokens, but those of trusted senders, which the load driver is without --issuer.
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/secrets"
chmod 755 "$folder"
export PRIVATEER_UPLOAD_TOKENS=required PRIVATEER_EXPERIMENTS=$tokens PRIVATEER_ISSUER_NAME=issuer:8004
export PRIVATEER_ATTESTATION_VERIFIER=hmac PRIVATEER_ATTESTATION_SECRETS=$folder/secrets
compose kill -s SIGKILL server shuffler >/dev/null 2>&1
compose --profile tokens up -d server shuffler issuer >/dev/null 2>&1
ready "$server" && ready "$shuffler" && ready "$issuer" || fail "no restart after kill -9"
[[ $(version) -eq $before ]] || fail "the version changed with a restart"
compose --profile load run --rm load peaks-shuffle --users 3000 --json >/dev/null || fail "the load failed after a restart"
[[ $(version) -gt $before ]] || fail "nothing learned after a restart"
echo "compose: 9,000 people, version $before before kill -9 and $(version) after"

lacks issuer numpy scipy privateer_server privateer_shuffler privateer_client privateer_lab pip
if reach issuer "$elsewhere" 9000; then fail "the issuer reaches somebody"; fi
sed "s/^name = \"peaks-shuffle\"/name = \"$tokens\"/; s/^horizon.*/horizon = $people\nround_size = $people/" \
  examples/peaks-shuffle.toml | sed "/^min_round_fraction/d; /^model = /a min_batch = $people" |
  curl -fs -X POST "$admin/experiments" -H "Authorization: Bearer $PRIVATEER_ADMIN_TOKEN" \
    -H 'Content-Type: application/toml' --data-binary @- >/dev/null || fail "$tokens is not created"
without=$(curl -s -o /dev/null -D - -X POST "$shuffler/experiments/$tokens/reports" --data x | tr -d '\r')
grep -q '^HTTP/1.1 401' <<<"$without" && grep -qi '^www-authenticate: PrivateToken challenge=' <<<"$without" ||
  fail "an upload without a token is not asked for one"
compose --profile load run --rm -T -v "$folder/secrets:/run/secrets:ro" load $tokens --users $people \
  --issuer http://issuer:8004 --attestation-secrets /run/secrets --json >"$folder/load.json" || fail "the load with tokens failed"
for _ in $(seq 30); do
  curl -fs "$server/experiments/$tokens" >"$folder/facts.json"
  python3 - "$folder" $people <<'PY' && exit 0
import json, sys
load, facts = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("load", "facts"))
people = int(sys.argv[2])
assert (load["accepted"], load["refused"]) == (people, {}), load
is_counted = (facts["accepted"], facts["refused"], facts["version"]) == (people, {}, 2)
if is_counted:
    print(f"compose: {people} people with tokens are counted, and who has none is asked for one")
sys.exit(not is_counted)
PY
  sleep 1
done
fail "people with tokens are not counted: $(cat "$folder/facts.json")"
