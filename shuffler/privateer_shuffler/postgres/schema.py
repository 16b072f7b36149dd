"""The tables of a database that shufflers share, made and brought to this version step by step."""

from typing import Final

from privateer_core.serving.store.database import Schema

SHUFFLER: Final = Schema(
    "shuffler",
    1,
    (),
    {
        0: """
        CREATE TABLE taken (
            experiment text PRIMARY KEY, version bigint NOT NULL, digest bytea NOT NULL, over boolean NOT NULL
        );
        CREATE TABLE rounds (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            digest bytea NOT NULL UNIQUE,
            label bytea NOT NULL,
            secret bytea NOT NULL,
            batch bigint NOT NULL DEFAULT 0,
            held bigint NOT NULL DEFAULT 0,
            ended_at double precision NOT NULL DEFAULT 0
        ) WITH (fillfactor = 50);
        CREATE TABLE pieces (round bigint NOT NULL, piece bytea NOT NULL);
        CREATE INDEX pieces_of_round ON pieces (round);
        ALTER TABLE pieces ALTER piece SET STORAGE EXTERNAL;
        CREATE TABLE fingerprints (fingerprint bytea PRIMARY KEY, round bigint NOT NULL);
        CREATE INDEX fingerprints_of_round ON fingerprints (round);
        CREATE TABLE leases (
            experiment text PRIMARY KEY, holder bytea NOT NULL, expires timestamptz NOT NULL, attempts integer NOT NULL
        );
        CREATE TABLE spent (token bytea PRIMARY KEY, expires bigint NOT NULL);
        CREATE INDEX spent_by_end ON spent (expires);
        CREATE TABLE server (id integer PRIMARY KEY, public_key bytea NOT NULL);
        CREATE TABLE signer (id integer PRIMARY KEY, public_key bytea NOT NULL);
        CREATE TABLE seal (id integer PRIMARY KEY, sealed bytea NOT NULL)
        """,
    },
)
