#!/usr/bin/env bash
# Builds and runs the composed services for real: health, isolation, an experiment, people, a restart by kill -9.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PRIVATEER_ADMIN_TOKEN=token-of-the-compose-test PRIVATEER_SERVER_PORT=${PRIVATEER_SERVER_PORT:-18000}
export PRIVATEER_SHUFFLER_PORT=${PRIVATEER_SHUFFLER_PORT:-18001}
export PRIVATEER_ADMIN_PORT=${PRIVATEER_ADMIN_PORT:-18002} PRIVATEER_SHUFFLER_ADMIN_PORT=${PRIVATEER_SHUFFLER_ADMIN_PORT:-18003}
compose() { docker-compose -p privateer-test "$@"; }
fail() { echo "compose: $*" >&2; compose logs --tail 20 >&2 || true; exit 1; }
trap 'compose down --volumes --timeout 5 >/dev/null 2>&1 || true' EXIT
server=http://127.0.0.1:$PRIVATEER_SERVER_PORT
admin=http://127.0.0.1:$PRIVATEER_ADMIN_PORT
shuffler=http://127.0.0.1:$PRIVATEER_SHUFFLER_PORT

compose --profile load build --quiet >/dev/null
compose up -d --force-recreate server shuffler >/dev/null 2>&1
ready() { for _ in $(seq 60); do curl -fs "$1/readyz" >/dev/null && return 0; sleep 1; done; return 1; }
ready "$server" || fail "the server is not ready"
ready "$shuffler" || fail "the shuffler is not ready"
echo "compose: both services are ready"

lacks() {  # lacks SERVICE MODULE...: the image cannot import the modules
  local service=$1; shift
  compose exec -T "$service" python - "$@" <<'PY' || fail "$service holds what it must not"
import importlib.util, sys
sys.exit(any(importlib.util.find_spec(name) for name in sys.argv[1:]))
PY
}
lacks shuffler numpy scipy pydantic privateer_server privateer_client privateer_lab pip
lacks server privateer_shuffler privateer_client privateer_lab pip_tools
compose --profile load run --rm -T --entrypoint python load -c \
  'import importlib.util, sys; sys.exit(any(map(importlib.util.find_spec, sys.argv[1:])))' \
  privateer_server privateer_shuffler joblib matplotlib pyarrow typer || fail "load holds what it must not"
for service in server shuffler; do
  [[ $(compose exec -T $service id -u | tr -d '\r') == 10001 ]] || fail "$service runs as root"
  if compose exec -T $service sh -c 'echo x >/opt/privateer/x' 2>/dev/null; then fail "$service can write its image"; fi
done
echo "compose: images hold their role alone, unprivileged, read-only"

docker run -d --rm --name privateer-test-elsewhere --network privateer-test_front --read-only python:3.12-slim \
  python3 -m http.server 9000 >/dev/null
trap 'docker rm -f privateer-test-elsewhere >/dev/null 2>&1; compose down --volumes --timeout 5 >/dev/null 2>&1 || true' EXIT
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
compose --profile load run --rm load peaks-shuffle --users 6000 --json >/dev/null || fail "the load failed"
version() { curl -fs "$server/experiments/peaks-shuffle" | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])'; }
before=$(version)
[[ $before -ge 4 ]] || fail "the policy stayed at version $before"

compose kill -s SIGKILL server shuffler >/dev/null 2>&1
compose up -d server shuffler >/dev/null 2>&1
ready "$server" && ready "$shuffler" || fail "no restart after kill -9"
[[ $(version) -eq $before ]] || fail "the version changed with a restart"
compose --profile load run --rm load peaks-shuffle --users 3000 --json >/dev/null || fail "the load failed after a restart"
[[ $(version) -gt $before ]] || fail "nothing learned after a restart"
echo "compose: 9,000 people, version $before before kill -9 and $(version) after"
