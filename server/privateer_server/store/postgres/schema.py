"""The tables of both databases, made and brought to this version step by step."""

from typing import Final

from privateer_core.serving.store.postgres import Schema

STORE: Final = Schema(
    "store",
    (
        """
        CREATE TABLE experiments (
            name text PRIMARY KEY, spec bytea NOT NULL, shuffler text NOT NULL DEFAULT '', plan bytea NOT NULL,
            released_at double precision NOT NULL DEFAULT 0
        );
        CREATE TABLE rounds (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            experiment text NOT NULL REFERENCES experiments (name),
            version bigint NOT NULL,
            batch bigint NOT NULL,
            seen bigint NOT NULL,
            received bigint NOT NULL,
            taken boolean NOT NULL,
            digest bytea NOT NULL,
            facts bytea NOT NULL,
            publication bytea NOT NULL,
            state bytea NOT NULL,
            total bytea NOT NULL,
            given_up boolean NOT NULL,
            UNIQUE (experiment, version)
        );
        CREATE TABLE parts (
            round bigint NOT NULL, part bytea NOT NULL, total bytea NOT NULL, PRIMARY KEY (round, part)
        );
        CREATE TABLE report_ids (round bigint NOT NULL, id bytea NOT NULL, PRIMARY KEY (round, id));
        CREATE TABLE answers (
            experiment text NOT NULL, version bigint NOT NULL, digest bytea NOT NULL, answer bytea NOT NULL,
            PRIMARY KEY (experiment, version, digest)
        );
        CREATE TABLE refusals (
            experiment text NOT NULL, reason text NOT NULL, count bigint NOT NULL, PRIMARY KEY (experiment, reason)
        );
        CREATE TABLE log (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            experiment text NOT NULL,
            at double precision NOT NULL,
            action text NOT NULL,
            detail text NOT NULL,
            who text NOT NULL,
            version bigint NOT NULL,
            since bigint
        );
        CREATE INDEX log_of_experiment ON log (experiment);
        CREATE TABLE deleted (experiment text PRIMARY KEY);
        CREATE TABLE leaves (
            position bigint PRIMARY KEY, experiment text NOT NULL, version bigint NOT NULL, digest bytea NOT NULL,
            UNIQUE (experiment, version)
        );
        CREATE TABLE closers (
            experiment text NOT NULL, version bigint NOT NULL, shuffler text NOT NULL, organisation text NOT NULL,
            PRIMARY KEY (experiment, version)
        );
        CREATE TABLE leases (
            experiment text PRIMARY KEY, holder bytea NOT NULL, expires timestamptz NOT NULL, attempts integer NOT NULL
        );
        CREATE TABLE spent_tokens (token bytea PRIMARY KEY, report bytea NOT NULL, expires bigint NOT NULL);
        CREATE TABLE probe (id integer PRIMARY KEY, checks bigint NOT NULL)
        """,
    ),
)
JOURNAL: Final = Schema(
    "journal",
    (
        """
        CREATE TABLE origin (id integer PRIMARY KEY, identity text NOT NULL);
        CREATE TABLE publications (experiment text PRIMARY KEY, digest bytea NOT NULL, entry bytea NOT NULL);
        CREATE TABLE deleted (experiment text PRIMARY KEY, line bytea NOT NULL);
        CREATE TABLE keys (
            public_key bytea PRIMARY KEY, wrapped bytea NOT NULL, made timestamptz NOT NULL DEFAULT clock_timestamp()
        );
        CREATE TABLE signer (id integer PRIMARY KEY, public_key bytea NOT NULL);
        CREATE TABLE log (id integer PRIMARY KEY, origin text NOT NULL);
        CREATE TABLE leaves (position bigint PRIMARY KEY, leaf bytea NOT NULL);
        CREATE TABLE seal (id integer PRIMARY KEY, sealed bytea NOT NULL)
        """,
    ),
)
