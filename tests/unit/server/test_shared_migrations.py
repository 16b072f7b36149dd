"""PostgreSQL databases of the version before: a start brings them to this one, and what they held counts on."""

import logging
from dataclasses import replace

import pytest

from privateer_core.codec import encode
from privateer_core.serving.store.database import Schema
from privateer_core.serving.store.postgres import PostgresDatabase
from privateer_server.store.journal import Journal
from privateer_server.store.records import NO_PLAN, Behind, JournalEntry, RoundRecord, RoundUpdate
from privateer_server.store.schema import JOURNAL_SCHEMA, STORE_SCHEMA
from privateer_server.store.store import Store
from tests.support.postgres import Cluster

pytestmark = pytest.mark.postgres
STORE_1 = """
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
"""
JOURNAL_1 = """
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
"""
SEEN = [bytes([number]) * 16 for number in range(3)]
FIRST = RoundRecord(1, 10, 0, 0, False, b"digest-1", b"{}", b"publication-1", b"state-1", b"total-1")
SECOND = replace(FIRST, version=2, digest=b"digest-2", publication=b"publication-2")
ENTRY = JournalEntry("test", b"", 0, False, FIRST)


def earlier(cluster: Cluster, name: str, tables: str, rows: str) -> str:
    """The address of a database as the version before has left it."""
    url = cluster.make()
    version = f"CREATE TABLE privateer_schema (kind text PRIMARY KEY, version integer NOT NULL); {tables}; {rows};"
    for statement in f"{version} INSERT INTO privateer_schema VALUES ('{name}', 1)".split(";"):
        cluster.execute(statement, url)
    return url


def bytea(value: bytes) -> str:
    return f"'\\x{value.hex()}'"


def opened(url: str, schema: Schema) -> PostgresDatabase:
    return PostgresDatabase(url, schema, "PRIVATEER_DATABASE")


def test_a_store_keeps_its_open_rounds(postgres: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Sums and ids of a round named it by a number; one that closed before has none."""
    caplog.set_level(logging.INFO, "privateer.data")
    columns = "experiment, version, batch, seen, received, taken, digest, facts, publication, state, total, given_up"
    blobs = [bytea(value) for value in (b"digest-1", b"{}", b"publication-1", b"state-1", b"total-1")]
    ids = ", ".join(f"(1, {bytea(one)})" for one in SEEN)
    rows = f"""
    INSERT INTO experiments (name, spec, plan) VALUES ('test', 'spec', {bytea(encode(NO_PLAN))});
    INSERT INTO rounds ({columns}) VALUES ('test', 1, 10, 0, 3, false, {", ".join(blobs)}, false);
    INSERT INTO parts VALUES (1, 'one', 'sums of 3');
    INSERT INTO report_ids VALUES {ids};
    INSERT INTO leaves VALUES (1, 'test', 1, {blobs[0]});
    INSERT INTO spent_tokens VALUES ({bytea(bytes(range(16)))}, {bytea(bytes(range(16)))}, 60)
    """
    url = earlier(postgres, "store", STORE_1, rows)
    for _ in range(2):
        store = Store(opened(url, STORE_SCHEMA))
        assert store.experiments()[0].current == replace(FIRST, received=3)
        assert store.sums("test", 1) == [b"total-1", b"sums of 3"]
        assert store.spent(60, bytes(range(12))) == bytes(range(4))
        with store.locked(["test"]) as locked:
            assert locked.seen("test", [*SEEN, b"x" * 16]) == set(SEEN)
        store.close()
    (line,) = caplog.records
    assert line.__dict__["fields"] == {"database": "store", "from_schema": 1, "to_schema": 3}
    store = Store(opened(url, STORE_SCHEMA))
    store.commit([RoundUpdate("test", 1, 7, part=b"one", total=b"sums of 10", report_ids=[b"x" * 16])])
    with pytest.raises(Behind):
        store.commit([RoundUpdate("test", 1, 1)])
    store.commit([RoundUpdate("test", 1, taken=True, following=SECOND)])
    assert [(one.version, one.received, one.taken) for one in store.rounds("test")] == [(1, 10, True), (2, 0, False)]
    assert len(store.leaves(0)) == 2
    store.close()


def test_a_journal_keeps_what_it_knows_and_what_it_does_not(
    postgres: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A publication of a journal that may have gone back had no digest there, and has none from now on."""
    caplog.set_level(logging.INFO, "privateer.data")
    doubted = replace(ENTRY, experiment="doubted")
    rows = f"""
    INSERT INTO publications VALUES ('test', 'digest-1', {bytea(encode(ENTRY))});
    INSERT INTO publications VALUES ('doubted', '', {bytea(encode(doubted))});
    INSERT INTO log VALUES (1, 'origin')
    """
    url = earlier(postgres, "journal", JOURNAL_1, rows)
    journal = Journal(opened(url, JOURNAL_SCHEMA))
    assert [line.__dict__["fields"]["to_schema"] for line in caplog.records] == [2]
    assert (journal.last("test"), journal.last("doubted")) == (ENTRY, doubted.without_digests)
    assert journal.origin() == "origin"
    following = replace(doubted, following=SECOND)
    assert journal.write(following, doubted) == doubted.without_digests
    assert journal.write(following, journal.last("doubted")) == following
    journal.close()
