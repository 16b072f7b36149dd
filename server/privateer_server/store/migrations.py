"""Databases of earlier versions become databases of this one: numbered steps, all of them in one transaction."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from privateer_core.serving.database import Kind


def migrate(path: Path, kind: Kind, steps: Mapping[int, str]) -> None:
    """Bring a file to the version of its kind, if it is of an earlier one from which there are steps.

    What cannot be migrated stays as it is, and whoever opens it next says why it does not open.

    Parameters
    ----------
    steps
        Statements, separated by semicolons, that make the next version of the version that they are at.
    """
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        with closing(sqlite3.connect(path, timeout=1, isolation_level=None)) as db:
            if db.execute("PRAGMA application_id").fetchone() == (kind.application,):
                db.execute("BEGIN EXCLUSIVE")
                _step(db, kind, steps)
                db.execute("COMMIT")
    except sqlite3.Error:
        return


def _step(db: sqlite3.Connection, kind: Kind, steps: Mapping[int, str]) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    while version < kind.version and version in steps:
        for statement in steps[version].split(";"):
            db.execute(statement)
        version += 1
        db.execute(f"PRAGMA user_version = {version}")
