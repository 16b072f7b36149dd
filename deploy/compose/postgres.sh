#!/bin/sh
# What the official image does at its start, as far as docker-compose.scale.yml needs it.
set -eu
PATH=/usr/lib/postgresql/15/bin:$PATH
data=/var/lib/postgresql/data
if [ ! -s $data/PG_VERSION ]; then
  chown postgres $data && chmod 700 $data
  echo "$POSTGRES_PASSWORD" >/tmp/password
  chmod 644 /tmp/password
  runuser -u postgres -- initdb -D $data -U "$POSTGRES_USER" -E UTF8 -A scram-sha-256 --pwfile /tmp/password >/dev/null
  rm /tmp/password
  echo "host all all all scram-sha-256" >>$data/pg_hba.conf
  echo "CREATE DATABASE $POSTGRES_DB;" | runuser -u postgres -- postgres --single -D $data postgres >/dev/null
fi
exec runuser -u postgres -- postgres -D $data -c listen_addresses='*' -c unix_socket_directories=/tmp
