"""The tables of the embedded store, and what makes them of those of earlier versions."""

from typing import Final

from privateer_core.serving.store.sqlite import FileKind

DATABASE: Final = FileKind(
    application=0x50525653,
    version=5,
    schema="""
    CREATE TABLE experiments (
        name TEXT PRIMARY KEY, spec BLOB NOT NULL, shuffler TEXT NOT NULL, plan BLOB NOT NULL,
        released_at REAL NOT NULL DEFAULT 0
    ) WITHOUT ROWID;
    CREATE TABLE rounds (
        experiment TEXT NOT NULL REFERENCES experiments (name),
        version INTEGER NOT NULL,
        batch INTEGER NOT NULL,
        seen INTEGER NOT NULL,
        received INTEGER NOT NULL,
        taken INTEGER NOT NULL,
        digest BLOB NOT NULL,
        facts BLOB NOT NULL,
        publication BLOB NOT NULL,
        state BLOB NOT NULL,
        total BLOB NOT NULL,
        given_up INTEGER NOT NULL DEFAULT 0,
        UNIQUE (experiment, version)
    );
    CREATE TABLE parts (
        experiment TEXT NOT NULL,
        version INTEGER NOT NULL,
        part BLOB NOT NULL,
        total BLOB NOT NULL,
        PRIMARY KEY (experiment, version, part)
    );
    CREATE TABLE report_ids (experiment TEXT NOT NULL, version INTEGER NOT NULL, ids BLOB NOT NULL);
    CREATE INDEX report_ids_of_round ON report_ids (experiment, version);
    CREATE TABLE answers (
        experiment TEXT NOT NULL,
        version INTEGER NOT NULL,
        digest BLOB NOT NULL,
        answer BLOB NOT NULL,
        PRIMARY KEY (experiment, version, digest)
    ) WITHOUT ROWID;
    CREATE TABLE refusals (
        experiment TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (experiment, reason)
    ) WITHOUT ROWID;
    CREATE TABLE log (
        id INTEGER PRIMARY KEY,
        experiment TEXT NOT NULL,
        at REAL NOT NULL,
        action TEXT NOT NULL,
        detail TEXT NOT NULL,
        who TEXT NOT NULL,
        version INTEGER NOT NULL,
        since INTEGER
    );
    CREATE INDEX log_of_experiment ON log (experiment);
    CREATE TABLE deleted (experiment TEXT PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE leaves (
        position INTEGER PRIMARY KEY,
        experiment TEXT NOT NULL,
        version INTEGER NOT NULL,
        digest BLOB NOT NULL,
        UNIQUE (experiment, version)
    );
    CREATE TABLE closers (
        experiment TEXT NOT NULL,
        version INTEGER NOT NULL,
        shuffler TEXT NOT NULL,
        organisation TEXT NOT NULL,
        PRIMARY KEY (experiment, version)
    ) WITHOUT ROWID;
    CREATE TABLE spent_tokens (token BLOB PRIMARY KEY, report BLOB NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE probe (id INTEGER PRIMARY KEY, checks INTEGER NOT NULL)
    """,
    field="PRIVATEER_DATA",
    steps={
        # From 3 on, all that was published is in the log, in the order of time; from 4 on, the sums that a round had
        # are its first part.
        3: """
        CREATE TABLE leaves (
            position INTEGER PRIMARY KEY,
            experiment TEXT NOT NULL,
            version INTEGER NOT NULL,
            digest BLOB NOT NULL,
            UNIQUE (experiment, version)
        );
        CREATE TABLE closers (
            experiment TEXT NOT NULL,
            version INTEGER NOT NULL,
            shuffler TEXT NOT NULL,
            organisation TEXT NOT NULL,
            PRIMARY KEY (experiment, version)
        ) WITHOUT ROWID;
        INSERT INTO leaves (experiment, version, digest) SELECT experiment, version, digest FROM rounds ORDER BY rowid
        """,
        4: """
        ALTER TABLE experiments ADD COLUMN released_at REAL NOT NULL DEFAULT 0;
        ALTER TABLE rounds ADD COLUMN given_up INTEGER NOT NULL DEFAULT 0;
        CREATE TABLE parts (
            experiment TEXT NOT NULL,
            version INTEGER NOT NULL,
            part BLOB NOT NULL,
            total BLOB NOT NULL,
            PRIMARY KEY (experiment, version, part)
        );
        CREATE TABLE spent_tokens (token BLOB PRIMARY KEY, report BLOB NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID
        """,
    },
)
