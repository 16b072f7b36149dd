"""Databases of the services: whether they are whole, of their kind, and of a version that this Privateer reads."""

import sqlite3
from pathlib import Path

from privateer_core.errors import SpecError
from privateer_core.serving.store.sqlite import FileKind, bring_up_to_date, check_kind
from privateer_lab.doctor.checks import Checkup
from privateer_lab.doctor.copies import Unsettled, copy_of
from privateer_lab.doctor.files import shown


def checked(found: Checkup, check: str, path: Path, kind: FileKind) -> sqlite3.Connection | None:
    """Return a copy of a database that may be read; None, and a finding that says why, if there is none."""
    name = shown(path)
    try:
        db = copy_of(path)
        if db is None:
            found.warn(check, f"{name} is empty", "nothing, if the service never started; else restore a backup")
            return None
        if _is_sound(found, check, path, kind, db):
            return db
        db.close()
    except FileNotFoundError:
        found.fail(check, f"{name} is missing", f"correct {kind.field}, or {kind.repair}")
    except OSError as error:
        found.fail(check, f"{name} cannot be read: {error.strerror}", "run the doctor as the user of the service")
    except sqlite3.Error:
        found.fail(check, f"{name} is damaged, or no database", kind.repair)
    except Unsettled:
        found.warn(check, f"{name} changes all the time", "run the doctor again when fewer people report")
    return None


def _is_sound(found: Checkup, check: str, path: Path, kind: FileKind, db: sqlite3.Connection) -> bool:
    try:
        check_kind(db, path, kind)
    except SpecError as error:
        found.fail(check, error.detail.replace(path.name, shown(path)), error.remedy or kind.repair)
        return False
    if (
        db.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",)
        or db.execute("PRAGMA foreign_key_check").fetchall()
    ):
        found.fail(check, f"{shown(path)} is damaged", kind.repair)
        return False
    _migrate(found, check, path, kind, db)
    return True


def _migrate(found: Checkup, check: str, path: Path, kind: FileKind, db: sqlite3.Connection) -> None:
    """Do with the copy what a start does with a database of an earlier version, and say so."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == kind.version:
        return
    db.execute("PRAGMA query_only=OFF")
    bring_up_to_date(db, kind)
    db.execute("PRAGMA query_only=ON")
    detail = (
        f"{shown(path)} is of an earlier Privateer: the next start brings it from schema {version} to {kind.version}"
    )
    found.warn(check, detail, "keep a backup, since the earlier one does not read it then; and start the service")
