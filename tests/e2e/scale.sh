#!/usr/bin/env bash
# Three servers and two shufflers behind a balancer, on PostgreSQL, for real: replicas are killed under load, and every report
# that was acknowledged counts, once.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PRIVATEER_ADMIN_TOKEN=token-of-the-scale-test PRIVATEER_SERVER_DB_PASSWORD=one-of-the-scale-test
export PRIVATEER_JOURNAL_DB_PASSWORD=two-of-the-scale-test PRIVATEER_SHUFFLER_DB_PASSWORD=three-of-the-scale-test
export PRIVATEER_SERVER_PORT=${PRIVATEER_SERVER_PORT:-18010} PRIVATEER_SHUFFLER_PORT=${PRIVATEER_SHUFFLER_PORT:-18011}
export PRIVATEER_ADMIN_PORT=${PRIVATEER_ADMIN_PORT:-18012}
kills=${1:-12} people=${2:-8000} round=500 name=peaks-shuffle project=privateer-scale-test
compose() { docker-compose -p $project -f docker-compose.scale.yml --profile scale "$@"; }
fail() { echo "scale: $*" >&2; compose logs --tail 20 >&2 || true; exit 1; }
folder=$(mktemp -d)
trap 'compose --profile load down --volumes --timeout 2 >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
server=http://127.0.0.1:$PRIVATEER_SERVER_PORT shuffler=http://127.0.0.1:$PRIVATEER_SHUFFLER_PORT
admin=http://127.0.0.1:$PRIVATEER_ADMIN_PORT

# The official images where there is a registry; where there is none, the same programs from Debian's packages.
if ! compose pull --quiet server-db balancer >/dev/null 2>&1; then
  docker build -q -t privateer-scale-base -f deploy/compose/postgres.Dockerfile deploy/compose >/dev/null
  export PRIVATEER_POSTGRES_IMAGE=privateer-scale-base PRIVATEER_BALANCER_IMAGE=privateer-scale-base
  echo "scale: no registry of images is reachable; PostgreSQL and nginx are Debian's"
fi
compose --profile load build --quiet >/dev/null
compose up -d --force-recreate --scale server=3 --scale shuffler=2 >/dev/null 2>&1 || fail "it does not start"
ready() { for _ in $(seq 180); do curl -fs "$1/readyz" >/dev/null && return 0; sleep 1; done; return 1; }
ready "$server" || fail "the servers are not ready"
ready "$shuffler" || fail "the shufflers are not ready"
replicas() { docker ps -aq --filter "label=com.docker.compose.project=$project" --filter "label=com.docker.compose.service=$1" --filter status=running; }
[[ $(replicas server | wc -l) -eq 3 && $(replicas shuffler | wc -l) -eq 2 ]] || fail "not as many replicas as asked for"
echo "scale: three servers and two shufflers are ready"

if compose exec -T server python -c "import socket; socket.create_connection(('shuffler-db', 5432), 3)" >/dev/null 2>&1; then
  fail "the servers reach what the shufflers hold"
fi
compose exec -T server python -c "import socket; socket.create_connection(('server-db', 5432), 3)" || fail "the check of isolation checks nothing"

# Each database has a password of its own, an unprivileged user, no capability and a system that cannot be written.
opens() { compose exec -T -e PGPASSWORD="$2" "$1" psql -h 127.0.0.1 -U privateer -tAc 'SELECT 1' privateer >/dev/null 2>&1; }
opens server-db "$PRIVATEER_SERVER_DB_PASSWORD" || fail "the check of passwords checks nothing"
for database in journal-db shuffler-db; do
  if opens $database "$PRIVATEER_SERVER_DB_PASSWORD"; then fail "$database opens with another's password"; fi
done
for database in server-db journal-db shuffler-db; do
  compose exec -T $database sh -c 'test "$(id -u)" != 0 && ! touch /usr/x 2>/dev/null && grep -q "^CapEff:[[:space:]]*0*$" /proc/1/status' ||
    fail "$database has more rights than it needs"
done
for id in $(docker ps -q --filter "label=com.docker.compose.project=$project"); do
  [[ $(docker inspect -f '{{.HostConfig.Memory}} {{.HostConfig.PidsLimit}}' "$id") =~ ^[1-9][0-9]*\ [1-9][0-9]*$ ]] ||
    fail "$(docker inspect -f '{{.Name}}' "$id") has no limits"
done
echo "scale: databases are hardened, with passwords of their own; every service has limits"

sed "/^round_size/d; s/^min_round_fraction.*/min_round_fraction = 0.0/; s/^horizon.*/horizon = 40000\nround_size = $round/" \
  examples/peaks-shuffle.toml | sed "/^model = /a min_batch = $round" >"$folder/spec.toml"
curl -fs --retry 10 -X POST "$admin/experiments" -H "Authorization: Bearer $PRIVATEER_ADMIN_TOKEN" \
  -H 'Content-Type: application/toml' --data-binary @"$folder/spec.toml" >/dev/null || fail "not created"

compose --profile load run --rm -T load $name --users $people --batch 5 --json >"$folder/load.json" 2>"$folder/load.log" &
load=$!
killed=0
while kill -0 $load 2>/dev/null; do
  sleep 1
  if ((killed < kills)); then
    victim=$(replicas "$([[ $((killed % 2)) -eq 0 ]] && echo shuffler || echo server)" | shuf -n 1)
    docker kill -s KILL "$victim" >/dev/null
    sleep 1
    docker start "$victim" >/dev/null
    killed=$((killed + 1))
  fi
done
wait $load || { cat "$folder/load.log" >&2; fail "the load failed"; }
[[ $killed -gt 2 ]] || fail "the load was over before anything was killed"

# What the last batch misses is still held: the shufflers' database says how many.
held() { compose exec -T -e PGPASSWORD="$PRIVATEER_SHUFFLER_DB_PASSWORD" shuffler-db psql -h 127.0.0.1 -U privateer -tAc 'SELECT coalesce(sum(held), 0) FROM rounds' privateer; }
for _ in $(seq 30); do
  curl -fs "$server/experiments/$name" >"$folder/facts.json" || true
  held | tr -d '\r' >"$folder/held.json"
  if python3 - "$folder" $people $round $killed <<'PY'; then exit 0; fi
import json, sys
folder, people, size, killed = sys.argv[1], *map(int, sys.argv[2:])
load, facts, held = (json.load(open(f"{folder}/{name}.json")) for name in ("load", "facts", "held"))
acknowledged, late = load["accepted"], load["refused"].get("round-closed", 0)
assert load["took_part"] == people == acknowledged + sum(load["refused"].values()), load
taken = facts["accepted"] + held
# Whose answer was lost, and who asks again when the round is over, hears that it is over, though the report counts.
ok = acknowledged <= taken <= acknowledged + late and facts["accepted"] == size * (facts["version"] - 1) and held < size
if ok:
    print(f"scale: {killed} kills, {people} people: {acknowledged} acknowledged and {late} too late or unsure; "
          f"{facts['accepted']} counted in {facts['version'] - 1} rounds, and {held} held for the next; "
          f"services asked {load['waits']} times to come again later, {load['waited']:.0f} s in all")
sys.exit(not ok)
PY
  sleep 1
done
cat "$folder"/*.json >&2
fail "reports are lost or counted twice"
