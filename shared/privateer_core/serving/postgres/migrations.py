"""The tables of a database, made and brought to this version step by step.

Numbered steps in a table of their own do what schemas of a few tables need; a library for migrations would bring an
object-relational mapper into the services' images, which nothing else uses.
"""

import logging
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from privateer_core.errors import SpecError
from privateer_core.serving.logs import tell

_LOCK: Final = 0x50525653
"""The advisory lock under which one process at a time changes tables."""

_log = logging.getLogger("privateer.data")
_NOTE: Final = """
INSERT INTO privateer_schema VALUES (%s, %s) ON CONFLICT (kind) DO UPDATE SET version = excluded.version
"""


@dataclass(frozen=True)
class Kind:
    """What a database holds.

    Attributes
    ----------
    name
        It tells the databases apart.
    steps
        Each makes the next version, and the first one version 1.
    """

    name: str
    steps: tuple[str, ...]


def migrate(db: psycopg.Connection[tuple[Any, ...]], kind: Kind, field: str) -> None:
    """Bring a database to this version, in one transaction, and tell the log; one process at a time does that.

    Raises
    ------
    SpecError
        If it is another database, or of a newer version; it is not changed then.
    """
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        db.execute("CREATE TABLE IF NOT EXISTS privateer_schema (kind text PRIMARY KEY, version integer NOT NULL)")
        found = db.execute("SELECT kind, version FROM privateer_schema").fetchone()
        name, version = found or (kind.name, 0)
        if name != kind.name:
            detail = f"the database is the {name}'s"
            raise SpecError(detail, field=field, remedy="name a database for each purpose, and no other there")
        if version > len(kind.steps):
            detail = (
                f"the database was made by a newer Privateer: schema {version}, and this one reads {len(kind.steps)}"
            )
            raise SpecError(detail, field=field, remedy="install the newer version again")
        for step in kind.steps[version:]:
            db.execute(step)
        db.execute(_NOTE, (kind.name, len(kind.steps)))
    if 0 < version < len(kind.steps):
        tell(_log, "migrated", database=kind.name, from_schema=version, to_schema=len(kind.steps))
