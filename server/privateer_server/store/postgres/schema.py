"""The tables of both databases, made and brought to this version step by step.

Numbered steps in a table of their own do what two schemas of a few tables need; a library for migrations would bring an
object-relational mapper into the server's image, which nothing else uses.
"""

from dataclasses import dataclass
from typing import Any, Final

import psycopg

from privateer.errors import SpecError

_LOCK: Final = 0x50525653
"""The advisory lock under which one server at a time changes tables."""

_NOTE: Final = """
INSERT INTO privateer_schema VALUES (%s, %s) ON CONFLICT (kind) DO UPDATE SET version = excluded.version
"""


@dataclass(frozen=True)
class Kind:
    """What a database holds.

    Attributes
    ----------
    name
        It tells the two databases apart.
    steps
        Each makes the next version, and the first one version 1.
    """

    name: str
    steps: tuple[str, ...]


STORE: Final = Kind(
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
JOURNAL: Final = Kind(
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


def migrate(db: psycopg.Connection[tuple[Any, ...]], kind: Kind, field: str) -> None:
    """Bring a database to this version, in one transaction; one server at a time does that.

    Raises
    ------
    SpecError
        If it is the other database, or of a newer version; it is not changed then.
    """
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        db.execute("CREATE TABLE IF NOT EXISTS privateer_schema (kind text PRIMARY KEY, version integer NOT NULL)")
        found = db.execute("SELECT kind, version FROM privateer_schema").fetchone()
        name, version = found or (kind.name, 0)
        if name != kind.name:
            detail = f"the database is the {name}'s"
            raise SpecError(detail, field=field, remedy="name one database for the data, and another for the journal")
        if version > len(kind.steps):
            detail = f"the database has schema {version}, and this version of Privateer reads schema {len(kind.steps)}"
            raise SpecError(detail, field=field, remedy="run the version that made it, or a newer one")
        for step in kind.steps[version:]:
            db.execute(step)
        db.execute(_NOTE, (kind.name, len(kind.steps)))
