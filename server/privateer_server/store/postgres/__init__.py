"""The data of servers that share them: two PostgreSQL databases, of which one is never copied nor put back."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from privateer_server.settings import Settings
from privateer_server.store.postgres import schema
from privateer_server.store.postgres.bell import PostgresBell
from privateer_server.store.postgres.journal import PostgresJournal
from privateer_server.store.postgres.keys import PostgresKeys, read_store_key
from privateer_server.store.postgres.pool import Pool
from privateer_server.store.postgres.store import PostgresStore

Databases = tuple[PostgresStore, PostgresJournal, PostgresKeys, Mapping[str, Path], PostgresBell]


def open_databases(settings: Settings) -> Databases:
    """Connect to both databases, and bring them to this version.

    Raises
    ------
    SpecError
        If a database cannot be used or is of a newer version, or the key file is missing or another one.
    """
    store_key = read_store_key(settings.store_key_file)
    with ExitStack() as stack:
        shared = Pool(settings.database, schema.STORE, "PRIVATEER_DATABASE")
        stack.callback(shared.close)
        unshared = Pool(settings.journal_database, schema.JOURNAL, "PRIVATEER_JOURNAL_DATABASE")
        stack.callback(unshared.close)
        journal, keys = PostgresJournal(unshared), PostgresKeys(unshared, store_key)
        stack.pop_all()
    return PostgresStore(shared), journal, keys, {}, PostgresBell(settings.database)
