"""A service's databases, which the doctor reads as they are: files in copies, PostgreSQL without writing."""

import sqlite3
from pathlib import Path
from typing import Final

import msgspec

from privateer_core.errors import PrivateerError, SpecError
from privateer_core.serving.store.copies import Unsettled, checked_copy
from privateer_core.serving.store.database import Database, Schema
from privateer_core.serving.store.sqlite import FileKind, SqliteDatabase
from privateer_lab.doctor.checkup import Checkup
from privateer_lab.doctor.files import MIB, shown

RESTORE: Final = "restore a backup into an empty folder"
UNREADABLE: Final = (PrivateerError, sqlite3.Error, OSError, msgspec.DecodeError, TypeError, ValueError)
"""What stores raise whose rows are not what they should be."""


def copied(found: Checkup, check: str, path: Path, kind: FileKind) -> SqliteDatabase | None:
    """Return a copy of a file that may be read; None, and a finding that says why, if there is none."""
    name = shown(path)
    try:
        copy = checked_copy(path, kind)
    except Unsettled:
        found.warn(check, f"{name} changes all the time", "run the doctor again when fewer people report")
        return None
    except SpecError as error:
        found.fail(check, error.detail.replace(path.name, name), error.remedy or kind.repair)
        return None
    if copy is None:
        found.warn(check, f"{name} is empty", "nothing, if the service never started; else restore a backup")
        return None
    _check_version(found, check, name, copy.version, kind.version)
    return copy.database


def connected(found: Checkup, check: str, url: str, schema: Schema, setting: str) -> Database | None:
    """Return a PostgreSQL database that may be read; None, and a finding that says why, if there is none."""
    from privateer_core.serving.store.postgres import PostgresDatabase

    try:
        database = PostgresDatabase(url, schema, setting, is_read_only=True)
    except SpecError as error:
        found.fail(check, f"{setting}: {error.detail}", error.remedy or "correct it")
        return None
    try:
        facts = database.examine()
    except OSError as error:
        database.close()
        found.fail(check, f"{setting}: {error}", "check that it runs, its address and its owner")
        return None
    if not facts.is_whole:
        found.fail(check, f"PostgreSQL has met pages with wrong checksums in the {schema.name}'s database", RESTORE)
    if not facts.version:
        remedy = f"nothing, if the service never started; else correct {setting}"
        found.warn(check, f"the {schema.name}'s database is empty", remedy)
    elif facts.version < schema.version:
        _check_version(found, check, f"the {schema.name}'s database", facts.version, schema.version)
    else:
        size = -(-facts.size // MIB)
        found.ok(check, f"the {schema.name}'s database answers, schema {facts.version}, {size:,} MiB")
        return database
    database.close()
    return None


def _check_version(found: Checkup, check: str, name: str, version: int, present: int) -> None:
    """Say what a start migrates."""
    if version < present:
        detail = f"{name} is of an earlier Privateer: the next start brings it from schema {version} to {present}"
        found.warn(check, detail, "keep a backup, since the earlier one does not read it then; and start the service")
