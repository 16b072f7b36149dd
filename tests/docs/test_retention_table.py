"""The page on what is kept says of every table and file of a service how long it is kept."""

import re
from pathlib import Path

import pytest
from sqlalchemy import Table
from sqlalchemy.dialects import sqlite

from privateer_core.serving.store import copies
from privateer_core.serving.store.database import create_sql
from privateer_issuer.store import DATABASE as ISSUER
from privateer_issuer.store import FILE as ISSUER_FILE
from privateer_server.data import IDENTITY_FILE, KEYS_FOLDER
from privateer_server.store.backup import _TABLES
from privateer_server.store.schema import JOURNAL_FILE, JOURNAL_SCHEMA, STORE_FILE, STORE_SCHEMA
from privateer_server.store.schema import JOURNAL_KIND as JOURNAL
from privateer_server.store.schema import STORE_KIND as STORE
from privateer_shuffler.pool import round_file, spent_tokens, store
from privateer_shuffler.resources import KEY_FILE, PIN_FILE

PAGE = (Path(__file__).parents[2] / "docs" / "operations" / "retention.md").read_text()


def created(schema: str | tuple[Table, ...]) -> str:
    """The statements that make tables."""
    return schema if isinstance(schema, str) else "".join(create_sql(schema, sqlite.dialect()))


SCHEMAS = {
    "server": created(STORE.schema) + created(STORE_SCHEMA.tables),
    "journal": created(JOURNAL.schema) + created(JOURNAL_SCHEMA.tables),
    "shuffler": created(round_file.ROUND_DATABASE.schema)
    + round_file._TOKENS
    + created(store.HISTORY_DATABASE.schema)
    + created(spent_tokens.TOKENS_DATABASE.schema),
    "issuer": created(ISSUER.schema),
}
FILES = [f"{KEYS_FOLDER}/", IDENTITY_FILE, f"{STORE_FILE}-wal", f"{JOURNAL_FILE}-wal", KEY_FILE, PIN_FILE]
FILES += [f"{store.HISTORY_FILE}-wal", f"{spent_tokens.TOKENS_FILE}-wal", f"{copies._PREFIX}*"]
FILES += [store.HISTORY_FILE, spent_tokens.TOKENS_FILE, ISSUER_FILE, f"*{round_file.SUFFIX}"]


def rows() -> list[list[str]]:
    """The table's rows."""
    lines = [line for line in PAGE.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def names_in_column(cell: int = 0) -> set[str]:
    """What stands in backticks in the first column."""
    return {name for row in rows() for name in re.findall(r"`([^`]+)`", row[cell])}


@pytest.mark.parametrize("service", list(SCHEMAS))
def test_every_table_is_there(service: str) -> None:
    tables = set(re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", SCHEMAS[service]))
    assert tables
    assert tables - names_in_column() == set()


def test_every_file_is_there() -> None:
    assert set(FILES) - names_in_column() == set()


def test_the_page_names_no_table_that_no_service_has() -> None:
    """The check fails on a planted table, and on a renamed one."""
    tables = {name for text in SCHEMAS.values() for name in re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", text)}
    assert names_in_column() - tables - set(FILES) == {"PRIVATEER_ADMIN_TOKENS"}


def test_every_row_says_until_when() -> None:
    assert all(len(row) == 3 and all(row[1:]) for row in rows())
    assert len(rows()) > 25


def test_a_backup_has_what_the_page_says() -> None:
    tables = set(re.findall(r"CREATE TABLE (\w+)", created(STORE.schema)))
    assert tables - set(_TABLES) == {"parts", "report_ids", "probe", "backup"}
