"""Stores of servers, opened as a server opens them."""

import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

from privateer_core.serving.store.database import SqliteDatabase
from privateer_core.serving.store.sqlite import open_database
from privateer_server.store.journal import Journal
from privateer_server.store.schema import JOURNAL_KIND, JOURNAL_SCHEMA, STORE_FILE, STORE_KIND, STORE_SCHEMA
from privateer_server.store.store import Store


def embedded_store(folder: Path) -> Store:
    return Store(SqliteDatabase(open_database(folder / STORE_FILE, STORE_KIND)))


def embedded_journal(path: Path) -> Journal:
    return Journal(SqliteDatabase(open_database(path, JOURNAL_KIND)))


def shared_store(url: str) -> Store:
    from privateer_core.serving.store.postgres import PostgresDatabase

    return Store(PostgresDatabase(url, STORE_SCHEMA, "PRIVATEER_DATABASE"))


def shared_journal(url: str) -> Journal:
    from privateer_core.serving.store.postgres import PostgresDatabase

    return Journal(PostgresDatabase(url, JOURNAL_SCHEMA, "PRIVATEER_JOURNAL_DATABASE"))


def driver(store: Store) -> AbstractContextManager[sqlite3.Connection]:
    """The driver's connection of an embedded store."""
    database = store._database
    assert isinstance(database, SqliteDatabase)
    return database.driver()
