#!/bin/sh
# What the official image does at its start, as far as docker-compose.scale.yml needs it: as the user postgres, on a read-only system.
set -eu
PATH=/usr/lib/postgresql/15/bin:$PATH
data=/var/lib/postgresql/data
if [ ! -s $data/PG_VERSION ]; then
  (umask 077 && echo "$POSTGRES_PASSWORD" >/tmp/password)
  initdb -D $data -U "$POSTGRES_USER" -E UTF8 -A scram-sha-256 --pwfile /tmp/password >/dev/null
  rm /tmp/password
  echo "host all all all scram-sha-256" >>$data/pg_hba.conf
  echo "CREATE DATABASE $POSTGRES_DB;" | postgres --single -D $data postgres >/dev/null
fi
exec postgres -D $data -c listen_addresses='*' -c unix_socket_directories=/tmp
